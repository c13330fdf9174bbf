package graph

import (
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

const tinyLlama = `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "bfloat16"`

// TestLoadErrors checks what is said of keywords of from_pretrained.
func TestLoadErrors(t *testing.T) {
	for _, c := range []struct{ load, rest, want string }{
		{"{dtype: int8}", "", "test.yaml:4:17: weights are loaded in a floating-point type, not int8"},
		{"{device_map: disk}", "", `test.yaml:4:22: device_map is auto, cuda, {"": 0}, cpu or null, not "disk"`},
		{`{device_map: {"": 0, lm_head: cpu}}`, "", "a device_map with modules on the GPU and on the CPU is not modelled"},
		{"{quantization_config: {load_in_4bit: true, load_in_8bit: true}}", "", "load_in_4bit and load_in_8bit exclude each other"},
		{"{quantization_config: {}}", "", "quantization_config needs load_in_4bit: true or load_in_8bit: true"},
		{"{quantization_config: {load_in_4bit: true, quant_method: awq}}", "", "quant_method awq is not modelled; modelled is bitsandbytes"},
		{"{quantization_config: {load_in_8bit: true, llm_int8_has_fp16_weight: true}}", "", "llm_int8_has_fp16_weight is not modelled"},
		{`{quantization_config: {load_in_4bit: true, llm_int8_skip_modules: ["("]}}`, "", `llm_int8_skip_modules: "(" is not a regular expression`},
		{"{quantization_config: {load_in_4bit: true, bnb_4bit_compute_dtype: int8}}", "", "bnb_4bit_compute_dtype must be a floating-point type, not int8"},
		{"{device_map: cpu, quantization_config: {load_in_8bit: true}}", "", `quantized weights are read to the GPU; write device_map: {"": 0}`},
		{"{quantization_config: {load_in_4bit: true}}", "quantize: 4", "quantize and the quantization_config of load exclude each other"},
		{"{convert: {modules: lm_head}}", "", "convert is a list of conversions such as"},
		{"{convert: [lm_head]}", "", "a conversion is a mapping such as"},
		{"{convert: [{modules: lm_head}]}", "", "a conversion needs modules and dtype, such as"},
		{"{convert: [{modules: lm_head, dtype: int8}]}", "", "parameters are converted to a floating-point type, not to int8"},
		{"{convert: [{modules: 'a/b', dtype: float32}]}", "", `a pattern is made of letters`},
		{"{dtype: bfloat16}", "train: {precision: bf16}", "load sets the type of the weights: write load: {dtype: bfloat16}"},
	} {
		_, err := buildHF("memplan: 1\nmodel:\n  hf: config.json\n  load: "+c.load+"\n"+c.rest+"\n", tinyLlama+"}")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: error %v, want %q", c.load, c.rest, err, c.want)
		}
	}
	_, err := buildHF("memplan: 1\nmodel: {inputs: {x: [4]}, layers: [{Linear: 2}], load: {dtype: bfloat16}}\n", "")
	if want := "this model has no hf:"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("load without hf: error %v, want %q", err, want)
	}
}

