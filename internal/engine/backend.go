package engine

import (
	"errors"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// backend executes what the player decides: it has real memory behind the
// blocks and computes what rows only describe. A nil backend only counts. An
// error ends the play.
//
// Rows say what an operator allocates, not what it computes. The player
// therefore calls the backend once for each primitive operator, when its results
// and scratch exist, and once for each derivative that the backend computes as a
// whole; a derivative that is made of further operators runs as those.
type backend interface {
	// Alloc makes block id of n bytes, n > 0, of a stream's memory, and Free gives
	// it back. A block with a number below 0 lies in the machine's own memory.
	Alloc(id int32, n tensor.Bytes, stream int16) error
	Free(id int32) error
	// EmptyCache is torch.cuda.empty_cache().
	EmptyCache() error

	// Composes reports whether the parts of a composite row compute what it does.
	// Otherwise, as of some that say what they allocate alone, Forward does.
	Composes(r *op.Op) bool
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
	// lie one on the device and one in the machine's memory.
	Copy(t, from *op.Tensor) error
	// Random is the state of the random numbers, which SetRandom puts back for a
	// recomputation.
	Random() uint64
	SetRandom(state uint64)
}

// BlockOf returns the number of the block on the device that t lies in; 0 for a
// tensor without memory, and a number below 0 for one in the machine's own.
func BlockOf(t *op.Tensor) int32 {
	st := obj(t).st
	if st.host {
		return -st.id
	}
	return st.id
}

// backendError ends the play of a job whose backend failed.
type backendError struct{ err error }

// Refusal is an error of a backend that wants to know at which statement of the
// spec, and in which layer, it arose.
type Refusal interface {
	error
	At(file string, line int, layer string)
}

// must ends the play if the backend failed.
func (p *Player) must(err error) {
	if err == nil {
		return
	}
	if r := Refusal(nil); errors.As(err, &r) && p.at.fn != nil {
		r.At(p.at.fn.File, p.at.line, p.tr.Layers[p.layer])
	}
	panic(backendError{err})
}

// executes reports whether what the player does is computed too, and not already
// part of something that the backend computes as a whole.
func (p *Player) executes() bool { return p.backend != nil && p.muted == 0 }

// runRow runs a row, whose results the backend then computes. What an
// autograd.Function does is statements, which compute by themselves.
func (p *Player) runRow(r *op.Op, c *op.Call) {
	if _, statements := c.Args.(op.Application); statements || !p.executes() {
		r.Run(c)
		return
	}
	p.quiet(func() { r.Run(c) })
	p.must(p.backend.Forward(c))
}

// fill and copyTo are what the player itself computes.
func (p *Player) fill(t *op.Tensor, v float64) {
	if p.executes() {
		p.must(p.backend.Fill(t, v))
	}
}

func (p *Player) copyTo(t, from *op.Tensor) {
	if p.executes() {
		p.must(p.backend.Copy(t, from))
	}
}

// derive runs a derivative formula, which the backend perhaps computes as a
// whole.
func (p *Player) derive(r *op.Op, b *op.Back) {
	if !p.names.derived[r] {
		p.names.derived[r] = true
	}
	_, statements := b.Args.(op.Application)
	if statements || !p.executes() || r != asStridedRow && !p.backend.Derives(r) {
		r.Grad(b)
		return
	}
	p.quiet(func() { r.Grad(b) })
	if r == asStridedRow {
		p.asStridedValues(b)
		return
	}
	p.must(p.backend.Backward(b))
}
