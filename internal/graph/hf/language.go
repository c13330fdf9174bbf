package hf

import (
	"fmt"
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/spec"
)

// languages are the model types of text and images whose language models are
// played. The preset hf/TYPE of such a type has the blocks and params around the
// language model, whose own preset is that of text_config's type.
var languages = map[string]language{
	"gemma3":         {types: []string{"gemma3_text"}, tied: true, uncounted: true},
	"gemma4":         {types: []string{"gemma4_text"}, tied: true, uncounted: true, caches: true},
	"gemma4_unified": {types: []string{"gemma4_unified_text"}, tied: true, uncounted: true, caches: true},
	"glm46v":         {types: []string{"glm4v_text"}, uncounted: true},
	"glm4v":          {types: []string{"glm4v_text"}, uncounted: true},
	"internvl":       {types: []string{"qwen2", "qwen3", "llama"}, tied: true},
	"lfm2_vl":        {types: []string{"lfm2"}, tied: true},
	"llama4":         {types: []string{"llama4_text"}, alone: true},
	"llava":          {types: []string{"llama", "mistral", "qwen2", "qwen3"}, textTied: true},
	"mistral3":       {types: []string{"mistral", "ministral3", "mistral4"}, tied: true, caches: true},
	"mllama":         {types: []string{"mllama_text_model"}},
	"qwen2_5_vl":     {types: []string{"qwen2_5_vl_text"}, uncounted: true},
	"qwen2_vl":       {types: []string{"qwen2_vl_text"}},
	"qwen3_5":        {types: []string{"qwen3_5_text"}, alone: true},
	"qwen3_5_moe":    {types: []string{"qwen3_5_moe_text"}, alone: true},
	"qwen3_vl":       {types: []string{"qwen3_vl_text"}, uncounted: true},
	"qwen3_vl_moe":   {types: []string{"qwen3_vl_moe_text"}, uncounted: true},
	"smolvlm":        {types: []string{"llama"}, part: "text_model"},
	"voxtral": {types: []string{"llama"}, defaults: map[string]any{
		"vocab_size": int64(131072), "hidden_size": int64(3072), "intermediate_size": int64(8192), "num_hidden_layers": int64(30), "num_key_value_heads": int64(8),
		"max_position_embeddings": int64(131072), "rms_norm_eps": 1e-5, "head_dim": int64(128),
	}},
}

type language struct {
	types []string // that text_config may have, the default first
	tied  bool     // the default of tie_word_embeddings
	alone bool     // AutoModelForCausalLM makes the language model alone, of text_config
	part  string   // the attribute of the language model; "": language_model

	defaults map[string]any // of text_config that are not those of its type

	uncounted bool // accepts_loss_kwargs is False: Trainer does not count the items of a batch for its loss
	caches    bool // its own use_cache is passed to the language model, and goes before text_config's
	textTied  bool // text_config's tie_word_embeddings is used if the model's is not true
}

// Around is the block that a preset hf/TYPE has in the place of the language model.
const Around = "VisionLanguageModel"

// language makes the configuration that of the language model in it. The vision
// model's values stay, after the name of their part.
func (c *Config) language(raw map[string]any) error {
	l, ok := languages[c.Type]
	if !ok {
		return nil
	}
	part, _ := raw["text_config"].(map[string]any)
	text := newConfig(part)
	if text.Type == "" {
		text.Type = l.types[0]
	}
	if !slices.Contains(l.types, text.Type) {
		return fmt.Errorf("text_config.model_type %q of %s is not modelled; modelled are %s", text.Type, c.Type, list(l.types))
	}
	text.Values["model_type"] = text.Type
	for k, v := range l.defaults {
		if _, ok := text.Values[k]; !ok {
			text.Values[k] = v
		}
	}
	if !l.alone {
		tied := text.Values["tie_word_embeddings"]
		text.Values["tie_word_embeddings"] = l.tied
		if given, ok := c.Values["tie_word_embeddings"]; ok {
			text.Values["tie_word_embeddings"] = given
		}
		if l.textTied && text.Values["tie_word_embeddings"] != true && tied == true {
			text.Values["tie_word_embeddings"] = true
		}
		for k, v := range c.Values { // of what is around it
			_, ok := text.Values[k]
			if k == "use_cache" {
				ok = !l.caches && part != nil
			}
			if !ok {
				text.Values[k] = v
			}
		}
		c.Around = c.Type
	}
	c.Type, c.Values = text.Type, text.Values
	if c.DType == "" {
		c.DType = text.DType
	}
	if c.Task == "seq2seq-lm" { // ForConditionalGeneration
		c.Task = "causal-lm"
	}
	return nil
}

// around adds to the preset of a language model what is around it.
func (h *model) around(s *spec.Spec) {
	if h.c.Around == "" {
		return
	}
	text, err := h.Preset(Folder + h.c.Around)
	if err != nil {
		h.fail(Named(h.m).At, "%v", err)
	}
	given := maps.Clone(h.c.Values)
	for _, own := range Own {
		delete(given, own)
	}
	for _, use := range []string{"images", "seq", "task", "attn", "labelled", "flattened", "loss_chunk", "cut_cross_entropy"} { // how the model is used
		if v, ok := s.Env.Lookup(use); ok {
			given[use] = v
		}
	}
	given["input_grads"] = h.inputGrads()
	h.types(Folder+h.c.Around, text, given)
	a := h.read(h.m, Folder+h.c.Around, text, given)
	h.notes(a)
	s.Share(a)
	s.Inherit(a)
}
