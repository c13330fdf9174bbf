package spec

import (
	"maps"
	"math"
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

	LitGPT *LitGPTArguments `yaml:"litgpt" doc:"litgpt's finetune_lora, finetune_full and pretrain: the keys of their configuration files, and command"`

	Lightning *LightningArguments `yaml:"lightning" doc:"lightning.Trainer: its arguments; train has batch_size, optimizer and checkpoint"`

	Torchtitan *Value `yaml:"torchtitan" doc:"torchtitan: refused"`

	GRPO   *Value `yaml:"grpo" doc:"trl.GRPOTrainer: refused"`
	KTO    *Value `yaml:"kto" doc:"trl.KTOTrainer: refused"`
	RLOO   *Value `yaml:"rloo" doc:"trl.RLOOTrainer: refused"`
	Reward *Value `yaml:"reward" doc:"trl.RewardTrainer: refused"`

	Flattening  Boolean      `yaml:"flattening" doc:"of hf: the samples of a batch are one sequence with position_ids and without a mask, as DataCollatorWithFlattening makes it"`
	OneSample   Boolean      `yaml:"one_sample" doc:"a batch that is one sequence (flattening of hf, packing or padding_free of sft) is one sample, so that attention needs no mask"`
	Sequences   Integer      `yaml:"sequences" min:"2" doc:"how many samples such a sequence has, which flash attention reads from position_ids; by default per_device_train_batch_size"`
	LossTokens  Integer      `yaml:"loss_tokens" min:"0" doc:"of sft and dpo: how many tokens of a batch have a loss, as completion_only_loss and padding leave them; by default all, of dpo all but the first of each sample"`
	EvalDataset *EvalDataset `yaml:"eval_dataset" doc:"what evaluations go over"`
	Metrics     Boolean      `yaml:"compute_metrics" doc:"there is a compute_metrics function: evaluations collect logits and labels"`
	Accepts     Boolean      `yaml:"model_accepts_loss_kwargs" doc:"whether Trainer counts the items of a batch for the model's loss; by default whether the model's forward takes **kwargs"`
	NaNLoss     Boolean      `yaml:"nan_loss" doc:"losses are NaN, which Trainer replaces in its sum (logging_nan_inf_filter)"`

	EvalEvery int64 `yaml:"-"` // evaluations are after every n-th step
	LogEvery  int64 `yaml:"-"` // logs are; 0: it is not known, or there are none
}

// EvalDataset is what the evaluations of a trainer go over.
type EvalDataset struct {
	Samples Integer `yaml:"samples" min:"1" doc:"number of samples"`
}

