package spec

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// Trainer is the loop of a library in the place of train, step and eval, with the
// arguments that the library takes. The loop itself is a spec (specs/trainers).
type Trainer struct {
	At Span `yaml:"-"`

	HF  *HFArguments  `yaml:"hf" doc:"transformers.Trainer: the keys of TrainingArguments"`
	SFT *SFTArguments `yaml:"sft" doc:"trl.SFTTrainer: the keys of SFTConfig"`
	DPO *DPOArguments `yaml:"dpo" doc:"trl.DPOTrainer: the keys of DPOConfig"`

	GRPO *GRPOArguments `yaml:"grpo" doc:"trl.GRPOTrainer: the keys of GRPOConfig"`

	LitGPT *LitGPTArguments `yaml:"litgpt" doc:"litgpt's finetune_lora, finetune_full and pretrain: the keys of their configuration files, and command"`

	Lightning *LightningArguments `yaml:"lightning" doc:"lightning.Trainer: its arguments; train has batch_size, optimizer and checkpoint"`

	Torchtitan *TorchtitanArguments `yaml:"torchtitan" doc:"torchtitan's train.py: the keys of its configuration files; parallel: {fsdp: N} says on how many GPUs"`

	Megatron *MegatronArguments `yaml:"megatron" doc:"pretrain_gpt.py of Megatron-LM: its arguments, by their names with underscores; world_size is the number of GPUs"`

	KTO    *Value `yaml:"kto" doc:"trl.KTOTrainer: refused"`
	RLOO   *Value `yaml:"rloo" doc:"trl.RLOOTrainer: refused"`
	Reward *Value `yaml:"reward" doc:"trl.RewardTrainer: refused"`

	Flattening  Boolean      `yaml:"flattening" doc:"of hf: the samples of a batch are one sequence with position_ids and without a mask, as DataCollatorWithFlattening makes it"`
	OneSample   Boolean      `yaml:"one_sample" doc:"a batch that is one sequence (flattening of hf, packing or padding_free of sft) is one sample, so that attention needs no mask"`
	Sequences   Integer      `yaml:"sequences" min:"2" doc:"how many samples such a sequence has, which flash attention reads from position_ids; by default per_device_train_batch_size"`
	LossTokens  Integer      `yaml:"loss_tokens" min:"0" doc:"of sft and dpo: how many tokens of a batch have a loss, as completion_only_loss and padding leave them; by default all, of dpo all but the first of each sample"`
	Trained     Boolean      `yaml:"checkpoint_trained" doc:"layers without a parameter that is trained are not checkpointed, and without adapters it is the inputs of the others that require grad, as in LLaMA-Factory"`
	Optimizer   *Callee      `yaml:"optimizer_cls_and_kwargs" doc:"of hf, sft and dpo: an optimizer in the place of the one that optim names, with its arguments, as Trainer's argument of that name"`
	EvalDataset *EvalDataset `yaml:"eval_dataset" doc:"what evaluations go over"`
	Metrics     Boolean      `yaml:"compute_metrics" doc:"there is a compute_metrics function: evaluations collect logits and labels"`
	Accepts     Boolean      `yaml:"model_accepts_loss_kwargs" doc:"whether Trainer counts the items of a batch for the model's loss; by default whether the model's forward takes **kwargs"`
	EmptyCache  Boolean      `yaml:"empty_cache" doc:"torch.cuda.empty_cache() after each backward pass, as Axolotl's AxolotlDPOTrainer calls it"`
	NaNLoss     Boolean      `yaml:"nan_loss" doc:"losses are NaN, which Trainer replaces in its sum (logging_nan_inf_filter)"`

	Reads *Load `yaml:"-"` // how DPOTrainer reads its reference, if model_init_kwargs says so

	EvalEvery int64 `yaml:"-"` // evaluations are after every n-th step
	LogEvery  int64 `yaml:"-"` // logs are; 0: it is not known, or there are none
}

// EvalDataset is what the evaluations of a trainer go over.
type EvalDataset struct {
	Samples Integer `yaml:"samples" min:"1" doc:"number of samples"`
}

// HFArguments are TrainingArguments.
type HFArguments struct{ Arguments }

func (a *HFArguments) unmarshal(d *decoder, v *Value) { a.read(d, v, trainer.HF) }

// SFTArguments are SFTConfig's.
type SFTArguments struct{ Arguments }

func (a *SFTArguments) unmarshal(d *decoder, v *Value) { a.read(d, v, trainer.SFT) }

// DPOArguments are DPOConfig's.
type DPOArguments struct{ Arguments }

func (a *DPOArguments) unmarshal(d *decoder, v *Value) { a.read(d, v, trainer.DPO) }

// GRPOArguments are GRPOConfig's.
type GRPOArguments struct{ Arguments }

