package cpu

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// binaryRows are functions of two and three operands
// (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp).
var binaryRows = map[*kernel.Kernel]row{
	kernel.Affine: withIntegers(unaryOf(func(n []float64) func(float64) float64 {
		scale, shift := n[0], n[1]
		return func(a float64) float64 { return a*scale + shift }
	}), func(n []int64) func(a, b int64) int64 { return func(a, _ int64) int64 { return a*n[0] + n[1] } }),
	kernel.Add: withIntegers(binaryOf(func(n []float64) func(a, b float64) float64 {
		alpha := n[0]
		if alpha == 1 {
			return func(a, b float64) float64 { return a + b }
		}
		return func(a, b float64) float64 { return a + alpha*b }
	}).bySingles(addRun), func(n []int64) func(a, b int64) int64 { return func(a, b int64) int64 { return a + n[0]*b } }),
	kernel.Mul: withIntegers(binary(func(a, b float64) float64 { return a * b }).bySingles(loop(mulRun)),
		func([]int64) func(a, b int64) int64 { return func(a, b int64) int64 { return a * b } }, tensor.Bool),
	kernel.Div: binary(func(a, b float64) float64 { return a / b }),
	// math.Max and Min keep a NaN, as PyTorch does.
	kernel.Maximum: withIntegers(binary(math.Max),
		func([]int64) func(a, b int64) int64 { return func(a, b int64) int64 { return max(a, b) } }, tensor.Bool),
	kernel.Minimum: withIntegers(binary(math.Min),
		func([]int64) func(a, b int64) int64 { return func(a, b int64) int64 { return min(a, b) } }, tensor.Bool),
	kernel.MinimumGrad: ternaryOf(func([]float64) func(g, x, b float64) float64 {
		return func(g, x, b float64) float64 {
			switch {
			case x < b:
				return g
			case x == b:
				return g / 2
			}
			return 0
		}
	}),
	kernel.Pow: binary(math.Pow),
	kernel.FloorDivide: withIntegers(unaryOf(func(n []float64) func(float64) float64 {
		by := n[0]
		return func(a float64) float64 { return math.Floor(a / by) }
	}), func(n []int64) func(a, b int64) int64 { return floorDivide(n[0]) }),
	kernel.DivGrad: ternaryOf(func([]float64) func(a, b, c float64) float64 {
		return func(g, x, b float64) float64 { return -g * (x / b / b) }
	}),
	// aten/src/ATen/native/cpu/PointwiseOpsKernel.cpp and Loss.cpp
	kernel.MSEGrad: ternaryOf(func(n []float64) func(c, a, b float64) float64 {
		scale := 2 * n[0]
		return func(c, a, b float64) float64 { return c * scale * (a - b) }
	}),
	kernel.L1Grad: ternaryOf(func(n []float64) func(c, a, b float64) float64 {
		scale := n[0]
		return func(c, a, b float64) float64 { return c * scale * sign(a-b) }
	}),
	kernel.Xlogy: binary(func(a, b float64) float64 {
		if a == 0 && b == b {
			return 0
		}
		return a * math.Log(b)
	}),
	kernel.EntropyGrad: ternaryOf(func(n []float64) func(c, a, b float64) float64 {
		scale := n[0]
		return func(c, a, b float64) float64 { return c * scale * (a - b) / max((1-a)*a, 1e-12) }
	}),
	kernel.BCEGrad: ternaryOf(func(n []float64) func(c, a, b float64) float64 {
		scale := n[0]
		return func(c, a, b float64) float64 { return c * scale * (sigmoid(a) - b) }
	}),
}

// A sum or product of two float32 has the same bits if it is computed in float64 and
// then rounded.

func addRun(n []float64) func(y, a, b []float32) {
	if n[0] != 1 {
		return nil
	}
	return func(y, a, b []float32) {
		b = b[:len(y)]
		for i, v := range a[:len(y)] {
			y[i] = v + b[i]
		}
	}
}

func mulRun(y, a, b []float32) {
	b = b[:len(y)]
	for i, v := range a[:len(y)] {
		y[i] = v * b[i]
	}
}

// floorDivide divides by a number that is not 0, and rounds down.
func floorDivide(by int64) func(a, b int64) int64 {
	return func(a, _ int64) int64 {
		q := a / by
		if a%by != 0 && (a < 0) != (by < 0) {
			q--
		}
		return q
	}
}

// integers are the types of whole numbers.
var integers = []tensor.DType{tensor.Uint8, tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64}

// wholeNumbers are the call's numbers as integers.
func (l *launch) wholeNumbers() ([]int64, error) {
	var whole []int64
	for i, v := range l.call.F {
		if v != math.Trunc(v) || math.Abs(v) >= 1<<63 {
			return nil, fmt.Errorf("%s = %v is not a whole number, which %v needs", l.call.Kernel.Floats[i], v, l.call.T[0].DType)
		}
		whole = append(whole, int64(v))
	}
	return whole, nil
}

// withIntegers adds integer types to a row: results keep their low bits, and
// numbers of the call must be whole.
func withIntegers(r row, f func(n []int64) func(a, b int64) int64, more ...tensor.DType) row {
	run := func(l *launch) error {
		whole, err := l.wholeNumbers()
		if err != nil {
			return err
		}
		g, last := f(whole), len(l.call.T)-1 // one operand or two
		y, a, b := l.call.T[0].DType, l.call.T[1].DType, l.call.T[last].DType
		l.over().each(func(at []int, n int, step []int) {
			for i := range n {
				v := g(l.integer(1, a, at[1]+i*step[1]), l.integer(last, b, at[last]+i*step[last]))
				l.putInteger(0, y, at[0]+i*step[0], v)
			}
		})
		return nil
	}
	for _, t := range append(more, integers...) {
		r.run[t] = run
	}
	r.wholes = true
	return r
}
