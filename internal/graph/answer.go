package graph

import (
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// stepCalls are the entries for calls that steps of PyTorch make, by what is called.
var stepCalls = map[string]string{
	"zero_grad": "{zero_grad: %s}", "step": "{optimizer_step: %s}", "backward": "{backward: %s}",
	"eval": "{eval: %s}", "train": "{train: %s}",
	"clip_grad_norm_": "{clip_grad_norm: 1.0}", "clip_grad_value_": "{clip_grad_value: 1.0}",
	"empty_cache": "empty_cache",
}

// entryOfCall is the entry for a call as Python writes it, such as loss.backward();
// empty if it is none of a step's.
func entryOfCall(text string) string {
	called, _, ok := strings.Cut(text, "(")
	dot := strings.LastIndex(called, ".")
	if !ok || dot < 0 {
		return ""
	}
	entry, of := stepCalls[called[dot+1:]], called[:dot]
	switch {
	case of == "scheduler" || of == "lr_scheduler":
		return "nothing: train.lr_scheduler steps after the optimizer"
	case of == "scaler":
		return "optimizer_step alone: train.precision: amp-fp16 brings a GradScaler"
	case !strings.Contains(entry, "%s"):
		return entry
	case of == "optimizer": // which a job has without a name
		return strings.Trim(strings.Split(entry, ":")[0], "{")
	}
	return strings.Replace(entry, "%s", of, 1)
}

// unnamed refuses an entry that is an expression without a name.
func (c *checker) unnamed(e *spec.Entry, at place) {
	form := "{return: " + e.Head.V + "}"
	if at == inLoss || at == inStep {
		form = "loss = " + e.Head.V
	}
	c.el.errs.Addf(e.Head.At, "%q is an expression, not an entry; write %s", e.Head.V, form)
}