func (a *GRPOArguments) unmarshal(d *decoder, v *Value) { a.read(d, v, trainer.GRPO) }

// given are the trainers that are given, by key; there must be one.
func (t *Trainer) given() (keys []string, args []*Arguments) {
	add := func(key string, a *Arguments) { keys, args = append(keys, key), append(args, a) }
	if t.HF != nil {
		add("hf", &t.HF.Arguments)
	}
	if t.SFT != nil {
		add("sft", &t.SFT.Arguments)
	}
	if t.DPO != nil {
		add("dpo", &t.DPO.Arguments)
	}
	if t.GRPO != nil {
		add("grpo", &t.GRPO.Arguments)
	}
	if t.LitGPT != nil {
		add("litgpt", &t.LitGPT.Arguments)
	}
	if t.Lightning != nil {
		add("lightning", &t.Lightning.Arguments)
	}
	if t.Torchtitan != nil {
		add("torchtitan", &t.Torchtitan.Arguments)
	}
	if t.Megatron != nil {
		add("megatron", &t.Megatron.Arguments)
	}
	return keys, args
}

// Args are the arguments of the trainer that is given.
func (t *Trainer) Args() *Arguments {
	if t == nil {
		return nil
	}
	if _, args := t.given(); len(args) > 0 {
		return args[0]
	}
	return nil
}

// OwnParams are the params of a library's model, as a preset, that the arguments of its
// trainer give.
func (t *Trainer) OwnParams(preset string) map[string]any {
	switch preset {
	case LitGPTPreset:
		return t.LitGPTParams()
	case TorchtitanPreset:
		return t.TorchtitanParams()
	case MegatronPreset:
		return t.MegatronParams()
	}
	return nil
}

// OfTransformers reports whether the trainer is that of transformers, or made of it.
func (t *Trainer) OfTransformers() bool { return t != nil && (t.HF != nil || t.OfTRL()) }

// OfTokens reports whether the loop takes the two inputs of a batch by their order: tokens
// and targets.
func (t *Trainer) OfTokens() bool { return t != nil && (t.LitGPT != nil || t.Torchtitan != nil) }

// Preset is the file with the loop.
func (t *Trainer) Preset() string {
	if t.OfTransformers() {
		return "trainers/hf"
	}
	return "trainers/" + t.Key()
}

// Key is the key of the trainer that is given, for messages and paths.
func (t *Trainer) Key() string {
	if keys, _ := t.given(); len(keys) > 0 {
		return keys[0]
	}
	return "hf"
}

// inTrainer are the sections that a trainer takes the place of.
var inTrainer = []string{"train", "before", "step", "eval", "optimizers", "models", "teacher"}

// trainer gives the sections that a trainer takes the place of what its arguments say.
func (s *Spec) trainer(d *decoder) {
	t := s.Trainer
	if t == nil {
		if m := s.Model; m != nil && m.DType.Set {
			s.Errs.Addf(m.DType.At, "dtype is of a model that a trainer takes; without one, train: {precision: bf16} converts the model, and load: {dtype: ...} says how weights are read")
		}
		return
	}
	for _, key := range inTrainer {
		stays := []string{"steps"}
		if t.Lightning != nil {
			stays = inLightning
		}
		if v := s.root.Get(key); v != nil && (key != "train" || v.Kind != Map || v.without(stays...) != nil) {
			at := v.Span
			for _, p := range s.root.Pairs {
				if p.Key.Str == key {
					at = p.Key.Span
				}
			}
			if key == "train" && t.Lightning != nil {
				s.Errs.Addf(at, "with trainer: lightning, train has %s; the rest is said by the trainer's arguments", strings.Join(inLightning, ", "))
				continue
			}
			s.Errs.Addf(at, "trainer and %s exclude each other: the loop is the trainer's", key)
		}
	}
	if t.refused(s.Errs) {
		return
	}
	keys, _ := t.given()
	a := t.Args()
	switch {
	case len(keys) > 1:
		s.Errs.Addf(t.At, "trainer has one loop, not %s", strings.Join(keys, " and "))
		return
	case a == nil:
		s.Errs.Addf(t.At, "trainer needs the trainer and its arguments, such as {hf: {per_device_train_batch_size: 4}}")
		return
	case s.Mode.V != "train":
		s.Errs.Addf(s.Mode.At, "mode %s trains nothing; leave out trainer", s.Mode.V)
		return
	case a.Table == nil: // which is reported
		return
	}
	switch {
	case t.LitGPT != nil:
		s.litgpt(a)
	case t.Lightning != nil:
		s.lightning(a)
	case t.Torchtitan != nil:
		s.torchtitan(d, a)
	case t.Megatron != nil:
		s.megatron(a)
	default:
		s.transformers(d, a)
	}
}

