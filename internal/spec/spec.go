package spec

import (
	"strings"

	"github.com/memplan/memplan/internal/note"
)

// Scalar is a decoded scalar with its place.
type Scalar[T any] struct {
	V   T
	At  Span
	Set bool // given in the file
}

// The scalar types of sections.
type (
	Integer = Scalar[int64]
	Number  = Scalar[float64]
	Boolean = Scalar[bool]
	String  = Scalar[string]
)

// Spec is one training job.
//
// Fields carry what a section may hold. The tags: `yaml` is the key, `doc` its
// meaning (for the JSON Schema), `enum` the allowed strings, `means` what to write for others that
// people know, `min` the least
// and `max` the greatest number, `default` the value if the key is absent,
// `words` other words for values, and which they stand for, `also` other names of the
// key,
// `later` names what is accepted but not modelled yet (see unmodelleds), `modelled`
// the one value of such a key that is, `alone` says that mistakes in it leave the
// other sections as they are.
type Spec struct {
	Path string  `yaml:"-"`
	Errs *Errors `yaml:"-"`
	Env  Env     `yaml:"-"` // the spec's params
	GPUs []*GPU  `yaml:"-"` // that the user described beside the table's

	Calibrated []Calibrated `yaml:"-"` // contexts that were measured on GPUs

	Lengths *Lengths `yaml:"-"` // of samples, that a param takes; nil: it is the same of all

	Version    Integer                `yaml:"memplan" alone:"true" doc:"version of the spec language; 1"`
	Name       String                 `yaml:"name" alone:"true" doc:"name of the job, for reports"`
	Torch      String                 `yaml:"torch" alone:"true" doc:"PyTorch version to model, such as 2.9; auto: the newest that a lock file, requirements.txt or pyproject.toml of the project allows"`
	Params     *Value                 `yaml:"params" doc:"named values for expressions, with their defaults"`
	Mode       String                 `yaml:"mode" enum:"train|inference|no_grad" words:"training: train|inference_mode: inference|eval: inference" default:"train" doc:"train: training steps; inference, no_grad: forward passes only, in eval mode under torch.inference_mode or torch.no_grad"`
	Model      *Model                 `yaml:"model" doc:"the model"`
	Models     []*Named[Model]        `yaml:"models" doc:"several models by name, instead of model"`
	Blocks     []*Named[Block]        `yaml:"blocks" doc:"modules and functions that all models of the spec, its loss, step and eval may call"`
	Optimizers []*Named[OptimizerDef] `yaml:"optimizers" doc:"several optimizers by name, instead of train.optimizer"`
	Train      Train                  `yaml:"train" alone:"true" doc:"the training step by keys, such as its batch size and optimizer; step says it in statements"`
	Before     []*Entry               `yaml:"before" doc:"statements that run once, before the first step; their variables live on from step to step"`
	Step       []*Entry               `yaml:"step" doc:"the training step as a list of statements"`
	Data       Data                   `yaml:"data" alone:"true" doc:"where batches come from"`
	Device     Device                 `yaml:"device" alone:"true" doc:"the GPU"`

	Trainer  *Trainer  `yaml:"trainer" doc:"the training loop of a library, by its arguments, instead of train, step and eval"`
	Eval     *Eval     `yaml:"eval" doc:"an evaluation between training steps"`
	Teacher  *Teacher  `yaml:"teacher" doc:"knowledge distillation: a second model that model learns from"`
	Quantize *Quantize `yaml:"quantize" doc:"weights in 4 or 8 bits, as bitsandbytes stores them"`
	Prune    *Prune    `yaml:"prune" doc:"weights that are masked, or channels that are removed"`
	Freeze   *Freeze   `yaml:"freeze" doc:"parameters that are not trained: requires_grad_(False)"`
	LoRA     *LoRA     `yaml:"lora" doc:"low-rank adapters, as PEFT adds them"`
	PEFT     *PEFT     `yaml:"peft" doc:"what PEFT does to the model, by the keys of its configurations"`
	Offload  *Offload  `yaml:"offload" doc:"what is kept in host memory"`
	Parallel *Parallel `yaml:"parallel" doc:"several GPUs; all other keys describe one process on its GPU"`

	// Parse moves these into parallel.
	DDP  *Value `yaml:"ddp" spread:"ddp" doc:"DistributedDataParallel: {ranks: 8}, with the keys of parallel that are of ddp"`
	FSDP *Value `yaml:"fsdp" spread:"fsdp" doc:"FSDP2, or FSDP1 with version: 1: {ranks: 8}, with the keys of parallel that are of fsdp"`

	DeepSpeed *Value `yaml:"deepspeed" spread:"deepspeed" doc:"DeepSpeed's engine: {ranks: 8, config: {zero_optimization: {stage: 2}}}, with the keys of parallel that are of deepspeed"`

	TP *Value `yaml:"tp" spread:"tp" doc:"tensor parallelism: {ranks: 2, plan: {...}}, with the keys of parallel that are of tp"`
	PP *Value `yaml:"pp" spread:"pp" doc:"pipeline parallelism: {ranks: 4, split: [...], microbatches: 8}, with the keys of parallel that are of pp"`

	root *Value
	made bool     // as Options.Made
	said []string // as Options.Said
	loop bool     // as Options.Loop

	recorded bool // as Options.Recorded

	notes []note.Note // as Options.Notes
}

