package spec

import (
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// Setting is a key of a spec, as a path, and its value in YAML.
type Setting struct{ Path, Value string }

// TrainerSettings are the settings that say in a spec with a trainer what a key of train
// says in others; false if none does. Other keys are as they are.
func (s *Spec) TrainerSettings(path, value string) ([]Setting, bool) {
	return trainerSettings(s.root, path, value)
}

func trainerSettings(root *Value, path, value string) ([]Setting, bool) {
	t := root.Get("trainer")
	key, ok := strings.CutPrefix(path, "train.")
	if t == nil || t.Kind != Map || !ok || key == "steps" {
		return []Setting{{path, value}}, true
	}
	args, said := "", (*Value)(nil)
	for _, p := range t.Pairs {
		if p.Value.Kind == Map && trainer.Named(p.Key.Str) {
			args, said = "trainer."+p.Key.Str+".", p.Value
		}
	}
	if args == "" {
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
	switch key {
	case "batch_size":
		if name := soleName(said.Get("per_device_train_batch_size")); root.Get("params").Get(name) != nil {
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
		switch canonical(value, precisionWords()) {
		case "fp32":
			return sets(Setting{"bf16", "false"}, Setting{"fp16", "false"})
		case "amp-bf16":
			return sets(Setting{"bf16", "true"}, Setting{"fp16", "false"})
		case "amp-fp16":
			return sets(Setting{"bf16", "false"}, Setting{"fp16", "true"})
		case "bf16":
			return sets(Setting{"model.dtype", "bfloat16"}, Setting{"bf16", "false"}, Setting{"fp16", "false"})
		case "fp16":
			return sets(Setting{"model.dtype", "float16"}, Setting{"bf16", "false"}, Setting{"fp16", "false"})
		}
	case "optimizer":
		name, _, _ := strings.Cut(strings.TrimLeft(value, "{ "), ":")
		for _, o := range trainer.Optimizers {
			if o.Row == strings.Trim(name, "} ") && (o.Args["fused"] == true) == strings.Contains(value, "fused: true") {
				return sets(Setting{"optim", o.Name})
			}
		}
	}
	return nil, false
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
	if ss, ok := s.TrainerSettings(path, "true"); ok && len(ss) > 0 {
		return ss[0].Path
	}
	switch path {
	case "train.precision":
		return "trainer." + s.Trainer.Key() + ".bf16"
	case "train.optimizer":
		return "trainer." + s.Trainer.Key() + ".optim"
	}
	return path
}
