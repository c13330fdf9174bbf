package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// Axolotl's configuration, as `axolotl train` runs it on one machine.
var axolotl = &Format{
	Name: "axolotl", Title: "Axolotl", Signs: [][]string{{"base_model"}}, Unless: []string{"model_name_or_path"},
	Keys: axolotlKeys, Defaults: axolotlDefaults, Ignores: true, Coerces: true, Trainer: "hf",
	Names: map[string]string{
		"gradient_accumulation_steps": "gradient_accumulation_steps", "optim": "optimizer",
		"gradient_checkpointing": "gradient_checkpointing", "max_grad_norm": "max_grad_norm",
	},
	read: (*job).axolotl,
}

func (j *job) axolotl() {
	j.parts(j.axolotlModel, j.axolotlTypes, j.axolotlAttention, j.axolotlBatch, j.axolotlAdapter, j.axolotlSteps, j.axolotlEvaluation,
		j.axolotlKernels, j.axolotlImages, j.axolotlTrains, j.axolotlCasts, j.axolotlDPO, j.axolotlGRPO, j.axolotlRefuses)
	if j.on("dp_shard_size") || j.on("dp_replicate_size") {
		j.world = j.count("dp_shard_size", 1) * j.count("dp_replicate_size", 1)
	}
}

// axolotlModel says which model is trained for which task (loaders/model.py).
func (j *job) axolotlModel() {
	j.model("base_model")
	if j.get("base_model_config") != nil {
		j.model("base_model_config")
	}
	if v := j.get("llama4_linearized_experts"); given(v) {
		j.put("model.with.linearized", "true", v)
	}
	class := j.str("type_of_model", j.str("model_type", ""))
	switch {
	case j.flag("reward_model", false), strings.HasSuffix(class, "ForSequenceClassification"):
		j.put("model.task", "seq-cls", j.get("reward_model"))
		j.put("model.with.num_labels", fmt.Sprint(j.count("num_labels", 1)), j.get("num_labels"))
		if v := j.get("reward_model"); given(v) { // TRL's RewardTrainer gives the model a padding token
			j.pairs = true
			j.put("model.with.pad_token_id", "0", v)
			j.doubt(v, "reward_model: the loss of pairs of samples; planned as a classification of both samples of each pair")
		}
	case j.flag("process_reward_model", false), strings.HasSuffix(class, "ForTokenClassification"):
		j.put("model.task", "token-cls", j.get("process_reward_model"))
		j.put("model.with.num_labels", fmt.Sprint(j.count("num_labels", 2)), j.get("num_labels"))
	default:
		j.put("model.task", "causal-lm", nil)
	}
	if rl := j.str("rl", ""); rl != "" && !j.dpo() && !j.grpo() {
		j.prefers("rl", rl, j.on("adapter"), "grpo", "gdpo")
	}
}

// axolotlTypes says in which types weights are loaded and computed with
// (resolve_dtype of utils/config).
func (j *job) axolotlTypes() {
	bf16 := j.get("bf16")
	fp16, brain := j.flag("fp16", false), true
	switch {
	case bf16 != nil && bf16.Str != "auto":
		brain = j.flag("bf16", false)
	case fp16:
		brain = false
	default:
		j.assume(bf16, "bf16: auto is true, as on any GPU of sm_80 or later")
	}
	whole := brain || j.flag("bfloat16", false)
	if v := j.get("bfloat16"); given(v) && !brain {
		bf16 = v
	}
	switch {
	case whole:
		j.put("model.load.dtype", "bfloat16", bf16)
		j.put("trainer.hf.bf16", "true", bf16)
	case j.flag("load_in_8bit", false), fp16, j.flag("float16", false):
		j.put("model.load.dtype", "float16", j.get("fp16"))
	default:
		j.put("model.load.dtype", "float32", bf16)
	}
	if fp16 && !brain {
		j.put("trainer.hf.fp16", "true", j.get("fp16"))
	}
}

// axolotlAttentions are the deprecated keys of kinds of attention, which they name.
var axolotlAttentions = []struct{ key, is string }{
	{"xformers_attention", "xformers"}, {"sage_attention", "sage"}, {"flex_attention", "flex_attention"}, {"flash_attention", "flash_attention_2"}, {"sdp_attention", "sdpa"}, {"eager_attention", "eager"},
}

