package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// LitGPTPreset is the preset of litgpt's model.
const LitGPTPreset = "litgpt"

// LitGPTArguments are those of a command of litgpt.
type LitGPTArguments struct{ Arguments }

func (a *LitGPTArguments) unmarshal(d *decoder, v *Value) {
	a.read(d, v, trainer.LitGPT(litgptCommand(v)))
	a.Release = ""
}

// litgptCommand is the command of arguments that are not decoded.
func litgptCommand(given *Value) string {
	if c := given.Get("command"); c != nil && slices.Contains(trainer.LitGPTCommands, c.Str) {
		return c.Str
	}
	return trainer.LitGPTCommands[0]
}

// fabricPrecisions are values of train.precision by those of lightning.Fabric's precision.
var fabricPrecisions = map[string]string{
	"bf16-true": "bf16", "16-true": "fp16", "32-true": "fp32", "bf16-mixed": "amp-bf16", "16-mixed": "amp-fp16",
}

// litgpt gives the sections what the arguments of litgpt say.
func (s *Spec) litgpt(a *Arguments) {
	s.keysOfOthers()
	if s.Model == nil { // which is reported
		return
	}
	if v := a.Value("devices"); a.Has("devices") && v.(*Value).Str != "1" || a.Int("num_nodes") > 1 {
		s.Errs.Addf(a.Span("devices"), "litgpt on several GPUs is not modelled: FSDP with activation checkpointing of each Block; devices: 1 is")
	}
	micro, global := a.Int("train.micro_batch_size"), a.Int("train.global_batch_size")
	if global < micro {
		s.Errs.Addf(a.Span("train.global_batch_size"), "train.global_batch_size is at least train.micro_batch_size (%d), not %d", micro, global)
		return
	}
	s.Train.BatchSize = a.integer("train.micro_batch_size")
	s.Train.GradAccumulation = Integer{V: global / micro, At: a.Span("train.global_batch_size"), Set: a.Has("train.global_batch_size")}
	s.Train.Loop.V = "flat"
	precision := a.Text("precision")
	if precision == "" {
		precision = "bf16-mixed"
	}
	s.Train.Precision = String{V: fabricPrecisions[precision], At: a.Span("precision"), Set: true}
	s.Train.Optimizer = s.litgptOptimizer(a)
	if command := a.Text("command"); command != "pretrain" {
		for _, name := range []string{"train.max_norm", "train.tie_embeddings"} {
			if a.Has(name) {
				s.Errs.Addf(a.Span(name), "litgpt %s does not take %s; pretrain does", command, name)
			}
		}
	}
	if a.Text("command") == "finetune_lora" {
		s.litgptAdapters(a, precision)
	}
}

// litgptAdapters are what finetune_lora trains, and what it quantizes.
func (s *Spec) litgptAdapters(a *Arguments, precision string) {
	trained := []String{{V: "*lora_*", At: a.At, Set: true}}
	if s.Freeze == nil { // mark_only_lora_as_trainable
		s.Freeze = &Freeze{At: a.At, Except: trained}
	}
	kind, ok := strings.CutPrefix(a.Text("quantize"), "bnb.")
	if !ok {
		return
	}
	at := a.Span("quantize")
	switch {
	case kind == "int8-training":
		s.Errs.Addf(at, "quantize: bnb.int8-training is not modelled; bnb.nf4, bnb.nf4-dq, bnb.fp4 and bnb.fp4-dq are")
		return
	case strings.HasSuffix(precision, "mixed"):
		s.Errs.Addf(at, "litgpt does not quantize with precision %s; precision: bf16-true goes with it", precision)
		return
	}
	q := s.Quantize
	if q == nil {
		q = &Quantize{Library: String{V: "0.49"}}
	}
	q.At, q.Bits, q.Modules = at, Integer{V: 4, At: at}, []String{{V: "*", At: at, Set: true}}
	q.Type = String{V: strings.TrimSuffix(kind, "-dq"), At: at, Set: true}
	q.Double = Boolean{V: strings.HasSuffix(kind, "-dq"), At: at, Set: true}
	q.Compute = String{V: map[string]string{"bf16-true": "bfloat16", "16-true": "float16", "32-true": "float32"}[precision], At: at, Set: true}
	s.Quantize = q
	if s.Model.Preset.V != LitGPTPreset {
		return
	}
	// StableEmbedding is made after the optimizer, which does not know it: its gradients are
	// added up, and nothing clears them.
	s.Freeze = &Freeze{At: a.At, Except: append(trained, String{V: "stable_wte.*", At: at, Set: true})}
	s.Optimizers = []*Named[OptimizerDef]{{Name: String{V: "optimizer", At: at, Set: true}, V: &OptimizerDef{Optimizer: s.Train.Optimizer, Params: trained}}}
	s.Train.Optimizer = nil
}