// Named is an entry of an ordered map.
type Named[T any] struct {
	Name String
	V    *T
}

// Model is a model: a block with declared inputs and a loss, or a preset.
type Model struct {
	At     Span   `yaml:"-"`
	Preset String `yaml:"preset" doc:"a model that comes with memplan; see memplan list presets"`
	With   *Value `yaml:"with" doc:"values for the preset's params"`
	HF     String `yaml:"hf" doc:"a Hugging Face model: its name, or the path of its config.json"`
	Task   String `yaml:"task" doc:"what a Hugging Face model is trained for"`
	Attn   String `yaml:"attn_implementation" enum:"sdpa|eager|flash_attention_2|flash_attention_3|flex_attention" words:"kernels-community/flash-attn: flash_attention_2|kernels-community/flash-attn2: flash_attention_2|kernels-community/flash-attn3: flash_attention_3|kernels-community/vllm-flash-attn3: flash_attention_3" default:"sdpa" doc:"attention of a Hugging Face model, as transformers calls it; with: {attn: ...} says the same; of other models it is not modelled" later:"attention by another implementation than sdpa" modelled:"sdpa"`

	Liger *Value  `yaml:"liger" doc:"Liger's kernels in a Hugging Face model: true, or keywords of apply_liger_kernel_to_TYPE such as {rope: false}"`
	CCE   Boolean `yaml:"cut_cross_entropy" doc:"the loss of a Hugging Face model is Cut Cross Entropy, which makes no logits"`

	Load  *Load  `yaml:"load" doc:"how a Hugging Face model is read from its checkpoint: the keywords of from_pretrained"`
	DType String `yaml:"dtype" doc:"type to which a trainer's model is converted before, as model.to(dtype) does; that of weights which are read is load's"`

	Freeze *Freeze `yaml:"freeze" doc:"parameters of this model that are not trained, instead of the job's freeze"`
	LoRA   *LoRA   `yaml:"lora" doc:"low-rank adapters of this model, instead of the job's lora"`

	Quantize *Quantize `yaml:"quantize" doc:"weights of this model in 4 or 8 bits, instead of the job's quantize"`
	Prune    *Prune    `yaml:"prune" doc:"pruning of this model, instead of the job's prune"`

	Eval Boolean `yaml:"eval" doc:"the model is in eval mode while the job trains, such as a teacher"`

	Inputs     []*Named[Input] `yaml:"inputs" doc:"tensors of a batch; the batch dimension is implied in front"`
	Blocks     []*Named[Block] `yaml:"blocks" doc:"modules and functions of the model's own"`
	Modules    Modules         `yaml:"modules" doc:"submodules in the order of registration"`
	Parameters []*Named[Param] `yaml:"parameters" doc:"parameters of the model itself"`
	Buffers    []*Named[Param] `yaml:"buffers" doc:"buffers of the model itself"`
	Layers     []*Entry        `yaml:"layers" doc:"the forward pass"`
	Loss       []*Entry        `yaml:"loss" doc:"the loss of the output, which is called out"`
	Checkpoint []String        `yaml:"checkpoint" doc:"the modules that train.checkpoint: true selects"`
}