// transformers gives the sections what the arguments of transformers.Trainer say.
func (s *Spec) transformers(d *decoder, a *Arguments) {
	t := s.Trainer
	s.trl(d, a)
	s.Train.BatchSize = a.integer("per_device_train_batch_size")
	if t.Flattened() {
		s.Train.BatchSize.V = 1
	}
	if t.DPO != nil {
		s.Train.BatchSize.V *= samplesOfPair
	}
	s.Train.GradAccumulation = a.integer("gradient_accumulation_steps")
	s.Train.Loop.V = "flat"
	s.Train.Deterministic = a.boolean("full_determinism")
	s.Train.Precision = String{V: "fp32", At: a.At}
	switch bf16, fp16 := a.Bool("bf16"), a.Bool("fp16"); {
	case bf16 && fp16:
		s.Errs.Addf(a.Span("fp16"), "bf16 and fp16 exclude each other")
	case bf16 && s.Parallel.AsAccelerate():
		// Accelerator._prepare_fsdp2, other than prepare_model, puts no autocast around forward
	case bf16:
		s.Train.Precision = String{V: "amp-bf16", At: a.Span("bf16"), Set: true}
	case fp16:
		s.Train.Precision = String{V: "amp-fp16", At: a.Span("fp16"), Set: true}
	}
	if a.Bool("gradient_checkpointing") {
		kw, given := a.Value("gradient_checkpointing_kwargs").(*Value)
		otherwise := a.Release == trainer.Old || given // that of gradient_checkpointing_enable, or torch's
		if t.OfTRL() && a.Release == trainer.Old {
			otherwise = false // SFTTrainer.__init__, DPOTrainer.__init__
		}
		s.Train.Checkpoint = &Checkpoint{At: a.Span("gradient_checkpointing"), Reentrant: d.reentrant(kw, Boolean{V: otherwise, At: a.At}), Trained: t.Trained.V}
	}
	s.loader(a)
	if a.Text("logging_strategy") == "steps" {
		t.LogEvery = a.every(s.Errs, "logging_steps")
	}
	t.EvalEvery = 1
	if a.Text("eval_strategy") == "steps" {
		name := "eval_steps"
		if a.Number(name) == 0 {
			name = "logging_steps"
		}
		t.EvalEvery = max(a.every(s.Errs, name), 1)
	}
}

// checkpointKeywords are the keyword arguments of torch.utils.checkpoint.checkpoint that a
// file can give.
var checkpointKeywords = []string{"use_reentrant", "preserve_rng_state", "determinism_check", "debug"}

// reentrant is use_reentrant of keyword arguments of torch.utils.checkpoint.checkpoint; nil:
// there are none.
func (d *decoder) reentrant(kw *Value, otherwise Boolean) Boolean {
	if kw == nil || kw.Kind == Null {
		return otherwise
	}
	if kw.Kind != Map {
		d.errs.Addf(kw.Span, "gradient_checkpointing_kwargs must be a mapping, not %s", kw.Describe())
	}
	for _, p := range kw.Pairs {
		if !slices.Contains(checkpointKeywords, p.Key.Str) {
			d.errs.Unknown(p.Key.Span, "argument of torch.utils.checkpoint.checkpoint", p.Key.Str, checkpointKeywords)
		}
	}
	const key = "use_reentrant"
	v := kw.Get(key)
	if v == nil || v.Kind == Null {
		return otherwise
	}
	if x, ok := d.scalar(v, key, forms[trainer.Bool]); ok {
		if b, isBool := x.(bool); isBool {
			return Boolean{b, v.Span, true}
		}
		d.wrong(v, key, forms[trainer.Bool], x)
	}
	return otherwise
}

// loader is the data loader of a trainer: its arguments, unless data: has one.
func (s *Spec) loader(a *Arguments) {
	if s.Data.Loader != nil {
		return
	}
	l := &Loader{NumWorkers: a.integer("dataloader_num_workers"), PinMemory: a.boolean("dataloader_pin_memory"), PersistentWorkers: a.boolean("dataloader_persistent_workers")}
	l.Context.V = "fork"
	if a.Value("dataloader_prefetch_factor") != nil {
		l.PrefetchFactor = a.integer("dataloader_prefetch_factor")
	}
	s.Data.Loader = l
}