// TestLoad checks types, devices and which layers are quantized.
func TestLoad(t *testing.T) {
	const nf4 = "load_in_4bit: true"
	bnb := func(more string) string {
		return `, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"` + more + "}"
	}
	for _, c := range []struct {
		load, config      string
		dtype             tensor.DType
		onDevice, stored  bool
		quantized, others int
		kept              string
	}{
		{"{}", "", tensor.BFloat16, false, false, 0, 0, ""},
		{"{dtype: float32, device_map: auto}", "", tensor.Float32, true, false, 0, 0, ""},
		{"{device_map: {'': cuda:0}}", "", tensor.BFloat16, true, false, 0, 0, ""},
		{"{quantization_config: {" + nf4 + "}}", "", tensor.BFloat16, true, false, 14, 1, "lm_head"},
		{"{quantization_config: {" + nf4 + "}}", `, "tie_word_embeddings": true`, tensor.BFloat16, true, false, 14, 1, "lm_head"},
		{"{quantization_config: {" + nf4 + ", llm_int8_skip_modules: [lm_head, 'model.layers.0', o_proj]}}", "", tensor.BFloat16, true, false, 6, 9, "model.layers.1.self_attn.o_proj"},
		{"{}", bnb(""), tensor.BFloat16, true, true, 14, 1, "lm_head"},
		{"{}", bnb(`, "llm_int8_skip_modules": ["lm_head", "up_proj"]`), tensor.BFloat16, true, true, 12, 3, "model.layers.0.mlp.up_proj"},
		{"{}", `, "quantization_config": {"quant_method": "gptq", "bits": 4}`, tensor.BFloat16, false, false, 0, 0, ""},
	} {
		r, err := buildHF("memplan: 1\nmodel:\n  hf: config.json\n  load: "+c.load+"\n", tinyLlama+c.config+"}")
		if err != nil {
			t.Errorf("%s with %s: %v", c.load, c.config, err)
			continue
		}
		m := r.Job.Models[0]
		if l := m.Loaded; l.DType != c.dtype || l.OnDevice != c.onDevice || l.Stored != c.stored {
			t.Errorf("%s with %s: loaded as %+v", c.load, c.config, *l)
		}
		if q := m.Quantized; q == nil && c.quantized > 0 || q != nil && (len(q.Layers) != c.quantized || len(q.Except) != c.others || !q.Except.Fits(c.kept)) {
			t.Errorf("%s with %s: quantized %+v", c.load, c.config, q)
		}
		says := strings.Join(note.Texts(append(r.Warnings, r.NotModelled...)), "\n")
		if gptq := strings.Contains(c.config, "gptq"); gptq != strings.Contains(says, "the quantization of config.json (gptq): its weights are planned in bfloat16") {
			t.Errorf("%s with %s: notes %q", c.load, c.config, says)
		}
	}
}

// TestNothingQuantized checks that a model whose layers are of subclasses of nn.Linear, or are
// all skipped, is loaded as it is, with a warning.
func TestNothingQuantized(t *testing.T) {
	for _, c := range []struct{ more, config string }{
		{"", `{"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}`},
		{", llm_int8_skip_modules: [model, lm_head]", tinyLlama + "}"},
	} {
		r, err := buildHF("memplan: 1\nmodel:\n  hf: config.json\n  load: {dtype: bfloat16, quantization_config: {load_in_4bit: true"+c.more+"}}\n", c.config)
		if err != nil {
			t.Fatalf("%s: %v", c.config, err)
		}
		if q := r.Job.Models[0].Quantized; q == nil || len(q.Layers) > 0 {
			t.Errorf("%s: quantized %+v", c.config, q)
		}
		if says, want := strings.Join(note.Texts(r.Warnings), "\n"), "has no linear layer that transformers quantizes, and keeps its weights in bfloat16"; !strings.Contains(says, want) {
			t.Errorf("%s: warnings %q, want %q", c.config, says, want)
		}
	}
}

// TestRotaryBuffers checks that the frequencies of rotary positions are float32 whatever
// the type of the weights: the library computes them when the model is made.
func TestRotaryBuffers(t *testing.T) {
	const tiny = `"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, "pad_token_id": 0`
	for _, c := range []struct{ config, with string }{
		{`{"model_type": "llama", ` + tiny + `}`, "attn: sdpa"},
		{`{"model_type": "deepseek_v2", "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, ` + tiny + `}`, "attn: sdpa"},
		{`{"model_type": "ernie4_5", ` + tiny + `}`, "attn: sdpa"},
		{`{"model_type": "gpt_oss", "num_local_experts": 2, "num_experts_per_tok": 1, ` + tiny + `}`, "attn: eager"},
		{`{"model_type": "llama4_text", "num_local_experts": 2, "head_dim": 16, ` + tiny + `}`, "attn: sdpa"},
		{`{"model_type": "mistral3", "text_config": {` + tiny + `}, "vision_config": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}}`, "attn: sdpa"},
		{`{"model_type": "phi3", "rope_scaling": {"type": "longrope"}, ` + tiny + `}`, "attn: sdpa"},
	} {
		r, err := buildHF("memplan: 1\nmodel: {hf: config.json, task: causal-lm, with: {seq: 64, "+c.with+"}, load: {dtype: bfloat16}}\n", c.config)
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		found := 0
		r.Job.Models[0].Root.Walk(func(path string, class *program.Class) {
			for _, b := range class.Buffers {
				if strings.HasSuffix(b.Name, "inv_freq") {
					found++
					if b.DType != tensor.Float32 {
						t.Errorf("%s: %s.%s is %v", c.config, path, b.Name, b.DType)
					}
				}
			}
		})
		if found == 0 {
			t.Errorf("%s: no frequencies", c.config)
		}
	}
}

