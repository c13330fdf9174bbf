package cuda

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/tensor"
)

// array is a contiguous operand with elements that f gives by their place.
func array(d tensor.DType, f func(i int) float64, size ...int64) kerneltest.Array {
	s := tensor.D(size...)
	a := kerneltest.Array{DType: d, Size: s, Stride: tensor.Contiguous(s).Stride, Storage: make([]byte, s.Numel()*d.Size())}
	for i := range int(s.Numel()) {
		d.Put(a.Storage[int64(i)*d.Size():], f(i))
	}
	return a
}

func zero(int) float64     { return 0 }
func odd(i int) float64    { return float64(i % 2) }
func around(i int) float64 { return float64(i*7919%13 - 6) }
func wave(i int) float64   { return float64(i*7919%1013)/506 - 1 }

// reduced is the result of a reduction over the dimensions where keep is 0.
func reduced(d tensor.DType, size, stride []int64, n int64) kerneltest.Array {
	a := array(d, zero, n)
	a.Size, a.Stride = tensor.D(size...), tensor.D(stride...)
	return a
}

// cases are calls that kerneltest does not draw: of integers, and of sizes at
// which other functions, or further rounds of a loop, are run.
func cases() []*kerneltest.Case {
	const factor = 64
	var out []*kerneltest.Case
	add := func(k *kernel.Kernel, ints []int64, floats []float64, ts ...kerneltest.Array) *kerneltest.Case {
		c := &kerneltest.Case{Kernel: k, T: ts, I: ints, F: floats, Factor: factor}
		out = append(out, c)
		return c
	}
	i64, f32, boolean, half := tensor.Int64, tensor.Float32, tensor.Bool, tensor.BFloat16
	const n = 300
	for _, d := range []tensor.DType{i64, tensor.Int32, tensor.Uint8} {
		positive := func(i int) float64 { return float64(i % 7) }
		add(kernel.Fill, nil, []float64{3}, array(d, zero, n))
		add(kernel.Affine, nil, []float64{2, 1}, array(d, zero, n), array(d, positive, n))
		add(kernel.Add, nil, []float64{2}, array(d, zero, n), array(d, positive, n), array(d, positive, n))
		add(kernel.Mul, nil, nil, array(d, zero, n), array(d, positive, n), array(d, positive, n))
	}
	for _, k := range []*kernel.Kernel{kernel.Eq, kernel.Ne, kernel.Lt, kernel.Le, kernel.Gt, kernel.Ge} {
		add(k, nil, nil, array(boolean, zero, n), array(i64, around, n), array(i64, odd, n))
	}
	for _, k := range []*kernel.Kernel{kernel.EqScalar, kernel.NeScalar, kernel.LtScalar, kernel.LeScalar, kernel.GtScalar, kernel.GeScalar} {
		add(k, nil, []float64{1}, array(boolean, zero, n), array(i64, around, n))
	}
	add(kernel.Maximum, nil, nil, array(i64, zero, n), array(i64, around, n), array(i64, odd, n))
	add(kernel.Minimum, nil, nil, array(i64, zero, n), array(i64, around, n), array(i64, odd, n))
	add(kernel.Where, nil, nil, array(i64, zero, n), array(boolean, odd, n), array(i64, around, n), array(i64, odd, n))
	add(kernel.MaskedFill, nil, []float64{-4}, array(i64, zero, n), array(i64, around, n), array(boolean, odd, n))
	types := []tensor.DType{i64, tensor.Int32, tensor.Int16, tensor.Int8, boolean, f32, half, tensor.Float16, tensor.Float64}
	for _, to := range types {
		for _, from := range types {
			add(kernel.Copy, nil, nil, array(to, zero, n), array(from, odd, n))
		}
	}
	add(kernel.Arange, nil, []float64{3, 2}, array(i64, zero, n))
	add(kernel.Triu, []int64{1}, nil, array(i64, zero, 20, 30), array(i64, around, 20, 30))
	add(kernel.Abs, nil, nil, array(i64, zero, n), array(i64, around, n))
	add(kernel.Min, nil, nil, reduced(boolean, []int64{4, n}, []int64{1, 0}, 4), array(boolean, odd, 4, n))
	for _, k := range []*kernel.Kernel{kernel.Sum, kernel.Max, kernel.Min} {
		var scale []float64
		if k == kernel.Sum {
			scale = []float64{1}
		}
		add(k, nil, scale, reduced(i64, []int64{4, n}, []int64{1, 0}, 4), array(i64, around, 4, n)) // along rows
		add(k, nil, scale, reduced(i64, []int64{n, 70}, []int64{0, 1}, 70), array(i64, around, n, 70))
	}

	// Products that fill more than one tile.
	add(kernel.Gemm, nil, []float64{0.5, 2}, array(f32, zero, 2, 140, 200), array(f32, wave, 2, 140, 67), array(f32, wave, 2, 67, 200), array(f32, wave, 2, 140, 200))
	// Lines that are longer than a block.
	index := func(m int) kerneltest.Array { return array(i64, zero, 3, int64(m)) }
	add(kernel.Sort, []int64{1, 1}, nil, array(f32, zero, 3, 600), index(600), array(f32, wave, 3, 600))
	add(kernel.Sort, []int64{1, 0}, nil, array(i64, zero, 3, 20), index(20), array(i64, around, 3, 600))
	add(kernel.Extreme, []int64{1, 1}, nil, array(half, zero, 3, 1), index(1), array(half, wave, 3, 600))
	add(kernel.Cumsum, []int64{1, 0}, nil, array(i64, zero, 3, 600), array(i64, around, 3, 600))
	add(kernel.Cumsum, []int64{1, 1}, nil, array(tensor.Int32, zero, 3, 600), array(f32, odd, 3, 600))
	// Rows that are longer than a block, and tables of more than one round.
	add(kernel.Softmax, nil, nil, array(f32, zero, 3, 700), array(f32, wave, 3, 700))
	add(kernel.EmbeddingGrad, []int64{-1}, nil, array(f32, zero, 9, 1100), array(f32, wave, 2, 300, 1100), array(i64, func(i int) float64 { return float64(i * 5 % 7) }, 2, 300))
	return out
}
