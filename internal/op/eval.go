package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Eval is how the values of a primitive are computed, for what executes a job. It
// stands in the row beside what the row allocates, saves and derives.
type Eval struct {
	// Forward computes the results, which Run has allocated; nil where they lie where
	// the inputs do.
	Forward func(m Machine, c *Call) error
	// Backward computes the gradients, which Grad has allocated; nil where there is
	// no derivative.
	Backward func(m Machine, b *Back) error
	// InParts says that the derivative is the operators of which Grad makes it, which
	// are computed one by one.
	InParts bool
	// Inside says that Run and Grad compute themselves, by Compute, while memory lives that
	// they free before they end.
	Inside bool
	// Over says that the results are computed where inputs lie, though the operator is
	// not in place.
	Over bool

	Single    bool  // elements and gradients are functions of the elements in their places
	ByFormula *Eval // of kernels, the same by a formula; nil: they have none. Tests hold both
	// FormulaOnHost says that ByFormula computes where the device's memory is the host's, as
	// it is faster there.
	FormulaOnHost bool
}

// Machine is what computes values.
type Machine interface {
	// Apply runs a kernel over elements; operands are broadcast to the result.
	Apply(k *kernel.Kernel, y *Tensor, in []*Tensor, numbers ...float64) error
	// Launch runs a kernel over operands as they are, without those that are absent.
	Launch(k *kernel.Kernel, operands []kernel.Tensor, ints []int64, numbers ...float64) error
	// At is a tensor under another layout, as an operand.
	At(t *Tensor, l tensor.Layout) kernel.Tensor
	// Wanted is the gradient of input i where it is to be computed: nil if nothing
	// wants it, or if it is the incoming one, handed on.
	Wanted(b *Back, i int) *Tensor
	// Draw is the seed of the next random numbers.
	Draw() int64
	// Note keeps what belongs to the block that t lies in, for as long as the block lives. A
	// copy of t has it, too.
	Note(t *Tensor, what any)
	// Noted is what was noted of t's block, or nil.
	Noted(t *Tensor) any
	// OnHost computes with arrays, on the host: what is rare.
	OnHost(f func(a Arrays)) error
}

// Refusal is an error that says what cannot be computed.
type Refusal struct{ What string }

func (r *Refusal) Error() string { return r.What }

// Arrays reads and writes tensors as arrays in row-major order.
type Arrays interface {
	// Wanted is that of the machine.
	Wanted(b *Back, i int) *Tensor
	// Array reads a tensor with its sizes; nil is nil.
	Array(t *Tensor) *array.Array
	// Get reads a tensor; nil is nil.
	Get(t *Tensor) []float64
	// Singles reads a tensor in float32; nil is nil.
	Singles(t *Tensor) []float32
	// Like reads a tensor as it is broadcast to a size; nil is nil.
	Like(t *Tensor, size tensor.Dims) []float64
	// Put writes a tensor; nil is nothing.
	Put(t *Tensor, v []float64)
	// PutSingles writes a tensor, of numbers in float32; nil is nothing.
	PutSingles(t *Tensor, v []float32)
	// PutSummed writes v, which has a size, into a tensor that was broadcast to it.
	PutSummed(t *Tensor, v []float64, size tensor.Dims)
	// Fail notes an error, of which the first counts; nothing is written behind it.
	Fail(err error)
}

// Target is where a row writes its first result.
func (c *Call) Target() *Tensor {
	if c.Op.InPlace {
		return c.In[0]
	}
	return c.Out[0]
}

// kept is the first tensor that was saved: the input, or in its place the result.
func (b *Back) kept() *Tensor {
	if b.Op.saves(false, 0) {
		return b.SavedIn(0)
	}
	return b.SavedOut(0)
}

// Numbers are the numbers of a row, made of its arguments.
type Numbers func(args any) []float64

// NumbersOf makes numbers of arguments of one type.
func NumbersOf[A any](f func(a *A) []float64) Numbers {
	return func(args any) []float64 { return f(args.(*A)) }
}