// HFFolder begins the names of presets that are model types of Hugging Face.
const HFFolder = "hf/"

// OfHF reports whether the model is one of Hugging Face's transformers.
func (m *Model) OfHF() bool { return m.HF.Set || strings.HasPrefix(m.Preset.V, HFFolder) }

// Input is one tensor of a batch.
type Input struct {
	Shape *Value `yaml:"shape" doc:"sizes without the batch dimension"`
	DType String `yaml:"dtype" default:"float32" doc:"element type"`
	From  String `yaml:"from" enum:"batch|step" default:"batch" doc:"batch: a tensor of each batch; step: the step passes it, such as a state or noise, and it has the shape and type of what is passed"`
	If    *Value `yaml:"if" doc:"a condition; if it is false, the input does not exist"`
}

// FromStep is the value of Input.From of inputs that no batch brings.
const FromStep = "step"

// Block is a module or function that the spec defines.
type Block struct {
	At         Span            `yaml:"-"`
	Of         *Spec           `yaml:"-"` // the file that defines it, if several share a model's blocks
	Kind       String          `yaml:"kind" enum:"module|function|autograd" default:"module" doc:"function: a method of the module that calls it, or for blocks at the top of a spec a function; autograd: a torch.autograd.Function with a backward of its own"`
	Params     *Value          `yaml:"params" doc:"named values, given by with"`
	Inputs     []String        `yaml:"inputs" doc:"names of the arguments; [x] by default"`
	Keywords   []String        `yaml:"keywords" doc:"the last of inputs, which callers pass as keyword arguments"`
	Modules    Modules         `yaml:"modules" doc:"submodules in the order of registration"`
	Parameters []*Named[Param] `yaml:"parameters" doc:"parameters of the block itself"`
	Buffers    []*Named[Param] `yaml:"buffers" doc:"buffers of the block itself"`
	Layers     []*Entry        `yaml:"layers" doc:"the statements"`
	Save       []String        `yaml:"save" doc:"names of forward's values that ctx.save_for_backward keeps (kind: autograd)"`
	Keep       []String        `yaml:"keep" doc:"names of forward's values that become attributes of ctx, which live as long as the gradient node (kind: autograd)"`
	Backward   String          `yaml:"backward" doc:"the function that computes the gradients of the inputs; it takes those of the results, then the saved tensors, then the kept ones (kind: autograd)"`
	Autocast   Boolean         `yaml:"autocast" default:"true" doc:"false: the statements run under torch.autocast(enabled=False)"`
	StandsFor  String          `yaml:"stands_for" enum:"Linear|Conv1D" doc:"a linear layer of which the library has a class: Linear, a subclass of nn.Linear, which adapters go around and quantization leaves, or Conv1D of transformers, whose weight is transposed, for both"`
}

// The values of Block.StandsFor.
const (
	StandsForLinear = "Linear"
	StandsForConv1D = "Conv1D"
)

// The kinds of blocks.
const (
	KindModule   = "module"
	KindFunction = "function"
	KindAutograd = "autograd"
)

// Param is a parameter or buffer that a block declares.
type Param struct {
	Shape      *Value  `yaml:"shape" doc:"sizes"`
	DType      String  `yaml:"dtype" default:"float32" doc:"element type"`
	Init       String  `yaml:"init" enum:"zeros|ones|normal" default:"zeros" doc:"its first values, which do not change memory"`
	Persistent Boolean `yaml:"persistent" default:"true" doc:"saved in the state dict (buffers)"`
	Made       String  `yaml:"made" doc:"type in which the module makes it whatever the type of the weights, which from_pretrained keeps and .to(dtype) does not"`
	Computed   String  `yaml:"computed" enum:"inverse_frequencies" doc:"operators that compute a buffer, where DeepSpeed's zero.Init has them on the GPU: 1 / base ** (arange(0, n, 2).float() / n)"`
	If         *Value  `yaml:"if" doc:"a condition; if it is false, the parameter or buffer does not exist"`
}

