package importer

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// Which parameters an Axolotl job trains: adapters, with the quantization and the kernels that go
// with them, or some of the model's own.

// loraKeys are the keys of Axolotl with those of LoraConfig that have their values.
var loraKeys = []struct{ key, is string }{
	{"lora_r", "r"}, {"lora_alpha", "lora_alpha"}, {"lora_dropout", "lora_dropout"}, {"lora_target_parameters", "target_parameters"},
	{"lora_modules_to_save", "modules_to_save"}, {"lora_exclude_modules", "exclude_modules"}, {"lora_fan_in_fan_out", "fan_in_fan_out"}, {"lora_rank_pattern", "rank_pattern"},
	{"lora_alpha_pattern", "alpha_pattern"}, {"peft_layers_to_transform", "layers_to_transform"}, {"peft_layers_pattern", "layers_pattern"},
	{"peft_use_dora", "use_dora"}, {"peft_use_rslora", "use_rslora"}, {"peft_layer_replication", "layer_replication"}, {"peft_init_lora_weights", "init_lora_weights"},
	{"peft_trainable_token_indices", "trainable_token_indices"}, {"peft_ensure_weight_tying", "ensure_weight_tying"},
}

// axolotlAdapter writes adapters and the quantization that goes with them
// (loaders/adapter.py, _set_quantization_config of loaders/model.py).
func (j *job) axolotlAdapter() {
	v, adapter := j.get("adapter"), j.str("adapter", "")
	four, eight := j.flag("load_in_4bit", false), j.flag("load_in_8bit", false)
	switch adapter {
	case "":
		if four || eight {
			v = j.get("load_in_4bit")
			if !four {
				v = j.get("load_in_8bit")
			}
			j.fail(v, "weights in 4 or 8 bits are trained with adapters alone; add adapter: qlora or lora")
		}
		return
	case "lora", "qlora":
	default:
		j.fail(v, "adapter: %s is not modelled; memplan plans lora and qlora", adapter)
	}
	switch {
	case adapter == "qlora" && !four:
		j.fail(v, "adapter: qlora needs load_in_4bit: true")
	case adapter == "qlora":
		q := "model.load.quantization_config."
		j.put(q+"load_in_4bit", "true", j.get("load_in_4bit"))
		j.put(q+"bnb_4bit_compute_dtype", j.out.says("model.load.dtype"), nil)
		j.put(q+"bnb_4bit_use_double_quant", "true", nil)
		j.put(q+"bnb_4bit_quant_type", "nf4", nil)
		storage := "bfloat16"
		if slices.Contains(storedInFloat32, j.modelType()) && !j.on("deepspeed") && !j.isSharded() {
			storage = "float32"
		}
		j.put(q+"bnb_4bit_quant_storage", storage, nil)
		if kw := j.get("bnb_config_kwargs"); kw != nil {
			for _, p := range kw.Pairs {
				if !spec.IsVariable(p.Key.Str) {
					j.fail(p.Key, "%s is no key of BitsAndBytesConfig", p.Key.Describe())
				}
				j.out.put(q+p.Key.Str, flow(p.Value), j.from(p.Value))
			}
		}
	case eight:
		j.put("model.load.quantization_config.load_in_8bit", "true", j.get("load_in_8bit"))
	case four:
		j.fail(j.get("load_in_4bit"), "Axolotl quantizes to 4 bits with adapter: qlora alone; with lora the weights would be loaded in 16 bits and converted to float32")
	}
	if four || eight {
		j.put("model.load.device_map", `{"": 0}`, nil)
		if modules := j.unquantized(eight); modules != "" {
			j.put("model.load.quantization_config.llm_int8_skip_modules", modules, nil)
		}
	}
	lora := "peft.lora."
	for _, k := range loraKeys {
		if v := j.get(k.key); v != nil && (v.Kind != spec.List || len(v.Items) > 0) {
			j.set(lora+k.is, k.key, v)
		}
	}
	if j.get("lora_r") == nil {
		j.fail(v, "adapter: %s needs lora_r", adapter)
	}
	if d := j.get("peft_autocast_adapter_dtype"); d != nil {
		j.set("peft.autocast_adapter_dtype", "peft_autocast_adapter_dtype", d)
	}
	linear := j.flag("lora_target_linear", false)
	switch targets := j.get("lora_target_modules"); {
	case given(targets) && linear && targets.Kind == spec.Str: // one of the names
		j.put(lora+"target_modules", "["+flow(targets)+"]", targets)
	case given(targets):
		j.set(lora+"target_modules", "lora_target_modules", targets)
	case linear:
	case j.on("lora_target_parameters"):
		j.put(lora+"target_modules", "[]", nil)
	default:
		j.fail(v, "adapter: %s needs lora_target_modules or lora_target_linear: true", adapter)
	}
	if linear {
		j.put("peft.linear_names", "true", j.get("lora_target_linear"))
	}
	if j.on("lora_dropout") { // _patch_peft_param_wrapper_dropout
		j.put("peft.parameter_dropout", "false", nil)
	}
	j.axolotlFused()
}

// storedInFloat32 are the model types whose weights in 4 bits Axolotl keeps in tensors of
// float32.
var storedInFloat32 = []string{"jamba", "qwen2_moe", "nemotron_h"}

