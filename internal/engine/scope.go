package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// scope is what surrounds the code at work and ends with it: the modes that it has
// entered, where new memory is taken from, and whose its events are. Whoever changes
// any of it for a while begins with push and ends with pop; no field is saved alone.
//
//	outer := p.push()
//	p.env.GradMode = false
//	…
//	p.pop(outer)
//
// Only what a job is in from one statement to the next is set without: its phase, and
// the region of autocast in which it computes.
type scope struct {
	env        op.Env // with the modes that rows see
	phase      trace.Phase
	evaluating bool
	op, layer  int32 // names of the trace
	at         place // the statement at work

	thread         uint8
	stream         int16 // whose memory new blocks are taken from
	onHost, pinned bool  // new tensors lie in the machine's memory, and there in page-locked memory

	depth    int          // operators under way, one in the other
	muted    int          // rows under way that the backend computes as a whole
	task     *graphTask   // the backward pass under way
	hooks    []savedHooks // saved_tensors_hooks that are entered, the innermost last
	dispatch []*selective // modes of torch dispatch that are entered, the innermost last

}

// Streams beside the default one; each has memory of its own.
const (
	copyStream   int16 = 1 + iota // on which batches are copied ahead
	gatherStream                  // of FSDP's collectives (FSDPCommContext)
	reduceStream
)

// push begins a scope that is as the one around it, and returns that one.
func (p *Player) push() scope { return p.scope }

// pop ends the innermost scope: what push returned is that of the code again.
func (p *Player) pop(outer scope) { p.scope = outer }

// on makes f's new tensors on the host, or on the device.
func (p *Player) on(host, pinned bool, f func()) {
	outer := p.push()
	p.onHost, p.pinned = host, pinned
	f()
	p.pop(outer)
}

// onStream makes f's new tensors in the memory of another stream.
func (p *Player) onStream(s int16, f func()) {
	outer := p.push()
	p.stream = s
	f()
	p.pop(outer)
}

// labelled runs f, which works for a layer, as an operation of that name.
func (p *Player) labelled(name string, layer int32, f func()) {
	outer := p.push()
	p.op, p.layer = p.names.op(name), layer
	f()
	p.pop(outer)
}

// quiet runs what only allocates, since the backend computes it as a whole.
func (p *Player) quiet(f func()) {
	outer := p.push()
	p.muted++
	f()
	p.pop(outer)
}