// TestConvert checks the types that conversions after the load leave parameters in. Tied
// parameters are converted under each of their names.
func TestConvert(t *testing.T) {
	const nf4 = "quantization_config: {load_in_4bit: true}, "
	for _, c := range []struct{ load, config, float32s string }{
		{"convert: [{modules: ['*norm*'], dtype: float32}]", "", "model.layers.0.input_layernorm.weight model.layers.0.post_attention_layernorm.weight model.layers.1.input_layernorm.weight model.layers.1.post_attention_layernorm.weight model.norm.weight"},
		{"convert: [{modules: model.layers.1.mlp, dtype: float32}]", "", "model.layers.1.mlp.gate_proj.weight model.layers.1.mlp.up_proj.weight model.layers.1.mlp.down_proj.weight"},
		{"convert: [{modules: ['model.layers.?.mlp', norm], dtype: float32}, {modules: 'model.layers.0', dtype: bfloat16}]", "", "model.layers.1.mlp.gate_proj.weight model.layers.1.mlp.up_proj.weight model.layers.1.mlp.down_proj.weight"},
		{"convert: [{modules: lm_head, dtype: float32}]", "", "lm_head.weight"},
		{"convert: [{modules: lm_head, dtype: float32}]", `, "tie_word_embeddings": true`, "model.embed_tokens.weight lm_head.weight"},
		{"convert: [{modules: '*', dtype: float32}, {modules: lm_head, dtype: bfloat16}, {modules: 'model.layers', dtype: bfloat16}]", `, "tie_word_embeddings": true`, "model.norm.weight"},
		{nf4 + "convert: [{modules: '*', dtype: float32}, {modules: ['*norm*', '*embed_tokens'], dtype: bfloat16}]", "", "lm_head.weight"},
	} {
		r, err := buildHF("memplan: 1\nmodel:\n  hf: config.json\n  load: {"+c.load+"}\ntrainer: {hf: {bf16: true}}\n", tinyLlama+c.config+"}")
		if err != nil {
			t.Errorf("%s with %s: %v", c.load, c.config, err)
			continue
		}
		quantized := map[string]bool{}
		if q := r.Job.Models[0].Quantized; q != nil {
			for _, l := range q.Layers {
				quantized[l.Path] = true
			}
		}
		var got []string
		r.Job.Models[0].Root.Walk(func(path string, m *program.Class) {
			for _, p := range m.Params {
				if p.DType == tensor.Float32 && !quantized[path] {
					got = append(got, program.Join(path, p.Name))
				}
			}
		})
		if s := strings.Join(got, " "); s != c.float32s {
			t.Errorf("%s with %s: float32 are\n%s, want\n%s", c.load, c.config, s, c.float32s)
		}
		if len(r.Warnings) > 0 {
			t.Errorf("%s: warnings %q", c.load, note.Texts(r.Warnings))
		}
	}
	r, err := buildHF("memplan: 1\nmodel: {hf: config.json, load: {convert: [{modules: [ln_f, wpe], dtype: float32}]}}\ntrainer: {hf: {bf16: true}}\n", tinyLlama+"}")
	if err != nil || !slices.Contains(note.Texts(r.Warnings), "no module of model matches ln_f or wpe") {
		t.Error("no warning", err)
	}
}
