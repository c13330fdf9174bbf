package program

import "github.com/memplan/memplan/internal/tensor"

// DeepSpeed is what DeepSpeed's engine is configured with, stages 1 to 3 of ZeRO
// (deepspeed/runtime/zero/config.py). A step of the optimizer statement is engine.step(),
// which does nothing but after every Accumulation-th backward pass.
type DeepSpeed struct {
	Config []KwArg // as a script prints it; values are numbers, strings, booleans or []KwArg

	// Trainer says that the loop is that of transformers.Trainer: accelerate ends a backward pass
	// with the step, and the engine does not divide by the number of micro-batches.
	Trainer bool

	Rank  int64 // the process that is played
	Stage int64
	DType tensor.DType // of the parameters that are computed with
	// Accum and Comm are the types in which gradients are accumulated and reduced.
	Accum, Comm tensor.DType

	Accumulation  int64
	Clip          float64 // 0: gradients are not clipped
	ReduceBucket  int64   // in elements
	Overlap       bool
	Contiguous    bool
	ReduceScatter bool
	MultiRank     bool
	RoundRobin    bool
	CheckOverflow bool

	Offload, Pinned bool // the optimizer is in host memory, page-locked

	Stage3 ZeRO3 // of stage 3
}

// ZeRO3 is what is configured of stage 3 alone. Sizes are in elements.
type ZeRO3 struct {
	SubGroup          int64 // how many of a process's elements are stepped at a time
	Prefetch          int64 // how many are gathered ahead
	Persist, AllStays int64 // parameters of at most so many stay gathered until the step, up to so many in all
	MaxLive, MaxReuse int64 // how many may be gathered; how near their next use must be for them to stay
	Sequential        bool  // parameters are gathered one by one
	AllReduce         bool  // parameters are gathered by an all-reduce
	Around            int   // modules around the model that have no parameters
	OwnLinear         bool  // F.linear is DeepSpeed's (memory_efficient_linear)
}
