package graph

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/memplan/memplan/internal/graph/layers"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trainer"
)

// labels is the input that Trainer counts, and that a label smoother takes.
const labels = "labels"

// trainerOptimizer gives train the optimizer that a trainer's arguments name.
func (el *building) trainerOptimizer() {
	a := el.spec.Trainer.Args()
	if a == nil || a.Table == nil || el.job.Inference != "" || !el.spec.Trainer.OfTransformers() {
		return
	}
	if c := el.spec.Trainer.Optimizer; c != nil {
		el.spec.Train.Optimizer = el.spec.OwnOptimizer(c, a)
		return
	}
	name := a.Text("optim")
	if !a.Has("optim") && el.opts.Env.Torch.Has(torchver.TrainerFusedAdamW) && name == "adamw_torch" {
		name = "adamw_torch_fused"
	}
	o := trainer.OptimizerOf(name)
	if o.Row == "" {
		el.notModelled = append(el.notModelled, note.Asked.New("trainer.%s.optim: %s", el.spec.Trainer.Key(), o.Doubt()).Of("trainer."+el.spec.Trainer.Key()+".optim"))
		o = trainer.OptimizerOf("adamw_torch")
	}
	el.spec.Train.Optimizer = el.spec.TrainerOptimizer(o, a)
}

// trainerNotes are the arguments that reach memory and are not modelled.
func (el *building) trainerNotes() {
	t := el.spec.Trainer
	a := t.Args()
	if a == nil {
		return
	}
	for _, x := range a.Unmodelled() {
		key := "trainer." + t.Key() + "." + x.Name
		el.notModelled = append(el.notModelled, note.Asked.New("%s: %s", key, x.Why).Of(key))
	}
}

// loadLoop reads the loop of the trainer, with its arguments as params and what it asks
// of the model.
func (el *building) loadLoop() {
	t := el.spec.Trainer
	if t == nil || el.job.Inference != "" {
		return
	}
	given := t.Args().Params()
	add := func(*spec.Spec) {}
	switch {
	case t.OfTransformers():
		el.transformersLoop(given)
	case t.Lightning != nil:
		add = el.lightningLoop(given)
	case t.Torchtitan != nil:
		el.torchtitanLoop(given)
	case t.Megatron != nil:
		el.megatronLoop(given)
	default:
		el.litgptLoop(given)
	}
	s := el.loopFile(t.Preset(), given)
	for _, own := range t.Own() {
		s.AddBlocks(el.loopFile(own, nil))
	}
	add(s)
	if !t.Evaluates() {
		s.Eval = nil
	}
	s.PEFT = el.spec.PEFT
	el.loop = s
}

// transformersLoop adds what the loop of transformers.Trainer is given in addition to its
// arguments.
func (el *building) transformersLoop(given map[string]any) {
	t := el.spec.Trainer
	m := el.ms[0]
	if !m.use.OfHF() {
		el.fail(t.At, "trainer: %s trains models of transformers; name one by model: {hf: config.json}", t.Key())
	}
	slices.SortStableFunc(el.job.Inputs, func(a, b program.Input) int {
		return slices.Index(spec.LabelInputs, a.Name) - slices.Index(spec.LabelInputs, b.Name)
	})
	given["release"] = t.Args().Release
	given["compute_metrics"] = t.Metrics.V
	given["nan_loss"] = t.NaNLoss.V
	if p := el.spec.Parallel; p != nil {
		given["world"] = max(p.DDP.V, p.FSDP.V, p.DeepSpeedRanks(), 1)
		given["fsdp"] = p.FSDP.Set
	}
	if given["deepspeed"] = el.spec.Parallel.IsDeepSpeed(); el.spec.Parallel.IsDeepSpeed() {
		given["bf16"], given["fp16"] = false, false // no autocast
	}
	if el.spec.Parallel.AsAccelerate() {
		given["bf16"] = false
	}
	given["empties_cache"] = t.EmptyCache.V
	given["log_every"], given["eval_every"] = t.LogEvery, t.EvalEvery
	given["label"] = nil
	for i, in := range el.job.Inputs {
		if in.Name == labels {
			given["label"] = int64(i)
		}
	}
	for name, param := range map[string]string{"accepts_loss_kwargs": "num_items", "shifts_labels": "shifts_labels", "smooths_shifted": "smooths_shifted"} {
		if x, ok := m.spec.Env.Lookup(param); ok {
			given[name] = x
		}
	}
	if x, ok := m.spec.Env.Lookup("accepts_num_items"); ok { // accepts_loss_kwargs, an attribute of the model
		given["accepts_loss_kwargs"] = x
	}
	if t.Accepts.Set {
		given["accepts_loss_kwargs"] = t.Accepts.V
	}
	given["task"], _ = m.spec.Env.Lookup("task")
	if n := t.EvalSamples(); n > 0 {
		given["eval_samples"] = n
	}
	given["last_rows"] = el.spec.LastRows()
	rows, exact := t.EvalRows()
	if given["eval_rows"] = rows; !exact && t.Evaluates() {
		key := "trainer." + t.Key() + ".per_device_eval_batch_size"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: the length of a sequence of other samples than in training; planned is %s as long as in training", key, spec.Plural(int(rows), "sequence")).Of(key))
	}
	el.loopNotes(m)
	if given["flattened"] = t.Flattened(); t.Flattened() {
		el.flattened(m)
	}
	given["has_mask"] = slices.ContainsFunc(el.job.Inputs, func(in program.Input) bool { return in.Name == "attention_mask" })
	switch {
	case t.SFT != nil:
		el.sft(m, given)
	case t.DPO != nil:
		el.dpo(m, given)
	case t.GRPO != nil:
		el.grpo(m, given)
	}
}

