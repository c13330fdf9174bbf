package graph

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/spec/spectest"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

// buildHF elaborates a spec that names config.json, which holds config.
func buildHF(text, config string) (*Result, error) {
	s, err := spec.Parse("test.yaml", []byte(text), spec.Options{})
	if err != nil {
		return nil, err
	}
	return Build(s, Options{
		Env: op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Recorded}, Preset: specs.Preset, Presets: specs.Names(), HFTypes: specs.HFTypes(),
		ReadFile: func(name string) ([]byte, error) {
			if name != "config.json" {
				return nil, errors.New("no such file")
			}
			return []byte(config), nil
		},
	})
}

// TestHFTypes elaborates the defaults of every model type, for each task, with
// each attention, cache and mask that it has.
func TestHFTypes(t *testing.T) {
	needs.Time(t, "builds hundreds of models, and shares nothing between goroutines")
	for _, typ := range specs.HFTypes() {
		text, err := specs.Preset("hf/" + typ)
		if err != nil {
			t.Fatal(err)
		}
		p, err := spec.Parse(typ, text, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tasks, _ := p.Env.Lookup("tasks")
		for _, task := range tasks.([]any) {
			for _, with := range []string{"mask: padded", "mask: ones", "attn: eager", "attn: eager, mask: padded", `transformers: "4.51", mask: padded`, "use_cache: true"} {
				if typ == "t5" && strings.HasPrefix(with, "transformers") {
					with += ", attn: eager"
				}
				if _, ok := p.Env.Lookup("use_cache"); !ok && strings.HasPrefix(with, "use_cache") {
					continue
				}
				if _, ok := p.Env.Lookup("seq"); ok {
					with += map[bool]string{true: ", seq: 800", false: ", seq: 32"}[typ == "wav2vec2" || typ == "hubert"] // of sounds
				} else if strings.Contains(with, "mask") { // images have none
					continue
				}
				if typ == "deberta-v2" { // without it, the library looks for labels
					with += ", problem_type: single_label_classification"
				}
				if _, ok := p.Env.Lookup("pad_token_id"); ok {
					with += ", pad_token_id: 0"
				}
				of := typ
				if typ == "mllama_text_model" { // is not modelled alone
					of = "mllama"
				}
				config := `{"model_type": "` + of + `"}`
				if typ == "lfm2_moe" { // its class has no default of layer_types, and fails without
					config = `{"model_type": "lfm2_moe", "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}`
				}
				build := func(with string) error {
					_, err := buildHF("memplan: 1\nmodel: {hf: config.json, task: "+task.(string)+", with: {"+with+"}}\ntrain: {batch_size: 2}\n", config)
					return err
				}
				err := build(with)
				if err != nil && strings.Contains(err.Error(), "with use_cache is not modelled") {
					err = build(strings.TrimPrefix(with, "use_cache: true, ") + ", use_cache: false")
				}
				noMask := regexp.MustCompile(`: mask (ones|padded)( of images)? is not modelled`) // of images and sounds
				if err != nil && !(strings.Contains(with, "4.51") && strings.Contains(err.Error(), "transformers 4.51 of ")) && !noMask.MatchString(err.Error()) {
					t.Errorf("%s, %s, %s: %v", typ, task, with, err)
				}
			}
		}
	}
}

// TestPackedLanguages elaborates models of text and images on packed samples, whose position_ids
// their language models get.
func TestPackedLanguages(t *testing.T) {
	for _, typ := range []string{"glm4v", "glm46v", "internvl", "lfm2_vl", "llava", "mistral3", "mllama", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "smolvlm", "voxtral"} {
		for _, attn := range []string{"sdpa", "flash_attention_2"} {
			_, err := buildHF("memplan: 1\nmodel: {hf: config.json, task: causal-lm, load: {dtype: bfloat16}, with: {seq: 64, attn: "+attn+"}}\n"+
				"trainer: {sft: {per_device_train_batch_size: 2, packing: true}}\n", `{"model_type": "`+typ+`"}`)
			if err != nil {
				t.Errorf("%s, %s: %v", typ, attn, err)
			}
		}
	}
}

// TestHFErrors checks what a config.json and the keys beside it may not say.
func TestHFErrors(t *testing.T) {
	for _, c := range []struct{ model, config, want string }{
		{"{hf: other.json}", "", "no such file"},
		{"{hf: config.json}", "{", "not a configuration in JSON"},
		{"{hf: config.json}", "{}", "no model_type in it"},
		{"{hf: config.json}", `{"model_type": "rwkv"}`, `model_type "rwkv" is not known; known are afmoe, albert, apertus, arcee, `},
		{"{hf: config.json}", `{"model_type": "dbrx"}`, `transformers 5.12 fails with model_type "dbrx", as the router of DbrxFFN takes ffn_hidden_size features, and its input has d_model of them; use a model of another type`},
		{"{hf: config.json, load: {quantization_config: {load_in_4bit: true}}}", `{"model_type": "gemma3n"}`, `transformers 5.12 fails to train model_type "gemma3n" in weights of 4 or 8 bits, as Gemma3nTextAltUp clamps weights in place, which are integers then; use a model of another type`},
		{"{hf: config.json, load: {dtype: bfloat16}}", `{"model_type": "gemma3n"}`, `model_type "gemma3n" is not known; did you mean "gemma3"?`},
		{"{hf: config.json}", `{"model_type": "gpt3"}`, `model_type "gpt3" is not known; did you mean "gpt2"?`},
		{"{hf: config.json}", `{"model_type": "bert", "architectures": ["BertLMHead"]}`,
			`the architecture "BertLMHead" is for no task that is modelled; write one: task: masked-lm or seq-cls`},
		{"{hf: config.json}", `{"model_type": "camembert", "architectures": ["CamembertForMultipleChoice"]}`,
			`task "multiple-choice" of camembert is not known; known are masked-lm, seq-cls, token-cls, question-answering`},
		{"{hf: config.json}\ntrain: {batch_size: 2}", `{"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}`,
			"test.yaml:2:13: config.json: pad_token_id is null; without one llama cannot classify batches of 2, only of 1"},
		{`{hf: config.json, task: token-cls, with: {transformers: "4.51"}}`, `{"model_type": "gpt2"}`,
			"test.yaml:2:50: transformers 4.51 of task token-cls is not modelled; modelled is 5.12"},
		{"{hf: config.json}\ntrain: {checkpoint: true}", `{"model_type": "albert"}`, "gradient checkpointing, which the library has not for ALBERT, is not modelled"},
		{"{hf: config.json}\ntrain: {precision: amp-bf16}", `{"model_type": "jamba", "use_cache": false}`, "Jamba with norms of float32 under autocast, with which selective_scan_cuda fails, is not modelled"},
		{"{hf: config.json, load: {dtype: bfloat16, device_map: {\"\": 0}, quantization_config: {load_in_4bit: true}}}", `{"model_type": "falcon_h1", "use_cache": false}`,
			"transformers 5.12 fails to train a quantized model.layers.0.mamba.out_proj, whose weight is taken without a call of the layer; write llm_int8_skip_modules: [out_proj]"},
		{"{hf: config.json, with: {n_embd: 7.5}}", `{"model_type": "gpt2"}`, `test.yaml:2:33: config.json: n_embd must be an integer, not 7.5`},
		{"{hf: config.json}", `{"model_type": "gpt2", "tie_word_embeddings": 1}`, `tie_word_embeddings must be true or false, not 1`},
		{"{hf: config.json}", `{"model_type": "gpt2", "activation_function": "laplace"}`, `activation_function "laplace" is not modelled; modelled are gelu, `},
		{"{hf: config.json}\ntrain: {precision: fp16}", `{"model_type": "t5"}`, `test.yaml:3:20: precision fp16 of t5 is not modelled`},
		{"{hf: config.json, with: {num_key_value_heads: 5}}", `{"model_type": "llama"}`, "test.yaml:2:13: the model of config.json cannot be made with these values of with: and train:"},
		{"{hf: config.json, with: {num_key_value_heads: 5}}", `{"model_type": "llama"}`, "preset:hf/common:"},
		{"{hf: config.json}", `{"model_type": "common"}`, `model_type "common" is not known`},
		{"{hf: config.json}", `{"model_type": "heads"}`, `model_type "heads" is not known`},
		{"{hf: config.json, task: masked-lm}", `{"model_type": "gpt2"}`, `task "masked-lm" of gpt2 is not known; known are causal-lm`},
		{"{hf: config.json}", `{"model_type": "gpt2", "add_cross_attention": true}`, "add_cross_attention is not modelled"},
		{"{hf: config.json, with: {sequence: 8}}", `{"model_type": "gpt2"}`, `unknown param of gpt2 "sequence"`},
		{"{hf: config.json, with: {mask: half}}", `{"model_type": "gpt2"}`, `mask must be one of none, ones, padded, not "half"`},
		{"{hf: config.json, attn_implementation: flex_attention}", `{"model_type": "gpt2"}`, `test.yaml:2:47: attn must be one of sdpa, eager, flash_attention_2, flash_attention_3, not "flex_attention"`},
		{"{hf: config.json, attn_implementation: eager, with: {attn: sdpa}}", `{"model_type": "gpt2"}`, "attn and attn_implementation are the same"},
		{"{hf: config.json, with: {attn: flash_attention_2}}", `{"model_type": "gpt2"}`, "flash_attention_2 takes float16 and bfloat16, not the float32 of train.precision fp32"},
		{"{hf: config.json, with: {attn: flash_attention_2, transformers: 4.51}}", `{"model_type": "gpt2"}`, "flash_attention_2 of transformers 4.51 is not modelled"},
		{"{hf: config.json, task: image-cls, with: {attn: flash_attention_2}}\ntrain: {precision: bf16}", `{"model_type": "beit"}`, "flash_attention_2 (transformers 5.12 has none for BEiT) is not modelled"},
		{"{hf: config.json, task: image-cls, with: {attn: flash_attention_3}}\ntrain: {precision: bf16}", `{"model_type": "swin"}`, "flash_attention_3 (transformers 5.12 has none for Swin) is not modelled"},
		{"{hf: config.json, with: {attn: flash_attention_3}}\ntrain: {precision: bf16}", `{"model_type": "nemotron"}`, "flash_attention_3 (transformers 5.12 has none for Nemotron) is not modelled"},
		{"{hf: config.json, with: {attn: flash_attention_3}}\ntrain: {precision: bf16}", `{"model_type": "llama4_text"}`, "flash_attention_3 (transformers 5.12 has none for Llama 4) is not modelled"},
		{"{hf: config.json, liger: true}", `{"model_type": "gpt2"}`, "liger: Liger's kernels for gpt2 are not modelled; modelled are those for gemma, "},
		{"{hf: config.json, liger: {ropes: true}}", `{"model_type": "llama"}`, `unknown kernel of Liger for llama "ropes"; did you mean "rope"?`},
		{"{hf: config.json, liger: {geglu: 1}}", `{"model_type": "gemma"}`, "liger: geglu must be true or false, not "},
		{"{hf: config.json, liger: on}", `{"model_type": "llama"}`, "liger must be true, false or a mapping such as {rope: false}, not "},
		{"{hf: config.json, liger: {cross_entropy: true}}", `{"model_type": "llama"}`, "add fused_linear_cross_entropy: false"},
		{"{hf: config.json, cut_cross_entropy: maybe}", `{"model_type": "llama"}`, "cut_cross_entropy must be true or false"},
		{"{hf: config.json, task: seq-cls, cut_cross_entropy: true}", `{"model_type": "llama"}`, "test.yaml:2:60: cut_cross_entropy is a loss of task causal-lm, not of seq-cls"},
		{"{hf: config.json, liger: true, cut_cross_entropy: true}", `{"model_type": "llama"}`, "exclude each other; write fused_linear_cross_entropy: false among Liger's kernels"},
		{"{hf: config.json, cut_cross_entropy: true, with: {transformers: 4.51}}", `{"model_type": "llama"}`, "cut_cross_entropy of transformers 4.51 is not modelled"},
		{"{hf: config.json, cut_cross_entropy: true}", `{"model_type": "llama"}`, "the backward pass of Cut Cross Entropy takes float16 and bfloat16, not float32; load the weights in one of these"},
		{"{hf: config.json, cut_cross_entropy: true}\ntrainer: {sft: {}}", `{"model_type": "llama"}`, "SFTTrainer computes its metrics of logits, of which Cut Cross Entropy makes none"},
		{"{hf: config.json, with: {transformers: 3}}", `{"model_type": "gpt2", "tasks": 1}`, "transformers must be one of 5.12, 4.51, not 3"},
		{"{hf: config.json}", `{"model_type": "gpt2", "n_head": 0}`, "zero"},
		{"{hf: config.json}", `{"model_type": "llama", "rope_scaling": {"rope_type": "dynamic"}}`, "rope_type dynamic is not modelled"},
		{"{hf: config.json}", `{"model_type": "beit", "use_relative_position_bias": true}`, "relative positions, whose index is copied from the CPU for each use, which is not modelled"},
		{"{hf: config.json}", `{"model_type": "swin", "window_size": 8}`, "a window_size larger than the sides of a stage, with which transformers 5.12 fails, is not modelled"},
		{"{hf: config.json}", `{"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"]}`, `task "ctc" of wav2vec2 is not known; known are seq-cls`},
		{"{hf: config.json}", `{"model_type": "hubert", "use_weighted_layer_sum": true}`, "use_weighted_layer_sum is not modelled"},
		{"{hf: config.json}", `{"model_type": "clip", "vision_config": {"hidden_act": "laplace"}}`, `vision_hidden_act "laplace" is not modelled; modelled are gelu, `},
		{"{hf: config.json}", `{"model_type": "marian", "encoder_layerdrop": 0.1}`, "layerdrop is not modelled"},
		{"{hf: config.json}", `{"model_type": "mistral3", "text_config": {"model_type": "gemma"}}`, `text_config.model_type "gemma" of mistral3 is not modelled; modelled are mistral, ministral3, mistral4`},
		{"{hf: config.json}", `{"model_type": "gemma3", "vision_config": {"hidden_size": "x"}}`, `vision_hidden_size must be an integer, not "x"`},
		{"{hf: config.json, with: {images: 2, seq: 100}}", `{"model_type": "gemma3"}`, `2 images of 256 tokens in a sample of 100 is not modelled`},
		{"{hf: config.json, with: {images: 1}}", `{"model_type": "gemma3_text"}`, `images of a model for text is not modelled`},
		{"{hf: config.json, with: {attn: eager, global_attn: sdpa}}", `{"model_type": "gemma4"}`, `global_attn sdpa beside attn eager`},
		{"{hf: config.json}", `{"model_type": "gemma4_text", "num_hidden_layers": 6, "num_kv_shared_layers": 2}`, "num_kv_shared_layers with which some layers have none to take keys and values from (transformers fails) is not modelled"},
		{"{hf: config.json}", `{"model_type": "gemma4_text", "num_hidden_layers": 6, "num_kv_shared_layers": 6}`, "num_kv_shared_layers with which"},
		{"{hf: config.json}\npeft: {lora: {target_modules: all-linear}}", `{"model_type": "llama4_text", "num_hidden_layers": 1}`, "test.yaml:3:31: lora.target_modules: model.layers.0.feed_forward.router returns a tuple, with which PEFT's adapter fails; leave it out, such as with exclude_modules: [router]"},
		{"{hf: config.json}", `{"model_type": "llama4", "text_config": {"attention_chunk_size": 128}}`, "a sequence that is not shorter than attention_chunk_size is not modelled"},
		{"{hf: config.json, with: {attn: sdpa}}", `{"model_type": "gpt_oss"}`, "sdpa, which gpt-oss does not support (attn: eager), is not modelled"},
		{"{hf: config.json, preset: gpt}", `{"model_type": "gpt2"}`, "hf excludes preset"},
		{"{preset: hf/gpt9}", "", `test.yaml:2:17: hf/gpt9: model_type "gpt9" is not known; did you mean "gpt2"?`},
		{"{preset: hf/gpt2, with: {n_layers: 1}}", "", `unknown param of gpt2 "n_layers"; did you mean "n_layer"?`},
		{"{preset: hf/gpt2, layers: [{Linear: 1}]}", "", "preset and layers exclude each other"},
		{"{hf: meta-llama/Llama-9}", "", `test.yaml:2:13: there is no file "meta-llama/Llama-9", and memplan has no configuration of such a model`},
	} {
		_, err := buildHF("memplan: 1\nmodel: "+c.model+"\n", c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: error %v, want %q", c.model, c.config, err, c.want)
		}
	}
}

// TestHFSays checks what is said of a config.json that is not followed.
func TestHFSays(t *testing.T) {
	const config = `{"model_type": "gpt2", "n_layer": 1, "n_positions": 64, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "gptq"}}`
	r, err := buildHF("memplan: 1\nmodel: {hf: config.json, with: {seq: 128}}\n", config)
	if err != nil {
		t.Fatal(err)
	}
	says := strings.Join(note.Texts(append(r.Warnings, r.NotModelled...)), "\n")
	for _, want := range []string{
		"seq 128 is more than the 64 positions",
		"config.json says dtype bfloat16, in which from_pretrained of transformers 5 loads weights; they are planned in float32, as train.precision fp32 says",
		"the quantization of config.json (gptq): its weights are planned in float32",
	} {
		if !strings.Contains(says, want) {
			t.Errorf("%q is not said:\n%s", want, says)
		}
	}
	r, err = buildHF("memplan: 1\nmodel: {hf: config.json, cut_cross_entropy: true, with: {seq: 64}}\n", config)
	if err != nil {
		t.Fatal(err)
	}
	if says, want := strings.Join(note.Texts(r.NotModelled), "\n"), "cut_cross_entropy: Cut Cross Entropy of gpt2; planned with the logits of all tokens"; !strings.Contains(says, want) {
		t.Errorf("%q is not said:\n%s", want, says)
	}
	r, err = buildHF("memplan: 1\nmodel: {hf: config.json, with: {seq: 64}}\ntrain: {precision: bf16}\n", config)
	if err != nil || len(r.Warnings) > 0 {
		t.Errorf("warnings %q, error %v", r.Warnings, err)
	}
}

// TestCachesInEvaluations checks when evaluations are said to keep more than is planned:
// Trainer turns off use_cache of the model's own configuration, not of text_config.
func TestCachesInEvaluations(t *testing.T) {
	const text = `"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100`
	for _, c := range []struct {
		config, args string
		says         bool
	}{
		{`{"model_type": "qwen2_vl", "text_config": {` + text + `}}`, "gradient_checkpointing: true, eval_strategy: steps", true},
		{`{"model_type": "qwen2_vl", "text_config": {` + text + `}}`, "eval_strategy: steps", false},
		{`{"model_type": "qwen2_vl", "text_config": {` + text + `}}`, "gradient_checkpointing: true", false},
		{`{"model_type": "qwen2_vl", "text_config": {"use_cache": false, ` + text + `}}`, "gradient_checkpointing: true, eval_strategy: steps", false},
		{`{"model_type": "llama", ` + text + `}`, "gradient_checkpointing: true, eval_strategy: steps", false},
		{`{"model_type": "llama", ` + text + `}`, "use_cache: true, gradient_checkpointing: true, eval_strategy: steps", true},
	} {
		r, err := buildHF("memplan: 1\nmodel: {hf: config.json, with: {seq: 64}}\ntrainer:\n  hf: {"+c.args+"}\n  eval_dataset: {samples: 8}\n", c.config)
		if err != nil {
			t.Errorf("%s with %s: %v", c.config, c.args, err)
			continue
		}
		const want = "trainer.hf.eval_strategy: the keys and values that evaluations keep with use_cache"
		if says := strings.Join(note.Texts(r.NotModelled), "\n"); strings.Contains(says, want) != c.says {
			t.Errorf("%s with %s: notes %q", c.config, c.args, says)
		}
	}
}

// TestHFFile checks that a file which is not there is no mistake of the spec.
func TestHFFile(t *testing.T) {
	_, err := buildHF("memplan: 1\nmodel: {hf: other.json}\n", "")
	var file *FileError
	if !errors.As(err, &file) || !strings.HasPrefix(err.Error(), "test.yaml:2:13: no such file") {
		t.Errorf("error %v", err)
	}
}

// maxHF bounds the numbers of the configurations that FuzzHFConfig builds models
// of.
const maxHF = 64

// No config.json makes memplan panic, nor says what its preset alone may say.
func FuzzHFConfig(f *testing.F) {
	var seeds [][]byte
	for _, typ := range specs.HFTypes() {
		seeds = append(seeds, []byte(`{"model_type": "`+typ+`", "num_hidden_layers": 1, "n_layer": 1, "n_layers": 1, "num_layers": 1, "encoder_layers": 1, "decoder_layers": 1, "hidden_size": 16, "n_embd": 16, "d_model": 16, "dim": 16,
 "num_attention_heads": 2, "num_heads": 2, "n_head": 2, "n_heads": 2, "intermediate_size": 32, "vocab_size": 50, "hidden_act": "gelu", "tie_word_embeddings": false, "pad_token_id": 0, "architectures": ["XForCausalLM"],
 "rope_scaling": {"rope_type": "linear"}, "text_config": {"hidden_size": 16, "num_hidden_layers": 1}, "vision_config": {"image_size": 32, "patch_size": 16}, "depths": [1, 1, 1, 1], "tasks": ["x"], "positions": -1}`))
	}
	mutator := spectest.New(seeds)
	for i, text := range seeds {
		f.Add(text)
		changed, err := mutator.JSON(spectest.Source(uint64(i)), text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := hf.ParseConfig(text)
		if err != nil {
			return
		}
		for _, v := range c.Values {
			if n, ok := v.(int64); ok && n > maxHF {
				return
			}
		}
		for _, task := range []string{"", ", task: seq-cls"} {
			_, err := buildHF("memplan: 1\nmodel: {hf: config.json, with: {seq: 8}"+task+"}\n", string(text))
			if wrong := (*spec.Errors)(nil); err != nil && !errors.As(err, &wrong) {
				t.Fatalf("%T: %v", err, err)
			}
		}
	})
}
