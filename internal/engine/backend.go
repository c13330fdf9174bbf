package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Backend executes what the player decides: it has real memory behind the
// blocks and computes what rows only describe. A nil Backend only counts. An
// error ends the play.
//
// Rows say what an operator allocates, not what it computes. The player
// therefore calls the backend once for each primitive operator, when its results
// and scratch exist, and once for each derivative that the backend computes as a
// whole; a derivative that is made of further operators runs as those.
type Backend interface {
	// Alloc makes block id of n bytes, n > 0, and Free gives it back.
	Alloc(id int32, n tensor.Bytes) error
	Free(id int32) error
	// EmptyCache is torch.cuda.empty_cache().
	EmptyCache() error

	// Compose reports why a composite row cannot be executed: some describe what
	// they allocate, not what they compute.
	Compose(c *op.Call) error
	// Forward computes the results c.Out of a primitive row from c.In, with the
	// row's arguments; for a row in place it changes c.In[0].
	Forward(c *op.Call) error
	// Derives reports whether Backward computes r's derivative as a whole.
	Derives(r *op.Row) bool
	// Backward computes b.Results, which exist, from what the node saved.
	Backward(b *op.Back) error

	// Fill sets every element of t to v.
	Fill(t *op.Tensor, v float64) error
	// Copy sets t to from, which has its shape.
	Copy(t, from *op.Tensor) error

	// Initialize gives a parameter or buffer its first value, unless it has it: it
	// is told of each module that shares one.
	Initialize(t *op.Tensor, of Initial) error
	// Load fills a tensor of the batch.
	Load(t *op.Tensor, in program.Input) error
	// Step updates the parameters of a group by an optimizer whose row has
	// allocated what it needs.
	Step(o *program.Optimizer, group int, params []*optim.Param) error
	// Clip scales gradients to a norm of at most bound in all, or each of their
	// elements to a size of at most bound.
	Clip(grads []*op.Tensor, byValue bool, bound float64) error
	// Loss is told of the value from which a backward pass starts.
	Loss(t *op.Tensor) error

	// Random is the state of the random numbers, which SetRandom puts back for a
	// recomputation.
	Random() uint64
	SetRandom(state uint64)

	// EndStep is told that step n, from 1, is over.
	EndStep(n int) error
}

// Initial says which parameter or buffer is to be initialized.
type Initial struct {
	Class  *program.Class // that declares it
	Param  *program.Param
	Name   string // of this module's, in Module.state_dict
	Shared bool   // another module held it before, and it has its value
	Model  bool   // it is a model's, not of a module that the step itself calls
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

// OnHost reports whether t lies in the machine's own memory.
func OnHost(t *op.Tensor) bool { return obj(t).st.host }

// backendError ends the play of a job whose backend failed.
type backendError struct{ err error }

// must ends the play if the backend failed.
func must(err error) {
	if err != nil {
		panic(backendError{err})
	}
}

// executes reports whether what the player does is computed too, and not already
// part of something that the backend computes as a whole.
func (p *Player) executes() bool { return p.backend != nil && p.muted == 0 }

// run runs a row, whose results the backend then computes.
func (p *Player) runRow(r *op.Row, c *op.Call) {
	if !p.executes() {
		r.Run(c)
		return
	}
	p.quiet(func() { r.Run(c) })
	must(p.backend.Forward(c))
}

// fill and copyTo are what the player itself computes.
func (p *Player) fill(t *op.Tensor, v float64) {
	if p.executes() {
		must(p.backend.Fill(t, v))
	}
}

func (p *Player) copyTo(t, from *op.Tensor) {
	if p.executes() {
		must(p.backend.Copy(t, from))
	}
}

// derive runs a derivative formula, which the backend perhaps computes as a
// whole.
func (p *Player) derive(r *op.Row, b *op.Back) {
	if !p.executes() || r != asStridedRow && !p.backend.Derives(r) {
		r.Grad(b)
		return
	}
	p.quiet(func() { r.Grad(b) })
	if r == asStridedRow {
		p.asStridedValues(b)
		return
	}
	must(p.backend.Backward(b))
}

// initialize gives a tensor that was just moved to the device, and that a module
// holds under a name, its first value. One that several modules share gets the
// value of the class that declares it.
func (p *Player) initialize(c *cell, m *module, name string) {
	if !p.executes() {
		return
	}
	must(p.backend.Initialize(c.t, Initial{c.class, c.decl, program.Join(m.path, name), c.valued, !p.ofStep}))
	c.valued = true
}

// gradients are those of the parameters of optimizer i.
func (j *job) gradients(i int) []*op.Tensor {
	var out []*op.Tensor
	for _, c := range j.opts[i] {
		if g := obj(c.t).grad; g != nil {
			out = append(out, &g.Tensor)
		}
	}
	return out
}

// quiet runs what only allocates, since the backend computes it as a whole.
func (p *Player) quiet(f func()) {
	p.muted++
	f()
	p.muted--
}

// update steps those parameters of a group that have gradients, for which the
// optimizer's row has made what it needs.
func (j *job) update(optimizer, group int, params []*optim.Param) {
	if !j.executes() {
		return
	}
	var with []*optim.Param
	for _, p := range params {
		if p.Grad != nil {
			with = append(with, p)
		}
	}
	must(j.backend.Step(j.prog.Optimizers[optimizer], group, with))
}
