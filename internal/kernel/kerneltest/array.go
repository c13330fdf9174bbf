package kerneltest

import "github.com/memplan/memplan/internal/tensor"

// Array is an operand in host memory.
type Array struct {
	DType        tensor.DType
	Size, Stride tensor.Dims
	Offset       int64  // of the element at index 0, in elements
	Storage      []byte // nil: an optional operand that is absent
}

// Absent reports whether an optional operand is not there.
func (a *Array) Absent() bool { return a.Storage == nil }

// places calls f for each element in row-major order with its place in the
// storage, in bytes.
func (a *Array) places(f func(i int, at int64)) {
	n, last := int(a.Size.Numel()), a.Size.Len()-1
	index, at := make([]int64, last+1), a.Offset
	for i := range n {
		f(i, at*a.DType.Size())
		for d := last; d >= 0; d-- { // on to the next one
			at += a.Stride.At(d)
			if index[d]++; index[d] < a.Size.At(d) {
				break
			}
			at -= index[d] * a.Stride.At(d)
			index[d] = 0
		}
	}
}

// Values are the elements in row-major order.
func (a *Array) Values() []float64 { return a.operand().v }

// fill writes the elements in row-major order; where elements share a place,
// the last one stays.
func (a *Array) fill(v []float64) {
	a.places(func(i int, at int64) { a.DType.Put(a.Storage[at:], v[i]) })
}

// shares reports whether two operands are one.
func (a *Array) shares(b Array) bool {
	return len(a.Storage) > 0 && len(b.Storage) > 0 && &a.Storage[0] == &b.Storage[0]
}

// dense reports whether no dimension repeats elements.
func (a *Array) dense() bool {
	for d := range a.Size.Len() {
		if a.Stride.At(d) == 0 && a.Size.At(d) > 1 {
			return false
		}
	}
	return true
}

// once is the array without what repeats elements: the result of a reduction.
func (a Array) once() Array {
	for d := range a.Size.Len() {
		if a.Stride.At(d) == 0 {
			a.Size = a.Size.Set(d, 1)
		}
	}
	return a
}

// operand is an array as it is computed with: its elements row by row and, of
// one that is written, how large the numbers were of which each is made, which
// bounds the error of a sum.
type operand struct {
	size     []int64
	v, scale []float64
	truth    bool // it is a mask
}

func (a *Array) operand() *operand {
	o := empty(a.Size.Slice()...)
	o.truth = a.DType == tensor.Bool
	a.places(func(i int, at int64) { o.v[i] = a.DType.Number(a.Storage[at:]) })
	return o
}

// empty is an operand that is to be computed.
func empty(size ...int64) *operand {
	n := tensor.D(size...).Numel()
	return &operand{size: size, v: make([]float64, n), scale: make([]float64, n)}
}

// at is the place of an element.
func (o *operand) at(index ...int64) int {
	n := int64(0)
	for d, x := range index {
		n = n*o.size[d] + x
	}
	return int(n)
}

// get is an element; 1 of an operand that is absent, which every one is that
// multiplies.
func (o *operand) get(index ...int64) float64 {
	if o == nil {
		return 1
	}
	return o.v[o.at(index...)]
}

// add adds to an element that is a sum.
func (o *operand) add(v, scale float64, index ...int64) {
	if o != nil {
		i := o.at(index...)
		o.v[i] += v
		o.scale[i] += scale
	}
}

// set writes an element.
func (o *operand) set(v, scale float64, index ...int64) {
	if o != nil {
		i := o.at(index...)
		o.v[i], o.scale[i] = v, scale
	}
}

// clear makes all elements 0.
func (o *operand) clear() {
	if o != nil {
		clear(o.v)
		clear(o.scale)
	}
}
