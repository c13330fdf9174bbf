package python

import (
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/slab"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Interp is Python's interpreter over a player: it runs statements and calls
// modules.
type Interp struct {
	*autograd.Player
	around
	backend Backend // nil: values are not computed
	Offload program.Offload
	away    *offloadActivations // nil: the job has none
	// CallModel calls a model of the job; it takes over the arguments.
	CallModel func(e *program.Expr, args []Value) Value
	// Reading, if it is set, is told of a parameter or buffer before it is read.
	Reading func(c *Cell)
	// Functions are rows that take the place of others, as where a library has put its own
	// function in the place of one of PyTorch's.
	Functions map[*op.Op]*op.Op
	trail     trail // what a checkpoint under way owns
	Fakes     bool  // a fake tensor was made on the device (torch._subclasses.FakeTensor)
	maxTable  bool  // of 4-bit weights' maxima was made
	frames    slab.Pool[Frame]
	slots     slab.Arena[Value]
}

// Backend gives parameters and buffers their first values.
type Backend interface {
	autograd.Backend
	// Initialize gives a parameter or buffer its first value, unless it has it: it
	// is told of each module that shares one.
	Initialize(t *op.Tensor, of Initial) error
}

// around is what the scope of a player does not know: what modules are in.
type around struct {
	loading *tensor.DType // of parameters that are moved to the device, in place of their own; nil: none
	onGPU   int           // parameters that are on the device for a call under way
	whole   bool          // a module around is copied to the device as a whole
	eval    *bool         // whether the model at work is in eval mode; nil: none is at work
	base    bool          // its adapters are disabled

	names []string // of the arguments of the module that is called next; "": by position
}

// EnterModel begins the code of a model, of which eval says whether it is in eval mode.
func (p *Interp) EnterModel(eval *bool) { p.eval = eval }

// DisableAdapters ends with the scope: until then, the modules that adapters go around are
// called in the places of these, and those of which copies are trained in the places of
// the copies.
func (p *Interp) DisableAdapters() { p.base = true }

// modeNow takes over the mode of a model at the time of a recomputation, which may be
// another than in the forward pass.
func (p *Interp) modeNow(eval *bool) {
	if eval != nil {
		p.eval, p.Env().Training = eval, !*eval
	}
}

// Scope is what surrounds the code at work, with what modules are in.
type Scope struct {
	autograd.Scope
	around
}

// Push begins a scope that is as the one around it, and returns that one.
func (p *Interp) Push() Scope { return Scope{p.Player.Push(), p.around} }

// Pop ends the innermost scope: what Push returned is that of the code again.
func (p *Interp) Pop(outer Scope) {
	p.Player.Pop(outer.Scope)
	p.around = outer.around
}

// New returns an interpreter over a new player; b is nil where nothing is computed.
func New(env op.Env, b Backend) *Interp {
	p := &Interp{Player: autograd.New(env, b), backend: b}
	p.trail.player = p.Player
	return p
}