// axolotlAttention says which kernels attend.
func (j *job) axolotlAttention() {
	v, name := j.axolotlAttn()
	j.attention("attn_implementation", v, name)
	if j.on("gemma4_hybrid_attn_impl") && j.isType("gemma4") && j.flash() {
		j.put("model.with.global_attn", "sdpa", j.get("gemma4_hybrid_attn_impl"))
	}
	if j.isType("gemma4") { // _apply_model_specific_patches of loaders/patch_manager.py
		j.doubt(j.doc.Root.Get("base_model"), "base_model: Axolotl's fused attention of Gemma 4, which keeps fewer tensors; planned with that of transformers, which takes more")
	}
}

// axolotlAttn is the kind of attention that the file asks for; "" is the model's own.
func (j *job) axolotlAttn() (v *spec.Value, name string) {
	v, name = j.get("attn_implementation"), j.str("attn_implementation", "")
	for _, a := range axolotlAttentions {
		if name == "" && j.on(a.key) {
			v, name = j.get(a.key), a.is
		}
	}
	if name == "" && j.on("gemma4_hybrid_attn_impl") {
		v, name = j.get("gemma4_hybrid_attn_impl"), "flash_attention_2"
	}
	return v, name
}

// attentions are the kinds that the spec knows; hubAttentions are kernels of the Hub
// that are the same.
var (
	attentions    = []string{"sdpa", "eager", "flash_attention_2", "flash_attention_3"}
	hubAttentions = map[string]string{
		"kernels-community/flash-attn2": "flash_attention_2", "kernels-community/flash-attn": "flash_attention_2", "kernels-community/flash-attn3": "flash_attention_3", "kernels-community/vllm-flash-attn3": "flash_attention_3",
	}
)

// attention writes the kind of attention that a key has a program ask transformers for.
func (j *job) attention(key string, v *spec.Value, name string) {
	if hub := hubAttentions[name]; hub != "" {
		name = hub
	}
	switch {
	case name == "":
	case name != "eager" && j.isType("gpt_oss"):
		j.put("model.with.attn", "eager", v)
		j.doubt(v, "%s: %s with the sinks of gpt-oss; planned with eager, whose scores take more memory", key, name)
	case strings.HasPrefix(name, "flash_attention") && j.isType("llama4"):
		j.doubt(v, "%s: %s; transformers 5.12 has none for Llama 4; planned with sdpa", key, name)
	case slices.Contains(attentions, name):
		j.put("model.with.attn", name, v)
	default:
		j.doubt(v, "%s: %s; planned with the model's default, which is sdpa if the model has it", key, name)
	}
}

// flash reports whether a package of flash-attention attends.
func (j *job) flash() bool {
	return strings.HasPrefix(j.out.says("model.with.attn"), "flash_attention")
}

// axolotlEmbeddings are the embeddings that Axolotl converts, by parts of their names:
// those of gpt_neox are called otherwise (get_linear_embedding_layers of loaders/utils.py).
var axolotlEmbeddings = strings.Fields("embed_tokens lm_head embed_in embed_out")

// uncast are the kinds of attention for which full fine-tuning leaves what it converted in
// float32 (ATTN_IMPLS_WITHOUT_DTYPE_CAST of utils/schemas/enums.py).
var uncast = []string{"", "eager", "sdpa"}

// axolotlCasts writes what is converted between the load and the adapters
// (_configure_embedding_dtypes of loaders/model.py): norms, embeddings and routers to
// float32, all of 16 bits for weights in 4 and 8 bits, and norms and embeddings back.
func (j *job) axolotlCasts() {
	dtype := j.out.says("model.load.dtype")
	if dtype == "float32" || j.isSharded() {
		return
	}
	names := []string{"norm"}
	if !j.on("load_in_4bit") || !j.on("embeddings_skip_upcast") {
		names = append(names, axolotlEmbeddings...)
	}
	patterns := func(more ...string) string {
		var out []string
		for _, n := range names {
			out = append(out, quote("*"+n+"*"))
		}
		return "[" + strings.Join(append(out, more...), ", ") + "]"
	}
	list := []string{fmt.Sprintf("{modules: %s, dtype: float32}", patterns(quote("*.gate")))}
	adapter := j.on("adapter")
	if adapter && (j.on("load_in_4bit") || j.on("load_in_8bit")) && !j.on("quantize_moe_experts") { // prepare_model_for_kbit_training
		list = append(list, `{modules: ["*"], dtype: float32, empty_cache: true}`)
	}
	if _, attn := j.axolotlAttn(); adapter || !slices.Contains(uncast, attn) || j.cutCrossEntropy() {
		list = append(list, fmt.Sprintf("{modules: %s, dtype: %s}", patterns(), dtype))
	}
	j.put("model.load.convert", "", nil).list = list
}

