package autograd

import (
	"errors"
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Backend executes what the player decides: it has real memory behind the
// blocks and computes what rows only describe. A nil backend only counts. An
// error ends the play.
//
// Rows say what an operator allocates, not what it computes. The player
// therefore calls the backend once for each primitive operator, when its results
// and scratch exist, and once for each derivative that the backend computes as a
// whole; a derivative that is made of further operators runs as those.
type Backend interface {
	// Alloc makes block id of n bytes, n > 0, of a stream's memory, and Free gives
	// it back. A block with a number below 0 is in host memory.
	Alloc(id int32, n tensor.Bytes, stream int16) error
	Free(id int32) error
	// EmptyCache is torch.cuda.empty_cache().
	EmptyCache() error

	// Composes reports whether the parts of a composite row compute what it does.
	// Otherwise, as of some that say what they allocate alone, Forward does.
	Composes(r *op.Op) bool
	// Inside reports whether the row calls Compute itself, in place of Forward.
	Inside(r *op.Op) bool
	// Compute runs what a row computes within.
	Compute(r *op.Op, f func(op.Machine) error) error
	// Forward computes the results c.Out of a primitive row from c.In, with the
	// row's arguments; for a row in place it changes c.In[0].
	Forward(c *op.Call) error
	// Derives reports whether Backward computes r's derivative as a whole.
	Derives(r *op.Op) bool
	// Backward computes b.Results, which exist, from what the node saved.
	Backward(b *op.Back) error

	// Fill sets every element of t to v.
	Fill(t *op.Tensor, v float64) error
	// Copy sets t to from, which has its shape; they may be of different types, and
	// are one on the device and one in host memory.
	Copy(t, from *op.Tensor) error
	// Random is the state of the random numbers, which SetRandom puts back for a
	// recomputation.
	Random() uint64
	SetRandom(state uint64)
}

// BlockOf returns the number of the block on the device that t lies in; 0 for a
// tensor without memory, and a number below 0 for one in the machine's own.
func BlockOf(t *op.Tensor) int32 {
	st := Of(t).st
	if st.host {
		return -st.id
	}
	return st.id
}

// BackendError ends the play of a job whose backend failed.
type BackendError struct{ Err error }

// Placed is an error of a backend that wants to know at which statement of the
// spec, and in which layer, it arose.
type Placed interface {
	error
	At(file string, line int, layer string)
}

// Must ends the play if the backend failed.
func (p *Player) Must(err error) {
	if err == nil {
		return
	}
	if r := Placed(nil); errors.As(err, &r) && p.at.fn != nil {
		r.At(p.at.fn.File, p.at.line, p.tr.Layers[p.Layer])
	}
	panic(BackendError{err})
}

// Executes reports whether what the player does is computed too, and not already
// part of something that the backend computes as a whole.
func (p *Player) Executes() bool { return p.backend != nil && p.Muted == 0 }

// runRow runs a row, whose results the backend then computes. What an
// autograd.Function does is statements, which compute by themselves.
func (p *Player) runRow(r *op.Op, c *op.Call) {
	if _, statements := c.Args.(op.Application); statements || !p.Executes() || p.backend.Inside(r) {
		r.Run(c)
		return
	}
	p.Quiet(func() { r.Run(c) })
	p.Must(p.backend.Forward(c))
}

// Compute is what op.Call.Compute asks for.
func (p *Player) Compute(r *op.Op, f func(op.Machine) error) {
	if p.Executes() {
		p.Must(p.backend.Compute(r, f))
	}
}

// Fill sets every element of t to v; with CopyTo it is what the player itself computes.
func (p *Player) Fill(t *op.Tensor, v float64) {
	if p.Executes() {
		p.Must(p.backend.Fill(t, v))
	}
}

// CopyTo sets t to from.
func (p *Player) CopyTo(t, from *op.Tensor) {
	if p.Executes() {
		p.Must(p.backend.Copy(t, from))
	}
}

// derive runs a derivative formula, which the backend perhaps computes as a
// whole.
func (p *Player) derive(r *op.Op, b *op.Back) {
	if !p.names.derived[r] {
		p.names.derived[r] = true
	}
	_, statements := b.Args.(op.Application)
	if p.task.create && p.differentiable(b) {
		if r.GradGraph == nil {
			p.Fail("create_graph through %s is not modelled", r.Name)
		}
		r.GradGraph(b)
		return
	}
	if statements || !p.Executes() || r != asStridedRow && !p.backend.Derives(r) {
		p.derivative(r, statements, func() { r.Grad(b); b.End() })
		return
	}
	p.Quiet(func() { r.Grad(b) })
	if r == asStridedRow {
		p.asStridedValues(b)
		return
	}
	p.Must(p.backend.Backward(b))
}

// differentiable reports whether a derivative depends on what requires grad.
func (p *Player) differentiable(b *op.Back) bool {
	for _, list := range [][]*op.Tensor{b.Grads, b.SavedIns(), b.SavedOuts()} {
		if slices.ContainsFunc(list, p.Requires) {
			return true
		}
	}
	return false
}

// Random is the state of the device's random numbers.
func (p *Player) Random() uint64 {
	if p.backend == nil {
		return 0
	}
	return p.backend.Random()
}