// litgptOptimizer is the optimizer (litgpt/utils.py: instantiate_torch_optimizer,
// instantiate_bnb_optimizer): a class of torch.optim by its name, or class_path and
// init_args.
func (s *Spec) litgptOptimizer(a *Arguments) *Callee {
	at := a.Span("optimizer")
	name, args := "AdamW", mapping()
	args.Span = at
	if v, ok := a.Value("optimizer").(*Value); ok {
		switch path := v.Get("class_path"); {
		case v.Kind == Str:
			name = v.Str
		case path != nil && path.Kind == Str:
			name = path.Str
			if init := v.Get("init_args"); init != nil && init.Kind == Map {
				args.Pairs = slices.Clone(init.Pairs)
			}
		default:
			s.Errs.Addf(at, "optimizer is a name such as AdamW, or {class_path: torch.optim.AdamW, init_args: {lr: 3.0e-4}}, not %s", v.Describe())
		}
	}
	name = name[strings.LastIndex(name, ".")+1:]
	switch {
	case a.Text("quantize") != "":
		if !strings.Contains(name, "AdamW") {
			s.Errs.Addf(at, "with quantize, litgpt takes the optimizer AdamW alone, not %s", name)
		}
		name = "PagedAdamW"
	case a.Text("command") == "pretrain" && args.Get("fused") == nil && slices.Contains([]string{"Adam", "AdamW", "SGD", "Adagrad"}, name):
		args.Pairs = append(args.Pairs, Pair{&Value{Span: at, Kind: Str, Str: "fused"}, &Value{Span: at, Kind: Bool, Bool: true, Str: "true"}})
	}
	return &Callee{Name: String{V: name, At: at, Set: true}, Arg: args}
}

// LitGPTParams are the params of litgpt's model that its arguments give; nil without such
// a trainer.
func (t *Trainer) LitGPTParams() map[string]any {
	if t == nil || t.LitGPT == nil || t.LitGPT.Table == nil {
		return nil
	}
	a := &t.LitGPT.Arguments
	out := map[string]any{"max_seq_length": a.Value("train.max_seq_length")}
	for _, name := range a.Table.Names("") {
		if strings.HasPrefix(name, "lora_") {
			out[name] = a.Value(name)
		}
	}
	out["stable_embedding"] = a.Text("quantize") != ""
	out["sets_length"] = a.Text("command") != "pretrain"
	if half := map[string]string{"bf16-true": "bfloat16", "16-true": "float16"}[a.Text("precision")]; half != "" && a.Text("quantize") == "" {
		out["module_dtype"] = half
	}
	if a.Text("command") == "finetune_lora" {
		out["lm_head_chunk_size"] = int64(trainer.LitGPTChunk)
	}
	return out
}

// litgptSettings are the arguments of litgpt that say what a key of train says. A batch
// larger than train.global_batch_size, of which litgpt makes no step, raises that, too.
func litgptSettings(_, given *Value, key, value string) ([]Setting, bool) {
	switch key {
	case "batch_size":
		const global = "train.global_batch_size"
		ss := []Setting{{"train.micro_batch_size", value}}
		n, err := strconv.ParseInt(value, 10, 64)
		if all := undecoded(trainer.LitGPT(litgptCommand(given)), given, global); all > 0 && err == nil && n > all {
			ss = append(ss, Setting{global, value})
		}
		return ss, true
	case "clip_grad_norm":
		return []Setting{{"train.max_norm", value}}, true
	case "precision":
		s, ok := fabricSetting(value)
		return []Setting{s}, ok
	}
	return nil, false
}

// fabricSetting is the precision of Fabric, or of Lightning's Trainer, for a value of
// train.precision.
func fabricSetting(value string) (Setting, bool) {
	of := canonical(value, precisionWords())
	for name, v := range fabricPrecisions {
		if v == of {
			return Setting{"precision", name}, true
		}
	}
	return Setting{}, false
}