// axolotlBatch says what a batch has (core/builders/causal.py, core/trainers/base.py).
func (j *job) axolotlBatch() {
	n := j.count("micro_batch_size", 1)
	if j.pairs {
		n *= 2
	}
	seq := sequences{key: "sequence_len", most: j.count("sequence_len", 512), multiple: 1}
	if c := j.count("trl.max_completion_length", 0); j.grpo() && seq.most <= c { // the prompt is in front
		seq.most += c
	}
	pictured := j.axolotlPictured()
	pad, packed := j.get("pad_to_sequence_len"), j.get("sample_packing")
	switch {
	case pictured: // whose collator cuts and pads nothing
		j.assume(j.get("sequence_len"), "nothing is cut at sequence_len or padded to it with processor_type: samples may be longer")
	case j.on("rl"): // whose collators do not pad unless they are asked to
		seq.multiple = j.count("pad_to_multiple_of", 1)
	case pad == nil || given(pad):
		seq.multiple = j.count("pad_to_multiple_of", 64)
	}
	if pad == nil { // the validation's default
		pad = j.get("reward_model")
	}
	flat := given(packed) && j.flash()
	switch {
	case flat:
		seq.full, seq.at = "a packed batch is full: one sequence of micro_batch_size * sequence_len tokens, of at least two samples", packed
	case given(packed):
		seq.full, seq.at = "packed batches are full: micro_batch_size rows of sequence_len tokens", packed
	case given(pad) && !j.on("rl") && !pictured:
		seq.full, seq.at = "every batch is padded to sequence_len tokens", pad
	}
	j.sequences(seq)
	j.keys["params.batch"] = "micro_batch_size"
	j.put("params.batch", fmt.Sprint(n), j.get("micro_batch_size"))
	j.put("trainer.hf.per_device_train_batch_size", batchParam, j.get("micro_batch_size"))
	switch {
	case flat:
		j.put("trainer.flattening", "true", packed)
	case given(packed): // which drops the mask
		j.put("model.with.mask", "none", nil)
	default:
		j.put("model.with.mask", "ones", nil)
	}
}

// batchParam is the param that a training step and an evaluation have in common, so that
// what changes the batch size changes both.
const batchParam = `"${batch}"`

// where is the place of a key; the zero Origin if the file does not have it.
func (f *file) where(key string) spec.Origin {
	if v := f.get(key); v != nil {
		return f.from(v)
	}
	return spec.Origin{}
}

func roundUp(n, multiple int64) int64 { return (n + multiple - 1) / multiple * multiple }

// axolotlOptimizers are those that transformers does not know (CustomSupportedOptimizers).
var axolotlOptimizers = strings.Fields("optimi_adamw adopt_adamw came_pytorch muon dion sinkgd flash_adamw flash_adam flash_sgd flash_sgdw flash_lion q_galore_adamw8bit")

