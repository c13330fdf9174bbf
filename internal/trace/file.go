package trace

import (
	"math"

	"github.com/memplan/memplan/internal/tensor"
)

// File is a trace with the circumstances in which it was recorded, or in which
// it is to be replayed.
//
// On disk it is one JSON object. Anything that records an allocator can write
// it, since only "events" is required:
//
//	{
//	  "config": "max_split_size_mb:128",    PYTORCH_CUDA_ALLOC_CONF; "" by default
//	  "torch": "2.6",                       whose allocator it was; memplan's default if absent
//	  "capacity_bytes": 17179869184,        memory of the device; 0 or absent: unbounded
//	  "occupied_bytes": 536870912,          of it, by the CUDA context and other processes
//	  "memory_fraction": 0.5,               set_per_process_memory_fraction, or null
//	  "events": [
//	    ["a", 7, 4096],                     allocate 4096 bytes as block 7
//	    ["f", 7],                           free block 7
//	    ["s", 2],                           stream 2 is current from here on; 0 at the start
//	    ["e"],                              empty_cache
//	    ["r"]                               reset_peak_memory_stats
//	  ]
//	}
//
// Block ids are any integers. An id may be used again once its block is freed,
// so addresses do as well; reading numbers the blocks by birth. Other members
// are ignored, so that a recording can carry its results along.
//
// memplan's own traces say in addition what the memory is for. They begin with
// "memplan_trace": 1, and then an unknown member is an error:
//
//	"memplan_trace": 1,
//	"categories": ["parameters", ...],    names of Category
//	"phases": ["setup", ...],             names of Phase
//	"ops": ["", "aten::mm", ...],         Trace.Ops
//	"layers": ["", "layers.0", ...],      Trace.Layers
//	"contexts": [[0,0,0,0,0,0], ...],     step, phase, op, layer, thread, stream
//
// The numbers in a context index phases, ops and layers. Every event may end in
// one more number, the context that holds from this event on; context 0 need
// not be given for the first event. With "categories", every allocation has its
// category before that: ["a", id, bytes, category] or ["a", id, bytes, category,
// context].
type File struct {
	Config         string
	Torch          string       // version of PyTorch; "": not said
	Capacity       tensor.Bytes // 0: unbounded
	Occupied       tensor.Bytes // of it, by others than the allocator
	MemoryFraction *float64     // of the capacity; nil: no limit
	Trace
}

// Limits on what a file may hold. They keep numbers within the fields of Event.
const (
	maxStream = math.MaxInt16
	maxStep   = math.MaxInt32
	maxThread = math.MaxUint8
	maxBlocks = math.MaxInt32
)

// The letters of events, by kind.
var kindLetters = [numKinds]byte{Alloc: 'a', Free: 'f', EmptyCache: 'e', ResetPeaks: 'r', SetStream: 's'}

// context is what the events of a stretch have in common: a row of "contexts".
type context struct {
	op, layer int32
	step      int32
	stream    int16
	phase     Phase
	thread    uint8
}

// contextOf returns the context of an event.
func contextOf(e *Event) context {
	return context{e.Op, e.Layer, e.Step, e.Stream, e.Phase, e.Thread}
}

// apply sets the context of an event.
func (c *context) apply(e *Event) {
	e.Op, e.Layer, e.Step, e.Stream, e.Phase, e.Thread = c.op, c.layer, c.step, c.stream, c.phase, c.thread
}
