package hf

import (
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// What stands around a model with virtual tokens: embeddings in front of those of a sample,
// or keys and values.
const (
	promptsFile = Folder + "prompts"
	prefixFile  = Folder + "prefix"
)

// virtual adds the virtual tokens of peft to the length of a sample in the model.
func (h *model) virtual(name string, preset []byte, given map[string]any) {
	p := h.Spec.PEFT.Prompts()
	if p == nil || h.m.Eval.V || h.Inference {
		return
	}
	if h.Spec.PEFT.Prefix != nil {
		h.Asked["prefix_tokens"], given["prefix_tokens"] = p.Tokens.V, p.Tokens.V
		return
	}
	n, ok := given["seq"].(int64)
	if params := spec.OwnParams(preset); !ok && params != nil {
		if v := params.Get("seq"); v != nil && v.Kind == spec.Int {
			n = v.Int
		}
	}
	given["seq"] = n + p.Tokens.V
	h.Asked["virtual_tokens"] = p.Tokens.V
	given["virtual_tokens"] = p.Tokens.V
}

// prompts puts what PEFT's methods of virtual tokens compute around the model.
func (h *model) prompts(s *spec.Spec) {
	p := h.Spec.PEFT.Prompts()
	if p == nil || h.m.Eval.V || h.Inference {
		return
	}
	look := func(names ...string) any {
		for _, n := range names {
			if v, ok := s.Env.Lookup(n); ok && v != nil {
				return v
			}
		}
		return nil
	}
	path, _ := look("word_embeddings").(string)
	task, _ := look("task").(string)
	are, need := "virtual tokens are", "virtual tokens need"
	shape, _ := look("prefix_shape").([]any)
	if h.Spec.PEFT.Prefix != nil {
		are, need = "prefix tuning is", "prefix tuning needs"
		path, _ = look("prefix_embeddings", "word_embeddings").(string)
	}
	switch {
	case h.Spec.PEFT.Prefix != nil && shape == nil:
		h.fail(p.At, "peft: prefix tuning of a %s is not modelled; of llama and the types that have its layers or alike, gpt2, gpt_neox, opt, phi, bert, roberta, electra, t5, umt5, bart, mbart, pegasus and marian it is", h.Type)
	case path == "":
		h.fail(p.At, "peft: virtual tokens in front of a %s are not modelled; in front of llama and the types derived from it, gpt2, opt and bert they are", h.Type)
	}
	want := map[string]string{"causal-lm": "CAUSAL_LM", "seq-cls": "SEQ_CLS"}
	if h.Spec.PEFT.Prefix != nil {
		want["seq2seq-lm"] = "SEQ_2_SEQ_LM"
	}
	if want[task] == "" {
		h.fail(p.At, "peft: %s modelled for %s, not for %s", are, strings.Join(slices.Sorted(maps.Keys(want)), " and "), task)
	}
	if p.TaskType.V != want[task] {
		h.fail(p.At, "peft: %s task_type: %s, without which PEFT puts none in front of this model", need, want[task])
	}
	submodules := int64(1)
	if task == "seq2seq-lm" {
		submodules = 2
	}
	if n := p.Submodules; n.Set && n.V != submodules {
		h.fail(n.At, "num_transformer_submodules: %d is not modelled for %s; leave it out, or write %d", n.V, task, submodules)
	}
	t := h.Spec.Trainer
	if t.OfTRL() || t.Flattened() {
		h.fail(p.At, "peft: %s modelled with trainer: hf, without flattening", are)
	}
	if a := t.Args(); t.OfTransformers() && a.Number("label_smoothing_factor") != 0 {
		switch outer, _, _ := strings.Cut(path, "."); {
		case h.Spec.PEFT.Prefix == nil:
			h.fail(a.Span("label_smoothing_factor"), "label_smoothing_factor: Trainer fails with virtual tokens, as the model's logits are of more tokens than the labels")
		case outer != "model":
			h.fail(a.Span("label_smoothing_factor"), "label_smoothing_factor: Trainer fails with prefix tuning of a %s, as it looks for base_model.model, which this model calls %s", h.Type, outer)
		}
	}
	dim := look("word_embed_proj_dim", "embedding_size", "hidden_size", "n_embd", "d_model")
	given := map[string]any{
		"virtual_tokens": p.Tokens.V, "token_dim": dim, "word_size": []any{look("vocab_size"), dim}, "word_padding": look("pad_token_id"), "shared_embeddings": path,
		"takes_items": look("num_items") == true, "encoder_decoder": task == "seq2seq-lm",
	}
	if p.Dim.Set {
		given["token_dim"] = p.Dim.V
	}
	file, passed := promptsFile, "inputs_embeds"
	switch e := h.Spec.PEFT; {
	case e.Prefix != nil:
		file, passed = prefixFile, "prefix"
		h.prefix(e.Prefix, shape, look, given)
	case e.PTuning != nil:
		h.encoder(e.PTuning, given)
	}
	text, err := h.Preset(file)
	if err != nil {
		h.fail(p.At, "%v", err)
	}
	around := h.read(h.m, file, text, given)
	s.Share(around)
	s.Inherit(around)
	base := &spec.Block{Kind: spec.String{V: spec.KindFunction, Set: true}, Of: s, Autocast: spec.Boolean{V: true}, Layers: s.Model.Layers}
	for _, in := range []string{"input_ids", passed, "attention_mask", "labels", "num_items_in_batch"} {
		base.Inputs = append(base.Inputs, spec.String{V: in, Set: true})
	}
	s.Model.Blocks = append(s.Model.Blocks, &spec.Named[spec.Block]{Name: spec.String{V: "base_model_forward", Set: true}, V: base})
	s.Model.Layers = around.Model.Layers
	s.Model.Modules = append(slices.Clone(s.Model.Modules), around.Model.Modules...)
}

// encoder is the network of p-tuning.
func (h *model) encoder(e *spec.PromptEncoderConfig, given map[string]any) {
	given["prompt_block"], given["encoder_hidden_size"] = "PromptEncoder", given["token_dim"]
	if e.Kind.V == "LSTM" {
		given["prompt_block"], given["encoder_num_layers"], given["encoder_dropout"] = "PromptEncoderOfLSTM", e.Depth.V, e.Dropout.V
	}
	if e.Hidden.Set {
		given["encoder_hidden_size"] = e.Hidden.V
	}
}

// prefix are the sizes of prefix tuning, as PEFT has them of the configuration
// (_prepare_prompt_learning_config) and the layers' keys and values take them.
func (h *model) prefix(e *spec.PrefixTuningConfig, shape []any, look func(...string) any, given map[string]any) {
	if look("gradient_checkpointing") == true {
		h.fail(e.At, "peft: prefix tuning fails with gradient checkpointing, as checkpointed layers take no keys and values from before; turn gradient_checkpointing off")
	}
	if look("transformers") != "5.12" {
		h.fail(e.At, "peft: prefix tuning is modelled with transformers 5.12")
	}
	layers, kv, d := shape[0].(int64), shape[1].(int64), shape[2].(int64)
	dim, _ := look("hidden_size", "n_embd", "d_model").(int64)
	if e.Dim.Set {
		dim = e.Dim.V
	}
	heads, _ := look("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads").(int64)
	if e.Heads.Set {
		heads = e.Heads.V
	}
	if n, grouped := look("num_key_value_heads").(int64); grouped || h.c.Type != "gpt2" && h.c.Type != "opt" {
		if !grouped {
			n = kv
		}
		size, own := look("head_dim").(int64)
		if !own {
			size = dim / heads
		}
		dim, heads = size*n, n
	}
	if heads != kv || dim/heads != d || dim%heads != 0 {
		h.fail(e.At, "peft: prefix tuning fails, as its keys have %d heads of %d features, and those of the model %d of %d; leave num_attention_heads and token_dim out", heads, dim/heads, kv, d)
	}
	if e.Layers.Set && e.Layers.V != layers {
		h.fail(e.Layers.At, "num_layers: %d is not modelled, as the model has %d layers; leave it out", e.Layers.V, layers)
	}
	hidden := dim
	if e.Hidden.Set {
		hidden = e.Hidden.V
	}
	windows := look("prefix_windows")
	if w, ok := look("window").(int64); ok && windows != nil && e.Tokens.V >= w {
		h.fail(e.Tokens.At, "num_virtual_tokens: %d is not modelled: the sliding window of the model's layers has %d tokens, of which they must be fewer", e.Tokens.V, w)
	}
	given["prefix_windows"] = windows
	given["prefix_tokens"], given["token_dim"], given["prefix_heads"], given["prefix_layers"] = e.Tokens.V, dim, heads, layers
	given["prefix_projection"], given["encoder_hidden_size"] = e.Projection.V, hidden
}
