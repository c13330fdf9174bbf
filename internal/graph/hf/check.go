package hf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
)

// choices are the params that say how a model is used, with their values.
var choices = []struct {
	param  string
	values []string
}{{"attn", []string{"sdpa", "eager", "flash_attention_2", "flash_attention_3"}}, {"mask", []string{"none", "ones", "padded"}}, {"transformers", []string{"5.12", "4.51"}}}

// activations are the params that name an activation function.
var activations = []string{"hidden_act", "hidden_activation", "activation_function", "activation", "text_hidden_act", "vision_hidden_act", "feat_extract_activation"}

func list(names []string) string { return strings.Join(names, ", ") }

// types refuses values of another type than the defaults of their params.
func (h *model) types(name string, text []byte, given map[string]any) {
	params := spec.OwnParams(text)
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
			h.fail(h.at(p.Key.Str), "%s: %s must be %s, not %s", Named(h.m).V, p.Key.Str, want, spec.Show(x))
		}
	}
}

// names is the value of a param that is a list of names; nil if there is none.
func names(s *spec.Spec, param string) []string {
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
func (h *model) check(s *spec.Spec) {
	failed := false
	if h.m.With != nil {
		for _, p := range h.m.With.Pairs {
			if _, known := s.Env.Lookup(p.Key.Str); !known {
				h.Spec.Errs.Unknown(p.Key.Span, "param of "+s.Name.V, p.Key.Str, s.ParamNames())
				failed = true
			}
		}
	}
	if failed {
		panic(spec.Stop{})
	}
	h.task(s)
	for _, c := range choices {
		v, _ := s.Env.Lookup(c.param)
		if name, _ := v.(string); !slices.Contains(c.values, name) {
			h.fail(h.at(c.param), "%s must be one of %s, not %s", c.param, list(c.values), spec.Show(v))
		}
	}
	if known := names(s, "precisions"); known != nil && !slices.Contains(known, h.Spec.Train.Precision.V) {
		h.fail(h.Spec.Train.Precision.At, "precision %s of %s is not modelled; modelled are %s", h.Spec.Train.Precision.V, s.Name.V, list(known))
	}
	h.flash(s)
	h.length(s)
	h.padding(s)
	h.olderHeads(s)
	h.notes(s)
}

// notes lists what a preset says is left out, and stops at what is not supported.
func (h *model) notes(s *spec.Spec) {
	if what, _ := s.Env.Lookup("left_out"); what != nil {
		h.NotModelled = append(h.NotModelled, note.PresetLeavesOut.New("%v", what))
	}
	if what, _ := s.Env.Lookup("unsupported"); what != nil {
		h.fail(Named(h.m).At, "%s: %v is not modelled", Named(h.m).V, what)
	}
}

// task checks what the model is trained for.
func (h *model) task(s *spec.Spec) {
	at := h.at("task")
	if h.m.Task.Set {
		at = h.m.Task.At
	}
	task, _ := s.Env.Lookup("task")
	known := names(s, "tasks")
	switch name, _ := task.(string); {
	case slices.Contains(known, name):
	case task == nil:
		h.fail(at, "%s: the architecture %q is for no task that is modelled; write one: task: %s", Named(h.m).V, h.c.Architecture, strings.Join(known, " or "))
	default:
		h.fail(at, "task %s of %s is not known; known are %s", spec.Show(task), s.Name.V, list(known))
	}
}

// padding refuses to classify batches of sequences by the last token that is no
// padding where no token stands for padding: decoders of the library raise
// "Cannot handle batch sizes > 1 if no padding token is defined."
func (h *model) padding(s *spec.Spec) {
	task, _ := s.Env.Lookup("task")
	pad, ok := s.Env.Lookup("pad_token_id")
	if task != "seq-cls" || !slices.Contains(names(s, "tasks"), "causal-lm") || !ok || pad != nil || h.Batch == 1 {
		return
	}
	h.fail(h.at("pad_token_id"),
		"%s: pad_token_id is null; without one %s cannot classify batches of %d, only of 1 (Cannot handle batch sizes > 1 if no padding token is defined)",
		Named(h.m).V, s.Name.V, h.Batch)
}

// flash refuses flash-attn in float32, and where the older version of the library calls it
// otherwise.
func (h *model) flash(s *spec.Spec) {
	attn, _ := s.Env.Lookup("attn")
	version, _ := s.Env.Lookup("transformers")
	switch name, _ := attn.(string); {
	case !strings.HasPrefix(name, "flash"):
	case version != "5.12":
		h.fail(h.at("attn"), "%s of transformers %v is not modelled; modelled is that of 5.12", name, version)
	case h.Spec.Train.Precision.V == "fp32" && h.Spec.Trainer == nil && h.m.Load == nil && h.Spec.Quantize == nil:
		h.fail(h.at("attn"), "%s takes float16 and bfloat16, not the float32 of train.precision fp32; write precision: bf16 or amp-bf16", name)
	}
}

// olderHeads refuses the tasks whose heads only the current version of the
// library is followed in.
func (h *model) olderHeads(s *spec.Spec) {
	version, _ := s.Env.Lookup("transformers")
	task, _ := s.Env.Lookup("task")
	name, _ := task.(string)
	newer := slices.Contains([]string{"token-cls", "question-answering", "multiple-choice", "next-sentence", "pretraining"}, name) ||
		(name == "seq-cls" && slices.Contains(names(s, "tasks"), "causal-lm"))
	if newer && version != "5.12" {
		h.fail(h.at("transformers"), "transformers %v of task %s is not modelled; modelled is 5.12", version, name)
	}
}

// length notes sequences that are longer than there are positions.
func (h *model) length(s *spec.Spec) {
	x, _ := s.Env.Lookup("positions")
	positions, ok := x.(int64)
	if !ok {
		return
	}
	for _, param := range []string{"seq", "target_seq"} {
		x, _ := s.Env.Lookup(param)
		if n, _ := x.(int64); n > positions {
			h.Fails = append(h.Fails, h.longer(s, param, n, positions))
		}
	}
}

// longer says that a sequence is longer than there are positions, and what to change.
func (h *model) longer(s *spec.Spec, param string, n, positions int64) spec.Diag {
	d := spec.Diag{Span: h.at(param)}
	if w := h.m.With.Get(param); w != nil {
		d.Span = h.Spec.Origin(w)
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
func (h *model) activations(s *spec.Spec) {
	const prefix = "act_"
	var known []string
	for _, b := range s.Model.Blocks {
		if name, ok := strings.CutPrefix(b.Name.V, prefix); ok {
			known = append(known, name)
		}
	}
	for _, param := range activations {
		x, _ := s.Env.Lookup(param)
		if name, ok := x.(string); ok && !slices.Contains(known, name) {
			h.fail(h.at(param), "%s: %s %q is not modelled; modelled are %s", Named(h.m).V, param, name, list(slices.Sorted(slices.Values(known))))
		}
	}
}
