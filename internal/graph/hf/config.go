package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// Config is what memplan reads of a config.json.
type Config struct {
	Type         string
	Around       string             // of a model of text and images, whose language model Type is; else ""
	Architecture string             // the first of architectures; "" if there is none
	Task         string             // that the architecture stands for; "" if it is not known
	DType        string             // of the weights in the files: torch_dtype, or dtype; "" if the file does not say
	Quantized    string             // how the weights are quantized; "" if they are not
	BitsAndBytes *spec.BitsAndBytes // how bitsandbytes has quantized the weights; nil if it has not
	Values       map[string]any
}

// GradientCheckpointing is the param of Hugging Face models that says whether
// their layers are checkpointed: they keep no cache then.
const GradientCheckpointing = "gradient_checkpointing"

// tasks maps the ends of architectures' names to tasks.
var tasks = []struct{ suffix, task string }{
	{"LMHeadModel", "causal-lm"}, {"ForCausalLM", "causal-lm"}, {"ForMaskedLM", "masked-lm"},
	{"ForSequenceClassification", "seq-cls"}, {"ForConditionalGeneration", "seq2seq-lm"}, {"MTModel", "seq2seq-lm"},
	{"ForTokenClassification", "token-cls"}, {"ForQuestionAnswering", "question-answering"}, {"ForMultipleChoice", "multiple-choice"},
	{"ForNextSentencePrediction", "next-sentence"}, {"ForPreTraining", "pretraining"},
	{"ForImageClassification", "image-cls"}, {"ForSemanticSegmentation", "image-seg"}, {"ForCTC", "ctc"},
	{"CLIPModel", "contrastive"}, {"SiglipModel", "contrastive"},
}

// infinite are the numbers that Python writes and JSON has not, as in a time_step_limit.
var infinite = regexp.MustCompile(`([\[:,]\s*)-?(?:Infinity|NaN)\b`)

// ParseConfig reads a config.json of the transformers library: the values
// that are numbers, strings, booleans, null or lists of those.
func ParseConfig(text []byte) (*Config, error) {
	d := json.NewDecoder(bytes.NewReader(infinite.ReplaceAll(text, []byte("${1}null"))))
	d.UseNumber()
	var raw map[string]any
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("not a configuration in JSON: %w", err)
	}
	c := newConfig(raw)
	if c.Type == "" {
		return nil, fmt.Errorf("no model_type in it, which every config.json of a transformers model has")
	}
	if archs, _ := c.Values["architectures"].([]any); len(archs) > 0 {
		c.Architecture, _ = archs[0].(string)
		for _, t := range tasks {
			if strings.HasSuffix(c.Architecture, t.suffix) {
				c.Task = t.task
			}
		}
	}
	if q, ok := raw["quantization_config"].(map[string]any); ok {
		c.Quantized = "quantization_config"
		if method, ok := q["quant_method"].(string); ok {
			c.Quantized = method
		}
		c.BitsAndBytes = bitsAndBytes(q)
	}
	return c, c.language(raw)
}

// newConfig takes the values of a configuration, or of a part of one.
func newConfig(raw map[string]any) *Config {
	c := &Config{Values: map[string]any{}}
	for k, v := range raw {
		if x, ok := plainJSON(v); ok {
			c.Values[k] = x
		}
	}
	for _, k := range []string{"rope_scaling", "rope_parameters"} { // what decides how rotary positions are made
		rope, _ := raw[k].(map[string]any)
		for from, to := range map[string]string{"type": "rope_type", "rope_type": "rope_type", "partial_rotary_factor": "partial_rotary_factor", "mrope_section": "mrope_section"} {
			if x, ok := plainJSON(rope[from]); ok && x != nil {
				c.Values[to] = x
			}
		}
	}
	for _, k := range []string{"text", "vision", "audio"} { // of the parts of a model: their values after the part's name
		part, _ := raw[k+"_config"].(map[string]any)
		for name, v := range part {
			if x, ok := plainJSON(v); ok {
				c.Values[k+"_"+name] = x
			}
		}
	}
	attn, _ := raw["attn_config"].(map[string]any) // MPT's
	for _, k := range []string{"attn_pdrop", "clip_qkv"} {
		if x, ok := plainJSON(attn[k]); ok && x != nil {
			c.Values[k] = x
		}
	}
	if pattern, ok := c.Values["hybrid_override_pattern"].(string); ok && c.Values["layers_block_type"] == nil { // Nemotron-H's
		c.Values["layers_block_type"] = blockTypes(pattern)
	}
	if labels, ok := raw["id2label"].(map[string]any); ok && c.Values["num_labels"] == nil {
		c.Values["num_labels"] = int64(len(labels))
	}
	c.Type, _ = c.Values["model_type"].(string)
	for _, k := range []string{"torch_dtype", "dtype"} {
		if d, ok := c.Values[k].(string); ok {
			c.DType = strings.TrimPrefix(d, "torch.")
		}
	}
	return c
}

// blockTypes are the layers that a pattern such as M*ME- stands for.
func blockTypes(pattern string) []any {
	names := map[rune]any{'M': "mamba", 'E': "moe", '*': "attention", '-': "mlp"}
	var types []any
	for _, c := range pattern {
		types = append(types, names[c])
	}
	return types
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
