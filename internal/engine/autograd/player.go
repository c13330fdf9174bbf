package autograd

import (
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/op"
)

// Player plays operators and backward passes: it holds every tensor, the autograd graph
// and the trace of what was allocated.
type Player struct {
	Scope
	backend Backend // nil: values are not computed
	Meter   *limit.Meter
	recording
	graph
	libraries
	guarded
	pretended
	*memory
	variables []*op.Tensor      // of the Python function that was called
	OfSpread  map[*op.Op]*op.Op // rows that run in the place of others where the first input is a DTensor, outside of modules; nil: there are none such
	into      *op.Tensor        // where the next result of its size and type goes; nil: to a block of its own
}

// New returns a player for one device.
func New(env op.Env, b Backend) *Player {
	p := &Player{Scope: Scope{env: env}, backend: b, memory: memories.Get().(*memory)}
	p.recording.init()
	p.tr.Events, p.events = p.events, nil
	return p
}

// Fail implements op.Exec. Play recovers the error.
func (p *Player) Fail(format string, args ...any) {
	p.failAt(p.at, format, args...)
}

// Label names the operation at work, which is none of a row.
func (p *Player) Label(name string) { p.Op = p.names.op(name) }

// Inputs is room for the inputs of an operator.
func (p *Player) Inputs(n int) []*op.Tensor { return p.tensors.Take(n)[:0] }
