package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// The presets of Hugging Face's model types are named hf/TYPE. Their params are
// the keys of config.json with the library's defaults, and those that say how
// the model is used: task, transformers, attn, mask, use_cache, seq. Three
// params speak to the loader:
//
//	tasks        a list of the tasks that the preset knows
//	unsupported  null, or what the configuration asks for and is not modelled
//
// The blocks of hf/common are those that all types share.
const (
	hfFolder = "hf/"
	hfCommon = "hf/common"
)

// HFConfig is what memplan reads of a config.json.
type HFConfig struct {
	Type   string
	Task   string // from the architecture that the file names; "" if it says nothing
	Values map[string]any
}

// hfTasks maps the ends of architectures' names to tasks.
var hfTasks = []struct{ suffix, task string }{
	{"LMHeadModel", "causal-lm"}, {"ForCausalLM", "causal-lm"}, {"ForMaskedLM", "masked-lm"},
	{"ForSequenceClassification", "seq-cls"}, {"ForConditionalGeneration", "seq2seq-lm"},
	{"ForImageClassification", "image-cls"},
}

// ParseHFConfig reads a config.json of the transformers library: the values
// that are numbers, strings, booleans, null or lists of those.
func ParseHFConfig(text []byte) (*HFConfig, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var raw map[string]any
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("not a configuration in JSON: %w", err)
	}
	c := &HFConfig{Values: map[string]any{}}
	for k, v := range raw {
		if x, ok := plainJSON(v); ok {
			c.Values[k] = x
		}
	}
	for _, k := range []string{"rope_scaling", "rope_parameters"} { // what decides how rotary positions are made
		rope, _ := raw[k].(map[string]any)
		for from, to := range map[string]string{"type": "rope_type", "rope_type": "rope_type", "partial_rotary_factor": "partial_rotary_factor"} {
			if x, ok := plainJSON(rope[from]); ok && x != nil {
				c.Values[to] = x
			}
		}
	}
	if labels, ok := raw["id2label"].(map[string]any); ok && c.Values["num_labels"] == nil {
		c.Values["num_labels"] = int64(len(labels))
	}
	c.Type, _ = c.Values["model_type"].(string)
	if c.Type == "" {
		return nil, fmt.Errorf("no model_type in it, which every config.json of a transformers model has")
	}
	if archs, _ := c.Values["architectures"].([]any); len(archs) > 0 {
		name, _ := archs[0].(string)
		for _, t := range hfTasks {
			if strings.HasSuffix(name, t.suffix) {
				c.Task = t.task
			}
		}
	}
	return c, nil
}

// plainJSON turns a value of JSON into one of the spec language; mappings have
// none.
func plainJSON(v any) (any, bool) {
	switch v := v.(type) {
	case nil, bool, string:
		return v, true
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, true
		}
		f, err := v.Float64()
		return f, err == nil
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			x, ok := plainJSON(e)
			if !ok {
				return nil, false
			}
			out = append(out, x)
		}
		return out, true
	}
	return nil, false
}

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
		el.fail(m.HF.At, "%v", err)
	}
	c, err := ParseHFConfig(text)
	if err != nil {
		el.fail(m.HF.At, "%s: %v", m.HF.V, err)
	}
	preset, err := el.opts.Preset(hfFolder + c.Type)
	if err != nil || hfFolder+c.Type == hfCommon {
		el.fail(m.HF.At, "%s: model_type %q is not known; known are %s", m.HF.V, c.Type, strings.Join(el.opts.HFTypes, ", "))
	}
	given := el.hfParams(m, c)
	s := el.readHF(m, hfFolder+c.Type, preset, given)
	el.checkHF(m, s)
	if s.Model.Preset.Set { // a type that sets params of another
		el.as(&model{spec: s}, func() { s = el.loadPreset(s.Model) })
	}
	common, err := el.opts.Preset(hfCommon)
	if err != nil {
		el.fail(m.HF.At, "%v", err)
	}
	s.Model.Blocks = append(s.Model.Blocks, el.readHF(m, hfCommon, common, nil).Model.Blocks...)
	return s
}

// hfParams collects the values for the params of a preset: those of the
// configuration, the task, and with's, which go before.
func (el *elaborator) hfParams(m *spec.Model, c *HFConfig) map[string]any {
	given := map[string]any{}
	for k, v := range c.Values {
		given[k] = v
	}
	given["precision"] = el.spec.Train.Precision.V
	if c.Task != "" {
		given["task"] = c.Task
	}
	if m.Task.Set {
		given["task"] = m.Task.V
	}
	if w := m.With; w != nil {
		if w.Kind != spec.Map && w.Kind != spec.Null {
			el.fail(w.Span, "with is a mapping from params to values, not %s", w.Describe())
		}
		for _, p := range w.Pairs {
			given[p.Key.Str] = el.eval(p.Value, el.spec.Env)
		}
	}
	if f, ok := given["transformers"].(float64); ok { // 5.12 without quotes
		given["transformers"] = strconv.FormatFloat(f, 'f', 2, 64)
	}
	for _, own := range []string{"tasks", "unsupported"} { // what presets say, not configurations
		delete(given, own)
	}
	return given
}

// hfChoices are the params that say how a model is used, with their values.
var hfChoices = []struct {
	param  string
	values []string
}{{"attn", []string{"sdpa", "eager"}}, {"mask", []string{"none", "ones", "padded"}}, {"transformers", []string{"5.12", "4.51"}}}

func (el *elaborator) readHF(m *spec.Model, name string, text []byte, given map[string]any) *spec.Spec {
	s, err := spec.Parse("preset:"+name, text, spec.Options{Params: given})
	if err != nil {
		el.fail(m.HF.At, "preset %s: %v", name, err)
	}
	el.others = append(el.others, s.Errs)
	return s
}

// checkHF refuses what with: names and the preset has not, tasks that it does
// not know, and what it says is not supported.
func (el *elaborator) checkHF(m *spec.Model, s *spec.Spec) {
	if m.With != nil {
		failed := false
		for _, p := range m.With.Pairs {
			if _, known := s.Env.Lookup(p.Key.Str); !known {
				el.errs.Unknown(p.Key.Span, "param of "+s.Name.V, p.Key.Str, s.ParamNames())
				failed = true
			}
		}
		if failed {
			panic(stop{})
		}
	}
	at := m.HF.At
	if m.Task.Set {
		at = m.Task.At
	}
	task, _ := s.Env.Lookup("task")
	tasks, _ := s.Env.Lookup("tasks")
	var known []string
	for _, t := range tasks.([]any) {
		known = append(known, t.(string))
	}
	if name, _ := task.(string); !contains(known, name) {
		el.fail(at, "task %s of %s is not known; known are %s", spec.Show(task), s.Name.V, strings.Join(known, ", "))
	}
	for _, c := range hfChoices {
		v, _ := s.Env.Lookup(c.param)
		if name, _ := v.(string); !contains(c.values, name) {
			el.fail(m.HF.At, "%s must be one of %s, not %s", c.param, strings.Join(c.values, ", "), spec.Show(v))
		}
	}
	if what, _ := s.Env.Lookup("unsupported"); what != nil {
		el.fail(m.HF.At, "%s: %v is not modelled", m.HF.V, what)
	}
}
