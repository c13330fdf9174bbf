package autograd

import (
	"slices"
	"sync"

	"github.com/memplan/memplan/internal/engine/slab"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// memory is what a player makes its values of.
type memory struct {
	objects  slab.Pool[Object]
	storages slab.Pool[storage]
	nodes    slab.Pool[Node]
	backs    slab.Pool[op.Back]
	calls    slab.Pool[op.Call]
	edges    slab.Arena[edge]
	metas    slab.Arena[op.Meta]
	savings  slab.Arena[saved]
	tensors  slab.Arena[*op.Tensor]
	flags    slab.Arena[bool]
	events   []trace.Event // room for those of the device
}

// maxKeptEvents is how many events a memory has room for at the most.
const maxKeptEvents = 1 << 16

// memories are those of players that have played: a search plays jobs one after the
// other, each of which takes some MiB.
var memories = sync.Pool{New: func() any { return new(memory) }}

// Forget gives the player's memory to others. Nothing is played after that, and no
// tensor that was made is looked at.
func (p *Player) Forget() {
	m := p.memory
	p.memory = nil
	if events := p.tr.Events; cap(events) <= maxKeptEvents {
		p.tr.Events, m.events = slices.Clone(events), events[:0]
	}
	m.objects.Clear()
	m.storages.Clear()
	m.nodes.Clear()
	m.backs.Clear()
	m.calls.Clear()
	m.edges.Clear()
	m.metas.Clear()
	m.savings.Clear()
	m.tensors.Clear()
	m.flags.Clear()
	memories.Put(m)
}
