// Package array is the reference of operators: what they compute, as functions on
// arrays of float64. It knows nothing of tensors, element types, memory or the table of
// operators: sizes, numbers and options go in as plain values, numbers come out, and
// what cannot be computed is an error.
package array

import "fmt"

// Array is numbers in row-major order of their sizes.
type Array struct {
	Size []int
	V    []float64
}

// Numel is the product of sizes.
func Numel(size []int) int {
	n := 1
	for _, s := range size {
		n *= s
	}
	return n
}

// Dim resolves a dimension that may be negative.
func Dim(d, rank int) int {
	if d < 0 {
		d += rank
	}
	return d
}

// Index is the number of an element along a dimension of n; a negative one counts from
// the end.
func Index(v float64, n int) int {
	i := int(v)
	if i < 0 {
		i += n
	}
	return i
}

// Outside says that an index is out of range.
func Outside(i, n int) error { return fmt.Errorf("index %d is outside of %d elements", i, n) }

// walk calls f with each place of a shape in row-major order.
func walk(size []int, f func(i int, at []int)) {
	at := make([]int, len(size))
	for i := range Numel(size) {
		f(i, at)
		for d := len(size) - 1; d >= 0; d-- {
			if at[d]++; at[d] < size[d] {
				break
			}
			at[d] = 0
		}
	}
}

// rowMajor is the number of an index in row-major order.
func rowMajor(size, at []int) int {
	n := 0
	for d, s := range size {
		n = n*s + at[d]
	}
	return n
}

// Strided calls f with the place of each element in row-major order where neighbours
// along dimensions lie strides apart, counted from the first element.
func Strided(size, stride []int, f func(i, at int)) {
	index := make([]int, len(size))
	at := 0
	for i := range Numel(size) {
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

// strides are those of a shape in row-major order.
func strides(size []int) []int {
	out, n := make([]int, len(size)), 1
	for d := len(size) - 1; d >= 0; d-- {
		out[d] = n
		n *= size[d]
	}
	return out
}

// SumTo adds up what an array of a size was broadcast to: v has the size from.
func SumTo(v []float64, from, size []int) []float64 {
	stride, own, lead := make([]int, len(from)), strides(size), len(from)-len(size)
	for d, n := range size {
		if n > 1 {
			stride[lead+d] = own[d]
		}
	}
	out := make([]float64, Numel(size))
	Strided(from, stride, func(i, at int) { out[at] += v[i] })
	return out
}

// Lanes sees an array as rows along a dimension: f gets the place of a row's first
// element, the distance between its elements and how many there are.
func Lanes(size []int, d int, f func(lane, at, step, n int)) {
	if len(size) == 0 {
		f(0, 0, 1, 1)
		return
	}
	step, n := Numel(size[d+1:]), size[d]
	lane := 0
	for o := range Numel(size[:d]) {
		for i := range step {
			f(lane, o*n*step+i, step, n)
			lane++
		}
	}
}

// groups sees an array as the groups that a reduction of some dimensions, of all
// without any, makes one element of: f gets the places of the elements of each, in
// row-major order.
func groups(size []int, dims []int64, f func(group int, at []int)) {
	var kept, out, reduced, in []int
	is := make([]bool, len(size))
	for _, d := range dims {
		if len(size) > 0 {
			is[Dim(int(d), len(size))] = true
		}
	}
	for d, stride := range strides(size) {
		if is[d] || len(dims) == 0 {
			reduced, in = append(reduced, size[d]), append(in, stride)
		} else {
			kept, out = append(kept, size[d]), append(out, stride)
		}
	}
	members := make([]int, Numel(reduced))
	Strided(reduced, in, func(i, at int) { members[i] = at })
	at := make([]int, len(members))
	Strided(kept, out, func(group, base int) {
		for i, m := range members {
			at[i] = base + m
		}
		f(group, at)
	})
}

// Blocks calls f for each n numbers of v, the last ones perhaps fewer.
func Blocks(v []float64, n int, f func(k int, block []float64)) {
	for k := 0; k*n < len(v); k++ {
		f(k, v[k*n:min(len(v), (k+1)*n)])
	}
}

// Each makes n numbers.
func Each(n int, f func(i int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// Row copies a row that Lanes gives.
func (a *Array) Row(at, step, n int) []float64 {
	return Each(n, func(i int) float64 { return a.V[at+i*step] })
}
