package runtime

import (
	"unsafe"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// onArrays is the computation of an operator in host memory: its
// operands are read from the device, and the results written there. The long tail
// of operators runs so, in float64 and equally on every device; recurrent layers do in
// float32 but for those in float64. What most steps are made of has kernels.
type onArrays struct {
	x   *Executor
	err error // the first
}

var _ op.Arrays = (*onArrays)(nil)

// Wanted implements op.Arrays.
func (a *onArrays) Wanted(b *op.Back, i int) *op.Tensor { return wanted(b, i) }

// Fail implements op.Arrays.
func (a *onArrays) Fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// span is the number of elements of memory from a layout's first to its last.
func span(l tensor.Layout) int64 {
	l.Offset = 0
	return l.StorageElems()
}

// places calls f with the place in memory of each element in row-major order, from
// that of the first.
func places(l tensor.Layout, f func(i, at int)) { array.Strided(l.Size.Ints(), l.Stride.Ints(), f) }

// Array implements op.Arrays.
func (a *onArrays) Array(t *op.Tensor) *array.Array {
	if t == nil {
		return nil
	}
	return &array.Array{Size: t.Size.Ints(), V: a.read(t, t.Layout)}
}

// Get implements op.Arrays.
func (a *onArrays) Get(t *op.Tensor) []float64 {
	if t == nil {
		return nil
	}
	return a.read(t, t.Layout)
}

// Like implements op.Arrays.
func (a *onArrays) Like(t *op.Tensor, size tensor.Dims) []float64 {
	if t == nil {
		return nil
	}
	l, err := t.Expand(size.Slice())
	if err != nil {
		a.Fail(err)
		return make([]float64, size.Numel())
	}
	return a.read(t, l)
}

func (a *onArrays) read(t *op.Tensor, l tensor.Layout) []float64 {
	n := l.Numel()
	if n == 0 || a.err != nil {
		return make([]float64, n)
	}
	raw := make([]byte, span(l)*t.DType.Size())
	if err := a.x.read(raw, a.x.At(t, l)); err != nil {
		a.Fail(err)
		return make([]float64, n)
	}
	v := tensor.Decode(t.DType, raw)
	if l.IsContiguous() {
		return v
	}
	out := make([]float64, n)
	places(l, func(i, at int) { out[i] = v[at] })
	return out
}

// Put implements op.Arrays.
func (a *onArrays) Put(t *op.Tensor, v []float64) {
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
				a.Fail(err)
				return
			}
			data = tensor.Decode(t.DType, raw)
		}
		places(t.Layout, func(i, at int) { data[at] = v[i] })
	}
	if err := a.x.overwrite(at, tensor.Encode(t.DType, data)); err != nil {
		a.Fail(err)
	}
}

// Singles implements op.Arrays.
func (a *onArrays) Singles(t *op.Tensor) []float32 {
	switch {
	case t == nil:
		return nil
	case t.DType != tensor.Float32 || !t.IsContiguous():
		return single(a.Get(t))
	}
	v := make([]float32, t.Numel())
	if len(v) > 0 && a.err == nil {
		a.Fail(a.x.read(bytesOf(v), a.x.operand(t)))
	}
	return v
}

// PutSingles implements op.Arrays.
func (a *onArrays) PutSingles(t *op.Tensor, v []float32) {
	switch {
	case t == nil || len(v) == 0 || a.err != nil:
	case t.DType != tensor.Float32 || !t.IsContiguous():
		wide := make([]float64, len(v))
		for i, x := range v {
			wide[i] = float64(x)
		}
		a.Put(t, wide)
	default:
		a.Fail(a.x.overwrite(a.x.operand(t), bytesOf(v)))
	}
}

// single are numbers, rounded.
func single(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// bytesOf is the memory of numbers.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

// PutSummed implements op.Arrays.
func (a *onArrays) PutSummed(t *op.Tensor, v []float64, size tensor.Dims) {
	if t != nil && t.Size != size {
		v = array.SumTo(v, size.Ints(), t.Size.Ints())
	}
	a.Put(t, v)
}
