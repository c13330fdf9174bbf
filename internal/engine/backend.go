package engine

import (
	"errors"

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
	// Lerp moves t towards another tensor: t += weight * (to - t).
	Lerp(t, to *op.Tensor, weight float64) error

	// Initialize gives a parameter or buffer its first value, unless it has it: it
	// is told of each module that shares one.
	Initialize(t *op.Tensor, of Initial) error
	// Load fills a tensor of the batch.
	Load(t *op.Tensor, in program.Input) error
	// Step updates parameters that have gradients by an optimizer whose row has
	// allocated what it needs. The groups are those of the optimizer.
	Step(o *program.Optimizer, groups []optim.Group) error
	// Read gives an optimizer the elements of a tensor, row-major, on which its way
	// depends, and Write sets them; Dry reports that there are none, since nothing is
	// computed.
	Read(t *op.Tensor) ([]float64, error)
	Write(t *op.Tensor, v []float64) error
	Dry() bool
	// Unscale multiplies gradients by a factor and reports whether all of them were
	// finite.
	Unscale(grads []*op.Tensor, factor float64) (finite bool, err error)
	// Clip scales gradients to a norm of at most bound in all, or each of their
	// elements to a size of at most bound, where that allocates nothing.
	Clip(grads []*op.Tensor, byValue bool, bound float64) error
	// Norms sets each of some scalars to the norm of the tensor at its place and, if
	// stacked is not nil, its elements to all of them.
	Norms(norms, of []*op.Tensor, stacked *op.Tensor) error
	// Scale scales gradients whose norm in all is known to one of at most bound. The
	// factor goes into the second of two scalars.
	Scale(grads []*op.Tensor, norm *op.Tensor, bound float64, spare, factor *op.Tensor) error
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
	Class   *program.Class // that declares it
	Param   *program.Param
	Name    string // of this module's, in Module.state_dict
	Shared  bool   // another module held it before, and it has its value
	Model   bool   // it is a model's, not of a module that the step itself calls
	Adapter bool   // it is a weight of a LoRA adapter

	// Masked is the weight whose smallest elements, Amount of all, a mask of
	// torch.nn.utils.prune leaves out; nil of what is no mask.
	Masked *op.Tensor
	Amount float64
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
	if _, statements := c.Args.(*application); statements || !p.executes() {
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
	_, statements := b.Args.(*application)
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

// gradients are those of the parameters of optimizer i, or of its copies of them
// if gradients are offloaded.
func (j *job) gradients(i int) []*op.Tensor {
	var out []*op.Tensor
	if j.offload.Gradients {
		for _, h := range j.onCPU[i] {
			if g := obj(h.T).grad; g != nil {
				out = append(out, &g.Tensor)
			}
		}
		return out
	}
	for _, c := range j.opts[i] {
		if g := obj(c.t).grad; g != nil {
			out = append(out, &g.Tensor)
		}
	}
	return out
}

// update steps those parameters that have gradients, for which the optimizer's
// row has made what it needs. A fused optimizer leaves them as they are where a
// GradScaler has found infinities, and counts no step.
func (j *job) update(optimizer int, groups []optim.Group) {
	o := j.prog.Optimizers[optimizer]
	if !j.executes() || o.Row.Whole != nil { // the latter has computed by itself
		return
	}
	with := make([]optim.Group, len(groups))
	for i, g := range groups {
		with[i].Args = g.Args
		for _, p := range g.Params {
			switch {
			case p.Grad == nil:
			case j.scaler.infinite[optimizer]:
				p.Steps--
			default:
				with[i].Params = append(with[i].Params, p)
			}
		}
	}
	j.must(j.backend.Step(o, with))
}

// numbers are optim.Numbers.
type numbers struct{ j *job }

func (e numbers) Read(t *op.Tensor) []float64 {
	v, err := e.j.backend.Read(t)
	e.j.must(err)
	return v
}

func (e numbers) Write(t *op.Tensor, v []float64) { e.j.must(e.j.backend.Write(t, v)) }

// Numbers implements optim.Exec.
func (j *job) Numbers() optim.Numbers {
	if j.backend == nil || j.backend.Dry() {
		return nil
	}
	return numbers{j}
}
