package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// functions is one of the elements x of several tensors, which are broadcast; a
// number among the arguments stands for the tensor at its place. slopes are the
// derivatives by each input, from what autograd keeps: the inputs, and the result
// y; what is not there is NaN.
type functions struct {
	of     func(x [3]float64, p float64) float64
	slopes [3]func(x [3]float64, y, p float64) float64
	number string // the argument that is a number in the place of input at
	at     int
	param  string // a further number
}

// operands reads inputs as they are broadcast to a size.
func (f *functions) operands(a *aside, args any, ts []*op.Tensor, size tensor.Dims) func(i int) [3]float64 {
	var v [3][]float64
	for i := range min(len(ts), len(v)) {
		v[i] = a.like(ts[i], size)
	}
	fixed, given := number(args, f.number)
	return func(i int) (x [3]float64) {
		for k := range x {
			x[k] = item(v[k], i)
		}
		if given && v[f.at] == nil {
			x[f.at] = fixed
		}
		return x
	}
}

func (f functions) row() row {
	var backward func(a *aside, b *op.Back)
	if f.slopes[0] != nil {
		backward = func(a *aside, b *op.Back) {
			size := b.OutM[0].Size
			p, _ := number(b.Args, f.param)
			g, x, y := a.like(b.Grads[0], size), f.operands(a, b.Args, b.SavedIn, size), a.like(optional(b.SavedOut, 0), size)
			for k := range b.Results {
				r := wanted(b, k)
				if r == nil {
					continue
				}
				out := make([]float64, len(g))
				for i := range out {
					out[i] = scaled(g[i], f.slopes[k](x(i), item(y, i), p))
				}
				a.putSummed(r, out, size)
			}
		}
	}
	return asideRow(func(a *aside, c *op.Call) {
		y := target(c)
		p, _ := number(c.Args, f.param)
		x := f.operands(a, c.Args, c.In, y.Size)
		out := make([]float64, y.Numel())
		for i := range out {
			out[i] = f.of(x(i), p)
		}
		a.put(y, out)
	}, backward)
}

// slope is one by an input.
type slope = func(x [3]float64, y, p float64) float64

func one([3]float64, float64, float64) float64 { return 1 }

// two makes a function of two operands.
func two(of func(a, b float64) float64, slopes ...slope) functions {
	f := functions{of: func(x [3]float64, _ float64) float64 { return of(x[0], x[1]) }, number: "other", at: 1}
	copy(f.slopes[:], slopes)
	return f
}

// whole makes a function of two integers.
func whole(of func(a, b int64) int64) functions {
	return two(func(a, b float64) float64 { return float64(of(int64(a), int64(b))) })
}