func (n Numbers) of(args any) []float64 {
	if n == nil {
		return nil
	}
	return n(args)
}

// Mapped is an operator that is one kernel of its input; its derivative is one of the
// gradient and what was saved.
func Mapped(forward, backward *kernel.Kernel, n Numbers) *Eval {
	return &Eval{
		Single:  true,
		Forward: func(m Machine, c *Call) error { return m.Apply(forward, c.Target(), c.In[:1], n.of(c.Args)...) },
		Backward: func(m Machine, b *Back) error {
			return m.Apply(backward, b.Results[0], []*Tensor{b.Grads[0], b.kept()}, n.of(b.Args)...)
		},
	}
}

// OnHost is an operator that is computed with arrays. Without a backward it has no
// derivative.
func OnHost(forward func(a Arrays, c *Call), backward func(a Arrays, b *Back)) *Eval {
	e := &Eval{Forward: func(m Machine, c *Call) error { return m.OnHost(func(a Arrays) { forward(a, c) }) }}
	if backward != nil {
		e.WithBackward(backward)
	}
	return e
}

// WithBackward has a derivative that is computed with arrays.
func (e *Eval) WithBackward(f func(a Arrays, b *Back)) *Eval {
	e.Backward = func(m Machine, b *Back) error { return m.OnHost(func(a Arrays) { f(a, b) }) }
	return e
}

// ofElements is an operator of single elements that is computed with arrays.
func ofElements(forward func(a Arrays, c *Call), backward func(a Arrays, b *Back)) *Eval {
	e := OnHost(forward, backward)
	e.Single = true
	return e
}

// DerivedInParts has the derivative that Grad makes of further operators.
func (e *Eval) DerivedInParts() *Eval {
	e.InParts = true
	return e
}

// Noted is what was noted of the block of t, zero if nothing was.
func Noted[A any](m Machine, t *Tensor) A {
	what, _ := m.Noted(t).(A)
	return what
}

// Copied is an operator that copies its input in another order or type.
var Copied = &Eval{Forward: func(m Machine, c *Call) error { return m.Apply(kernel.Copy, c.Out[0], c.In[:1]) }, InParts: true}

// Shared is an operator whose result lies where its input does, and whose derivative is
// made of others.
var Shared = &Eval{InParts: true}

// Nothing is an operator that only allocates.
var Nothing = &Eval{Forward: func(Machine, *Call) error { return nil }}

// Constant fills the result.
func Constant(v float64) *Eval {
	return &Eval{Forward: func(m Machine, c *Call) error { return m.Apply(kernel.Fill, c.Out[0], nil, v) }}
}

// Element is a function of single elements x of one tensor, with the numbers p of the
// operator, whose slope is computed from x or, where autograd keeps that, from the
// result y; the other one is NaN. Without a slope there is no derivative.
type Element struct {
	Of    func(x float64, p []float64) float64
	Slope func(x, y float64, p []float64) float64
	Numbers
}

// Eval is the operator, computed with arrays.
func (f Element) Eval() *Eval {
	var backward func(a Arrays, b *Back)
	if f.Slope != nil {
		backward = func(a Arrays, b *Back) {
			y := a.Wanted(b, 0)
			if y == nil {
				return
			}
			p, g := f.Numbers.of(b.Args), a.Like(b.Grads[0], y.Size)
			x, r := a.Like(Optional(b.SavedIns(), 0), y.Size), a.Like(Optional(b.SavedOuts(), 0), y.Size)
			out := make([]float64, len(g))
			for i := range out {
				out[i] = array.Scaled(g[i], f.Slope(item(x, i), item(r, i), p))
			}
			a.Put(y, out)
		}
	}
	return ofElements(func(a Arrays, c *Call) {
		p, x := f.Numbers.of(c.Args), a.Get(c.In[0])
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = f.Of(v, p)
		}
		a.Put(c.Target(), out)
	}, backward)
}

// SlopeZero is the slope of steps.
func SlopeZero(_, _ float64, _ []float64) float64 { return 0 }