// Train holds the keys that desugar to a step.
type Train struct {
	BatchSize        Integer     `yaml:"batch_size" min:"1" max:"2147483647" default:"1" doc:"samples of one batch"`
	Precision        String      `yaml:"precision" enum:"fp32|bf16|fp16|amp-bf16|amp-fp16" words:"float32: fp32|float: fp32|bfloat16: bf16|float16: fp16|half: fp16|amp-bfloat16: amp-bf16|bf16-mixed: amp-bf16|amp-float16: amp-fp16|16-mixed: amp-fp16" means:"tf32: fp32, whose tensors TF32 leaves as they are|mixed: amp-bf16 or amp-fp16|amp: amp-bf16 or amp-fp16" default:"fp32" doc:"bf16, fp16: the whole model; amp-: autocast"`
	Optimizer        *Callee     `yaml:"optimizer" doc:"an optimizer of torch.optim, with its arguments"`
	LRScheduler      *Value      `yaml:"lr_scheduler" doc:"a scheduler of torch.optim.lr_scheduler, with its arguments, which steps after the optimizer does, or in every n-th step: {CosineAnnealingLR: {T_max: 100}, every: 10}"`
	InBackward       Boolean     `yaml:"optimizer_in_backward" doc:"an optimizer for each parameter steps as soon as its gradient is ready, which is then dropped (register_post_accumulate_grad_hook)"`
	GradAccumulation Integer     `yaml:"grad_accumulation" also:"gradient_accumulation_steps gradient_accumulation" min:"1" default:"1" doc:"microbatches for each optimizer step"`
	ZeroGrad         ZeroGrad    `yaml:"zero_grad" doc:"where gradients are cleared"`
	ClipGradNorm     Number      `yaml:"clip_grad_norm" also:"max_grad_norm" min:"0" doc:"torch.nn.utils.clip_grad_norm_"`
	ClipGradValue    Number      `yaml:"clip_grad_value" min:"0" doc:"torch.nn.utils.clip_grad_value_"`
	Checkpoint       *Checkpoint `yaml:"checkpoint" also:"gradient_checkpointing activation_checkpointing" doc:"activation checkpointing: true for the modules that the preset or the model names, or a mapping such as {modules: [blocks.*]}"`
	Loop             String      `yaml:"loop" enum:"function|flat" default:"function" doc:"function: the variables of a step are freed when it returns; flat: they live until they are bound again"`
	FirstStep        Integer     `yaml:"first_step" min:"0" max:"1" default:"1" doc:"number of the first step: with 0, what runs in every n-th step runs in the first, as with i of enumerate(loader)"`
	EmptyCache       *EmptyCache `yaml:"empty_cache" doc:"torch.cuda.empty_cache() in every n-th step"`
	EMA              *EMA        `yaml:"ema" doc:"an exponential moving average of the weights (torch.optim.swa_utils.AveragedModel)"`
	Keep             *Value      `yaml:"keep" doc:"values that a list holds from step to step: a name, {of, detach, item, to, in, sum}, or several"`
	Save             *Save       `yaml:"save" doc:"checkpoints written by torch.save, which copies tensors to host memory"`
	Steps            Integer     `yaml:"steps" min:"1" max:"1000000000" doc:"steps to simulate, or for memplan run to do; by default, and of more than 1000, until two in succession are alike"`
	Compile          *Value      `yaml:"compile" doc:"torch.compile: true, a mode, or its arguments; output_code: a file with what TORCH_LOGS=output_code printed, whose graphs take the place of forward and backward passes" later:"torch.compile"`
	ChannelsLast     Boolean     `yaml:"channels_last" also:"memory_format" doc:"model.to(memory_format=torch.channels_last), and floating-point tensors of a batch with four dimensions or five are copied in that order"`
	Deterministic    Boolean     `yaml:"deterministic" doc:"torch.use_deterministic_algorithms(True)"`
	SDPA             []String    `yaml:"sdpa" doc:"backends that scaled_dot_product_attention may choose: flash, mem_efficient, math and cudnn (torch.backends.cuda.enable_flash_sdp and its like); all by default"`
	CudnnBenchmark   Boolean     `yaml:"cudnn_benchmark" doc:"torch.backends.cudnn.benchmark: the first convolution of each kind tries kernels, and empties the allocator's cache"`
}

