// Package snapshot reads what torch.cuda.memory._dump_snapshot writes: the segments and blocks of
// PyTorch's caching allocator, and the events that it recorded, with the Python frames of each.
package snapshot

import "github.com/memplan/memplan/internal/tensor"

// Snapshot is the allocator's memory on all devices of one process.
type Snapshot struct {
	Devices     []Device // those that hold memory or have events, by index
	Config      string   // PYTORCH_CUDA_ALLOC_CONF of the process; "" if it says nothing
	Annotations []Annotation
}

// Device is the memory of one device.
type Device struct {
	Index    int
	Segments []Segment // by address
	Events   []Event   // in their order; the oldest may have fallen out of PyTorch's ring buffer
}

// Segment is memory that cudaMalloc gave, or a mapped range of an expandable segment.
type Segment struct {
	Address    uint64
	Size       tensor.Bytes
	Stream     int64
	Small      bool     // of the pool of small blocks
	Pool       [2]int64 // of a CUDA graph or MemPool; zero: the allocator's own
	Expandable bool
	Blocks     []Block // by address, without gaps
}

// Block is a piece of a segment.
type Block struct {
	Address   uint64
	Size      tensor.Bytes
	Requested tensor.Bytes // 0 if the snapshot does not say
	State     State
	Stack     *Stack // where it was allocated; nil if nothing is known
}

// State says what a block is doing.
type State uint8

// The states of blocks.
const (
	Inactive State = iota
	Allocated
	Pending // given back, but another stream may still use it
)

// Action is what an event does.
type Action uint8

// The actions of events, in the order of actionNames.
const (
	Alloc Action = iota
	FreeRequested
	FreeCompleted
	SegmentAlloc
	SegmentFree
	SegmentMap
	SegmentUnmap
	OOM
	Dumped
	UserDefined
	numActions
)

// actionNames are PyTorch's names of actions.
var actionNames = [numActions]string{
	"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
	"segment_map", "segment_unmap", "oom", "snapshot", "user_defined",
}

// String returns PyTorch's name.
func (a Action) String() string { return actionNames[a] }

// Event is something that the allocator did.
type Event struct {
	Action     Action
	Address    uint64       // of a block or segment; for OOM the free memory of the device
	Size       tensor.Bytes // of an Alloc, its free and an OOM as requested; of a segment its own
	Stream     int64
	Microsecs  int64  // since 1970; 0 if not said
	Stack      *Stack // nil if nothing is known
	Annotation string // of a UserDefined event
	// Block is the size of the block that an Alloc took, with what the allocator adds; 0 if it is not
	// known.
	Block    tensor.Bytes
	Category string // what a block is for; PyTorch itself does not say
}

// Stack are the Python frames in which something happened, the innermost first. Equal stacks of a
// snapshot may be different pointers; Key is the same.
type Stack struct{ Frames []Frame }

// Frame is a function at work.
type Frame struct {
	File string
	Line int64
	Name string
}

// Annotation is the begin or end of something that the program or a profiler hook of PyTorch
// names, such as Optimizer.step#AdamW.step.
type Annotation struct {
	Name      string
	End       bool
	Device    int
	Microsecs int64
}