// Elements is a function of single elements x of several tensors, which are
// broadcast; a number among the arguments stands for a tensor. slopes are the
// derivatives by each input, from what autograd keeps: the inputs, and the result y;
// what is not there is NaN.
type Elements struct {
	Of     func(x [3]float64, p float64) float64
	Slopes []func(x [3]float64, y, p float64) float64
	Number func(args any) Number // what stands in the place of input at
	At     int
	Param  func(args any) float64 // a further number
}

func (f *Elements) p(args any) float64 {
	if f.Param == nil {
		return 0
	}
	return f.Param(args)
}

// operands reads inputs as they are broadcast to a size.
func (f *Elements) operands(a Arrays, args any, ts []*Tensor, size tensor.Dims) func(i int) [3]float64 {
	var v [3][]float64
	for i := range min(len(ts), len(v)) {
		v[i] = a.Like(ts[i], size)
	}
	var fixed Number
	if f.Number != nil {
		fixed = f.Number(args)
	}
	return func(i int) (x [3]float64) {
		for k := range x {
			x[k] = item(v[k], i)
		}
		if fixed.Set && v[f.At] == nil {
			x[f.At] = fixed.Value
		}
		return x
	}
}

// backward computes the gradients of inputs element by element.
func (f *Elements) backward(grad func(k int, at *point) float64) func(a Arrays, b *Back) {
	return func(a Arrays, b *Back) {
		size := b.OutM[0].Size
		g, x, y := a.Like(b.Grads[0], size), f.operands(a, b.Args, b.SavedIns(), size), a.Like(Optional(b.SavedOuts(), 0), size)
		at := point{value: f.p(b.Args)}
		for k := range b.Results {
			r := a.Wanted(b, k)
			if r == nil {
				continue
			}
			out := make([]float64, len(g))
			for i := range out {
				at.grad, at.in, at.result = g[i], x(i), item(y, i)
				out[i] = grad(k, &at)
			}
			a.PutSummed(r, out, size)
		}
	}
}

// Eval is the operator, computed with arrays.
func (f Elements) Eval() *Eval {
	if f.Slopes == nil {
		return f.with(nil)
	}
	return f.with(f.backward(func(k int, at *point) float64 { return array.Scaled(at.grad, f.Slopes[k](at.in, at.result, at.value)) }))
}

// with is the function with a derivative, or without.
func (f Elements) with(backward func(a Arrays, b *Back)) *Eval {
	return ofElements(func(a Arrays, c *Call) {
		y := c.Target()
		p, x := f.p(c.Args), f.operands(a, c.Args, c.In, y.Size)
		out := make([]float64, y.Numel())
		for i := range out {
			out[i] = f.Of(x(i), p)
		}
		a.Put(y, out)
	}, backward)
}

// Slope is one by an input.
type Slope = func(x [3]float64, y, p float64) float64

// SlopeOne is that by an input that is added.
func SlopeOne([3]float64, float64, float64) float64 { return 1 }

// Two makes a function of two operands, of which the second may be a number.
func Two(of func(a, b float64) float64, slopes ...Slope) Elements {
	return Elements{Of: func(x [3]float64, _ float64) float64 { return of(x[0], x[1]) }, Slopes: slopes, Number: other, At: 1}
}

// Operand are arguments that may hold a number in the place of the second tensor.
type Operand interface{ Operand() Number }

// other is the right-hand side of an operator when it is a number.
func other(args any) Number {
	if a, ok := args.(Operand); ok {
		return a.Operand()
	}
	return Number{}
}

// Whole makes a function of two integers.
func Whole(of func(a, b int64) int64) Elements {
	return Two(func(a, b float64) float64 { return float64(of(int64(a), int64(b))) })
}

// item is v[i], or NaN where there is no v.
func item(v []float64, i int) float64 {
	if v == nil {
		return math.NaN()
	}
	return v[i]
}

// OrNaN is a number, or NaN if none is given.
func OrNaN(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}

// OrNaN is the number, or NaN if none is given.
func (n Number) OrNaN() float64 {
	if !n.Set {
		return math.NaN()
	}
	return n.Value
}