// ZeroGrad says where and how gradients are cleared.
type ZeroGrad struct {
	SetToNone Boolean `yaml:"set_to_none" default:"true" doc:"drop the gradients rather than fill them with zeros"`
	At        String  `yaml:"at" enum:"before_forward|before_backward|after_step|never" default:"before_forward" doc:"where in the step"`
}

// MaxEvery is the greatest n of what runs in every n-th step.
const MaxEvery = 1_000_000_000

// EmptyCache empties the allocator's cache every so many steps.
type EmptyCache struct {
	Every Integer `yaml:"every" min:"1" max:"1000000000" default:"1" doc:"in every n-th step"`
	At    String  `yaml:"at" enum:"step_start|step_end|before_backward" default:"step_end" doc:"where in the step"`
}

// Save says how a checkpoint is written.
type Save struct {
	Optimizer Boolean `yaml:"optimizer" default:"true" doc:"the optimizer's state too"`
	CPUCopy   Boolean `yaml:"cpu_copy" doc:"everything is copied to host memory before it is written; torch.save of tensors on the GPU copies one at a time"`
}

// Checkpoint chooses what is recomputed in the backward pass.
type Checkpoint struct {
	At      Span   `yaml:"-"`
	When    *Value `yaml:"-"` // true, false or a condition, in the place of keys
	Trained bool   `yaml:"-"` // as Trainer.Trained

	Modules   []String `yaml:"modules" doc:"module paths or patterns such as layers.*; submodules of a module are included"`
	Every     Integer  `yaml:"every" min:"1" doc:"of the modules every n-th: the n-th, the 2n-th, ..."`
	Segments  Integer  `yaml:"segments" min:"1" doc:"checkpoint_sequential in so many parts, of a Sequential or of the model's layers"`
	Reentrant Boolean  `yaml:"use_reentrant" default:"false" doc:"the older implementation"`
	Save      []String `yaml:"save" doc:"operators whose results are kept (selective checkpointing); matmul stands for mm, addmm and bmm"`
	Alternate []String `yaml:"alternate" doc:"of save: operators of whose calls in a module every second is recomputed, and the first, third and so on kept"`
}

// OptimizerDef is one of several optimizers.
type OptimizerDef struct {
	Optimizer *Callee     `yaml:"optimizer" doc:"an optimizer of torch.optim, with its arguments"`
	Scheduler *Value      `yaml:"lr_scheduler" doc:"as train.lr_scheduler, of this optimizer"`
	Models    []String    `yaml:"models" doc:"the models whose parameters it updates"`
	Params    []String    `yaml:"params" doc:"paths or patterns of the modules and parameters that it updates; all by default"`
	Groups    ParamGroups `yaml:"groups" doc:"parameter groups: {params: [patterns], and arguments of their own}; the rest has the optimizer's, in front unless a group without params says where"`
}

// Data says where batches come from.
type Data struct {
	Input          String              `yaml:"input" enum:"per_step|rebind|static" default:"per_step" doc:"per_step: a function copies a new batch to the GPU for each step; rebind: the loop has x, y = x.to(device), y.to(device), and where it is flat, the names are bound to the batch in host memory first, which frees the old batch on the GPU; static: one batch is reused, and by evaluations one of theirs if its size is another"`
	Dataset        *Dataset            `yaml:"dataset" doc:"the data set"`
	Loader         *Loader             `yaml:"loader" doc:"torch.utils.data.DataLoader"`
	DevicePrefetch Boolean             `yaml:"device_prefetch" doc:"the next batch is copied on a stream of its own while the current one is used"`
	Transforms     []*Named[Transform] `yaml:"transforms" doc:"what is done to a sample when it is loaded, step by step, with the shape that each gives"`
	Source         *Value              `yaml:"source" doc:"training data for memplan run: a file (CIFAR binary, or a text for a language model), {INPUT: file} (IDX, npy), or lists of files in the place of one, whose samples follow one another"`
	Validation     *Value              `yaml:"validation" doc:"what the evaluations of memplan run go over: files as for source, or a share of the source's samples, such as 0.1, that are not trained on"`
	Shuffle        Boolean             `yaml:"shuffle" default:"true" doc:"samples of the source come in another order in each epoch, which the seed of the run says; false: in the order of the files"`
	Tokenizer      String              `yaml:"tokenizer" enum:"bytes|bpe" default:"bytes" doc:"tokens of a text: its bytes, or a byte-pair encoding learned from it"`
}

