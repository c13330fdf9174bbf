package autograd

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// Scope is what surrounds the code at work and ends with it: the modes that it has
// entered, where new memory is taken from, and whose its events are. Whoever changes
// any of it for a while begins with Push and ends with Pop; no field is saved alone.
//
//	outer := p.Push()
//	p.Env().GradMode = false
//	…
//	p.Pop(outer)
//
// Only what a job is in from one statement to the next is set without: its phase, and
// the region of autocast in which it computes.
type Scope struct {
	env        op.Env // with the modes that rows see
	Phase      trace.Phase
	Evaluating bool
	Op, Layer  int32 // names of the trace
	at         place // the statement at work

	thread         uint8
	stream         int16 // whose memory new blocks are taken from
	onHost, pinned bool  // new tensors are in host memory, and there in page-locked memory

	depth    int          // operators under way, one in the other
	Muted    int          // rows under way that the backend computes as a whole
	task     *graphTask   // the backward pass under way
	hooks    []SavedHooks // saved_tensors_hooks that are entered, the innermost last
	dispatch []*Selective // modes of torch dispatch that are entered, the innermost last

	Instead map[*op.Op]*op.Op // rows that run in the place of others, also where operators call them
	Wraps   bool              // results are instances of a subclass of Tensor, such as DTensor
}

// Streams beside the default one; each has memory of its own.
const (
	CopyStream   int16 = 1 + iota // on which batches are copied ahead
	GatherStream                  // of FSDP's collectives (FSDPCommContext)
	ReduceStream
	ReplicateStream
	ConvertStream // of what FSDP1 does before it gathers (_pre_unshard_stream)
	AwayStream    // of OffloadActivations
	firstPooled   // of those that the pool has beside
)

// CollectiveStreams are those on which the k-th model of a process that fully_shard was called on gathers parameters
// and reduces gradients: each takes the next three of a pool of 32 (FSDPCommContext.lazy_init, and
// kStreamsPerPool of c10/cuda/CUDAStream.cpp).
func CollectiveStreams(k int) (gather, reduce int16) {
	pooled := func(n int) int16 {
		switch n %= 32; n {
		case 0:
			return GatherStream
		case 2:
			return ReduceStream
		}
		return firstPooled + int16(n)
	}
	return pooled(3 * k), pooled(3*k + 2)
}

// Push begins a scope that is as the one around it, and returns that one.
func (p *Player) Push() Scope { return p.Scope }

// Pop ends the innermost scope: what Push returned is that of the code again.
func (p *Player) Pop(outer Scope) { p.Scope = outer }

// On makes f's new tensors on the host, or on the device.
func (p *Player) On(host, pinned bool, f func()) {
	outer := p.Push()
	p.onHost, p.pinned = host, pinned
	f()
	p.Pop(outer)
}

// OnStream makes f's new tensors in the memory of another stream.
func (p *Player) OnStream(s int16, f func()) {
	outer := p.Push()
	p.stream = s
	f()
	p.Pop(outer)
}

// Labelled runs f, which works for a layer, as an operation of that name.
func (p *Player) Labelled(name string, layer int32, f func()) {
	outer := p.Push()
	p.Op, p.Layer = p.names.op(name), layer
	f()
	p.Pop(outer)
}

// Quiet runs what only allocates, since the backend computes it as a whole.
func (p *Player) Quiet(f func()) {
	outer := p.Push()
	p.Muted++
	f()
	p.Pop(outer)
}