// loopFile reads a file of a loop.
func (el *building) loopFile(name string, given map[string]any) *spec.Spec {
	t := el.spec.Trainer
	text, err := el.opts.Preset(name)
	if err != nil {
		el.fail(t.At, "%v", err)
	}
	s, err := spec.Parse("preset:"+name, text, spec.Options{Own: true, Params: given, Meter: el.meter, Loop: true})
	if err != nil {
		el.fail(t.At, "%s: %v", name, err)
	}
	for _, b := range s.Blocks {
		b.V.Of = s
	}
	el.others = append(el.others, s.Errs)
	return s
}

// flattened says what is left out of samples that are one sequence. Models whose files
// take no position_ids are planned with one sample, which takes the same memory with
// kernels that keep no scores.
func (el *building) flattened(m *model) {
	t := el.spec.Trainer
	a := t.Args()
	if _, ok := m.spec.Env.Lookup("flattened"); !ok {
		if attn, _ := m.spec.Env.Lookup("attn"); attn == "sdpa" || attn == "eager" {
			el.fail(t.At, "samples of %s that are packed to one sequence are modelled with flash_attention_2 and flash_attention_3; write model: {with: {attn: flash_attention_2}}", m.use.HF.V)
		}
		el.notModelled = append(el.notModelled, note.Asked.New("position_ids of %s: the samples of a sequence are planned as one", m.use.HF.V).Of("trainer"))
	}
	if n := a.Int("per_device_eval_batch_size"); t.Evaluates() && n != a.Int("per_device_train_batch_size") {
		key := "trainer." + t.Key() + ".per_device_eval_batch_size"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: sequences of %d samples; evaluations are planned with those of training", key, n).Of(key))
	}
}

// sft says which metrics SFTTrainer computes, and refuses a chunked loss of a model whose
// file has none.
func (el *building) sft(m *model, given map[string]any) {
	t := el.spec.Trainer
	a := t.Args()
	if el.expert(m) {
		key := "trainer.sft.router_aux_loss_coef"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: %s", key, a.Table.Find("router_aux_loss_coef", a.Release).Why).Of(key))
	}
	if a.Bool("use_liger_kernel") {
		kernels, _ := m.spec.Env.Lookup("liger")
		el.sftLiger(given, kernels)
		return
	}
	switch a.Text("loss_type") {
	case "chunked_nll":
		if _, ok := m.spec.Env.Lookup("loss_chunk"); !ok {
			el.fail(a.Span("loss_type"), "the chunked loss of %s is not modelled; loss_type: nll is", m.use.HF.V)
		}
		given["metrics"] = "sft_chunked_metrics"
		if given["compute_metrics"] == true && t.Evaluates() {
			given["compute_metrics"] = false
			el.notModelled = append(el.notModelled, note.Asked.New("trainer.compute_metrics: what evaluations collect with loss_type chunked_nll, which has no logits").Of("trainer.compute_metrics"))
		}
	case "dft":
		given["loss_func"], given["metrics"] = "dft_loss", "sft_metrics"
	default:
		given["metrics"] = "sft_metrics"
	}
}

// sftLiger says which metrics SFTTrainer computes with Liger's kernels: none of logits.
func (el *building) sftLiger(given map[string]any, kernels any) {
	a := el.spec.Trainer.Args()
	given["metrics"] = "sft_tokens"
	if names, _ := kernels.([]any); slices.Contains(names, any("fused_linear_cross_entropy")) {
		given["metrics"] = "sft_liger_metrics"
	}
	doubt := func(key, what string) {
		key = "trainer.sft." + key
		el.notModelled = append(el.notModelled, note.Asked.New("%s with use_liger_kernel: %s", key, what).Of(key))
	}
	if a.Text("loss_type") == "dft" {
		doubt("loss_type", "the loss is planned without use_token_scaling")
	}
	if n := a.Text("eval_strategy"); n != "" && n != "no" {
		doubt("eval_strategy", "evaluations are planned with logits")
	}
}

