package spec

import (
	"slices"
	"strings"
)

// PEFT is what PEFT's get_peft_model does to a model: exactly one method, by the
// keys of its configuration.
type PEFT struct {
	At       Span                 `yaml:"-"`
	LoRA     *LoraConfig          `yaml:"lora" doc:"LoraConfig: low-rank adapters"`
	IA3      *IA3Config           `yaml:"ia3" doc:"IA3Config: (IA)3, vectors that scale what layers compute"`
	OFT      *OFTConfig           `yaml:"oft" doc:"OFTConfig: OFT, rotations of what layers take"`
	BOFT     *BOFTConfig          `yaml:"boft" doc:"BOFTConfig: BOFT, rotations of all that layers take, of blocks, and a scale of what they give"`
	AdaLoRA  *AdaLoraConfig       `yaml:"adalora" doc:"AdaLoraConfig: AdaLoRA, adapters as singular value decompositions, with a part of the loss of its own"`
	Prompt   *PromptTuningConfig  `yaml:"prompt_tuning" doc:"PromptTuningConfig: prompt tuning, embeddings of virtual tokens in front of a sample"`
	PTuning  *PromptEncoderConfig `yaml:"p_tuning" doc:"PromptEncoderConfig: p-tuning, such embeddings as a small network computes them"`
	Prefix   *PrefixTuningConfig  `yaml:"prefix_tuning" doc:"PrefixTuningConfig: prefix tuning, keys and values of virtual tokens in front of those of a sample, in each layer"`
	Prepare  *KBit                `yaml:"prepare_for_kbit_training" doc:"prepare_model_for_kbit_training: true, or its keywords"`
	Autocast Boolean              `yaml:"autocast_adapter_dtype" default:"true" doc:"adapters of 16 bit are converted to float32"`
	Linear   Boolean              `yaml:"linear_names" doc:"the last names of the linear layers but the output embedding are in the list target_modules, too, as Axolotl (lora_target_linear) and LLaMA-Factory (lora_target: all) make it; parameters of experts are none of them, as with all-linear they are"`
	Dropout  Boolean              `yaml:"parameter_dropout" default:"true" doc:"false: adapters of parameters have no lora_dropout, as Axolotl makes them; PEFT refuses the two together"`
	Kernels  []String             `yaml:"kernels" doc:"Axolotl's fused kernels of LoRA: a list of mlp, qkv and o (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel), or auto: all, as where none of these keys is set"`
}

// byType reports whether the model's type says which layers are targeted.
func (p *PEFT) byType() bool {
	if p == nil {
		return false
	}
	var v *Value
	switch {
	case p.LoRA != nil:
		v = p.LoRA.TargetModules
	case p.IA3 != nil:
		v = p.IA3.TargetModules
	case p.OFT != nil:
		v = p.OFT.TargetModules
	case p.BOFT != nil:
		v = p.BOFT.TargetModules
	default:
		return false
	}
	return p.Linear.V || v == nil || v.Kind == Null || v.Kind == Str && strings.EqualFold(v.Str, "all-linear")
}

// refusedMethods are methods of PEFT that are not modelled, by the names that people
// may give them.
var refusedMethods = map[string]string{
	"loha": "LoHa", "lokr": "LoKr", "vera": "VeRA", "vblora": "VB-LoRA", "fourierft": "FourierFT", "ln_tuning": "LN tuning",
	"hra": "HRA", "randlora": "RandLoRA", "road": "RoAd", "xlora": "X-LoRA", "adaption_prompt": "LLaMA-Adapter", "trainable_tokens": "trainable tokens",
}

// methods are the keys of the methods that are modelled.
var methods = []string{"lora", "ia3", "oft", "boft", "adalora", "prompt_tuning", "p_tuning", "prefix_tuning"}

// unmarshal names methods that are not modelled.
func (p *PEFT) unmarshal(d *decoder, v *Value) {
	for _, pair := range v.Pairs {
		if what, ok := refusedMethods[pair.Key.Str]; ok {
			d.errs.Addf(pair.Key.Span, "peft: %s is not modelled; methods that are: %s", what, strings.Join(methods, ", "))
			return
		}
	}
	d.section(v, (*peftSection)(p), "peft")
	var given []string
	for _, name := range methods {
		m := v.Get(name)
		if m == nil || m.absent() {
			continue
		}
		if given = append(given, name); len(given) == 2 {
			d.errs.Addf(m.Span, "peft takes one method: %s exclude each other", strings.Join(given, " and "))
		}
	}
	if learned := p.Prompts(); learned != nil && learned.Tokens.V == 0 {
		d.errs.Addf(learned.At, "%s needs num_virtual_tokens", given[0])
	}
	if p.Linear.V && p.LoRA == nil && p.OFT == nil && p.BOFT == nil && p.AdaLoRA == nil {
		d.errs.Addf(p.Linear.At, "linear_names needs lora, oft, boft or adalora")
	}
	for _, k := range p.Kernels {
		if !slices.Contains(fusedKernels, k.V) {
			d.errs.Unknown(k.At, "fused kernel", k.V, fusedKernels)
		}
	}
}

