package program

import "github.com/memplan/memplan/internal/tensor"

// DeepSpeed is what DeepSpeed's engine is configured with, stages 1 and 2 of ZeRO
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
}
