package spec

import "reflect"

// Freeze names the parameters that are not trained: patterns of the paths of
// modules and parameters.
type Freeze struct {
	At      Span     `yaml:"-"`
	Modules []String `yaml:"modules" doc:"paths or patterns of modules and parameters, such as layers.[0-3], *.bias or *"`
	Except  []String `yaml:"except" doc:"paths or patterns of what is trained nevertheless"`
	Missing Boolean  `yaml:"allow_missing" doc:"patterns of except that match no parameter are passed over, with a warning, as Axolotl passes over names in unfrozen_parameters"`
}

// freeze: "encoder.*" and freeze: [encoder, "*.bias"] stand for their modules.
func (f *Freeze) unmarshal(d *decoder, v *Value) {
	if v.Kind == Map {
		d.section(v, (*freezeSection)(f), "freeze")
		return
	}
	if v.Kind == Null || (v.Kind == Bool && !v.Bool) {
		return
	}
	d.field(reflect.ValueOf(&f.Modules).Elem(), "", &Value{Str: "freeze"}, v)
}

type freezeSection Freeze

// LoRA adds low-rank adapters to layers and freezes all else, as PEFT does.
type LoRA struct {
	At            Span     `yaml:"-"`
	R             Integer  `yaml:"r" also:"rank" min:"1" default:"8" doc:"rank"`
	Alpha         Number   `yaml:"alpha" also:"lora_alpha" min:"0" default:"8" doc:"lora_alpha: adapters are scaled by alpha / r"`
	Dropout       Number   `yaml:"dropout" also:"lora_dropout" min:"0" max:"1" doc:"lora_dropout"`
	Targets       []String `yaml:"targets" also:"target_modules" doc:"target_modules: names such as q_proj, paths or patterns; all-linear (the default): every linear layer but the last"`
	Except        []String `yaml:"except" also:"exclude_modules" doc:"exclude_modules: names, paths or patterns"`
	Bias          String   `yaml:"bias" enum:"none|all|lora_only" default:"none" doc:"which biases are trained too"`
	DType         String   `yaml:"dtype" default:"float32" doc:"type of the adapters; PEFT's autocast_adapter_dtype makes them float32 in a model of 16 bit"`
	ModulesToSave []String `yaml:"modules_to_save" doc:"names, paths or patterns of modules of which a copy is trained as a whole"`
}

// lora: 16 stands for its rank.
func (l *LoRA) unmarshal(d *decoder, v *Value) {
	if v.Kind == Int || v.IsExpr() {
		d.defaults(reflect.ValueOf(l).Elem())
		d.field(reflect.ValueOf(&l.R).Elem(), `min:"1"`, &Value{Str: "lora"}, v)
		return
	}
	d.section(v, (*loraSection)(l), "lora")
}

type loraSection LoRA

// Quantize stores the weights of linear layers in 4 or 8 bits, as bitsandbytes
// does.
type Quantize struct {
	At        Span     `yaml:"-"`
	Bits      Integer  `yaml:"bits" default:"4" doc:"4 (Linear4bit) or 8 (Linear8bitLt, LLM.int8())"`
	Type      String   `yaml:"type" also:"bnb_4bit_quant_type" enum:"nf4|fp4" default:"nf4" doc:"bnb_4bit_quant_type"`
	Double    Boolean  `yaml:"double_quant" also:"bnb_4bit_use_double_quant" doc:"bnb_4bit_use_double_quant: the blocks' maxima are quantized, too"`
	Compute   String   `yaml:"compute_dtype" also:"bnb_4bit_compute_dtype" default:"float32" doc:"bnb_4bit_compute_dtype"`
	Threshold Number   `yaml:"threshold" also:"llm_int8_threshold" min:"0" default:"6" doc:"llm_int8_threshold: inputs beyond it are computed in 16 bit; 0: none"`
	DType     String   `yaml:"dtype" doc:"type in which the weights are loaded; what is not quantized is then converted to the model's own type, as prepare_model_for_kbit_training does"`
	Library   String   `yaml:"bitsandbytes" enum:"0.42|0.43.1|0.49" default:"0.49" doc:"release of bitsandbytes, quoted in YAML: 0.49, which covers 0.43.2 to 0.49 (of 8 bits 0.46 to 0.49); of 4 bits also 0.43.1, which keeps the input of each product, and 0.42 and before, which also convert weights to float16"`
	Modules   []String `yaml:"modules" doc:"names, paths or patterns of linear layers; by default all but the last"`
	Except    []String `yaml:"except" also:"llm_int8_skip_modules" doc:"llm_int8_skip_modules: names, paths or patterns"`
}

// quantize: 4 stands for its bits.
func (q *Quantize) unmarshal(d *decoder, v *Value) {
	d.defaults(reflect.ValueOf(q).Elem())
	switch {
	case v.Kind == Bool && !v.Bool:
		q.Bits.V = 0
	case v.Kind == Int:
		d.field(reflect.ValueOf(&q.Bits).Elem(), "", &Value{Str: "quantize"}, v)
	default:
		d.section(v, (*quantizeSection)(q), "quantize")
	}
}

type quantizeSection Quantize

// Prune takes weights out of linear layers and convolutions. Unstructured, they
// are masked (torch.nn.utils.prune); structured, the layers have fewer outputs.
type Prune struct {
	At         Span     `yaml:"-"`
	Amount     Number   `yaml:"amount" min:"0" max:"1" default:"0.5" doc:"share of the weights, or of the output features and channels"`
	Structured Boolean  `yaml:"structured" doc:"the layers named by modules are built with fewer output features or channels"`
	Modules    []String `yaml:"modules" doc:"names, paths or patterns of layers; by default every linear layer and convolution is masked"`
	Except     []String `yaml:"except" doc:"names, paths or patterns of layers that stay as they are"`
}

// prune: 0.3 stands for its amount.
func (p *Prune) unmarshal(d *decoder, v *Value) {
	if v.Kind == Float || v.Kind == Int {
		d.field(reflect.ValueOf(&p.Amount).Elem(), `min:"0" max:"1"`, &Value{Str: "prune"}, v)
		return
	}
	d.section(v, (*pruneSection)(p), "prune")
}

type pruneSection Prune