// fusedKernels are the names of peft.kernels.
var fusedKernels = []string{"mlp", "qkv", "o", "auto"}

type peftSection PEFT

// PeftConfig are the keys that the configurations of all methods have.
type PeftConfig struct {
	TaskType      String  `yaml:"task_type" enum:"CAUSAL_LM|SEQ_CLS|SEQ_2_SEQ_LM|TOKEN_CLS|QUESTION_ANS|FEATURE_EXTRACTION" doc:"what the model is trained for; SEQ_CLS and TOKEN_CLS add classifier and score to modules_to_save, QUESTION_ANS qa_outputs"`
	PeftType      String  `yaml:"peft_type" doc:"not read: the name of the section says it"`
	AutoMapping   *Value  `yaml:"auto_mapping" doc:"not read: names classes"`
	PeftVersion   String  `yaml:"peft_version" doc:"not read: the release that wrote the file"`
	BaseModel     String  `yaml:"base_model_name_or_path" doc:"not read: model names it"`
	Revision      String  `yaml:"revision" doc:"not read: memplan loads no weights"`
	InferenceMode Boolean `yaml:"inference_mode" doc:"true: adapters are frozen" later:"frozen adapters"`
}

// Targets choose the modules that a method changes.
type Targets struct {
	TargetModules  *Value   `yaml:"target_modules" doc:"names of modules, a regular expression of their paths, or all-linear; by default those that PEFT lists for the model type"`
	ExcludeModules *Value   `yaml:"exclude_modules" doc:"names of modules, or a regular expression of their paths"`
	ModulesToSave  []String `yaml:"modules_to_save" doc:"names of modules of which a copy is trained as a whole"`
	Layers         *Value   `yaml:"layers_to_transform" doc:"the number of a layer, or several"`
	LayersPattern  *Value   `yaml:"layers_pattern" doc:"names of the lists of layers that layers_to_transform numbers"`
}

// LoraConfig are the keys of peft.LoraConfig.
type LoraConfig struct {
	At      Span    `yaml:"-"`
	R       Integer `yaml:"r" min:"1" default:"8" doc:"rank"`
	Alpha   Number  `yaml:"lora_alpha" min:"0" default:"8" doc:"adapters are scaled by lora_alpha / r"`
	Dropout Number  `yaml:"lora_dropout" min:"0" max:"1" default:"0" doc:"probability of the dropout in front of an adapter"`
	Targets
	Bias         String  `yaml:"bias" enum:"none|all|lora_only" default:"none" doc:"which biases are trained too"`
	RSLoRA       Boolean `yaml:"use_rslora" doc:"adapters are scaled by lora_alpha / sqrt(r)"`
	DoRA         Boolean `yaml:"use_dora" doc:"weight-decomposed adapters: each has a magnitude for each output feature"`
	LoraBias     Boolean `yaml:"lora_bias" doc:"lora_B has a bias"`
	RankPattern  *Value  `yaml:"rank_pattern" doc:"ranks of some layers: a mapping from names or regular expressions to r"`
	AlphaPattern *Value  `yaml:"alpha_pattern" doc:"a mapping from names or regular expressions to lora_alpha"`
	Init         *Value  `yaml:"init_lora_weights" doc:"first values: true, false, gaussian and orthogonal take no GPU memory; pissa, olora, eva, corda, loftq and lora_ga do if the base model is on the GPU"`
	FanInFanOut  Boolean `yaml:"fan_in_fan_out" doc:"no effect on memory: PEFT sets it for Conv1D by itself"`
	PeftConfig

	LayerReplication *Value  `yaml:"layer_replication" doc:"layers that are stacked several times" later:"replicated layers"`
	TrainableTokens  *Value  `yaml:"trainable_token_indices" doc:"rows of the embedding that are trained" later:"trainable tokens"`
	TargetParameters *Value  `yaml:"target_parameters" doc:"names of parameters that adapters are for, as of the weights of experts: each is computed with its adapter whenever its module runs"`
	WeightTying      Boolean `yaml:"ensure_weight_tying" doc:"tied layers share an adapter" later:"tied adapters"`
	LoftQ            *Value  `yaml:"loftq_config" doc:"not read but with init_lora_weights: loftq"`
	Eva              *Value  `yaml:"eva_config" doc:"not read but with init_lora_weights: eva"`
	Corda            *Value  `yaml:"corda_config" doc:"not read but with init_lora_weights: corda"`
	LoraGA           *Value  `yaml:"lora_ga_config" doc:"not read but with init_lora_weights: lora_ga"`
	Megatron         *Value  `yaml:"megatron_config" doc:"parallel linear layers of Megatron" later:"Megatron"`
	MegatronCore     *Value  `yaml:"megatron_core" doc:"not read but with megatron_config"`
	Runtime          *Value  `yaml:"runtime_config" doc:"ephemeral_gpu_offload: norms of DoRA are computed on the GPU while the adapters are made, if the model is on the CPU" later:"work on the GPU for a model on the CPU"`
	Velora           *Value  `yaml:"velora_config" doc:"VeLoRA" later:"VeLoRA"`
	ALora            *Value  `yaml:"alora_invocation_tokens" doc:"activated LoRA" later:"activated LoRA"`
	QALora           Boolean `yaml:"use_qalora" doc:"quantization-aware LoRA, for GPTQ" later:"QALoRA"`
	QALoraGroup      Integer `yaml:"qalora_group_size" doc:"not read but with use_qalora"`
	Monteclora       *Value  `yaml:"monteclora_config" doc:"MonteCLoRA" later:"MonteCLoRA"`
	BdLora           *Value  `yaml:"use_bdlora" doc:"block-diagonal LoRA" later:"BD-LoRA"`
	Arrow            *Value  `yaml:"arrow_config" doc:"Arrow routing between adapters" later:"Arrow"`
	Kasa             *Value  `yaml:"kasa_config" doc:"KaSA" later:"KaSA"`
}

