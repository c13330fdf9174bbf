package graph

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// The presets of Hugging Face's model types are named hf/TYPE. Their params are
// the keys of config.json with the library's defaults, and those that say how
// the model is used: task, transformers, attn, mask, use_cache, seq. Some params
// speak to the loader:
//
//	tasks        a list of the tasks that the preset knows
//	precisions   a list of the precisions that it knows; without it, all
//	positions    how many positions there are weights for, if there are
//	unsupported  null, or what the configuration asks for and is not modelled
//	left_out     null, or what is left out of the figures
//	torch_minor  given by the loader: 6 for PyTorch 2.6
//	precision    given by the loader: train.precision
//	reentrant    given by the loader: use_reentrant of train.checkpoint
const hfFolder = "hf/"

// hfShared are the files of blocks that all types share; hf/heads has those of
// tasks, hf/vision those of images and sound.
var hfShared = []string{"hf/common", "hf/heads", "hf/vision"}

// HFOwn lists the params of such presets that are theirs to say, not a
// configuration's or the user's.
var HFOwn = []string{"tasks", "precision", "precisions", "positions", "unsupported", "left_out", "torch_minor", "reentrant"}

// A FileError says that a file which a spec names cannot be read.
type FileError struct {
	Err error // with the place in the spec
}

func (e *FileError) Error() string { return e.Err.Error() }

// loadHF reads a config.json and the preset of its model type.
func (el *elaborator) loadHF(m *spec.Model) *spec.Spec {
	if m.Preset.Set || len(m.Layers) > 0 {
		el.fail(m.HF.At, "hf excludes preset and layers")
	}
	if el.opts.ReadFile == nil || el.opts.Preset == nil {
		el.fail(m.HF.At, "no files can be read here")
	}
	text, err := el.opts.ReadFile(m.HF.V)
	if err != nil {
		el.unread = !errors.As(err, new(*files.OutsideError)) // that one is the spec's own mistake
		el.fail(m.HF.At, "%v", err)
	}
	c, err := ParseHFConfig(text)
	if err != nil {
		el.fail(m.HF.At, "%s: %v", m.HF.V, err)
	}
	name := hfFolder + c.Type
	preset, err := el.opts.Preset(name)
	if err != nil || slices.Contains(hfShared, name) {
		el.unknownHF(m, c)
	}
	h := &hfModel{el: el, m: m, c: c, with: map[string]spec.Span{}}
	given := h.params()
	h.types(name, preset, given)
	s := el.readHF(m, name, preset, given)
	h.check(s)
	s = el.presetOfPreset(s)
	for _, shared := range hfShared {
		text, err = el.opts.Preset(shared)
		if err != nil {
			el.fail(m.HF.At, "%v", err)
		}
		s.Share(el.readHF(m, shared, text, nil))
	}
	h.activations(s)
	h.weights()
	return s
}

// unknownHF stops at a model type without a preset.
func (el *elaborator) unknownHF(m *spec.Model, c *HFConfig) {
	mean := ""
	if n := nearest.To(c.Type, el.opts.HFTypes); n != "" {
		mean = fmt.Sprintf("; did you mean %q?", n)
	}
	el.fail(m.HF.At, "%s: model_type %q is not known%s; known are %s", m.HF.V, c.Type, mean, list(el.opts.HFTypes))
}

func (el *elaborator) readHF(m *spec.Model, name string, text []byte, given map[string]any) *spec.Spec {
	s, err := spec.Parse("preset:"+name, text, spec.Options{Params: given})
	if err != nil {
		el.fail(m.HF.At, "preset %s: %v", name, err)
	}
	el.others = append(el.others, s.Errs)
	return s
}

// hfModel is a model of a config.json while it is loaded.
type hfModel struct {
	el   *elaborator
	m    *spec.Model
	c    *HFConfig
	with map[string]spec.Span // where with gives params
}

// at is the place of a param: with's, or that of the config.json.
func (h *hfModel) at(param string) spec.Span {
	if s, ok := h.with[param]; ok {
		return s
	}
	return h.m.HF.At
}

// params collects the values for the params of a preset: those of the
// configuration, the task, and with's, which go before.
func (h *hfModel) params() map[string]any {
	el, m := h.el, h.m
	given := map[string]any{}
	for k, v := range h.c.Values {
		given[k] = v
	}
	switch {
	case m.Task.Set:
		given["task"] = m.Task.V
	case h.c.Task != "":
		given["task"] = h.c.Task
	case h.c.Architecture != "":
		given["task"] = nil
	}
	if w := m.With; w != nil {
		if w.Kind != spec.Map && w.Kind != spec.Null {
			el.fail(w.Span, "with is a mapping from params to values, not %s", w.Describe())
		}
		for _, p := range w.Pairs {
			given[p.Key.Str] = el.eval(p.Value, el.spec.Env)
			h.with[p.Key.Str] = p.Key.Span
		}
	}
	if f, ok := given["transformers"].(float64); ok { // 5.12 without quotes
		given["transformers"] = strconv.FormatFloat(f, 'f', 2, 64)
	}
	switch {
	case el.checkpoints():
		given[gradientCheckpointing] = true
	case el.job.Inference != "":
		given[gradientCheckpointing] = false
	}
	for _, own := range HFOwn {
		delete(given, own)
	}
	given["precision"] = el.spec.Train.Precision.V
	given["reentrant"] = el.spec.Train.Checkpoint != nil && el.spec.Train.Checkpoint.Reentrant.V
	given["torch_minor"] = int64(el.opts.Env.Torch.Minor)
	return given
}

// weights says what becomes of the types of the weights in the files.
func (h *hfModel) weights() {
	el, c := h.el, h.c
	if c.Quantized != "" && el.spec.Quantize == nil {
		el.notModelled = append(el.notModelled, note.Asked.New("the quantization of %s (%s): its weights are planned in %v", h.m.HF.V, c.Quantized, el.job.DType))
	}
	if d, err := tensor.ParseDType(c.DType); err == nil && d != el.job.DType {
		el.warnings = append(el.warnings, note.LoadedType.New(
			"%s says dtype %s, in which from_pretrained of transformers 5 loads weights; they are planned in %v, as train.precision %s says", h.m.HF.V,
			c.DType, el.job.DType, el.spec.Train.Precision.V).Of("train.precision"))
	}
}
