package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// interp is Python's interpreter over a player: it runs statements and calls
// modules.
type interp struct {
	*Player
	around
	backend  initializer // nil: values are not computed
	offload  program.Offload
	trail    trail // what a checkpoint under way owns
	maxTable bool  // of 4-bit weights' maxima was made
	frames   pool[frame]
	slots    arena[value]
}

// initializer gives parameters and buffers their first values.
type initializer interface {
	backend
	// Initialize gives a parameter or buffer its first value, unless it has it: it
	// is told of each module that shares one.
	Initialize(t *op.Tensor, of Initial) error
}

// around is what the scope of a player does not know: what modules are in.
type around struct {
	loading  *tensor.DType // of parameters that are moved to the device, in place of their own; nil: none
	onloaded int           // parameters that are on the device for a call under way
	whole    bool          // a module around is copied to the device as a whole
}

// surroundings is the scope of an interpreter.
type surroundings struct {
	scope
	around
}

// push begins a scope that is as the one around it, and returns that one.
func (p *interp) push() surroundings { return surroundings{p.Player.push(), p.around} }

// pop ends the innermost scope: what push returned is that of the code again.
func (p *interp) pop(outer surroundings) {
	p.Player.pop(outer.scope)
	p.around = outer.around
}

func newInterp(env op.Env, b initializer) *interp {
	p := &interp{Player: New(env, b), backend: b}
	p.trail.player = p.Player
	return p
}
