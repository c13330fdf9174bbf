package spec

// Load says how a Hugging Face model is read from its checkpoint: the keywords of
// from_pretrained.
type Load struct {
	At        Span          `yaml:"-"`
	DType     String        `yaml:"dtype" also:"torch_dtype" default:"auto" doc:"type of the weights; auto: that of the config.json"`
	DeviceMap *Value        `yaml:"device_map" doc:"auto, cuda or {\"\": 0}: weights are read to the GPU; cpu or null: to host memory, from which the model is moved. Quantized weights are read to the GPU without it, too"`
	Quantize  *BitsAndBytes `yaml:"quantization_config" doc:"BitsAndBytesConfig: weights of linear layers in 4 or 8 bits"`
	Convert   Conversions   `yaml:"convert" doc:"what the program converts after the load: a list such as [{modules: [\"*norm*\", lm_head], dtype: float32}]"`
	Attn      String        `yaml:"attn_implementation" doc:"as with: {attn: ...}"`
	MaxMemory *Value        `yaml:"max_memory" doc:"the memory that device_map: auto may fill" later:"max_memory of device_map: auto"`
	Library   String        `yaml:"bitsandbytes" enum:"0.43.1|0.49|0.50" default:"0.50" doc:"release of bitsandbytes, quoted in YAML: 0.50, or 0.49, which covers 0.43.2 to 0.49 (of 8 bits 0.46 to 0.49); of 4 bits also 0.43.1, which keeps the input of each product"`

	// What has no effect on memory.
	LowCPU    *Value `yaml:"low_cpu_mem_usage" doc:"accepted, without effect on memory: the model is always made on the meta device"`
	Remote    *Value `yaml:"trust_remote_code" doc:"accepted, without effect on memory"`
	Revision  *Value `yaml:"revision" doc:"accepted, without effect on memory"`
	Variant   *Value `yaml:"variant" doc:"accepted, without effect on memory"`
	Subfolder *Value `yaml:"subfolder" doc:"accepted, without effect on memory"`
	Token     *Value `yaml:"token" doc:"accepted, without effect on memory"`
	CacheDir  *Value `yaml:"cache_dir" doc:"accepted, without effect on memory"`
	Local     *Value `yaml:"local_files_only" doc:"accepted, without effect on memory"`
	Safe      *Value `yaml:"use_safetensors" doc:"accepted, without effect on GPU memory"`
}

// Conversions are made in their order.
type Conversions []*Conversion

// Conversion converts the parameters of modules to another type, one by one and where
// they are. Quantized weights stay as they are.
type Conversion struct {
	At         Span     `yaml:"-"`
	Modules    []String `yaml:"modules" doc:"paths or patterns of modules, such as *norm*; * is all of them"`
	Except     []String `yaml:"except" doc:"those that stay as they are, by paths or patterns"`
	DType      String   `yaml:"dtype" doc:"the type of their parameters then"`
	Trained    Boolean  `yaml:"trained" doc:"of the copies alone that modules_to_save of peft makes of them, once the adapters are made"`
	EmptyCache Boolean  `yaml:"empty_cache" doc:"torch.cuda.empty_cache() when they are converted"`
}

// A list of conversions, each with its modules and their type.
func (c *Conversions) unmarshal(d *decoder, v *Value) {
	const form = "{modules: [\"*norm*\", lm_head], dtype: float32}"
	if v.absent() {
		return
	}
	if v.Kind != List {
		d.errs.Addf(v.Span, "convert is a list of conversions such as %s, not %s", form, v.Describe())
		return
	}
	for _, it := range v.Items {
		if it.Kind != Map {
			d.errs.Addf(it.Span, "a conversion is a mapping such as %s, not %s", form, it.Describe())
			continue
		}
		x := &Conversion{At: it.Span}
		d.section(it, x, "convert")
		if len(x.Modules) == 0 || !x.DType.Set {
			d.errs.Addf(it.Span, "a conversion needs modules and dtype, such as %s", form)
			continue
		}
		*c = append(*c, x)
	}
}

// BitsAndBytes is transformers.BitsAndBytesConfig.
type BitsAndBytes struct {
	At        Span     `yaml:"-"`
	Method    String   `yaml:"quant_method" doc:"bitsandbytes"`
	Load8bit  Boolean  `yaml:"load_in_8bit" doc:"Linear8bitLt (LLM.int8())"`
	Load4bit  Boolean  `yaml:"load_in_4bit" doc:"Linear4bit"`
	Type      String   `yaml:"bnb_4bit_quant_type" enum:"nf4|fp4" default:"fp4" doc:"how 4 bits say a number"`
	Double    Boolean  `yaml:"bnb_4bit_use_double_quant" doc:"the blocks' maxima are quantized, too"`
	Compute   String   `yaml:"bnb_4bit_compute_dtype" default:"float32" doc:"type of the matrix products"`
	Storage   String   `yaml:"bnb_4bit_quant_storage" enum:"uint8|int8|float16|bfloat16|float32|float64" default:"uint8" doc:"element type of the packed weights"`
	Threshold Number   `yaml:"llm_int8_threshold" min:"0" default:"6" doc:"inputs beyond it are computed in 16 bits; 0: none"`
	Skip      []String `yaml:"llm_int8_skip_modules" doc:"modules that are not quantized, as regular expressions that a path begins with, or ends of paths; null: the output embedding, tied weights and the module of the last parameter"`
	Skips     bool     `yaml:"-"` // llm_int8_skip_modules is a list
	Offload   Boolean  `yaml:"llm_int8_enable_fp32_cpu_offload" doc:"accepted, without effect: all of the model is on one device"`
	Weight16  Boolean  `yaml:"llm_int8_has_fp16_weight" doc:"weights of 16 bits that each step quantizes; not modelled"`
}

// A null of llm_int8_skip_modules is another value than an empty list.
func (b *BitsAndBytes) unmarshal(d *decoder, v *Value) {
	d.section(v, (*bitsAndBytesSection)(b), "quantization_config")
	if skip := v.Get("llm_int8_skip_modules"); skip != nil && skip.Kind != Null {
		b.Skips = true
	}
	switch {
	case b.Load4bit.V && b.Load8bit.V:
		d.errs.Addf(b.Load8bit.At, "load_in_4bit and load_in_8bit exclude each other")
	case b.Weight16.V:
		d.errs.Addf(b.Weight16.At, "llm_int8_has_fp16_weight is not modelled; leave it out")
	}
}

type bitsAndBytesSection BitsAndBytes

// Prepares reports whether prepare_model_for_kbit_training is called.
func (s *Spec) Prepares() bool { return s.PEFT != nil && s.PEFT.Prepare != nil && !s.PEFT.Prepare.Off }

// prepared turns on the activation checkpointing that prepare_model_for_kbit_training asks
// for. Without use_reentrant among its keyword arguments it is torch's default: reentrant.
func (s *Spec) prepared(d *decoder) {
	if !s.Prepares() || !s.PEFT.Prepare.Checkpointing.V || s.Train.Checkpoint != nil {
		return
	}
	k := s.PEFT.Prepare
	s.Train.Checkpoint = &Checkpoint{At: k.At, Reentrant: d.reentrant(k.Kwargs, Boolean{V: true, At: k.At})}
}
