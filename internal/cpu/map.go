package cpu

import (
	"math"

	"github.com/memplan/memplan/internal/approx"
	"github.com/memplan/memplan/internal/tensor"
)

// Functions of single elements are computed in float64 and rounded once, as
// float32 kernels of PyTorch are within an ulp or two. Runs of elements that lie
// side by side have loops of their own.

// map1 is a kernel y = f(a); bind gives f for the numbers of a call.
func map1[T float](bind func(n []float64) func(a float64) float64) runner {
	return func(l *launch) error {
		f, y, a := bind(l.call.F), view[T](l, 0), view[T](l, 1)
		l.over().each(func(at []int, n int, step []int) {
			y, a := y[at[0]:], a[at[1]:]
			if step[0] == 1 && step[1] == 1 {
				y = y[:n]
				for i, v := range a[:n] {
					y[i] = T(f(float64(v)))
				}
				return
			}
			for i := range n {
				y[i*step[0]] = T(f(float64(a[i*step[1]])))
			}
		})
		return nil
	}
}

// bySingles gives a row of functions of one or two operands a loop for runs of float32 that
// lie side by side; without a second operand b is empty. It must give the bits of
// the row's function.
func (r row) bySingles(runs func(n []float64) func(y, a, b []float32)) row {
	general := r.run[tensor.Float32]
	r.run[tensor.Float32] = func(l *launch) error {
		run := runs(l.call.F)
		w := l.over()
		for _, step := range w.stride[len(w.size)-1] {
			if run == nil || step != 1 {
				return general(l)
			}
		}
		y, a := view[float32](l, 0), view[float32](l, 1)
		w.each(func(at []int, n int, _ []int) {
			var b []float32
			if len(at) > 2 {
				b = view[float32](l, 2)[at[2]:][:n]
			}
			run(y[at[0]:][:n], a[at[1]:][:n], b)
		})
		return nil
	}
	return r
}

// loop is a loop that does not depend on the numbers of the call.
func loop(run func(y, a, b []float32)) func([]float64) func(y, a, b []float32) {
	return func([]float64) func(y, a, b []float32) { return run }
}

// map2 is a kernel y = f(a, b).
func map2[T float](bind func(n []float64) func(a, b float64) float64) runner {
	return func(l *launch) error {
		f, y, a, b := bind(l.call.F), view[T](l, 0), view[T](l, 1), view[T](l, 2)
		l.over().each(func(at []int, n int, step []int) {
			y, a, b := y[at[0]:], a[at[1]:], b[at[2]:]
			if step[0] == 1 && step[1] == 1 && step[2] == 1 {
				y, b = y[:n], b[:n]
				for i, v := range a[:n] {
					y[i] = T(f(float64(v), float64(b[i])))
				}
				return
			}
			for i := range n {
				y[i*step[0]] = T(f(float64(a[i*step[1]]), float64(b[i*step[2]])))
			}
		})
		return nil
	}
}

// map3 is a kernel y = f(a, b, c).
func map3[T float](bind func(n []float64) func(a, b, c float64) float64) runner {
	return func(l *launch) error {
		f, y, a, b, c := bind(l.call.F), view[T](l, 0), view[T](l, 1), view[T](l, 2), view[T](l, 3)
		l.over().each(func(at []int, n int, step []int) {
			y, a, b, c := y[at[0]:], a[at[1]:], b[at[2]:], c[at[3]:]
			for i := range n {
				y[i*step[0]] = T(f(float64(a[i*step[1]]), float64(b[i*step[2]]), float64(c[i*step[3]])))
			}
		})
		return nil
	}
}

// unary is a row of a function of one operand.
func unary(f func(a float64) float64) row {
	return unaryOf(func([]float64) func(float64) float64 { return f })
}

func unaryOf(f func(n []float64) func(a float64) float64) row {
	return floats(map1[float32](f), map1[float64](f))
}

// unaryByExp is a row of a function of one operand and of the exponential function.
func unaryByExp(f func(a float64, exp func(float64) float64) float64) row {
	bind := func(e func(float64) float64) func([]float64) func(float64) float64 {
		return func([]float64) func(float64) float64 { return func(a float64) float64 { return f(a, e) } }
	}
	return floats(map1[float32](bind(approx.Exp)), map1[float64](bind(math.Exp)))
}

// binaryByExp is that of two.
func binaryByExp(f func(a, b float64, exp func(float64) float64) float64) row {
	bind := func(e func(float64) float64) func([]float64) func(a, b float64) float64 {
		return func([]float64) func(a, b float64) float64 { return func(a, b float64) float64 { return f(a, b, e) } }
	}
	return floats(map2[float32](bind(approx.Exp)), map2[float64](bind(math.Exp)))
}

// binary is a row of a function of two.
func binary(f func(a, b float64) float64) row {
	return binaryOf(func([]float64) func(a, b float64) float64 { return f })
}

func binaryOf(f func(n []float64) func(a, b float64) float64) row {
	return floats(map2[float32](f), map2[float64](f))
}

// ternaryOf is a row of a function of three.
func ternaryOf(f func(n []float64) func(a, b, c float64) float64) row {
	return floats(map3[float32](f), map3[float64](f))
}
