package graph

import (
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// stepKeys stand for statements of a step.
var stepKeys = []string{
	"train.zero_grad", "train.grad_accumulation", "train.clip_grad_norm", "train.clip_grad_value", "train.empty_cache", "train.keep",
}

// trainingKeys are about training alone.
var trainingKeys = []string{
	"train.optimizer", "optimizers", "train.lr_scheduler", "train.zero_grad", "train.grad_accumulation", "train.clip_grad_norm", "train.clip_grad_value",
	"train.checkpoint", "train.ema", "eval", "teacher", "offload.optimizer", "offload.gradients", "offload.activations",
}

// definingKeys define a model, unless a preset or a config.json does.
var definingKeys = []string{"inputs", "blocks", "modules", "parameters", "buffers", "checkpoint"}

// idle warns of keys and params that change nothing.
func (el *building) idle() []note.Note {
	s := el.spec
	var out []note.Note
	given := func(keys []string) []string {
		var found []string
		for _, k := range keys {
			if s.Given(k) != nil {
				found = append(found, k)
			}
		}
		return found
	}
	warn := func(keys []string, why string) {
		switch len(keys) {
		case 0:
		case 1:
			out = append(out, note.NoEffect.New("%s has no effect %s", keys[0], why).Of(keys...))
		default:
			out = append(out, note.NoEffect.New("%s have no effect %s", strings.Join(keys, ", "), why).Of(keys...))
		}
	}
	training := el.job.Inference == ""
	if s.Step != nil {
		keys := stepKeys
		if s.Eval == nil || s.Eval.Step != nil {
			keys = append(keys[:len(keys):len(keys)], "model.loss")
		}
		if s.TeachesOtherwise() {
			keys = append(keys[:len(keys):len(keys)], "teacher.loss")
		}
		warn(given(keys), "beside step:, whose statements are the step")
		if training && el.job.EMA != nil && !has(el.job.Step, program.UpdateEMA) {
			warn([]string{"train.ema"}, "but for a second copy of the weights: the step has no "+spec.HeadEMA)
		}
	}
	models := []string{"model"}
	for _, m := range s.Models {
		models = append(models, "models."+m.Name.V)
	}
	for _, m := range models {
		for _, by := range []string{"preset", "hf"} {
			if s.Given(m+"."+by) == nil {
				continue
			}
			var keys []string
			for _, k := range definingKeys {
				keys = append(keys, m+"."+k)
			}
			warn(given(keys), "beside "+by+", which defines the model")
		}
	}
	if !training && s.Mode.At.Line > 0 { // the file itself says so, not a flag
		warn(given(trainingKeys), "in mode "+s.Mode.V)
	}
	if s.Data.DevicePrefetch.V && el.job.Static {
		warn([]string{"data.device_prefetch"}, "with input: static, one batch for all steps")
	}
	if s.Data.Input.V == "rebind" && el.job.Prefetch {
		warn([]string{"data.input"}, "with device_prefetch, which copies batches ahead")
	}
	if len(el.job.Inputs) == 0 {
		warn(given([]string{"data.input", "data.dataset", "data.loader", "data.device_prefetch", "data.transforms", "data.source", "data.validation", "data.shuffle"}), "without batches: every input comes from the step")
	}
	if training && el.job.Eval == nil {
		warn(given([]string{"data.validation"}), "without eval, an evaluation between the steps")
	}
	for _, p := range s.IdleParams() {
		if p.V == RefusedParam {
			continue
		}
		out = append(out, placed(note.UnusedParam.New("param %q (%s:%d) is never used", p.V, s.Path, p.At.Line), s, p.At.Line))
	}
	return out
}

func has(f *program.Func, k program.StmtKind) bool {
	for i := range f.Body {
		if f.Body[i].Kind == k {
			return true
		}
	}
	return false
}
