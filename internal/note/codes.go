package note

// Identifiers of rules of memplan check that notes are filed under.
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
	Asked           = code(Code{Name: "asked", LeftOut: true, OfSpec: true, Rule: notModelled}) // by the spec
	PresetLeavesOut = code(Code{Name: "preset-leaves-out", LeftOut: true, OfSpec: true, Rule: notModelled})
	MoreLeftOut     = code(Code{Name: "more-left-out", LeftOut: true, OfSpec: true, Rule: notModelled}) // that is not told one by one
	Operator        = code(Code{Name: "operator", LeftOut: true})                                       // whatever a spec says: no finding
	AllocConf       = code(Code{Name: "alloc-conf", LeftOut: true, Rule: notModelled, Most: "note"})
	CudnnSearch     = code(Code{Name: "cudnn-search", LeftOut: true, Rule: notModelled, Most: "note"})
	NoWorkspaces    = code(Code{Name: "no-workspaces", LeftOut: true, Rule: notModelled, Most: "note"})
)

// What a spec says and surely does not mean, or means for PyTorch to fail.
var (
	UnusedInput   = code(Code{Name: "unused-input", OfSpec: true, Rule: estimateWarning})
	UnusedParam   = code(Code{Name: "unused-param", OfSpec: true, Rule: estimateWarning})
	NoEffect      = code(Code{Name: "no-effect", OfSpec: true, Rule: estimateWarning})
	FitsNothing   = code(Code{Name: "fits-nothing", OfSpec: true, Rule: estimateWarning})
	NotOptimized  = code(Code{Name: "not-optimized", OfSpec: true, Rule: estimateWarning})
	LoadedType    = code(Code{Name: "loaded-type", OfSpec: true, Rule: estimateWarning})
	WouldFail     = code(Code{Name: "would-fail", OfSpec: true, Rule: estimateWarning}) // however much memory there is
	NoGradients   = code(Code{Name: "no-gradients", Rule: estimateWarning})
	MoreWarnings  = code(Code{Name: "more-warnings", OfSpec: true, Rule: estimateWarning})
	OfOptimizer   = code(Code{Name: "optimizer", OfSpec: true, Rule: estimateWarning})
	OneProcess    = code(Code{Name: "one-process", OfSpec: true, Rule: estimateWarning})
	OtherFSDP     = code(Code{Name: "other-fsdp", OfSpec: true, Rule: estimateWarning})
	AskedWithout  = code(Code{Name: "asked-without"}) // the findings of Asked say it
	BatchNotKnown = code(Code{Name: "batch-not-known", Rule: estimateWarning})
)

// What is open of the machine.
var (
	GPUAssumed  = code(Code{Name: "gpu-assumed", Rule: estimateWarning})
	GPUChanged  = code(Code{Name: "gpu-changed", Rule: gpuChanged})
	NoKernels   = code(Code{Name: "no-kernels", Rule: estimateWarning})
	OtherArch   = code(Code{Name: "other-arch", Rule: estimateWarning})
	SharedRAM   = code(Code{Name: "shared-ram", Rule: estimateWarning})
	PagedState  = code(Code{Name: "paged-state", Rule: estimateWarning})
	NothingLeft = code(Code{Name: "nothing-left", Rule: estimateWarning})
	Uncertain   = code(Code{Name: "uncertain", Rule: uncertain})
	Workspaces  = code(Code{Name: "workspaces", Rule: uncertain})
)

// What more steps may bring. A job that grows lives through all that were
// simulated; of one that dies the verdict says so.
var (
	Growing     = code(Code{Name: "growing", Rule: leak, Most: "warning"})
	HostGrowing = code(Code{Name: "host-growing", Rule: leak, Most: "warning"})
	Unsettled   = code(Code{Name: "unsettled", Rule: unsettled})
	FewSteps    = code(Code{Name: "few-steps", Rule: estimateWarning}) // the spec asks for no more
)

// Of a run, which check does not make.
var (
	Backend      = code(Code{Name: "backend"})
	Aside        = code(Code{Name: "aside"})
	StepsSkipped = code(Code{Name: "steps-skipped"})
	ByNumbers    = code(Code{Name: "by-numbers"})
	FewerGPUs    = code(Code{Name: "fewer-gpus"})
	Dies         = code(Code{Name: "dies"})
	FromPyTorch  = code(Code{Name: "pytorch"})
)
