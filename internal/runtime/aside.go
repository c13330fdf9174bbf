package runtime

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// aside is the computation of an operator in the machine's own memory: its
// operands are read from the device, and the results written there. The long tail
// of operators runs so, in float64 and alike on every device; what most steps are
// made of has kernels.
type aside struct {
	x   *Executor
	err error // the first
}

// array is a tensor as an aside sees it: its elements in row-major order.
type array struct {
	size []int
	v    []float64
}

// aside runs f, unless the device only checks what another one is to run.
func (x *Executor) aside(f func(a *aside)) error {
	if _, is := x.device.(dry); is {
		return nil
	}
	if x.asides == nil {
		x.asides = map[string]bool{}
	}
	x.asides[x.running] = true
	a := &aside{x: x}
	f(a)
	return a.err
}

// asideRow is an operator that is computed aside. Without a backward it has no
// derivative.
func asideRow(forward func(a *aside, c *op.Call), backward func(a *aside, b *op.Back)) row {
	r := row{forward: func(x *Executor, c *op.Call) error { return x.aside(func(a *aside) { forward(a, c) }) }}
	if backward != nil {
		r.backward = func(x *Executor, b *op.Back) error { return x.aside(func(a *aside) { backward(a, b) }) }
	}
	return r
}

// inParts is the row with the derivative that the operator table makes of further
// operators.
func (r row) inParts() row {
	r.composed = true
	return r
}

// fail notes an error.
func (a *aside) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// outside says that an index is out of range.
func outside(i, n int) error { return fmt.Errorf("index %d is outside of %d elements", i, n) }

// ints are dimensions as numbers of elements.
func ints(d tensor.Dims) []int {
	out := make([]int, d.Len())
	for i := range out {
		out[i] = int(d.At(i))
	}
	return out
}

// numel is the product of sizes.
func numel(size []int) int {
	n := 1
	for _, s := range size {
		n *= s
	}
	return n
}

// span is the number of elements of memory from a layout's first to its last.
func span(l tensor.Layout) int64 {
	l.Offset = 0
	return l.StorageElems()
}

// places calls f with the place in memory of each element in row-major order, from
// that of the first.
func places(l tensor.Layout, f func(i, at int)) {
	size, stride := ints(l.Size), ints(l.Stride)
	index := make([]int, len(size))
	at := 0
	for i := range numel(size) {
		f(i, at)
		for d := len(size) - 1; d >= 0; d-- {
			index[d]++
			at += stride[d]
			if index[d] < size[d] {
				break
			}
			at -= index[d] * stride[d]
			index[d] = 0
		}
	}
}

// get reads a tensor; nil is nil.
func (a *aside) get(t *op.Tensor) *array {
	if t == nil {
		return nil
	}
	return a.read(t, t.Layout)
}

// like reads a tensor as it is broadcast to a size; nil is nil.
func (a *aside) like(t *op.Tensor, size tensor.Dims) []float64 {
	if t == nil {
		return nil
	}
	l, err := t.Expand(size.Slice())
	if err != nil {
		a.fail(err)
		return make([]float64, size.Numel())
	}
	return a.read(t, l).v
}

func (a *aside) read(t *op.Tensor, l tensor.Layout) *array {
	out := &array{ints(l.Size), make([]float64, l.Numel())}
	if len(out.v) == 0 || a.err != nil {
		return out
	}
	raw := make([]byte, span(l)*t.DType.Size())
	if err := a.x.read(raw, a.x.at(t, l)); err != nil {
		a.fail(err)
		return out
	}
	v := tensor.Decode(t.DType, raw)
	if l.IsContiguous() {
		out.v = v
		return out
	}
	places(l, func(i, at int) { out.v[i] = v[at] })
	return out
}

// put writes a tensor's elements; nil is nothing.
func (a *aside) put(t *op.Tensor, v []float64) {
	if t == nil || len(v) == 0 || a.err != nil {
		return
	}
	n := span(t.Layout)
	at, data := a.x.operand(t), v
	if !t.IsContiguous() {
		data = make([]float64, n)
		if n > t.Numel() { // what lies between stays
			raw := make([]byte, n*t.DType.Size())
			if err := a.x.read(raw, at); err != nil {
				a.fail(err)
				return
			}
			data = tensor.Decode(t.DType, raw)
		}
		places(t.Layout, func(i, at int) { data[at] = v[i] })
	}
	if err := a.x.overwrite(at, tensor.Encode(t.DType, data)); err != nil {
		a.fail(err)
	}
}

// putSummed writes v, which has a size, into a tensor that was broadcast to it.
func (a *aside) putSummed(t *op.Tensor, v []float64, size tensor.Dims) {
	if t == nil || t.Size == size {
		a.put(t, v)
		return
	}
	row := tensor.Contiguous(t.Size)
	l, err := row.Expand(size.Slice())
	if err != nil {
		a.fail(err)
		return
	}
	out := make([]float64, t.Numel())
	places(l, func(i, at int) { out[at] += v[i] })
	a.put(t, out)
}

// lanes sees an array as rows along a dimension: f gets the place of a row's first
// element, the distance between its elements and how many there are.
func lanes(size []int, d int, f func(lane, at, step, n int)) {
	if len(size) == 0 {
		f(0, 0, 1, 1)
		return
	}
	step, n := numel(size[d+1:]), size[d]
	lane := 0
	for o := range numel(size[:d]) {
		for i := range step {
			f(lane, o*n*step+i, step, n)
			lane++
		}
	}
}

func each(n int, f func(i int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}