// IA3Config are the keys of peft.IA3Config.
type IA3Config struct {
	At             Span     `yaml:"-"`
	TargetModules  *Value   `yaml:"target_modules" doc:"names of modules, or a regular expression of their paths; by default those that PEFT lists for the model type"`
	ExcludeModules *Value   `yaml:"exclude_modules" doc:"names of modules, or a regular expression of their paths"`
	Feedforward    *Value   `yaml:"feedforward_modules" doc:"those of target_modules whose input is scaled, not their output"`
	ModulesToSave  []String `yaml:"modules_to_save" doc:"names of modules of which a copy is trained as a whole"`
	FanInFanOut    Boolean  `yaml:"fan_in_fan_out" doc:"no effect on memory: PEFT sets it for Conv1D by itself"`
	Init           Boolean  `yaml:"init_ia3_weights" default:"true" doc:"first values, which do not change memory"`
	PeftConfig
}

// OFTConfig are the keys of peft.OFTConfig.
type OFTConfig struct {
	At        Span    `yaml:"-"`
	R         Integer `yaml:"r" min:"0" doc:"blocks of each layer; with it, oft_block_size is 0"`
	BlockSize Integer `yaml:"oft_block_size" min:"0" default:"32" doc:"features of a block; if a layer's are no multiple, the nearest number that divides them"`
	Dropout   Number  `yaml:"module_dropout" min:"0" max:"1" doc:"no effect on memory: PEFT 0.20 makes a module of it, and does not call it"`
	Targets
	Bias        String  `yaml:"bias" enum:"none|all|oft_only" default:"none" doc:"which biases are trained too"`
	COFT        Boolean `yaml:"coft" doc:"the constrained form: before each rotation the numbers that it is computed of are brought near to zero"`
	Eps         Number  `yaml:"eps" doc:"not read but with coft"`
	Share       Boolean `yaml:"block_share" doc:"the blocks of a layer have one rotation"`
	Cayley      Boolean `yaml:"use_cayley_neumann" default:"true" doc:"rotations are sums of a series; false: solutions of linear equations"`
	Terms       Integer `yaml:"num_cayley_neumann_terms" min:"1" max:"64" default:"5" doc:"terms of this series"`
	FanInFanOut Boolean `yaml:"fan_in_fan_out" doc:"no effect on memory: PEFT sets it for Conv1D by itself"`
	Init        Boolean `yaml:"init_weights" default:"true" doc:"first values, which do not change memory"`
	PeftConfig
}

