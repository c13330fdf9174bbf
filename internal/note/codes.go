package note

// Identifiers of the rules of memplan check that notes are filed under.
const (
	notModelled     = "MP006"
	leak            = "MP007"
	uncertain       = "MP011"
	estimateWarning = "MP012"
	gpuChanged      = "MP014"
	unsettled       = "MP016"
)

// What the figures leave out.
var (
	Asked                = code(Code{Name: "asked", Doc: "the spec asks for something that is not modelled", LeftOut: true, OfSpec: true, Rule: notModelled})
	Compiled             = code(Code{Name: "compiled", Doc: "torch.compile changes memory in a way that is not known", LeftOut: true, OfSpec: true, Rule: notModelled})
	CompiledGraph        = code(Code{Name: "compiled-graph", Doc: "what compiled graphs allocate, and what of them is not in the figures", LeftOut: true, OfSpec: true, Rule: notModelled, Most: "note"})
	PresetLeavesOut      = code(Code{Name: "preset-leaves-out", Doc: "a preset leaves out a part of its model", LeftOut: true, OfSpec: true, Rule: notModelled})
	CheckpointedFunction = code(Code{Name: "checkpointed-function", Doc: "a torch.autograd.Function saves its own result in a checkpoint", LeftOut: true, Rule: notModelled})
	MoreLeftOut          = code(Code{Name: "more-left-out", Doc: "the number of further things that are left out", LeftOut: true, OfSpec: true, Rule: notModelled})
	Operator             = code(Code{Name: "operator", Doc: "an operator leaves something out, whatever a spec says", LeftOut: true})
	AllocConf            = code(Code{Name: "alloc-conf", Doc: "an option of the allocator has no effect here", LeftOut: true, Rule: notModelled, Most: "note"})
	CudnnSearch          = code(Code{Name: "cudnn-search", Doc: "the workspaces that cuDNN's search for kernels takes for a short time are left out", LeftOut: true, Rule: notModelled, Most: "note"})
	CudnnAttention       = code(Code{Name: "cudnn-attention", Doc: "cuDNN computes attention, and the workspaces of its plans are left out", LeftOut: true, Rule: notModelled, Most: "note"})
	NoRow                = code(Code{Name: "no-row", Doc: "an operator of a recording is counted by its results alone", LeftOut: true, Rule: notModelled})
	NotPretended         = code(Code{Name: "not-pretended", Doc: "the recorder could not pretend something of a GPU", LeftOut: true, Rule: notModelled, Most: "note"})
	NoWorkspaces         = code(Code{Name: "no-workspaces", Doc: "device.cudnn_workspace leaves out cuDNN's workspaces", LeftOut: true, Rule: notModelled, Most: "note"})
)

// What a spec says and surely does not mean, or how a part of it is taken.
var (
	UnusedInput    = code(Code{Name: "unused-input", Doc: "no entry uses an input", OfSpec: true, Rule: estimateWarning})
	UnusedParam    = code(Code{Name: "unused-param", Doc: "no expression uses a param", OfSpec: true, Rule: estimateWarning})
	UncalledModule = code(Code{Name: "uncalled-module", Doc: "nothing calls a module that is declared", OfSpec: true, Rule: estimateWarning})
	NoEffect       = code(Code{Name: "no-effect", Doc: "keys have no effect together with other keys", OfSpec: true, Rule: estimateWarning})
	FitsNothing    = code(Code{Name: "fits-nothing", Doc: "a pattern matches no module or parameter", OfSpec: true, Rule: estimateWarning})
	NotOptimized   = code(Code{Name: "not-optimized", Doc: "some parameters require grad and are in no optimizer", OfSpec: true, Rule: estimateWarning})
	LoadedType     = code(Code{Name: "loaded-type", Doc: "a config.json names another type of weights", OfSpec: true, Rule: estimateWarning})
	WouldFail      = code(Code{Name: "would-fail", Doc: "the job would fail, however much memory there is", OfSpec: true, Rule: estimateWarning})
	NoGradients    = code(Code{Name: "no-gradients", Doc: "a checkpoint keeps gradients from parameters", Rule: estimateWarning})
	OfOptimizer    = code(Code{Name: "optimizer", Doc: "the evidence for the figures of an optimizer", OfSpec: true, Rule: estimateWarning})
	Unfused        = code(Code{Name: "unfused", Doc: "no fused kernel computes attention, so its scores are saved", Rule: estimateWarning})
	CudnnPassed    = code(Code{Name: "cudnn-passed", Doc: "cuDNN, which is asked for attention first, does not take it", Rule: estimateWarning, Most: "note"})
	FileAssumed    = code(Code{Name: "file-assumed", Doc: "what the file of another program leaves open", OfSpec: true, Rule: estimateWarning, Most: "note"})
	FileIgnored    = code(Code{Name: "file-ignored", Doc: "the program of a file does not know a key, and ignores it", OfSpec: true, Rule: estimateWarning})
	Untied         = code(Code{Name: "untied", Doc: "FSDP2 makes two parameters of one that modules share which are sharded apart", OfSpec: true, Rule: estimateWarning})
	OtherPP        = code(Code{Name: "other-pp", Doc: "pipeline parallelism is simulated as in another PyTorch release", OfSpec: true, Rule: estimateWarning})
	OtherTP        = code(Code{Name: "other-tp", Doc: "tensor parallelism is simulated as in another PyTorch release", OfSpec: true, Rule: estimateWarning})
	Divided        = code(Code{Name: "divided", Doc: "stage 3 of ZeRO does with such models what is not simulated exactly", OfSpec: true, Rule: estimateWarning})
	OneProcess     = code(Code{Name: "one-process", Doc: "a layer is simulated as in a single process", OfSpec: true, Rule: estimateWarning})
	MoreWarnings   = code(Code{Name: "more-warnings", Doc: "the number of further warnings of a spec", OfSpec: true, Rule: estimateWarning})
	AskedWithout   = code(Code{Name: "asked-without", Doc: "a line with the names of everything that is asked for and not modelled"}) // the findings of Asked say it
	Answered       = code(Code{Name: "answered", Doc: "a script that was recorded read values back from the GPU, which were made up", Rule: estimateWarning, Most: "note"})
	EndedEarly     = code(Code{Name: "ended-early", Doc: "a script that was recorded ended before its steps were made", Rule: estimateWarning})
	NoLine         = code(Code{Name: "no-line", Doc: "recordings with several sizes of the batch tell nothing of others", Rule: estimateWarning})
	BatchNotKnown  = code(Code{Name: "batch-not-known", Doc: "no largest batch could be found", Rule: estimateWarning})
)

