package hf

import "testing"

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
}