// unquantized lists the modules of model types that Axolotl does not quantize: kernels take their
// weights as they are.
func (j *job) unquantized(eight bool) string {
	switch model := strings.ToLower(j.out.says("model.hf")); {
	case strings.Contains(model, "falcon-h1"):
		return "[out_proj]"
	case eight && strings.Contains(model, "jamba"):
		return "[mamba]"
	}
	return ""
}

// loraKernels are the keys of fused kernels of LoRA, with those of peft.kernels.
var loraKernels = []struct{ key, is string }{{"lora_mlp_kernel", "mlp"}, {"lora_qkv_kernel", "qkv"}, {"lora_o_kernel", "o"}}

// axolotlFused writes fused kernels of LoRA, which are on where no key says otherwise
// (utils/schemas/config.py: check_auto_enable_lora_kernels).
func (j *job) axolotlFused() {
	const path = "peft.kernels"
	adapter, embedding := j.get("adapter"), j.get("lora_embedding_kernel")
	asked, from := embedding != nil, adapter
	var on []string
	for _, k := range loraKernels {
		if v := j.get(k.key); v != nil {
			asked = true
			if j.flag(k.key, false) {
				on, from = append(on, k.is), v
			}
		}
	}
	automatic := !asked && !j.on("trust_remote_code") && !j.on("load_in_8bit") && !j.on("rl") && !j.on("nvfp4_merge_aware") && (!j.on("fsdp_config") || j.fsdp2())
	switch {
	case len(on) == 0 && !automatic:
	case j.on("peft_use_dora"):
		j.doubt(from, "peft_use_dora: Axolotl's fused kernels of DoRA, which save fewer tensors; planned with PEFT's layers")
	case j.on("load_in_8bit"):
		j.fail(from, "%s", j.refused(from, "with weights of 8 bits; write lora_mlp_kernel: false, lora_qkv_kernel: false and lora_o_kernel: false"))
	case automatic:
		j.put(path, "auto", nil)
	default:
		j.put(path, "["+strings.Join(on, ", ")+"]", from)
	}
	if j.flag("lora_embedding_kernel", false) {
		j.doubt(embedding, "lora_embedding_kernel: a fused kernel for embeddings with adapters; planned with PEFT's layers")
	}
}

// axolotlTrains says which parameters are trained (utils/freeze.py): those whose names
// begin with what one of the regular expressions matches.
func (j *job) axolotlTrains() {
	v, mm := j.get("unfrozen_parameters"), j.get("freeze_mm_modules")
	switch {
	case given(mm) && (given(v) || j.on("adapter")):
		j.doubt(mm, "freeze_mm_modules with an adapter or unfrozen_parameters; planned without it")
	case given(mm) && (j.sees() || j.hears()) && mmModules[j.modelType()] == "":
		j.doubt(mm, "freeze_mm_modules: which modules %s has is not known; planned without", j.named)
	case given(mm) && (j.sees() || j.hears()):
		j.put("freeze.modules", "["+mmModules[j.modelType()]+"]", mm)
	}
	if !given(v) {
		return
	}
	if j.on("adapter") {
		j.doubt(v, "unfrozen_parameters: Axolotl looks for the names after it has added adapters, where they begin with base_model.model, and freezes all others, adapters too; planned with adapters trained")
		return
	}
	var except []string
	for _, it := range v.Items {
		p, ok := glob(it.Str)
		if !ok {
			j.doubt(it, "unfrozen_parameters: the regular expression %s; planned with all parameters trained", it.Str)
			return
		}
		if slices.Contains(textAlone, j.modelType()) { // whose names AutoModelForCausalLM makes
			if strings.HasPrefix(p, languageModel) {
				p = "model" + strings.TrimPrefix(p, languageModel)
			} else if strings.HasPrefix(p, "model.visual") {
				continue
			}
		}
		except = append(except, quote(p))
	}
	j.put("freeze.modules", `["*"]`, v)
	j.put("freeze.except", "["+strings.Join(except, ", ")+"]", v)
	j.put("freeze.allow_missing", "true", nil)
}

// mmModules are patterns of the modules of images and sound that model types have, of those that
// Axolotl freezes (utils/freeze.py).
var mmModules = map[string]string{
	"gemma3": towers, "glm46v": "model.visual", "glm4v": "model.visual", "internvl": towers, "lfm2_vl": towers, "llava": towers, "mistral3": towers,
	"mllama": "model.vision_model, model.multi_modal_projector", "qwen2_5_vl": "model.visual", "qwen2_vl": "model.visual", "qwen3_vl": "model.visual",
	"qwen3_vl_moe": "model.visual", "smolvlm": "model.vision_model",
}

const towers = "model.vision_tower, model.multi_modal_projector"

// languageModel is where the language model is in a model of text and images.
const languageModel = "model.language_model"

// glob writes a simple regular expression that the beginning of a name matches as a
// pattern of the spec.
func glob(re string) (string, bool) {
	p := strings.TrimPrefix(re, "^")
	if whole, ok := strings.CutSuffix(p, "$"); ok {
		p = whole
	} else {
		p = strings.TrimSuffix(p, ".*") + ".*"
	}
	p = strings.ReplaceAll(strings.ReplaceAll(p, `\.`, "."), ".*", "*")
	return p, !strings.ContainsAny(p, `[](){}+?|\^$`)
}
