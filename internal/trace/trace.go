// Package trace holds the event list that the engine writes and the allocator
// replays: every allocation and free of a job on one device, in program order.
//
// A block is named by its ID, the order of its birth counted from 1. Sizes are
// the bytes that the program asked for; rounding is the allocator's business.
// The order of events is the order of host calls, which on one stream is also
// the order in which memory can be reused (see package allocsim).
package trace

import "github.com/memplan/memplan/internal/tensor"

// Kind says what an event does.
type Kind uint8

// The kinds of events.
const (
	Alloc      Kind = iota // a block of Bytes is asked for
	Free                   // the block ID is given back; of a block whose allocation failed: nothing
	EmptyCache             // torch.cuda.empty_cache()
	ResetPeaks             // torch.cuda.reset_peak_memory_stats()
	SetStream              // a note in a recorded trace: from here on Stream is current; nothing happens
	numKinds
)

// Category says what a block is for. A block has one category for its whole
// life, the most durable role that it ever plays: a weight gradient is a
// gradient from its birth as the output of a matrix product.
type Category uint8

// The categories, in the order of reports.
const (
	Parameters Category = iota
	Gradients
	OptimizerState
	Activations // results of the forward pass, saved for backward or not
	Inputs
	Temporaries // scratch of one operator, and gradients of activations
	Workspace   // of cuBLAS, cuDNN
	NumCategories
)

var categoryNames = [NumCategories]string{
	"parameters", "gradients", "optimizer_state", "activations", "inputs", "temporaries", "workspace",
}

// String returns the name used in reports.
func (c Category) String() string { return categoryNames[c] }

// Phase is a part of a training step.
type Phase uint8

// The phases. Return is what happens when the function that holds a step
// returns: its local names are gone.
const (
	Setup Phase = iota
	Input
	Forward
	Backward
	Clip
	Optimizer
	ZeroGrad
	Other
	Return
	Eval // an evaluation between steps
	NumPhases
)

var phaseNames = [NumPhases]string{
	"setup", "input", "forward", "backward", "clip", "optimizer", "zero_grad", "other", "return", "eval",
}

// String returns the name used in reports.
func (p Phase) String() string { return phaseNames[p] }

// EventBytes is what an event counts as memory of the program itself, with its replay.
const EventBytes = 96

// Event is one call into the allocator.
type Event struct {
	Bytes  tensor.Bytes // requested, for Alloc
	ID     int32        // the block, from 1; 0 for kinds without one
	Op     int32        // index into Trace.Ops: the operator at work
	Layer  int32        // index into Trace.Layers: the module at work
	Step   int32        // 0 in setup, then from 1
	Stream int16        // 0 is the default stream
	Kind   Kind
	Phase  Phase
	Thread uint8 // 0: the program's own; 1: autograd's for this device
}

// Trace is the life of all blocks of one job.
type Trace struct {
	Events []Event
	Ops    []string // operator names; Ops[0] is "" (no operator: a reference went away)
	Layers []string // module paths; Layers[0] is ""

	// Categories[id] is the category of block id; Categories[0] is unused. It
	// is nil for a recorded trace that says nothing of roles.
	Categories []Category
}

// Loop says that some events come again before what follows them: steps of a job
// that are like those before, and were left out. Loops that end among the events,
// and were listed before, are part of it.
type Loop struct {
	Begin, End int   // the events: Begin to End-1
	Turns      int64 // how often they come again; 0: for ever
	Steps      int64 // of the job in one turn
	// Names says by which name a turn knows blocks that live when it begins, where
	// that is another than they were born with.
	Names []Rename
}

// Rename gives the block From the name To.
type Rename struct{ From, To int32 }
