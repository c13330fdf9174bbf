package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
)

// hfChoices are the params that say how a model is used, with their values.
var hfChoices = []struct {
	param  string
	values []string
}{{"attn", []string{"sdpa", "eager"}}, {"mask", []string{"none", "ones", "padded"}}, {"transformers", []string{"5.12", "4.51"}}}

// hfActivations are the params that name an activation function.
var hfActivations = []string{"hidden_act", "hidden_activation", "activation_function", "activation", "text_hidden_act", "vision_hidden_act", "feat_extract_activation"}

func list(names []string) string { return strings.Join(names, ", ") }

// types refuses values of another type than the defaults of their params.
func (h *hfModel) types(name string, text []byte, given map[string]any) {
	params := spec.ReadDocument("preset:"+name, text).Root.Get("params")
	if params == nil {
		return
	}
	for _, p := range params.Pairs {
		x, ok := given[p.Key.Str]
		if !ok || x == nil || p.Value.IsExpr() {
			continue
		}
		want := ""
		switch p.Value.Kind {
		case spec.Int:
			if _, ok := x.(int64); !ok {
				want = "an integer"
			}
		case spec.Float:
			if _, ok := x.(int64); !ok {
				if _, ok = x.(float64); !ok {
					want = "a number"
				}
			}
		case spec.Bool:
			if _, ok := x.(bool); !ok {
				want = "true or false"
			}
		}
		if want != "" {
			h.el.fail(h.at(p.Key.Str), "%s: %s must be %s, not %s", h.m.HF.V, p.Key.Str, want, spec.Show(x))
		}
	}
}

// hfList is the value of a param that is a list of names; nil if there is none.
func hfList(s *spec.Spec, param string) []string {
	x, _ := s.Env.Lookup(param)
	items, _ := x.([]any)
	var out []string
	for _, it := range items {
		name, _ := it.(string)
		out = append(out, name)
	}
	return out
}

// check refuses what with: names and the preset has not, tasks and precisions
// that it does not know, and what it says is not supported.
func (h *hfModel) check(s *spec.Spec) {
	el := h.el
	failed := false
	if h.m.With != nil {
		for _, p := range h.m.With.Pairs {
			if _, known := s.Env.Lookup(p.Key.Str); !known {
				el.errs.Unknown(p.Key.Span, "param of "+s.Name.V, p.Key.Str, s.ParamNames())
				failed = true
			}
		}
	}
	if failed {
		panic(spec.Stop{})
	}
	h.task(s)
	for _, c := range hfChoices {
		v, _ := s.Env.Lookup(c.param)
		if name, _ := v.(string); !slices.Contains(c.values, name) {
			hint := ""
			if c.param == "attn" {
				hint = "; others are known and not modelled: write model.attn_implementation"
			}
			el.fail(h.at(c.param), "%s must be one of %s, not %s%s", c.param, list(c.values), spec.Show(v), hint)
		}
	}
	if known := hfList(s, "precisions"); known != nil && !slices.Contains(known, el.spec.Train.Precision.V) {
		el.fail(el.spec.Train.Precision.At, "precision %s of %s is not modelled; modelled are %s", el.spec.Train.Precision.V, s.Name.V, list(known))
	}
	h.length(s)
	h.padding(s)
	h.olderHeads(s)
	if what, _ := s.Env.Lookup("left_out"); what != nil {
		el.notModelled = append(el.notModelled, note.PresetLeavesOut.New("%v", what))
	}
	if what, _ := s.Env.Lookup("unsupported"); what != nil {
		el.fail(h.m.HF.At, "%s: %v is not modelled", h.m.HF.V, what)
	}
}

// task checks what the model is trained for.
func (h *hfModel) task(s *spec.Spec) {
	at := h.at("task")
	if h.m.Task.Set {
		at = h.m.Task.At
	}
	task, _ := s.Env.Lookup("task")
	known := hfList(s, "tasks")
	switch name, _ := task.(string); {
	case slices.Contains(known, name):
	case task == nil:
		h.el.fail(at, "%s: the architecture %q stands for no task that is modelled; say one: task: %s", h.m.HF.V, h.c.Architecture, strings.Join(known, " or "))
	default:
		h.el.fail(at, "task %s of %s is not known; known are %s", spec.Show(task), s.Name.V, list(known))
	}
}

// padding refuses to classify batches of sequences by the last token that is no
// padding where no token stands for padding: decoders of the library raise
// "Cannot handle batch sizes > 1 if no padding token is defined."
func (h *hfModel) padding(s *spec.Spec) {
	task, _ := s.Env.Lookup("task")
	pad, ok := s.Env.Lookup("pad_token_id")
	if task != "seq-cls" || !slices.Contains(hfList(s, "tasks"), "causal-lm") || !ok || pad != nil || h.el.batch == 1 {
		return
	}
	h.el.fail(h.at("pad_token_id"),
		"%s: pad_token_id is null; without one %s cannot classify batches of %d, only of 1 (Cannot handle batch sizes > 1 if no padding token is defined)",
		h.m.HF.V, s.Name.V, h.el.batch)
}

// olderHeads refuses the tasks whose heads only the current version of the
// library is followed in.
func (h *hfModel) olderHeads(s *spec.Spec) {
	version, _ := s.Env.Lookup("transformers")
	task, _ := s.Env.Lookup("task")
	name, _ := task.(string)
	newer := slices.Contains([]string{"token-cls", "question-answering", "multiple-choice", "next-sentence", "pretraining"}, name) ||
		(name == "seq-cls" && slices.Contains(hfList(s, "tasks"), "causal-lm"))
	if newer && version != "5.12" {
		h.el.fail(h.at("transformers"), "transformers %v of task %s is not modelled; modelled is 5.12", version, name)
	}
}

// length notes sequences that are longer than there are positions.
func (h *hfModel) length(s *spec.Spec) {
	x, _ := s.Env.Lookup("positions")
	positions, ok := x.(int64)
	if !ok {
		return
	}
	for _, param := range []string{"seq", "target_seq"} {
		x, _ := s.Env.Lookup(param)
		if n, _ := x.(int64); n > positions {
			h.el.fails = append(h.el.fails, failure{h.longer(s, param, n, positions), h.el.spec.Path})
		}
	}
}

// longer says that a sequence is longer than there are positions, and what to change.
func (h *hfModel) longer(s *spec.Spec, param string, n, positions int64) spec.Diag {
	d := spec.Diag{Span: h.at(param)}
	if w := h.m.With.Get(param); w != nil {
		d.Span = h.el.spec.Origin(w)
	}
	d.Msg = fmt.Sprintf("%s %d is more than the %d positions that the model has weights for", param, n, positions)
	d.Hint = fmt.Sprintf("%s may be %d at most", param, positions)
	if from := s.ParamOf("positions"); from != "" {
		form := "%s: %d"
		if d.Line < 0 { // of the command line
			form = "--set params.%s=%d"
		}
		d.Hint += "; a model with more positions is " + fmt.Sprintf(form, from, n)
	}
	return d
}

// activations refuses the names of functions that there are no blocks for.
func (h *hfModel) activations(s *spec.Spec) {
	const prefix = "act_"
	var known []string
	for _, b := range s.Model.Blocks {
		if name, ok := strings.CutPrefix(b.Name.V, prefix); ok {
			known = append(known, name)
		}
	}
	for _, param := range hfActivations {
		x, _ := s.Env.Lookup(param)
		if name, ok := x.(string); ok && !slices.Contains(known, name) {
			h.el.fail(h.at(param), "%s: %s %q is not modelled; modelled are %s", h.m.HF.V, param, name, list(sorted(known)))
		}
	}
}
