package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// Setting is a key of a spec, as a path, and its value in YAML.
type Setting struct{ Path, Value string }

// TrainerSettings are the settings that say in a spec with a trainer what keys of train
// say in others; false if none does. Other keys are as they are.
func (s *Spec) TrainerSettings(keys ...Setting) ([]Setting, bool) {
	var out []Setting
	keys = s.globalBatch(slices.Clone(keys))
	for _, k := range keys {
		ss, ok := trainerSettings(s.root, k.Path, k.Value)
		if !ok {
			return nil, false
		}
		out = append(out, ss...)
	}
	return out, true
}

// globalBatches are the arguments of trainers that accumulate batches until they have so
// many samples.
var globalBatches = map[string]struct{ micro, global string }{
	"litgpt":     {"train.micro_batch_size", "train.global_batch_size"},
	"torchtitan": {"training.local_batch_size", "training.global_batch_size"},
	"megatron":   {"micro_batch_size", "global_batch_size"},
}

// globalBatch writes a size of a batch and how many are accumulated as arguments of such a
// trainer.
func (s *Spec) globalBatch(keys []Setting) []Setting {
	find := func(path string) int { return slices.IndexFunc(keys, func(k Setting) bool { return k.Path == path }) }
	size, count := find("train.batch_size"), find("train.grad_accumulation")
	if s.Trainer == nil || size < 0 || count < 0 {
		return keys
	}
	of, ok := globalBatches[s.Trainer.Key()]
	n, err := strconv.ParseInt(keys[size].Value, 10, 64)
	k, wrong := strconv.ParseInt(keys[count].Value, 10, 64)
	if !ok || err != nil || wrong != nil {
		return keys
	}
	ranks := int64(1)
	if s.Parallel != nil && s.Parallel.FSDP.Set {
		ranks = s.Parallel.FSDP.V
	}
	if s.Trainer.Megatron != nil {
		ranks = s.Trainer.MegatronBuffers().Ranks
	}
	at := "trainer." + s.Trainer.Key() + "."
	keys[size].Path = at + of.micro
	keys[count] = Setting{at + of.global, strconv.FormatInt(n*k*ranks, 10)}
	return keys
}

func trainerSettings(root *Value, path, value string) ([]Setting, bool) {
	t := root.Get("trainer")
	key, ok := strings.CutPrefix(path, "train.")
	if t == nil || t.Kind != Map || !ok || key == "steps" {
		return []Setting{{path, value}}, true
	}
	args, of, given, table := "", "", (*Value)(nil), (*trainer.Table)(nil)
	for _, p := range t.Pairs {
		if x := trainer.Named(p.Key.Str); x != nil && p.Value.Kind == Map {
			args, of, given, table = "trainer."+p.Key.Str+".", p.Key.Str, p.Value, x
		}
	}
	if table == nil {
		return []Setting{{path, value}}, true
	}
	sets := func(ss ...Setting) ([]Setting, bool) {
		for i := range ss {
			if section, _, _ := strings.Cut(ss[i].Path, "."); section != "model" && section != "params" {
				ss[i].Path = args + ss[i].Path
			}
		}
		return ss, true
	}
	value = strings.Trim(value, `"'`)
	if own := map[string]func(root, given *Value, key, value string) ([]Setting, bool){"litgpt": litgptSettings, "torchtitan": torchtitanSettings, "megatron": megatronSettings}[of]; own != nil {
		ss, ok := own(root, given, key, value)
		if !ok {
			return nil, false
		}
		return sets(ss...)
	}
	if of == "lightning" {
		switch s, own, ok := lightningSetting(key, value); {
		case !ok:
			return nil, false
		case own:
			return sets(s)
		default:
			return []Setting{s}, true
		}
	}
	if own := "optimizer_cls_and_kwargs"; key == "optimizer" && t.Get(own) != nil {
		return []Setting{{"trainer." + own, value}}, true
	}
	switch key {
	case "batch_size":
		if name := soleName(given.Get("per_device_train_batch_size")); root.Get("params").Get(name) != nil {
			return sets(Setting{"params." + name, value}) // and what else depends on the param
		}
		return sets(Setting{"per_device_train_batch_size", value})
	case "grad_accumulation":
		return sets(Setting{"gradient_accumulation_steps", value})
	case "clip_grad_norm":
		return sets(Setting{"max_grad_norm", value})
	case "deterministic":
		return sets(Setting{"full_determinism", value})
	case "checkpoint":
		if value == "true" || value == "false" {
			return sets(Setting{"gradient_checkpointing", value})
		}
	case "precision":
		weights := "model.dtype"
		if root.Get("model").Get("load") != nil {
			weights = "model.load.dtype"
		}
		switch canonical(value, precisionWords()) {
		case "fp32":
			return sets(Setting{weights, "float32"}, Setting{"bf16", "false"}, Setting{"fp16", "false"})
		case "amp-bf16":
			return sets(Setting{"bf16", "true"}, Setting{"fp16", "false"})
		case "amp-fp16":
			return sets(Setting{"bf16", "false"}, Setting{"fp16", "true"})
		case "bf16":
			return sets(Setting{weights, "bfloat16"}, Setting{"bf16", "false"}, Setting{"fp16", "false"})
		case "fp16":
			return sets(Setting{weights, "float16"}, Setting{"bf16", "false"}, Setting{"fp16", "false"})
		}
	case "optimizer":
		for i := range trainer.Optimizers {
			o := &trainer.Optimizers[i]
			if ss, ok := optimizerSettings(o, value); ok {
				ss = slices.DeleteFunc(ss, func(x Setting) bool { return isSet(given, table, x) })
				return sets(append([]Setting{{"optim", o.Name}}, ss...)...)
			}
		}
	}
	return nil, false
}

