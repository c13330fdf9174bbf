package op

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// Call is one run of a row.
type Call struct {
	Exec
	Op   *Op
	In   []*Tensor // nil where an optional input is absent
	Args any       // the row's argument struct
	Out  []*Tensor

	locals []*Tensor

	// Most calls return and hold a few tensors only: there is room for them here.
	outRoom   [2]*Tensor
	localRoom [2]*Tensor
	viewRoom  [1]tensor.Layout
}

// OneView is the list of a row's only view.
func (c *Call) OneView(l tensor.Layout) []tensor.Layout {
	c.viewRoom[0] = l
	return c.viewRoom[:]
}

// Return hands tensors to the caller, in order.
func (c *Call) Return(ts ...*Tensor) {
	if c.Out == nil {
		c.Out = c.outRoom[:0]
	}
	c.Out = append(c.Out, ts...)
}

// ReturnSelf returns input i itself, as operators do that have nothing to do.
func (c *Call) ReturnSelf(i int) { c.Return(c.Keep(c.In[i])) }

// Local registers t to be dropped at the end of the row and returns it.
func (c *Call) Local(t *Tensor) *Tensor {
	if c.locals == nil {
		c.locals = c.localRoom[:0]
	}
	c.locals = append(c.locals, t)
	return t
}

// Scratch allocates n bytes that a kernel needs and that live to the end of the
// row; none if n is 0 or no kernel runs.
func (c *Call) Scratch(n tensor.Bytes) *Tensor {
	if n == 0 || c.Env().NoKernels() {
		return nil
	}
	return c.Local(c.New(tensor.Contiguous(tensor.D(int64(n))), tensor.Uint8))
}

// Early drops a local before the end of the row.
func (c *Call) Early(ts ...*Tensor) {
	for _, t := range ts {
		for i, l := range c.locals {
			if l == t && t != nil {
				c.locals = append(c.locals[:i], c.locals[i+1:]...)
				c.Drop(t)
				break
			}
		}
	}
}

// Mark returns how many locals there are, for DropTo.
func (c *Call) Mark() int { return len(c.locals) }

// DropTo drops the locals that were registered since the mark, the youngest
// first, as a C++ scope does at its end.
func (c *Call) DropTo(mark int) {
	for i := len(c.locals) - 1; i >= mark; i-- {
		c.Drop(c.locals[i : i+1]...)
	}
	c.locals = c.locals[:mark]
}

// End drops all locals. The player calls it.
func (c *Call) End() {
	c.DropTo(0)
	c.locals = nil
}

// Youngest says that the variable that holds t is declared after those of all
// that the row holds now: should the row be interrupted, it is freed before them.
func (c *Call) Youngest(t *Tensor) {
	if x, ok := c.Exec.(interface{ Youngest(*Tensor) }); ok {
		x.Youngest(t)
	}
}

// Variable registers t as what a variable of a Python function holds: it is dropped when
// the row ends, after the arguments that only the call holds, as those are the first
// variables of the function's frame.
func (c *Call) Variable(t *Tensor) *Tensor {
	if x, ok := c.Exec.(interface{ Variable(*Tensor) bool }); ok && x.Variable(t) {
		return t
	}
	return c.Local(t)
}

// Within runs what a single operator of PyTorch does, where a derivative is made of
// several.
func (c *Call) Within(f func()) {
	if x, ok := c.Exec.(interface{ Within(func()) }); ok {
		x.Within(f)
		return
	}
	f()
}

// Compute computes within Run or Grad, if anything executes the row: what Eval.Inside says.
func (c *Call) Compute(f func(m Machine) error) {
	if x, ok := c.Exec.(interface {
		Compute(*Op, func(Machine) error)
	}); ok {
		x.Compute(c.Op, f)
	}
}

// Do1 runs an operator with one result.
func (c *Call) Do1(r *Op, args any, in ...*Tensor) *Tensor { return c.Do(r, args, in...)[0] }

// Has reports whether optional input i is there.
func (c *Call) Has(i int) bool { return i < len(c.In) && c.In[i] != nil }

// Opt returns optional input i or nil.
func (c *Call) Opt(i int) *Tensor {
	if i < len(c.In) {
		return c.In[i]
	}
	return nil
}

// NewShape allocates a contiguous tensor.
func (c *Call) NewShape(d tensor.DType, size ...int64) *Tensor {
	return c.New(tensor.Contiguous(tensor.D(size...)), d)
}

// NewLike allocates a tensor with t's type and order of dimensions
// (empty_like).
func (c *Call) NewLike(t *Tensor) *Tensor { return c.New(t.LikeDense(), t.DType) }

// Meta describes an input as autograd remembers it.
type Meta struct {
	tensor.Layout
	DType tensor.DType
}

// Meta describes t.
func (t *Tensor) Meta() *Meta { return &Meta{t.Layout, t.DType} }

// Back is one run of a derivative formula. It is a Call without inputs: what
// it makes and does not hand to Set, it must drop or register as Local.
type Back struct {
	Call
	Grads  []*Tensor // incoming, one a result; nil where undefined
	InM    []Meta    // shapes and types of the forward inputs
	OutM   []Meta    // shapes and types of the forward results
	Needs  []bool    // whether the gradient of each input is wanted
	Retain bool      // the graph is kept for another backward pass

	// Listed is the first of the inputs that are the items of a list; 0: none
	// are. The gradients of a list are computed all or none, and those that
	// nothing needs live to the end of the node.
	Listed  int
	Results []*Tensor

	// Unpacked are the saved tensors that hooks made again for an Application, which owns
	// them.
	Unpacked []*Tensor

	in, out []*Tensor // what Save kept, at the index of the input or result
}

// Hold hands over what Save kept, at the index of the input or result; nil where
// nothing was kept.
func (b *Back) Hold(in, out []*Tensor) { b.in, b.out = in, out }

// SavedIn is input i as Save kept it; nil where it was absent, or where no gradient that
// needs it is wanted. A derivative reads what its Save lists: anything else is a
// programming error, not an input that is absent.
func (b *Back) SavedIn(i int) *Tensor {
	if i >= len(b.in) {
		return nil
	}
	if !b.Op.saves(false, i) {
		panic(fmt.Sprintf("op: the derivative of %s reads input %d, which it does not save", b.Op.Name, i))
	}
	return b.in[i]
}

// SavedOut is result i as Save kept it, like SavedIn.
func (b *Back) SavedOut(i int) *Tensor {
	if !b.Op.saves(true, i) {
		panic(fmt.Sprintf("op: the derivative of %s reads result %d, which it does not save", b.Op.Name, i))
	}
	return b.out[i]
}

// SavedIns are all inputs, nil where nothing was kept: for what derivatives of several
// rows share.
func (b *Back) SavedIns() []*Tensor { return b.in }

// SavedOuts are all results, like SavedIns.
func (b *Back) SavedOuts() []*Tensor { return b.out }

// Need reports whether the gradient of input i is wanted.
func (b *Back) Need(i int) bool { return i < len(b.Needs) && b.Needs[i] }

// Set hands over the gradient of input i.
func (b *Back) Set(i int, t *Tensor) { b.Results[i] = t }

// Pass hands the incoming gradient itself to input i, without a copy.
func (b *Back) Pass(i int) { b.Results[i] = b.Keep(b.Grads[0]) }
