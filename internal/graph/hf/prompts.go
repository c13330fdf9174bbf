package hf

import (
	"slices"

	"github.com/memplan/memplan/internal/spec"
)

// promptsFile is the file of what stands around a model with virtual tokens.
const promptsFile = Folder + "prompts"

// virtual adds the virtual tokens of peft to the length of a sample in the model.
func (h *model) virtual(name string, preset []byte, given map[string]any) {
	p := h.Spec.PEFT.Prompts()
	if p == nil || h.m.Eval.V || h.Inference {
		return
	}
	n, ok := given["seq"].(int64)
	if params := spec.ReadDocument("preset:"+name, preset).Root.Get("params"); !ok && params != nil {
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
	if path == "" {
		h.fail(p.At, "peft: virtual tokens in front of a %s are not modelled; in front of llama and the types derived from it, gpt2, opt and bert they are", h.Type)
	}
	if task != "causal-lm" && task != "seq-cls" {
		h.fail(p.At, "peft: virtual tokens are modelled for causal-lm and seq-cls, not for %s", task)
	}
	want := map[string]string{"causal-lm": "CAUSAL_LM", "seq-cls": "SEQ_CLS"}[task]
	if p.TaskType.V != want {
		h.fail(p.At, "peft: virtual tokens need task_type: %s, without which PEFT puts none in front of this model", want)
	}
	t := h.Spec.Trainer
	if t.OfTRL() || t.Flattened() {
		h.fail(p.At, "peft: virtual tokens are modelled with trainer: hf, without flattening")
	}
	if a := t.Args(); t.OfTransformers() && a.Number("label_smoothing_factor") != 0 {
		h.fail(a.Span("label_smoothing_factor"), "label_smoothing_factor: Trainer fails with virtual tokens, as the model's logits are of more tokens than the labels")
	}
	dim := look("word_embed_proj_dim", "embedding_size", "hidden_size", "n_embd")
	given := map[string]any{
		"virtual_tokens": p.Tokens.V, "token_dim": dim, "word_size": []any{look("vocab_size"), dim}, "word_padding": look("pad_token_id"), "shared_embeddings": path,
		"takes_items": look("num_items") == true,
	}
	if p.Dim.Set {
		given["token_dim"] = p.Dim.V
	}
	if e := h.Spec.PEFT.PTuning; e != nil {
		if e.Hidden.V == 0 {
			h.fail(e.At, "p_tuning needs encoder_hidden_size")
		}
		if e.Kind.V != "MLP" {
			h.fail(e.Kind.At, "encoder_reparameterization_type: %s is not modelled; MLP is", e.Kind.V)
		}
		given["prompt_block"], given["encoder_hidden_size"] = "PromptEncoder", e.Hidden.V
	}
	text, err := h.Preset(promptsFile)
	if err != nil {
		h.fail(p.At, "%v", err)
	}
	around := h.read(h.m, promptsFile, text, given)
	s.Share(around)
	s.Inherit(around)
	base := &spec.Block{Kind: spec.String{V: spec.KindFunction, Set: true}, Of: s, Autocast: spec.Boolean{V: true}, Layers: s.Model.Layers}
	for _, in := range []string{"input_ids", "inputs_embeds", "attention_mask", "labels", "num_items_in_batch"} {
		base.Inputs = append(base.Inputs, spec.String{V: in, Set: true})
	}
	s.Model.Blocks = append(s.Model.Blocks, &spec.Named[spec.Block]{Name: spec.String{V: "base_model_forward", Set: true}, V: base})
	s.Model.Layers = around.Model.Layers
	s.Model.Modules = append(slices.Clone(s.Model.Modules), around.Model.Modules...)
}