// remainder has the sign of b, as Python's %.
func remainder(a, b float64) float64 {
	r := math.Mod(a, b)
	if r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// floorDivide is Python's // (c10/util/generic_math.h: div_floor_floating).
func floorDivide(a, b float64) float64 {
	if b == 0 {
		return a / b
	}
	q := (a - math.Mod(a, b)) / b
	if m := math.Mod(a, b); m != 0 && (b < 0) != (m < 0) {
		q--
	}
	if q == 0 {
		return math.Copysign(0, a/b)
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f
}

// xlogy is 0 where x is, unless y is no number.
func xlogy(x, y float64) float64 {
	switch {
	case math.IsNaN(y):
		return y
	case x == 0:
		return 0
	}
	return x * math.Log(y)
}

// share is the part of the gradient that an operand of maximum or minimum gets.
func share(wins bool, a, b float64) float64 {
	if a == b {
		return 0.5
	}
	return truth(wins)
}

// extremeOf keeps a NaN.
func extremeOf(a, b float64, first bool) float64 {
	switch {
	case math.IsNaN(a):
		return a
	case math.IsNaN(b):
		return b
	case first:
		return a
	}
	return b
}

// functionsRows are the rarer functions of several tensors, element by element
// (tools/autograd/derivatives.yaml).
var functionsRows = map[*op.Row]row{
	op.Hypot: two(math.Hypot,
		func(x [3]float64, y, _ float64) float64 { return x[0] / y },
		func(x [3]float64, y, _ float64) float64 { return x[1] / y }).row(),
	op.Logaddexp: two(func(a, b float64) float64 {
		if math.IsInf(a, 0) && a == b {
			return a
		}
		return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b)))
	},
		func(x [3]float64, _, _ float64) float64 { return 1 / (1 + math.Exp(x[1]-x[0])) },
		func(x [3]float64, _, _ float64) float64 { return 1 / (1 + math.Exp(x[0]-x[1])) }).row(),
	op.Fmod:      two(math.Mod, one, func(x [3]float64, _, _ float64) float64 { return -math.Trunc(x[0] / x[1]) }).row(),
	op.Remainder: two(remainder, one, func(x [3]float64, _, _ float64) float64 { return -math.Floor(x[0] / x[1]) }).row(),
	op.Atan2: two(math.Atan2,
		func(x [3]float64, _, _ float64) float64 { return x[1] / (x[0]*x[0] + x[1]*x[1]) },
		func(x [3]float64, _, _ float64) float64 { return -x[0] / (x[0]*x[0] + x[1]*x[1]) }).row(),
	op.Maximum: two(func(a, b float64) float64 { return extremeOf(a, b, a > b) },
		func(x [3]float64, _, _ float64) float64 { return share(!(x[0] < x[1]), x[0], x[1]) },
		func(x [3]float64, _, _ float64) float64 { return share(!(x[0] > x[1]), x[0], x[1]) }).row(),
	op.Minimum: two(func(a, b float64) float64 { return extremeOf(a, b, a < b) },
		func(x [3]float64, _, _ float64) float64 { return share(!(x[0] > x[1]), x[0], x[1]) },
		func(x [3]float64, _, _ float64) float64 { return share(!(x[0] < x[1]), x[0], x[1]) }).row(),
	op.Xlogy: two(xlogy,
		func(x [3]float64, _, _ float64) float64 {
			if x[0] == 0 && x[1] <= 0 {
				return 0
			}
			return math.Log(x[1])
		},
		func(x [3]float64, _, _ float64) float64 { return x[0] / x[1] }).row(),
	op.Rsub:        two(func(a, b float64) float64 { return b - a }, func([3]float64, float64, float64) float64 { return -1 }, one).row(),
	op.FloorDivide: two(floorDivide).row(),
	op.BitwiseAnd:  whole(func(a, b int64) int64 { return a & b }).row(),
	op.BitwiseOr:   whole(func(a, b int64) int64 { return a | b }).row(),
	op.BitwiseXor:  whole(func(a, b int64) int64 { return a ^ b }).row(),
	op.LogicalAnd:  two(func(a, b float64) float64 { return truth(a != 0 && b != 0) }).row(),
	op.LogicalOr:   two(func(a, b float64) float64 { return truth(a != 0 || b != 0) }).row(),
	op.LogicalXor:  two(func(a, b float64) float64 { return truth((a != 0) != (b != 0)) }).row(),
	op.PowTensor: two(math.Pow,
		func(x [3]float64, _, _ float64) float64 {
			if x[1] == 0 {
				return 0
			}
			return x[1] * math.Pow(x[0], x[1]-1)
		},
		func(x [3]float64, y, _ float64) float64 {
			if x[0] == 0 && x[1] >= 0 {
				return 0
			}
			return y * math.Log(x[0])
		}).row(),
	op.PreluKernel: two(func(x, w float64) float64 {
		if x > 0 {
			return x
		}
		return w * x
	},
		func(x [3]float64, _, _ float64) float64 {
			if x[0] > 0 {
				return 1
			}
			return x[1]
		},
		func(x [3]float64, _, _ float64) float64 {
			if x[0] > 0 {
				return 0
			}
			return x[0]
		}).row(),
	op.PowBase: functions{
		of: func(x [3]float64, base float64) float64 { return math.Pow(base, x[0]) },
		slopes: [3]slope{func(x [3]float64, y, base float64) float64 {
			if base == 0 && x[0] >= 0 {
				return 0
			}
			return y * math.Log(base)
		}},
		param: "base",
	}.row(),
	op.Addcmul: functions{
		of: func(x [3]float64, p float64) float64 { return x[0] + p*x[1]*x[2] },
		slopes: [3]slope{one, func(x [3]float64, _, p float64) float64 { return p * x[2] },
			func(x [3]float64, _, p float64) float64 { return p * x[1] }},
		param: "value",
	}.row(),
	op.Addcdiv: functions{
		of: func(x [3]float64, p float64) float64 { return x[0] + p*x[1]/x[2] },
		slopes: [3]slope{one, func(x [3]float64, _, p float64) float64 { return p / x[2] },
			func(x [3]float64, _, p float64) float64 { return -p * x[1] / (x[2] * x[2]) }},
		param: "value",
	}.row(),
	op.Lerp: functions{
		of: func(x [3]float64, _ float64) float64 { return x[0] + x[2]*(x[1]-x[0]) },
		slopes: [3]slope{func(x [3]float64, _, _ float64) float64 { return 1 - x[2] }, func(x [3]float64, _, _ float64) float64 { return x[2] },
			func(x [3]float64, _, _ float64) float64 { return x[1] - x[0] }},
		number: "weight", at: 2,
	}.row(),
	// Its derivative is where itself, with a 0 in the other's place.
	op.WhereSelf: functions{of: func(x [3]float64, _ float64) float64 {
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	}}.row().inParts(),
}