// dpo says what the loop of transformers.Trainer calls in the place of the model, and what
// of DPOTrainer is left out.
func (el *building) dpo(m *model, given map[string]any) {
	t := el.spec.Trainer
	if task, _ := m.spec.Env.Lookup("task"); task != "causal-lm" {
		el.fail(t.At, "trainer: dpo trains causal language models; write model: {task: causal-lm}")
	}
	given["own_loss"], given["accepts_loss_kwargs"] = "dpo_loss", false
	given["label_smoothing_factor"] = 0.0 // of the loss that Trainer computes
	given["training_rows"] = el.spec.Train.BatchSize.V
	given["reference"] = el.spec.Reference() != nil
	if n := t.LossTokens; n.Set {
		given["completion_tokens"] = n.V
	}
	el.ownLossNotes(m)
	if given["compute_metrics"] == true && t.Evaluates() {
		given["compute_metrics"] = false
		el.notModelled = append(el.notModelled, note.Asked.New("trainer.compute_metrics: what evaluations of DPOTrainer collect").Of("trainer.compute_metrics"))
	}
}

// ownLossNotes are what a trainer that computes the loss outside of the model asks of it and
// is left out.
func (el *building) ownLossNotes(m *model) {
	t := el.spec.Trainer
	without := func(key, why string) {
		key = "trainer." + t.Key() + "." + key
		el.notModelled = append(el.notModelled, note.Asked.New("%s: %s", key, why).Of(key))
	}
	if _, kwargs := t.Args().Value("model_init_kwargs").(*spec.Value); kwargs && el.spec.PEFT != nil {
		without("model_init_kwargs", "of from_pretrained, if the model is given by its name; load has the model's")
	}
	for _, name := range m.spec.ParamNames() {
		if p, _ := m.spec.Env.Lookup(name); t.DisablesDropout() && dropouts.MatchString(name) && positive(p) {
			without("disable_dropout", "planned with the model's "+name)
			break
		}
	}
	if el.expert(m) {
		without("router_aux_loss_coef", t.Args().Table.Find("router_aux_loss_coef", t.Args().Release).Why)
	}
}

// grpo says of what sizes the loop's completions are, and what of GRPOTrainer is left out.
func (el *building) grpo(m *model, given map[string]any) {
	t := el.spec.Trainer
	a := t.Args()
	if task, _ := m.spec.Env.Lookup("task"); task != "causal-lm" {
		el.fail(t.At, "trainer: grpo trains causal language models; write model: {task: causal-lm}")
	}
	if _, ok := m.spec.Env.Lookup("logits_to_keep"); !ok {
		el.fail(t.At, "trainer: grpo with %s is not modelled: its logits are of all tokens", m.hfType)
	}
	seq, _ := m.spec.Env.Lookup("seq")
	n, _ := seq.(int64)
	if n <= a.Int("max_completion_length") {
		el.fail(a.Span("max_completion_length"), "seq of the model is the length of a prompt with its completion; it is %d, and max_completion_length alone %d: write model: {with: {seq: N}}", n, a.Int("max_completion_length"))
	}
	given["generates"], given["generation"], given["accepts_loss_kwargs"], given["own_loss"] = true, "generate", false, "grpo_loss"
	given["label_smoothing_factor"] = 0.0 // of the loss that Trainer computes
	given["training_rows"] = el.spec.Train.BatchSize.V
	given["reference"] = el.spec.Reference() != nil
	given["sampled_at"] = a.Number("temperature")
	given["prompt_length"] = n - a.Int("max_completion_length")
	given["generated"], given["generate_every"], given["old_logps"] = t.Generated(), t.GenerateEvery(), t.ScoresOld()
	if g := a.Int("num_generations"); g > 0 && t.Generated()%g != 0 {
		el.fails = append(el.fails, failure{spec.Diag{Span: a.Span("num_generations"), Msg: fmt.Sprintf("num_generations, %d, must divide the completions that are generated together, %d (per_device_train_batch_size times steps_per_generation)", g, t.Generated())}, el.spec.Path})
	}
	el.ownLossNotes(m)
	without := func(key, why string) {
		el.notModelled = append(el.notModelled, note.Asked.New("%s: %s", key, why).Of(key))
	}
	switch {
	case !a.Bool("use_vllm"):
		without("trainer.grpo.max_completion_length", fmt.Sprintf("what generation itself takes, which may be more than the step: keys and values of all layers for %d sequences of %d tokens, and the logits of a token of each; it is freed before the loss", t.Generated(), n))
	case a.Text("vllm_mode") == "colocate":
		without("trainer.grpo.vllm_mode", "vLLM in the same process, with its weights and cache (vllm_gpu_memory_utilization)")
	default:
		without("trainer.grpo.use_vllm", "tensors of the ratio to what vLLM says, one number for each token")
	}
}

