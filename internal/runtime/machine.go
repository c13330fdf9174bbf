package runtime

import (
	"math"

	arrays "github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

var (
	_ op.Machine = (*Executor)(nil)
	_ op.Arrays  = (*aside)(nil)
)

// Apply implements op.Machine.
func (x *Executor) Apply(k *kernel.Kernel, y *op.Tensor, in []*op.Tensor, numbers ...float64) error {
	return x.apply(k, y, in, numbers...)
}

// Launch implements op.Machine.
func (x *Executor) Launch(k *kernel.Kernel, operands []kernel.Tensor, ints []int64, numbers ...float64) error {
	return x.launch(k, operands, ints, numbers...)
}

// At implements op.Machine.
func (x *Executor) At(t *op.Tensor, l tensor.Layout) kernel.Tensor { return x.at(t, l) }

// Wanted implements op.Machine.
func (x *Executor) Wanted(b *op.Back, i int) *op.Tensor { return wanted(b, i) }

// Draw implements op.Machine.
func (x *Executor) Draw() int64 { return x.draw() }

// Note implements op.Machine.
func (x *Executor) Note(t *op.Tensor, what any) {
	if x.notes == nil {
		x.notes = map[int32]any{}
	}
	x.notes[engine.BlockOf(t)] = what
}

// Noted implements op.Machine.
func (x *Executor) Noted(t *op.Tensor) any { return x.notes[engine.BlockOf(t)] }

// Aside implements op.Machine.
func (x *Executor) Aside(f func(a op.Arrays)) error { return x.aside(func(a *aside) { f(a) }) }

// Wanted implements op.Arrays.
func (a *aside) Wanted(b *op.Back, i int) *op.Tensor { return wanted(b, i) }

// Array implements op.Arrays.
func (a *aside) Array(t *op.Tensor) *arrays.Array {
	if t == nil {
		return nil
	}
	r := a.get(t)
	return &arrays.Array{Size: r.size, V: r.v}
}

// Get implements op.Arrays.
func (a *aside) Get(t *op.Tensor) []float64 {
	if t == nil {
		return nil
	}
	return a.get(t).v
}

// Like implements op.Arrays.
func (a *aside) Like(t *op.Tensor, size tensor.Dims) []float64 { return a.like(t, size) }

// Put implements op.Arrays.
func (a *aside) Put(t *op.Tensor, v []float64) { a.put(t, v) }

// PutSummed implements op.Arrays.
func (a *aside) PutSummed(t *op.Tensor, v []float64, size tensor.Dims) { a.putSummed(t, v, size) }

// Fail implements op.Arrays.
func (a *aside) Fail(err error) { a.fail(err) }

// operands are tensors as they are.
func (x *Executor) operands(ts ...*op.Tensor) []kernel.Tensor {
	out := make([]kernel.Tensor, len(ts))
	for i, t := range ts {
		out[i] = x.operand(t)
	}
	return out
}

// target is where a row writes.
func target(c *op.Call) *op.Tensor { return c.Target() }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// softplus is log(1 + exp(x)).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func signum(x float64) float64 { return truth(x > 0) - truth(x < 0) }

// scaled is a gradient times a slope; where that is 0 the gradient does not count,
// infinite or not.
func scaled(g, slope float64) float64 {
	if slope == 0 {
		return 0
	}
	return g * slope
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