// axolotlSteps writes what the steps do (core/builders/base.py).
func (j *job) axolotlSteps() {
	hf := "trainer.hf."
	steps := j.count("gradient_accumulation_steps", 1)
	if v := j.get("batch_size"); v != nil && j.get("gradient_accumulation_steps") == nil {
		steps = max(1, j.count("batch_size", 1)/j.count("micro_batch_size", 1))
	}
	j.put(hf+"gradient_accumulation_steps", fmt.Sprint(steps), j.get("gradient_accumulation_steps"))
	optim := j.str("optimizer", "adamw_torch_fused")
	switch {
	case optim == "ao_adamw_fp8":
		j.put("trainer.optimizer_cls_and_kwargs", "torchao.AdamWFp8", j.get("optimizer"))
	case slices.Contains(axolotlOptimizers, optim):
		j.doubt(j.get("optimizer"), "optimizer: %s; planned with adamw_torch", optim)
		optim = "adamw_torch"
	}
	if j.out.get("trainer.optimizer_cls_and_kwargs") == nil {
		j.put(hf+"optim", text(optim), j.get("optimizer"))
	}
	if v := j.get("optim_args"); v != nil {
		j.axolotlOptim(v)
	}
	offload, v := j.get("activation_offloading"), j.get("gradient_checkpointing")
	if v != nil && v.Kind == spec.Str && strings.HasPrefix(v.Str, "offload") {
		offload = v
	}
	switch {
	case given(offload) && j.on("adapter"):
		j.doubt(offload, "activation_offloading: TRL's offloader keeps activations in host memory in place of checkpoints; planned with gradient checkpointing")
	case given(offload):
		j.doubt(offload, "activation_offloading: what checkpoints keep is in host memory; planned on the GPU")
	}
	if given(v) {
		j.put(hf+"gradient_checkpointing", "true", v)
		kw := j.get("gradient_checkpointing_kwargs")
		switch {
		case kw != nil:
			j.set(hf+"gradient_checkpointing_kwargs", "gradient_checkpointing_kwargs", kw)
		case j.on("unfrozen_parameters"):
			j.put(hf+"gradient_checkpointing_kwargs", "{use_reentrant: false}", nil)
		default:
			j.put(hf+"gradient_checkpointing_kwargs", "{use_reentrant: true}", nil)
		}
	}
	j.put(hf+"average_tokens_across_devices", "false", nil)
	if !j.dpo() && !j.grpo() {
		j.put("trainer.model_accepts_loss_kwargs", "false", nil)
	}
}

// axolotlEvaluation plans an evaluation. With packing its batches are those of the
// training's sampler.
func (j *job) axolotlEvaluation() {
	at := j.evaluates()
	if at == nil {
		return
	}
	hf := "trainer.hf."
	j.put(hf+"eval_strategy", "steps", at)
	j.put(hf+"eval_accumulation_steps", j.out.says(hf+"gradient_accumulation_steps"), nil)
	if v := j.get("eval_sample_packing"); v != nil && !given(v) && j.out.get("trainer.flattening") != nil {
		j.doubt(v, "eval_sample_packing: false: evaluations with padding; planned with packed batches, as training")
	}
	if j.get("eval_batch_size") == nil || j.on("sample_packing") && j.flag("eval_sample_packing", true) {
		j.put(hf+"per_device_eval_batch_size", batchParam, nil)
		j.evaluation(at, fmt.Sprintf(`"${%d * batch}"`, evalBatches))
		return
	}
	n := j.count("eval_batch_size", 1)
	if j.pairs {
		n *= 2
	}
	j.put(hf+"per_device_eval_batch_size", fmt.Sprint(n), j.get("eval_batch_size"))
	j.evaluation(at, fmt.Sprint(evalBatches*n))
}

// evalBatches is of how many batches an evaluation is planned: those after the second
// take the same memory.
const evalBatches = 2

// evaluation says over how many samples the job evaluates, which no file says. It is
// asked for at a value.
func (j *job) evaluation(at *spec.Value, samples string) {
	j.put("trainer.eval_dataset.samples", samples, nil)
	j.assume(at, "an evaluation has %d batches: files do not say how many samples there are", evalBatches)
}

// axolotlOptim writes the arguments of an optimizer, which may be a mapping.
func (j *job) axolotlOptim(v *spec.Value) {
	if v.Kind != spec.Map {
		j.set("trainer.hf.optim_args", "optim_args", v)
		return
	}
	var args []string
	for _, p := range v.Pairs {
		if p.Value.Kind == spec.List || p.Value.Kind == spec.Map {
			j.fail(p.Value, "%s of optim_args must be a number or a string, not %s", p.Key.Describe(), p.Value.Describe())
		}
		args = append(args, p.Key.Str+"="+p.Value.Str)
	}
	j.put("trainer.hf.optim_args", quote(strings.Join(args, ",")), v)
}