// What is open of the machine.
var (
	GPUAssumed  = code(Code{Name: "gpu-assumed", Doc: "no GPU was named", Rule: estimateWarning})
	GPUChanged  = code(Code{Name: "gpu-changed", Doc: "a GPU differs from the table's GPU of that name", Rule: gpuChanged})
	NoKernels   = code(Code{Name: "no-kernels", Doc: "the wheels of PyTorch have no kernels for the GPU", Rule: estimateWarning})
	Unreleased  = code(Code{Name: "unreleased", Doc: "the release of PyTorch is not out; its rules are those of its main branch", Rule: estimateWarning})
	OtherArch   = code(Code{Name: "other-arch", Doc: "there are no recordings of GPUs of this architecture", Rule: estimateWarning})
	SharedRAM   = code(Code{Name: "shared-ram", Doc: "the GPU shares its memory with the CPU", Rule: estimateWarning})
	PagedState  = code(Code{Name: "paged-state", Doc: "optimizer state is in CUDA's managed memory", Rule: estimateWarning})
	NothingLeft = code(Code{Name: "nothing-left", Doc: "the CUDA context and other processes take all memory of the device", Rule: estimateWarning})
	Uncertain   = code(Code{Name: "uncertain", Doc: "the headroom is smaller than the uncertainty", Rule: uncertain})
)

// What more steps may bring. A job that grows lives through all that were
// simulated; of one that runs out of memory the verdict says so.
var (
	Growing     = code(Code{Name: "growing", Doc: "memory grows from step to step", Rule: leak, Most: "warning"})
	HostGrowing = code(Code{Name: "host-growing", Doc: "host memory grows from step to step", Rule: leak, Most: "warning"})
	Unsettled   = code(Code{Name: "unsettled", Doc: "some steps that differ from the others were not simulated", Rule: unsettled})
	FewSteps    = code(Code{Name: "few-steps", Doc: "train.steps is too small to see the steady state", Rule: estimateWarning})
)

// Of a run, which check does not make.
var (
	Backend       = code(Code{Name: "backend", Doc: "why this backend runs the job"})
	HostOperators = code(Code{Name: "aside", Doc: "operators are computed on the CPU"})
	HostMemory    = code(Code{Name: "host-memory", Doc: "a run on the CPU nearly takes all host memory"})
	EvaluatedOn   = code(Code{Name: "evaluated-on", Doc: "evaluations see what is trained on"})
	StepsSkipped  = code(Code{Name: "steps-skipped", Doc: "GradScaler skipped optimizer steps"})
	ConstantRate  = code(Code{Name: "constant-rate", Doc: "a trainer's schedule of the learning rate is not computed"})
	ByNumbers     = code(Code{Name: "by-numbers", Doc: "allocations depend on the values of tensors"})
	ExecutedOn    = code(Code{Name: "executed-on", Doc: "a job was executed on another GPU than its spec names"})
	FewerGPUs     = code(Code{Name: "fewer-gpus", Doc: "one process runs in place of several"})
	Dies          = code(Code{Name: "dies", Doc: "the job is predicted to run out of memory"})
	FromPyTorch   = code(Code{Name: "pytorch", Doc: "PyTorch's message about the failure"})
)