// BOFTConfig are the keys of peft.BOFTConfig.
type BOFTConfig struct {
	At        Span    `yaml:"-"`
	BlockSize Integer `yaml:"boft_block_size" min:"0" default:"4" doc:"features of a block, a divisor of in_features"`
	Blocks    Integer `yaml:"boft_block_num" min:"0" doc:"blocks of each layer; with it, boft_block_size is 0"`
	Factor    Integer `yaml:"boft_n_butterfly_factor" min:"1" default:"1" doc:"not read: PEFT takes 1 where it cannot compile its CUDA extension, as without ninja or nvcc; the figures are those of this case"`
	Dropout   Number  `yaml:"boft_dropout" min:"0" max:"1" default:"0" doc:"the share of blocks that do not rotate in a forward pass"`
	Targets
	Bias        String  `yaml:"bias" enum:"none|all|boft_only" default:"none" doc:"which biases are trained too"`
	FanInFanOut Boolean `yaml:"fan_in_fan_out" doc:"no effect on memory: PEFT sets it to false for Linear"`
	Init        Boolean `yaml:"init_weights" default:"true" doc:"first values, which do not change memory"`
	PeftConfig
}

// AdaLoraConfig are the keys of peft.AdaLoraConfig.
type AdaLoraConfig struct {
	At        Span    `yaml:"-"`
	InitR     Integer `yaml:"init_r" min:"1" default:"12" doc:"rank of each layer"`
	TargetR   Integer `yaml:"target_r" doc:"no effect on memory: the rank to which singular values are set to zero"`
	TInit     Integer `yaml:"tinit" min:"0" doc:"steps before ranks are reduced"`
	TFinal    Integer `yaml:"tfinal" min:"0" doc:"steps after ranks were reduced"`
	DeltaT    Integer `yaml:"deltaT" doc:"not read but by update_and_allocate, which Trainer does not call"`
	Beta1     Number  `yaml:"beta1" doc:"not read but by update_and_allocate"`
	Beta2     Number  `yaml:"beta2" doc:"not read but by update_and_allocate"`
	Weight    Number  `yaml:"orth_reg_weight" min:"0" default:"0.5" doc:"by which the orthogonal regularization is multiplied"`
	TotalStep Integer `yaml:"total_step" min:"1" doc:"steps of the training, which PEFT must be told; tinit and tfinal together are less"`
	RankFound *Value  `yaml:"rank_pattern" doc:"not read: the ranks that an earlier run has found"`
	R         Integer `yaml:"r" doc:"not read: init_r is"`
	Alpha     Number  `yaml:"lora_alpha" min:"0" default:"8" doc:"by which adapters are multiplied; 0: by init_r"`
	Dropout   Number  `yaml:"lora_dropout" min:"0" max:"1" default:"0" doc:"probability of the dropout in front of an adapter"`
	Targets
	Bias        String  `yaml:"bias" enum:"none|all|lora_only" default:"none" doc:"which biases are trained too"`
	FanInFanOut Boolean `yaml:"fan_in_fan_out" doc:"no effect on memory: PEFT sets it for Conv1D by itself"`
	Init        Boolean `yaml:"init_lora_weights" default:"true" doc:"first values, which do not change memory"`
	RSLoRA      Boolean `yaml:"use_rslora" doc:"not read by AdaLoRA"`
	PeftConfig
}

// KBit are the keywords of prepare_model_for_kbit_training.
type KBit struct {
	At            Span    `yaml:"-"`
	Off           bool    `yaml:"-"` // it is not called
	Checkpointing Boolean `yaml:"use_gradient_checkpointing" default:"true" doc:"activation checkpointing is on"`
	Kwargs        *Value  `yaml:"gradient_checkpointing_kwargs" doc:"use_reentrant: true or false"`
	ClearCache    Boolean `yaml:"auto_clear_cache" default:"true" doc:"torch.cuda.empty_cache() when the parameters are float32"`
}

// prepare_for_kbit_training: true calls it with its defaults.
func (k *KBit) unmarshal(d *decoder, v *Value) {
	if v.Kind == Bool {
		d.section(nil, (*kbitSection)(k), "")
		k.Off = !v.Bool
		return
	}
	d.section(v, (*kbitSection)(k), "prepare_for_kbit_training")
}

type kbitSection KBit

// Strings are the items of a list of strings, or the one string in its place; lone
// says that it is one.
func (e *Errors) Strings(v *Value, what string, env Env) (list []String, lone bool) {
	if v == nil || v.Kind == Null {
		return nil, false
	}
	for _, it := range listOf(v) {
		if it.Kind == List || it.Kind == Map {
			e.Failf(it.Span, "%s must be a string or a list of strings, not %s", what, it.Describe())
		}
		s, ok := e.Eval(it, env).(string)
		if !ok {
			e.Failf(it.Span, "%s must be a string or a list of strings, not %s", what, it.Describe())
		}
		list = append(list, String{s, it.Span, true})
	}
	return list, v.Kind != List
}