// optimizerSettings are the arguments of a trainer that choose the arguments of an optimizer
// of its own; false if value is another optimizer, or none of these chooses some.
func optimizerSettings(o *trainer.Optimizer, value string) ([]Setting, bool) {
	v := readYAML([]byte(value), new(Errors))
	var args *Value
	switch {
	case v == nil:
		return nil, false
	case v.Kind == Map && len(v.Pairs) == 1:
		v, args = v.Pairs[0].Key, v.Pairs[0].Value
	}
	if v.Kind != Str || v.Str != o.Row || o.Row == "" || args != nil && args.Kind != Map && args.Kind != Null {
		return nil, false
	}
	if fused := args.Get("fused"); (o.Args["fused"] == true) != (fused != nil && fused.Kind == Bool && fused.Bool) {
		return nil, false
	}
	var out []Setting
	var own []string
	for _, p := range pairs(args) {
		x := p.Value
		switch name := p.Key.Str; {
		case name == "betas" && o.Adam && len(x.Items) == 2:
			out = append(out, Setting{"adam_beta1", x.Items[0].Str}, Setting{"adam_beta2", x.Items[1].Str})
		case x.Kind == List || x.Kind == Map || x.Kind == Null:
			return nil, false
		case name == "fused": // as o has it
		case o.Args[name] != nil:
			if x.Str != fmt.Sprint(o.Args[name]) {
				return nil, false
			}
		case name == "lr":
			out = append(out, Setting{"learning_rate", x.Str})
		case name == "weight_decay":
			out = append(out, Setting{name, x.Str})
		case name == "eps" && o.Adam:
			out = append(out, Setting{"adam_epsilon", x.Str})
		case slices.Contains(o.Numbers, name) || slices.Contains(o.Flags, name):
			own = append(own, name+"="+x.Str)
		default:
			return nil, false
		}
	}
	if len(own) > 0 {
		out = append(out, Setting{"optim_args", strings.Join(own, ",")})
	}
	return out, true
}

// isSet reports whether a trainer's argument has a value already.
func isSet(args *Value, table *trainer.Table, x Setting) bool {
	if v := args.Get(x.Path); v != nil {
		return v.Str == x.Value
	}
	row := table.Find(x.Path, "")
	return row != nil && row.Default != nil && fmt.Sprint(row.Default) == x.Value
}

// precisionWords are the other words for values of train.precision.
func precisionWords() string {
	for _, k := range Keys()["train"] {
		if k.Name == "precision" {
			return strings.Join(k.Words, "|")
		}
	}
	return ""
}

// trainerPath is the path under which a spec with a trainer says what a key of train says.
func (s *Spec) trainerPath(path string) string {
	if s.Trainer == nil {
		return path
	}
	if ss, ok := s.TrainerSettings(Setting{path, "true"}); ok && len(ss) > 0 {
		return ss[0].Path
	}
	switch {
	case path == "train.precision" && s.Trainer.OfTransformers():
		return "trainer." + s.Trainer.Key() + ".bf16"
	case path == "train.precision" && s.Trainer.Torchtitan != nil:
		return "trainer.torchtitan.training.mixed_precision_param"
	case path == "train.precision" && s.Trainer.Megatron != nil:
		return "trainer.megatron.bf16"
	case path == "train.optimizer" && s.Trainer.Megatron != nil:
		return "trainer.megatron.optimizer"
	case path == "train.optimizer" && s.Trainer.Torchtitan != nil:
		return "trainer.torchtitan.optimizer.name"
	case path == "train.precision":
		return "trainer." + s.Trainer.Key() + ".precision"
	case path == "train.optimizer" && s.Trainer.OfTransformers():
		return "trainer." + s.Trainer.Key() + ".optim"
	case path == "train.optimizer":
		return "trainer." + s.Trainer.Key() + ".optimizer"
	}
	return path
}

// keysOf are the keys of the section trainer next to a loop's arguments that not all loops
// have, and what goes with another.
var keysOf = []struct {
	key   string
	loops []string
	other string
}{
	{"flattening", []string{"hf"}, "; sft has padding_free: true"},
	{"one_sample", []string{"hf", "sft"}, ""},
	{"sequences", []string{"hf", "sft"}, ""},
	{"loss_tokens", []string{"sft", "dpo"}, ""},
	{"eval_dataset", []string{"hf", "sft", "dpo", "lightning"}, "; litgpt has eval.max_iters"},
	{"compute_metrics", []string{"hf", "sft", "dpo"}, ""},
	{"model_accepts_loss_kwargs", []string{"hf", "sft"}, ""},
	{"nan_loss", []string{"hf", "sft", "dpo", "grpo"}, ""},
	{"empty_cache", []string{"hf", "sft", "dpo", "grpo"}, ""},
	{"optimizer_cls_and_kwargs", []string{"hf", "sft", "dpo"}, ""},
}

// keysOfOthers reports the keys of the section trainer that the loop does not have.
func (s *Spec) keysOfOthers() {
	of := s.Trainer.Key()
	for _, k := range keysOf {
		if v := s.root.Get("trainer").Get(k.key); v != nil && !v.absent() && !slices.Contains(k.loops, of) {
			s.Errs.Addf(v.Span, "%s is of trainer: %s, not of %s%s", k.key, strings.Join(k.loops, ", "), of, k.other)
		}
	}
}
