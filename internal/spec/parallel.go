package spec

// Parallel spreads a job over several GPUs. All else in a spec is what one
// process does on its GPU: the batch is that of one rank. More than 131072
// processes, eight times the GPUs of Llama 3 (arXiv:2407.21783), are taken
// for a slip: what is allocated for each of them would be played.
type Parallel struct {
	At        Span    `yaml:"-"`
	DDP       Integer `yaml:"ddp" min:"1" max:"131072" doc:"processes, one on each GPU, with torch.nn.parallel.DistributedDataParallel around each model that is trained"`
	BucketCap Number  `yaml:"bucket_cap_mb" min:"0" default:"25" doc:"of ddp: MiB of gradients that are reduced at a time"`
	View      Boolean `yaml:"gradient_as_bucket_view" default:"false" doc:"of ddp: gradients are views of the buckets, not copies"`
	Unused    Boolean `yaml:"find_unused_parameters" default:"false" doc:"of ddp: parameters may get no gradient"`
	Static    Boolean `yaml:"static_graph" default:"false" doc:"of ddp: all steps are alike"`
	Broadcast Boolean `yaml:"broadcast_buffers" default:"true" doc:"of ddp: buffers are copied from the first process before a forward pass"`
	Hook      String  `yaml:"comm_hook" enum:"fp16_compress_hook|bf16_compress_hook" doc:"of ddp: gradients are reduced in 16 bits"`
	NoSync    Boolean `yaml:"no_sync" default:"false" doc:"with grad_accumulation, gradients are reduced after the last microbatch only"`

	FSDP    Integer  `yaml:"fsdp" min:"1" max:"131072" doc:"processes, one on each GPU, which share the parameters of the model, their gradients and optimizer state: FSDP2, torch.distributed.fsdp.fully_shard of some modules and of the model"`
	Modules []String `yaml:"modules" doc:"of fsdp: paths or patterns of modules that are sharded apart, such as blocks.*; by default those that a preset names for checkpoints"`
	Reshard *Value   `yaml:"reshard_after_forward" doc:"of fsdp: true, false, or over how many processes the parameters of a module are divided between its forward and its backward pass"`
	Param   String   `yaml:"param_dtype" doc:"of fsdp: type in which parameters are gathered and computed with"`
	Reduce  String   `yaml:"reduce_dtype" doc:"of fsdp: type in which gradients are reduced"`
	Output  String   `yaml:"output_dtype" doc:"of fsdp: type of the results of modules that are sharded"`
	Cast    Boolean  `yaml:"cast_forward_inputs" default:"true" doc:"of fsdp: arguments of modules that are sharded are converted to param_dtype"`
	Offload Boolean  `yaml:"cpu_offload" default:"false" doc:"of fsdp: CPUOffloadPolicy; parameters, gradients and the optimizer are in host memory"`
	Pin     Boolean  `yaml:"pin_memory" default:"true" doc:"of fsdp: with cpu_offload, in page-locked memory"`

	ZeRO   Integer `yaml:"zero" min:"1" doc:"of ddp: 1, the stage of ZeRO: each process steps some of the parameters and has their optimizer state alone (torch.distributed.optim.ZeroRedundancyOptimizer)"`
	Bucket Boolean `yaml:"parameters_as_bucket_view" default:"false" doc:"of zero: the parameters that a process steps are views of one tensor"`

	DeepSpeed *Value `yaml:"deepspeed" doc:"DeepSpeed: its configuration, or a path" later:"DeepSpeed"`

	Tensor   Integer `yaml:"tensor" min:"1" doc:"tensor-parallel ranks" later:"tensor parallelism" modelled:"1"`
	Pipeline Integer `yaml:"pipeline" min:"1" doc:"pipeline stages" later:"pipeline parallelism" modelled:"1"`
	Sequence Integer `yaml:"sequence" min:"1" doc:"sequence-parallel ranks" later:"sequence parallelism" modelled:"1"`
	Context  Integer `yaml:"context" min:"1" doc:"context-parallel ranks" later:"context parallelism" modelled:"1"`
}
