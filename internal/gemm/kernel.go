package gemm

import (
	"math"
	"unsafe"
)

// Float are the types that matrices are multiplied in.
type Float interface{ float32 | float64 }

// kernel adds alpha times the product of a panel of rows and one of columns, of
// some depth, to a tile of c whose rows lie row numbers apart. A panel has, for
// each place of the depth, the numbers of all its rows or columns side by side.
type kernel[T Float] struct {
	name          string
	rows, columns int // of the tile
	run           func(depth int, a, b, c *T, row int, alpha T)
}

// kernels are those that this processor runs, the fastest first; the last is in Go.
func kernels[T Float]() []*kernel[T] {
	if k, ok := any(singles).([]*kernel[T]); ok {
		return k
	}
	return any(doubles).([]*kernel[T])
}

var (
	singles = append(singleKernels(), &kernel[float32]{"Go", 4, 4, func(depth int, a, b, c *float32, row int, alpha float32) {
		inGo(depth, a, b, c, row, alpha, fma32)
	}})
	doubles = append(doubleKernels(), &kernel[float64]{"Go", 4, 4, func(depth int, a, b, c *float64, row int, alpha float64) {
		inGo(depth, a, b, c, row, alpha, math.FMA)
	}})
)

// fma32 is x*y + z, rounded once. The product is exact in float64. The sum
// is not, and rounding it again goes wrong only if it seems to lie half way between
// two float32: then what the first rounding lost decides.
func fma32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	b := math.Float64bits(s)
	if b&(1<<29-1) != 1<<28 && math.Abs(s) >= 0x1p-126 || s != s {
		return float32(s)
	}
	// The error of the sum (Knuth); if there is one, the sum is made odd, so that
	// it lies on the side where the exact one does.
	t := s - p
	lost := (p - (s - t)) + (c - t)
	if lost != 0 && lost == lost && b&1 == 0 {
		if (lost > 0) == (s > 0) {
			b++
		} else {
			b--
		}
		s = math.Float64frombits(b)
	}
	return float32(s)
}

// inGo is that of 4 rows and columns in Go.
func inGo[T Float](depth int, a, b, c *T, row int, alpha T, fma func(x, y, z T) T) {
	left, right, to := unsafe.Slice(a, depth*4), unsafe.Slice(b, depth*4), unsafe.Slice(c, 3*row+4)
	for i := range 4 {
		for j := range 4 {
			sum := T(0)
			for k := 0; k < depth*4; k += 4 {
				sum = fma(left[k+i], right[k+j], sum)
			}
			to[i*row+j] += T(alpha * sum) // the conversion keeps them from being fused
		}
	}
}