// dropouts are the names of a model's probabilities of dropout.
var dropouts = regexp.MustCompile("drop")

func positive(x any) bool {
	n, _ := x.(float64)
	return n > 0
}

// expert reports whether TRL adds the routers' loss of a model with experts.
func (el *building) expert(m *model) bool {
	n, _ := m.spec.Env.Lookup("experts")
	return n != nil && n != int64(0) && el.spec.Trainer.Args().Number("router_aux_loss_coef") != 0
}

// decayless are patterns of parameters that Trainer gives no weight decay
// (get_decay_parameter_names), in addition to those of nn.LayerNorm.
var decayless = program.Patterns{"*bias*", "*layernorm*", "*LayerNorm*", "*rmsnorm*", "*RMSNorm*", "norm", "norm.*", "*.norm", "*.norm.*", "*_norm", "*_norm.*"}

// trainerGroups finds the patterns of the optimizer's group without weight decay.
func (el *building) trainerGroups() {
	if el.loop != nil && el.spec.Trainer.Megatron != nil {
		el.megatronGroups()
	}
	if el.loop == nil || !el.spec.Trainer.OfTransformers() {
		return
	}
	c := el.spec.Train.Optimizer
	root := el.job.Models[0].Root
	var found []spec.String
	add := func(pattern string) {
		at := c.Name.At
		if !slices.ContainsFunc(found, func(s spec.String) bool { return s.V == pattern }) {
			found = append(found, spec.String{V: pattern, At: at, Set: true})
		}
	}
	for _, p := range decayless {
		if slices.ContainsFunc(root.ParamPaths(), program.Patterns{p}.Fits) {
			add(p)
		}
	}
	root.Walk(func(path string, m *program.Class) {
		if m.Layer == &layers.LayerNorm.Is && !decayless.Fits(path+".weight") {
			add(numbered.ReplaceAllString(path, ".*"))
		}
	})
	derived, _ := el.ms[0].spec.Env.Lookup("layer_norms")
	names, _ := derived.([]any)
	for _, x := range names {
		pattern, _ := x.(string)
		add(pattern)
	}
	if c.Groups[0].Params = found; len(found) == 0 {
		c.Groups = nil
		el.job.Optimizers[0].Groups = nil
	}
}

// biases are the parameters that do not decay which adapters may add.
const biases = "*bias*"

// adapterBiases adds the biases of adapters to the group without weight decay.
func (el *building) adapterBiases() {
	if p := el.spec.PEFT; el.loop == nil || !el.spec.Trainer.OfTransformers() || p == nil || p.LoRA == nil || !p.LoRA.LoraBias.V {
		return
	}
	for _, o := range el.job.Optimizers {
		for i := range o.Groups {
			if g := &o.Groups[i]; len(g.Params) > 0 && !slices.Contains(g.Params, biases) {
				g.Params = append(g.Params, biases)
			}
		}
	}
}

// withOwn adds to the params of a preset that another one sets those that are given to
// every model of transformers.
func (el *building) withOwn(given map[string]any) map[string]any {
	maps.Copy(given, el.asked)
	return given
}

// loopNotes are what arguments ask of this model and the figures are without.
func (el *building) loopNotes(m *model) {
	t := el.spec.Trainer
	a := t.Args()
	without := func(name, text string) {
		key := "trainer." + t.Key() + "." + name
		el.notModelled = append(el.notModelled, note.Asked.New("%s: %s", key, text).Of(key))
	}
	knows := func(param string) bool {
		_, ok := m.spec.Env.Lookup(param)
		return ok
	}
	if s := a.Text("eval_strategy"); s != "" && s != "no" && t.EvalSamples() == 0 {
		without("eval_strategy", "evaluations are left out; trainer: {eval_dataset: {samples: N}} says how many samples they go over")
	}
	if a.Value("neftune_noise_alpha") != nil && !knows("neftune") {
		without("neftune_noise_alpha", "the noise on the embeddings of this model type is left out")
	}
	if task, _ := m.spec.Env.Lookup("task"); a.Number("label_smoothing_factor") != 0 && (!knows("labelled") || task == "seq2seq-lm") {
		without("label_smoothing_factor", "how this model is called without labels; the figures are those with the model's own loss in addition")
	}
}