// TrainerOptimizer is the optimizer that a trainer's arguments name, with its group of
// parameters that do not decay, whose patterns are found when the model is known.
func (s *Spec) TrainerOptimizer(o *trainer.Optimizer, a *Arguments) *Callee {
	at := a.Span("optim")
	args := mapping(pair("lr", float(a.Number("learning_rate"))))
	add := func(name string, v *Value) { args.Pairs = append(args.Pairs, pair(name, v)) }
	if o.Adam {
		add("betas", sequence(float(a.Number("adam_beta1")), float(a.Number("adam_beta2"))))
		add("eps", float(a.Number("adam_epsilon")))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Args)) {
		add(name, valueOf(o.Args[name]))
	}
	s.optimArgs(o, a, add)
	add("weight_decay", float(a.Number("weight_decay")))
	args.Span = at
	for i := range args.Pairs {
		args.Pairs[i].Key.Span, args.Pairs[i].Value.Span = at, at
	}
	return &Callee{
		Name: String{V: o.Row, At: at, Set: true}, Arg: args,
		Groups: undecayed(at),
	}
}

// OwnOptimizer is an optimizer that is given beside the trainer's arguments, whose
// weight_decay is that of its groups.
func (s *Spec) OwnOptimizer(c *Callee, a *Arguments) *Callee {
	own, args := *c, mapping()
	if c.Arg != nil {
		args.Pairs = slices.DeleteFunc(slices.Clone(c.Arg.Pairs), func(p Pair) bool { return p.Key.Str == "weight_decay" })
	}
	decay := pair("weight_decay", float(a.Number("weight_decay")))
	decay.Key.Span, decay.Value.Span, args.Span = c.Name.At, c.Name.At, c.Name.At
	args.Pairs = append(args.Pairs, decay)
	own.Arg = args
	if own.Groups == nil {
		own.Groups = undecayed(c.Name.At)
	}
	return &own
}

// undecayed are the groups into which Trainer divides parameters: those that are not decayed.
func undecayed(at Span) ParamGroups {
	return ParamGroups{{At: at, Arg: mapping(pair("weight_decay", float(0)))}}
}

// optimArgs adds what Trainer reads of optim_args for an optimizer. It reads no others.
func (s *Spec) optimArgs(o *trainer.Optimizer, a *Arguments, add func(name string, v *Value)) {
	text := strings.ReplaceAll(a.Text("optim_args"), " ", "")
	if text == "" {
		return
	}
	values := map[string]string{}
	for _, kv := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || strings.Contains(value, "=") {
			s.Errs.Addf(a.Span("optim_args"), "optim_args must be like momentum=0.9,nesterov=true, not %q", text)
			return
		}
		values[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		whole, notWhole := strconv.ParseInt(value, 10, 64)
		switch n, err := strconv.ParseFloat(value, 64); {
		case slices.Contains(o.Flags, name):
			add(name, boolean(slices.Contains([]string{"true", "1", "yes"}, strings.ToLower(value))))
		case !slices.Contains(o.Numbers, name):
		case err != nil:
			s.Errs.Addf(a.Span("optim_args"), "optim_args: %s must be a number, not %q", name, value)
		case notWhole == nil:
			add(name, integer(whole))
		default:
			add(name, float(n))
		}
	}
}

// EvalSamples is how many samples evaluations go over; 0: it is not known.
func (t *Trainer) EvalSamples() int64 {
	if t.EvalDataset == nil {
		return 0
	}
	return t.EvalDataset.Samples.V
}

// EvalRows is how many sequences a batch of an evaluation has; exact says that these are as
// long as those of training. Samples that are one sequence are as many there as in training,
// or else they are planned as sequences of training.
func (t *Trainer) EvalRows() (rows int64, exact bool) {
	n := min(t.Args().Int("per_device_eval_batch_size"), max(t.EvalSamples(), 1))
	switch {
	case t.DPO != nil:
		return samplesOfPair * n, true
	case !t.Flattened():
		return n, true
	}
	train := t.Args().Int("per_device_train_batch_size")
	return (n + train - 1) / train, n == train
}

// LastRows is how many sequences the last batch of an evaluation has, where these are
// fewer than EvalRows; else 0. With several processes accelerate makes it a full one, of
// samples from the beginning (even_batches).
func (s *Spec) LastRows() int64 {
	t := s.Trainer
	n := t.Args().Int("per_device_eval_batch_size")
	if t.EvalSamples() < n || t.Flattened() || s.processes() > 1 || t.Args().Bool("dataloader_drop_last") {
		return 0
	}
	if t.DPO != nil {
		return samplesOfPair * (t.EvalSamples() % n)
	}
	return t.EvalSamples() % n
}

// Evaluates reports whether there are evaluations between steps.
func (t *Trainer) Evaluates() bool {
	switch {
	case t.OfTransformers():
		return t.EvalSamples() > 0 && t.Args().Text("eval_strategy") != "no"
	case t.Lightning != nil:
		a := t.Args()
		return t.EvalSamples() > 0 && !(a.Has("limit_val_batches") && a.Number("limit_val_batches") == 0)
	}
	return true
}
