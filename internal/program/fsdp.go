package program

import "github.com/memplan/memplan/internal/tensor"

// FSDP are the arguments of fully_shard (FSDP2, torch.distributed.fsdp), which is
// called on some modules of the model and then on the model itself. A rank keeps a
// part of each parameter; a module's are gathered while it runs.
type FSDP struct {
	Units []Unit // in the order of the calls: inner ones first

	// Replicas is how many groups of ranks there are of which each has all parameters
	// (HSDP); 1: all ranks are one group. Shards is the number of ranks of a group.
	Replicas, Shards int64

	// Reshard is reshard_after_forward: over how many ranks the parameters of a
	// module are divided when its forward has run. 0: they stay whole.
	Reshard int64
	// ReshardRoot says that the call on the model itself has the argument, too.
	ReshardRoot bool

	// Held are parameters of which the script has the whole until all calls are done.
	Held []string
	// Tied are parameters that share a part again after the calls; each is followed by the one
	// whose part it gets.
	Tied []string

	// Meta says that the model is on the meta device until it is divided.
	Meta bool

	// MixedPrecisionPolicy; nil: not given.
	ParamDType, ReduceDType, OutputDType *tensor.DType
	KeepInputs                           bool // cast_forward_inputs=False

	Offload bool // CPUOffloadPolicy
	Pinned  bool // its pin_memory

	Flat *FlatFSDP // nil: FSDP2
}

// FlatFSDP are arguments of FullyShardedDataParallel (FSDP1), which makes one parameter of
// those of a module.
type FlatFSDP struct {
	Strategy         string // of ShardingStrategy
	Orig             bool   // use_orig_params
	ForwardPrefetch  bool   // forward_prefetch
	BackwardPrefetch string // backward_prefetch, of BackwardPrefetch; "": None
	CastRoot         bool   // cast_root_forward_inputs of MixedPrecision
	BufferDType      *tensor.DType
}

// The names of ShardingStrategy.
const (
	FullShard        = "FULL_SHARD"
	ShardGradOp      = "SHARD_GRAD_OP"
	NoShard          = "NO_SHARD"
	HybridShard      = "HYBRID_SHARD"
	HybridShardZero2 = "_HYBRID_SHARD_ZERO2"
)

// Divides reports whether a rank has a part of the parameters alone.
func (f *FSDP) Divides() bool { return f.Flat.Strategy != NoShard && f.Shards > 1 }

// Frees reports whether gathered parameters are freed after the forward pass.
func (f *FlatFSDP) Frees() bool { return f.Strategy == FullShard || f.Strategy == HybridShard }

// Of lists the calls whose modules a class has, which is a stage of the model or all of it.
func (f *FSDP) Of(root *Class) []Unit {
	has := map[string]bool{}
	root.Walk(func(path string, _ *Class) { has[path] = true })
	var out []Unit
	for _, u := range f.Units {
		if has[u.Modules[0]] {
			out = append(out, u)
		}
	}
	return out
}

// Unit is what one call of fully_shard takes.
type Unit struct {
	Modules []string // paths; of several, the first that runs gathers the parameters of all
	Reshard int64    // as FSDP.Reshard
}
