package hf

import (
	"fmt"
	"testing"
)

// TestParseConfig checks what is read of a config.json.
func TestParseConfig(t *testing.T) {
	c, err := ParseConfig([]byte(`{"model_type": "bert", "architectures": ["BertForSequenceClassification"],
		"id2label": {"0": "a", "1": "b", "2": "c"}, "layer_norm_eps": 1e-12, "hidden_size": 768, "pad_token_id": null, "rope_scaling": {"type": "x"}, "attn_config": {"clip_qkv": 6, "attn_pdrop": null}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Type != "bert" || c.Task != "seq-cls" || c.Values["num_labels"] != int64(3) || c.Values["hidden_size"] != int64(768) || c.Values["layer_norm_eps"] != 1e-12 {
		t.Errorf("read %+v", c)
	}
	if v, ok := c.Values["pad_token_id"]; !ok || v != nil {
		t.Error("null is not kept")
	}
	if _, ok := c.Values["attn_pdrop"]; ok || c.Values["clip_qkv"] != int64(6) || c.Values["rope_type"] != "x" {
		t.Errorf("of mappings, read %v", c.Values)
	}
	if _, ok := c.Values["rope_scaling"]; ok {
		t.Error("a mapping is a value")
	}
	c, err = ParseConfig([]byte(`{"model_type": "clip", "architectures": ["CLIPModel"], "text_config": {"hidden_size": 512}, "vision_config": {"image_size": 224}}`))
	if err != nil || c.Task != "contrastive" || c.Values["text_hidden_size"] != int64(512) || c.Values["vision_image_size"] != int64(224) {
		t.Errorf("read %+v, error %v", c, err)
	}
	c, err = ParseConfig([]byte(`{"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E"}`))
	if err != nil || fmt.Sprint(c.Values["layers_block_type"]) != "[mamba mlp attention moe]" {
		t.Errorf("read %+v, error %v", c, err)
	}
	c, err = ParseConfig([]byte(`{"model_type": "falcon_h1", "time_step_limit": [0.0, Infinity], "x": -Infinity}`))
	if err != nil || c.Values["x"] != nil || len(c.Values["time_step_limit"].([]any)) != 2 {
		t.Errorf("read %+v, error %v", c, err)
	}
}

// TestLanguage checks whose values are read where a configuration has that of a
// language model in it.
func TestLanguage(t *testing.T) {
	for _, c := range []struct {
		text, typ, around string
		hidden            int64
		tied              any
	}{
		{`{"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "ministral3", "hidden_size": 64}, "vision_config": {"hidden_size": 32}}`, "ministral3", "mistral3", 64, true},
		{`{"model_type": "mistral3", "text_config": {"hidden_size": 64}, "tie_word_embeddings": false}`, "mistral", "mistral3", 64, false},
		{`{"model_type": "llava", "text_config": {"hidden_size": 64, "tie_word_embeddings": true}, "tie_word_embeddings": false}`, "llama", "llava", 64, true},
		{`{"model_type": "voxtral", "text_config": {"hidden_size": 64, "tie_word_embeddings": true}, "audio_config": {"hidden_size": 32}}`, "llama", "voxtral", 64, false},
		{`{"model_type": "voxtral"}`, "llama", "voxtral", 3072, false},
		{`{"model_type": "qwen2_vl", "hidden_size": 64, "vision_config": {"hidden_size": 32}}`, "qwen2_vl_text", "qwen2_vl", 64, false},
		{`{"model_type": "qwen3_5", "hidden_size": 8, "text_config": {"hidden_size": 64}, "tie_word_embeddings": true}`, "qwen3_5_text", "", 64, nil},
	} {
		got, err := ParseConfig([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got.Type != c.typ || got.Around != c.around || got.Values["hidden_size"] != c.hidden || got.Values["tie_word_embeddings"] != c.tied {
			t.Errorf("%s: read %+v", c.text, got)
		}
		if c.typ == "ministral3" && (got.Task != "causal-lm" || got.Values["vision_hidden_size"] != int64(32)) {
			t.Errorf("%s: read %+v", c.text, got)
		}
	}
}

// TestOwnCache checks whether a model's own use_cache or text_config's is that of the
// language model.
func TestOwnCache(t *testing.T) {
	for typ, want := range map[string]bool{"mistral3": false, "gemma3": true} {
		c, err := ParseConfig([]byte(`{"model_type": "` + typ + `", "use_cache": false, "text_config": {"use_cache": true}}`))
		if err != nil || c.Values["use_cache"] != want {
			t.Errorf("%s: use_cache %v, want %v (error %v)", typ, c.Values["use_cache"], want, err)
		}
	}
}