// Dataset and Loader describe host memory.
type (
	Dataset struct {
		Samples  Integer `yaml:"samples" min:"1" doc:"number of samples"`
		InMemory Boolean `yaml:"in_memory" doc:"the whole set is held in RAM"`
		Objects  Boolean `yaml:"python_objects" doc:"it is held as Python objects (lists, dicts), which are copied into each forked worker as it reads them; tensors and arrays are shared"`
		Sample   *Sample `yaml:"sample" doc:"one sample as it is stored: a size such as 110KiB, or {shape, dtype}; by default what the transforms or the model take"`
	}
	// Sample is one sample as the data set holds it.
	Sample struct {
		At    Span   `yaml:"-"`
		Bytes *Size  `yaml:"bytes" doc:"size of an encoded sample"`
		Shape *Value `yaml:"shape" doc:"sizes of a decoded sample"`
		DType String `yaml:"dtype" default:"uint8" doc:"element type"`
	}
	// Transform is one step of augmentation, by what it gives.
	Transform struct {
		At    Span   `yaml:"-"`
		Shape *Value `yaml:"shape" doc:"sizes of the result; by default those before"`
		DType String `yaml:"dtype" doc:"element type of the result; by default that before"`
	}
	Loader struct {
		NumWorkers        Integer `yaml:"num_workers" min:"0" doc:"worker processes"`
		PrefetchFactor    Integer `yaml:"prefetch_factor" min:"1" doc:"batches each worker prepares"`
		PinMemory         Boolean `yaml:"pin_memory" doc:"batches in page-locked memory"`
		PersistentWorkers Boolean `yaml:"persistent_workers" doc:"workers live between epochs"`
		Context           String  `yaml:"multiprocessing_context" enum:"fork|spawn|forkserver" default:"fork" doc:"how workers are started; all but fork give each a copy of the data set"`
	}
)

// Device is the GPU and how its memory is managed.
type Device struct {
	GPU            String  `yaml:"gpu" doc:"name or alias; see memplan list devices"`
	Name           String  `yaml:"name" doc:"name to show, in place of the table's"`
	Arch           String  `yaml:"arch" doc:"architecture, such as sm_80 or 8.0, in place of the table's"`
	SMs            Integer `yaml:"sms" min:"1" max:"1024" doc:"streaming multiprocessors, in place of the table's"`
	AllocConf      String  `yaml:"alloc_conf" doc:"PYTORCH_CUDA_ALLOC_CONF"`
	Memory         *Size   `yaml:"memory" doc:"total memory, in place of the table's; with arch and sms no gpu is needed"`
	Context        *Size   `yaml:"context" doc:"memory of the CUDA context, in place of the table's; memplan calibrate measures it"`
	CUDA           String  `yaml:"cuda" doc:"release of CUDA that PyTorch was built with, such as 11.3 or 12.4; before 11.7 a context has all kernels"`
	ModuleLoading  String  `yaml:"module_loading" enum:"lazy|eager" doc:"CUDA_MODULE_LOADING: whether kernels are loaded when they are first used, or all at once; lazy, but eager before CUDA 11.7"`
	Reserved       *Size   `yaml:"other_processes" doc:"memory that other processes hold"`
	CudnnWorkspace String  `yaml:"cudnn_workspace" default:"apart" doc:"cuDNN's workspaces of convolutions: apart (not in the peak; the report has an interval), model (in the peak what converting all operands takes), none, or a size"`
	Cudnn          String  `yaml:"cudnn" doc:"version of cuDNN, such as 9.15.1, in place of that of PyTorch's wheel; which wheel the build says, as in torch: 2.10.0+cu130"`
	MemoryFraction Number  `yaml:"memory_fraction" min:"0" doc:"torch.cuda.set_per_process_memory_fraction"`
	HostRAM        *Size   `yaml:"host_ram" doc:"memory of the machine that the job may use"`
	SHM            *Size   `yaml:"shm" doc:"size of /dev/shm, through which workers hand over batches; 64MiB in a Docker container unless --shm-size says more"`
}

// Modules are the entries of a modules section.
type Modules []*Entry