// evaluates is the key of the samples over which the job evaluates; nil if it does not
// (_configure_save_and_eval_strategy).
func (j *job) evaluates() *spec.Value {
	at := j.get("val_set_size")
	if !given(at) {
		at = j.get("test_datasets")
	}
	s := j.str("eval_strategy", j.str("evaluation_strategy", ""))
	if !given(at) || s == "no" || s == "" && !j.on("eval_steps") && !j.on("evals_per_epoch") {
		return nil
	}
	return at
}

// ligerKeys are the keywords of apply_liger_kernel_to_TYPE with the keys of Axolotl that
// say them.
var ligerKeys = []struct{ is, key, also string }{
	{"rope", "liger_rope", ""}, {"rms_norm", "liger_rms_norm", ""}, {"swiglu", "liger_glu_activation", "liger_swiglu"},
	{"cross_entropy", "liger_cross_entropy", ""}, {"fused_linear_cross_entropy", "liger_fused_linear_cross_entropy", ""},
}

// noLigerLoss turns Liger's losses off.
const noLigerLoss = "{cross_entropy: false, fused_linear_cross_entropy: false}"

// axolotlLiger writes Liger's kernels: those that the file does not name are off. Liger
// calls the feed-forward layers of Gemma otherwise.
func (j *job) axolotlLiger(plugin *spec.Value) {
	var config []string
	for _, k := range ligerKeys {
		name := k.is
		if name == "swiglu" && j.isType("gemma") {
			name = "geglu"
		}
		on := j.flag(k.key, false) || k.also != "" && j.flag(k.also, false)
		if strings.HasSuffix(name, "cross_entropy") && j.on("rl") { // which has a loss of its own, of logits
			on = false
		}
		config = append(config, fmt.Sprintf("%s: %v", name, on))
	}
	if !strings.Contains(strings.Join(config, " "), "true") {
		return
	}
	if j.dpo() || j.grpo() { // whose use_liger_kernel is another loss
		j.put("model.liger", "{"+strings.Join(config, ", ")+"}", plugin)
		return
	}
	j.put("trainer.hf.use_liger_kernel", "true", plugin)
	j.put("trainer.hf.liger_kernel_config", "{"+strings.Join(config, ", ")+"}", plugin)
}

// axolotlPlugins are the plugins that Axolotl comes with, and what their keys ask for.
var axolotlPlugins = []string{"liger", "cut_cross_entropy", "kernels", "kd", "lm_eval", "swanlab", "spectrum", "grokfast", "diffusion", "expert_parallel", "densemixer", "llm_compressor", "mora", "hatchery", "nemo_gym"}

// cutCrossEntropy reports whether the loss is that of the Cut Cross Entropy plugin.
func (j *job) cutCrossEntropy() bool {
	v := j.get("plugins")
	return v != nil && strings.Contains(flow(v), "axolotl.integrations.cut_cross_entropy.") && j.flag("cut_cross_entropy", true)
}

// axolotlKernels writes the kernels of plugins (integrations).
func (j *job) axolotlKernels() {
	plugins := map[string]*spec.Value{}
	if v := j.get("plugins"); v != nil {
		for _, p := range append(v.Items, v) {
			name, ok := strings.CutPrefix(p.Str, "axolotl.integrations.")
			name, _, _ = strings.Cut(name, ".")
			switch {
			case p.Kind == spec.List, p.Kind == spec.Null:
			case p.Kind != spec.Str:
				j.fail(p, "plugins must be a list of names such as axolotl.integrations.liger.LigerPlugin, not %s", p.Describe())
			case p.Str == "":
			case ok && slices.Contains(axolotlPlugins, name):
				plugins[name] = p
			default:
				j.doubt(p, "plugins: %s, which is not known", p.Str)
			}
		}
	}
	if v := plugins["liger"]; v != nil {
		j.axolotlLiger(v)
	}
	if v := plugins["cut_cross_entropy"]; v != nil && j.cutCrossEntropy() && !j.on("rl") && j.out.says("model.task") == "causal-lm" { // which give the model labels
		j.put("model.cut_cross_entropy", "true", v)
	}
	if v := plugins["diffusion"]; v != nil {
		j.fail(v, "plugins: the training of diffusion language models is not modelled")
	}
}