// Arguments are those that a spec gives a trainer, by the trainer's table.
type Arguments struct {
	At      Span
	Table   *trainer.Table
	Release string // of transformers
	given   map[string]*Value
	values  map[string]any
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
	if t.LitGPT != nil {
		add("litgpt", &t.LitGPT.Arguments)
	}
	if t.Lightning != nil {
		add("lightning", &t.Lightning.Arguments)
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

// OfTransformers reports whether the trainer is that of transformers, or made of it.
func (t *Trainer) OfTransformers() bool { return t != nil && (t.HF != nil || t.OfTRL()) }

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

// read decodes a mapping by a table.
func (a *Arguments) read(d *decoder, v *Value, t *trainer.Table) {
	a.At, a.Table, a.given, a.values = v.Span, t, map[string]*Value{}, map[string]any{}
	a.Release = d.release
	if v.Kind != Map {
		d.errs.Addf(v.Span, "the arguments of %s are a mapping, not %s; {} is the defaults", t.Name, v.Describe())
		return
	}
	a.section(d, v, "")
}

// section decodes the arguments of a mapping, whose names begin with a prefix: keys of
// the mapping NAME in it are arguments NAME.KEY.
func (a *Arguments) section(d *decoder, v *Value, prefix string) {
	t := a.Table
	for _, p := range v.Pairs {
		name := prefix + p.Key.Str
		row := t.Find(name, a.Release)
		if row == nil {
			switch {
			case p.Value.Kind == Map && t.HasSection(name):
				a.section(d, p.Value, name+".")
			case p.Value.Kind == Null && t.HasSection(name):
			case t.HasSection(name):
				d.errs.Addf(p.Value.Span, "%s is a mapping of arguments of %s, not %s", name, t.Name, p.Value.Describe())
			case t.Find(name, "") != nil || t.Find(name, trainer.Old) != nil:
				d.errs.Addf(p.Key.Span, "%s of transformers %s has no argument %q; another release has it (model.with.transformers)", t.Name, a.releaseName(), name)
			default:
				d.errs.Unknown(p.Key.Span, "argument of "+t.Name, name, t.Names(a.Release))
			}
			continue
		}
		if a.given[name] != nil {
			d.errs.Addf(p.Key.Span, "%s is given twice", name)
			continue
		}
		if p.Value.Kind == Null && (row.Default == nil || row.Null) {
			a.values[name] = nil
			continue
		}
		if x, ok := a.value(d, row, name, p.Value); ok {
			a.given[name], a.values[name] = p.Value, x
		}
	}
}

func (a *Arguments) releaseName() string {
	if a.Release == "" {
		return "5.12"
	}
	return a.Release
}

// forms is what messages call the forms of arguments.
var forms = map[trainer.Form]string{trainer.Int: "an integer", trainer.Number: "a number", trainer.Bool: "true or false", trainer.String: "a string"}

// value reads the value of one argument. Numbers may be strings, as in JSON that
// people write.
func (a *Arguments) value(d *decoder, row *trainer.Argument, what string, v *Value) (any, bool) {
	switch row.Form {
	case trainer.Any:
		return v, v.Kind != Null
	case trainer.Mapping:
		if v.Kind == Str && strings.HasPrefix(v.Str, "{") { // as on a command line
			if m := ofJSON(v); m != nil {
				return m, true
			}
		}
		if v.Kind != Map && v.Kind != Null {
			d.errs.Addf(v.Span, "%s must be a mapping, not %s", what, v.Describe())
			return nil, false
		}
		return v, v.Kind != Null
	case trainer.Strings:
		if v.Kind == Map {
			d.errs.Addf(v.Span, "%s must be a list of strings, not %s", what, v.Describe())
			return nil, false
		}
		return v, v.Kind != Null
	}
	want := forms[row.Form]
	x, ok := d.scalar(v, what, want)
	if !ok {
		return nil, false
	}
	if x == nil {
		if row.Default == nil || row.Null {
			return nil, false
		}
		d.wrong(v, what, want, x)
		return nil, false
	}
	text, isText := x.(string)
	switch row.Form {
	case trainer.Int:
		if n, err := strconv.ParseInt(text, 10, 64); isText && err == nil {
			x = n
		}
		if n, isInt := x.(int64); isInt {
			if n < row.Min {
				d.errs.Addf(v.Span, "%s must be at least %d, not %d", what, row.Min, n)
				return nil, false
			}
			return n, true
		}
	case trainer.Number:
		if n, err := strconv.ParseFloat(text, 64); isText && err == nil {
			x = n
		}
		if n, isNumber := number(x); isNumber {
			return n, true
		}
	case trainer.Bool:
		if b, isBool := x.(bool); isBool {
			return b, true
		}
	default:
		if isText && (row.Choices == nil || d.enum(String{text, v.Span, true}, what, row.Choices, "")) {
			return text, true
		}
		if isText {
			return nil, false
		}
		if b, isBool := x.(bool); isBool && !b && slices.Contains(row.Choices, "no") { // no is false in YAML 1.1
			return "no", true
		}
	}
	d.wrong(v, what, want, x)
	return nil, false
}

// ofJSON is the mapping that a text of JSON is, at its place; nil if it is none.
func ofJSON(v *Value) *Value {
	var errs Errors
	m := readYAML([]byte(v.Str), &errs)
	if m == nil || m.Kind != Map || len(errs.List) > 0 {
		return nil
	}
	m.place(v.Span)
	return m
}

// place gives a value and all in it a place.
func (v *Value) place(at Span) {
	v.Span = at
	for _, it := range v.Items {
		it.place(at)
	}
	for i := range v.Pairs {
		v.Pairs[i].Key.Span = at
		v.Pairs[i].Value.place(at)
	}
}

// Value is that of an argument, or its default; nil is None.
func (a *Arguments) Value(name string) any {
	if x, ok := a.values[name]; ok {
		return x
	}
	if row := a.Table.Find(name, a.Release); row != nil {
		return row.DefaultIn(a.Release)
	}
	return nil
}

// Span is the place of an argument's value, or that of all.
func (a *Arguments) Span(name string) Span {
	if v := a.given[name]; v != nil {
		return v.Span
	}
	return a.At
}

// Has reports whether an argument is given.
func (a *Arguments) Has(name string) bool { return a.given[name] != nil }

// Int is the value of an integer.
func (a *Arguments) Int(name string) int64 {
	n, _ := a.Value(name).(int64)
	return n
}

// Number is the value of a number.
func (a *Arguments) Number(name string) float64 {
	n, _ := number(a.Value(name))
	return n
}

// Bool is the value of a flag.
func (a *Arguments) Bool(name string) bool {
	b, _ := a.Value(name).(bool)
	return b
}

// Text is the value of a string.
func (a *Arguments) Text(name string) string {
	s, _ := a.Value(name).(string)
	return s
}

// integer is the decoded form of an argument for a section that stands for it.
func (a *Arguments) integer(name string) Integer {
	return Integer{V: a.Int(name), At: a.Span(name), Set: a.Has(name)}
}

func (a *Arguments) boolean(name string) Boolean {
	return Boolean{V: a.Bool(name), At: a.Span(name), Set: a.Has(name)}
}

// inTrainer are the sections that a trainer takes the place of.
var inTrainer = []string{"train", "before", "step", "eval", "optimizers", "models", "teacher"}

// trainer gives the sections that a trainer takes the place of what its arguments say.
func (s *Spec) trainer(d *decoder) {
	t := s.Trainer
	if t == nil {
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
	default:
		s.transformers(d, a)
	}
}

// transformers gives the sections what the arguments of transformers.Trainer say.
func (s *Spec) transformers(d *decoder, a *Arguments) {
	t := s.Trainer
	s.trl(a)
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
		s.Train.Checkpoint = &Checkpoint{At: a.Span("gradient_checkpointing"), Reentrant: d.reentrant(kw, Boolean{V: otherwise, At: a.At})}
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

// every is in every how many steps a trainer does what an argument says. Below 1 it is a
// part of max_steps; 0: that is not given.
func (a *Arguments) every(errs *Errors, name string) int64 {
	n := a.Number(name)
	switch {
	case n <= 0:
		errs.Addf(a.Span(name), "%s must be positive, not %v; 0.1 is a tenth of max_steps, 10 every tenth step", name, n)
		return 0
	case n > MaxEvery:
		errs.Addf(a.Span(name), "%s must be at most %d, not %v", name, int64(MaxEvery), n)
		return 0
	case n > 1 && n != math.Trunc(n):
		errs.Addf(a.Span(name), "%s must be an integer if it is larger than 1, not %v", name, n)
		return 0
	case n < 1:
		return int64(math.Ceil(n * float64(max(a.Int("max_steps"), 0))))
	}
	return int64(n)
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

// releaseOf is the release of transformers that a spec names; "" is the current one.
func releaseOf(root *Value) string {
	v := root.Get("model").Get("with").Get("transformers")
	if v != nil && strings.Trim(v.Str, `"'`) == trainer.Old {
		return trainer.Old
	}
	return ""
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
		Groups: ParamGroups{{At: at, Arg: mapping(pair("weight_decay", float(0)))}},
	}
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

// Params are the arguments by name, for the loop; None is null, and a.b is a_b.
func (a *Arguments) Params() map[string]any {
	out := map[string]any{}
	for _, name := range a.Table.Names(a.Release) {
		switch x := a.Value(name).(type) {
		case nil, int64, float64, bool, string:
			out[strings.ReplaceAll(name, ".", "_")] = x
		}
	}
	return out
}

// asks reports whether the value of an argument is neither its default nor empty.
func (a *Arguments) asks(row *trainer.Argument) bool {
	x, otherwise := a.Value(row.Name), row.DefaultIn(a.Release)
	if v, ok := x.(*Value); ok {
		switch v.Kind {
		case List:
			return len(v.Items) > 0
		case Map:
			return len(v.Pairs) > 0
		case Bool:
			x = v.Bool
		case Str:
			x = v.Str
		}
	}
	return x != otherwise && x != false && x != nil && x != ""
}

// Unmodelled lists the arguments that ask for what is not modelled.
func (a *Arguments) Unmodelled() []*trainer.Argument {
	var out []*trainer.Argument
	for _, name := range a.Table.Names(a.Release) {
		row := a.Table.Find(name, a.Release)
		if row.Reach == trainer.Unmodelled && a.Has(name) && a.asks(row) {
			out = append(out, row)
		}
	}
	return out
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
