package program

import "github.com/memplan/memplan/internal/tensor"

// FSDP are the arguments of fully_shard (FSDP2, torch.distributed.fsdp), which is
// called on some modules of the model and then on the model itself. A rank keeps a
// part of each parameter; a module's are gathered while it runs.
type FSDP struct {
	Modules []string // paths, in the order of the calls: inner ones first

	// Reshard is reshard_after_forward: over how many ranks the parameters of a
	// module are divided when its forward has run. 0: they stay whole.
	Reshard int64
	// ReshardRoot says that the call on the model itself has the argument, too.
	ReshardRoot bool
	// WholeLast says that the parameters of the last of Modules stay whole.
	WholeLast bool

	// Meta says that the model is on the meta device until it is divided.
	Meta bool

	// MixedPrecisionPolicy; nil: not given.
	ParamDType, ReduceDType, OutputDType *tensor.DType
	KeepInputs                           bool // cast_forward_inputs=False

	Offload bool // CPUOffloadPolicy
	Pinned  bool // its pin_memory
}
