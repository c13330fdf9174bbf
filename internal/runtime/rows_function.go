package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// function is one of a single element x, with the numbers p of the operator, whose
// derivative is computed from x or, where autograd keeps that, from the result y;
// the other one is NaN. Without a slope there is no derivative.
type function struct {
	of    func(x float64, p []float64) float64
	slope func(x, y float64, p []float64) float64
	args  []string
}

// numbers are the arguments of a function; those that are not given are NaN.
func (f *function) numbers(args any) []float64 {
	var p []float64
	for _, name := range f.args {
		v, ok := number(args, name)
		if !ok {
			v = math.NaN()
		}
		p = append(p, v)
	}
	return p
}

func (f function) row() row {
	var backward func(a *aside, b *op.Back)
	if f.slope != nil {
		backward = func(a *aside, b *op.Back) {
			p, y := f.numbers(b.Args), wanted(b, 0)
			if y == nil {
				return
			}
			g := a.like(b.Grads[0], y.Size)
			x, r := saved(a, b.SavedIn, y), saved(a, b.SavedOut, y)
			out := make([]float64, len(g))
			for i := range out {
				out[i] = scaled(g[i], f.slope(item(x, i), item(r, i), p))
			}
			a.put(y, out)
		}
	}
	return asideRow(func(a *aside, c *op.Call) {
		p, x := f.numbers(c.Args), a.get(c.In[0])
		out := make([]float64, len(x.v))
		for i, v := range x.v {
			out[i] = f.of(v, p)
		}
		a.put(target(c), out)
	}, backward)
}

// scaled is a gradient times a slope; where that is 0 the gradient does not count,
// infinite or not.
func scaled(g, slope float64) float64 {
	if slope == 0 {
		return 0
	}
	return g * slope
}

// saved is the first of the tensors that were kept, if it was.
func saved(a *aside, ts []*op.Tensor, like *op.Tensor) []float64 {
	return a.like(optional(ts, 0), like.Size)
}

// item is v[i], or NaN where there is no v.
func item(v []float64, i int) float64 {
	if v == nil {
		return math.NaN()
	}
	return v[i]
}

// bounds are the two bounds of a clamp, infinite where there is none.
func bounds(p []float64) (low, high float64) {
	low, high = p[0], p[1]
	if math.IsNaN(low) {
		low = math.Inf(-1)
	}
	if math.IsNaN(high) {
		high = math.Inf(1)
	}
	return low, high
}

// The functions that operators and their in-place forms share.
var (
	clamp = function{
		of: func(x float64, p []float64) float64 { // the upper bound counts where they cross
			low, high := bounds(p)
			if x < low {
				x = low
			}
			if x > high {
				x = high
			}
			return x
		},
		slope: func(x, _ float64, p []float64) float64 {
			low, high := bounds(p)
			return truth(x >= low && x <= high)
		},
		args: []string{"min", "max"},
	}
	celu = function{
		of: func(x float64, p []float64) float64 {
			if x > 0 {
				return x
			}
			return p[0] * math.Expm1(x/p[0])
		},
		slope: func(x, y float64, p []float64) float64 {
			switch {
			case x > 0 || y > 0:
				return 1
			case math.IsNaN(x):
				return (y + p[0]) / p[0]
			}
			return math.Exp(x / p[0])
		},
		args: []string{"alpha"},
	}
	elu = function{
		of: func(x float64, p []float64) float64 {
			if x > 0 {
				return x
			}
			return p[0] * math.Expm1(x)
		},
		slope: func(_, y float64, p []float64) float64 { // of the result, which in place is what is kept
			if y > 0 {
				return 1
			}
			return y + p[0]
		},
		args: []string{"alpha"},
	}
	selu = function{
		of: func(x float64, _ []float64) float64 {
			if x > 0 {
				return seluScale * x
			}
			return seluScale * seluAlpha * math.Expm1(x)
		},
		slope: func(x, y float64, _ []float64) float64 {
			switch {
			case x > 0 || y > 0:
				return seluScale
			case math.IsNaN(x):
				return y + seluScale*seluAlpha
			}
			return seluScale * seluAlpha * math.Exp(x)
		},
	}
	mish = function{
		of: func(x float64, _ []float64) float64 { return x * math.Tanh(softplus(x)) },
		slope: func(x, _ float64, _ []float64) float64 {
			t := math.Tanh(softplus(x))
			return t + x*logistic(x)*(1-t*t)
		},
	}
	threshold = function{
		of: func(x float64, p []float64) float64 {
			if x <= p[0] {
				return p[1]
			}
			return x
		},
		slope: func(x, _ float64, p []float64) float64 { return truth(!(x <= p[0])) },
		args:  []string{"threshold", "value"},
	}
)

// The constants of selu (torch/nn/functional.py: selu).
const (
	seluAlpha = 1.6732632423543772848170429916717
	seluScale = 1.0507009873554804934193349852946
)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// softplus is log(1 + exp(x)).
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// flat is the derivative of a step.
func flat(_, _ float64, _ []float64) float64 { return 0 }

// plain makes a function of x alone.
func plain(of func(x float64) float64, slope func(x, y float64) float64) function {
	f := function{of: func(x float64, _ []float64) float64 { return of(x) }}
	if slope != nil {
		f.slope = func(x, y float64, _ []float64) float64 { return slope(x, y) }
	}
	return f
}

func signum(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// functionRows are the rarer functions of one tensor, element by element
// (tools/autograd/derivatives.yaml).
var functionRows = map[*op.Row]row{
	op.Clamp: clamp.row(), op.ClampInPlace: clamp.row(), op.ClampMin: clamp.row(), op.ClampMinInPlace: clamp.row(), op.ClampMax: clamp.row(), op.ClampMaxInPlace: clamp.row(),
	op.Celu: celu.row(), op.CeluInPlace: celu.row(), op.EluInPlace: elu.row(), op.Selu: selu.row(), op.SeluInPlace: selu.row(), op.Mish: mish.row(), op.MishInPlace: mish.row(),
	op.Threshold: threshold.row(), op.ThresholdInPlace: threshold.row(),
	op.Hardshrink: function{
		of: func(x float64, p []float64) float64 { return x * truth(x < -p[0] || x > p[0]) },
		slope: func(x, _ float64, p []float64) float64 {
			return truth(x < -p[0] || x > p[0])
		},
		args: []string{"lambd"},
	}.row(),
	op.Softshrink: function{
		of: func(x float64, p []float64) float64 {
			return x - min(max(x, -p[0]), p[0])
		},
		slope: func(x, _ float64, p []float64) float64 { return truth(x < -p[0] || x > p[0]) },
		args:  []string{"lambd"},
	}.row(),
	op.Logit: function{
		of: func(x float64, p []float64) float64 {
			if !math.IsNaN(p[0]) {
				x = min(max(x, p[0]), 1-p[0])
			}
			return math.Log(x / (1 - x))
		},
		slope: func(x, _ float64, p []float64) float64 {
			switch {
			case math.IsNaN(p[0]) && (x < 0 || x > 1):
				return math.NaN()
			case x < p[0] || x > 1-p[0]:
				return 0
			}
			return 1 / (x * (1 - x))
		},
		args: []string{"eps"},
	}.row(),
	op.NanToNum: {
		forward: func(x *Executor, c *op.Call) error {
			return x.aside(func(a *aside) {
				d := c.In[0].DType
				nan, _ := number(c.Args, "nan")
				high, given := number(c.Args, "posinf")
				if !given {
					high = d.Largest()
				}
				low, given := number(c.Args, "neginf")
				if !given {
					low = -d.Largest()
				}
				in := a.get(c.In[0])
				for i, v := range in.v {
					switch {
					case math.IsNaN(v):
						in.v[i] = nan
					case math.IsInf(v, 1):
						in.v[i] = high
					case math.IsInf(v, -1):
						in.v[i] = low
					}
				}
				a.put(target(c), in.v)
			})
		},
		backward: plain(nil, func(x, _ float64) float64 { return truth(!math.IsNaN(x) && !math.IsInf(x, 0)) }).row().backward,
	},
	op.Acos:       plain(math.Acos, func(x, _ float64) float64 { return -1 / math.Sqrt(1-x*x) }).row(),
	op.Acosh:      plain(math.Acosh, func(x, _ float64) float64 { return 1 / math.Sqrt(x*x-1) }).row(),
	op.Asin:       plain(math.Asin, func(x, _ float64) float64 { return 1 / math.Sqrt(1-x*x) }).row(),
	op.Asinh:      plain(math.Asinh, func(x, _ float64) float64 { return 1 / math.Sqrt(x*x+1) }).row(),
	op.Atan:       plain(math.Atan, func(x, _ float64) float64 { return 1 / (x*x + 1) }).row(),
	op.Atanh:      plain(math.Atanh, func(x, _ float64) float64 { return 1 / (1 - x*x) }).row(),
	op.Cosh:       plain(math.Cosh, func(x, _ float64) float64 { return math.Sinh(x) }).row(),
	op.Sinh:       plain(math.Sinh, func(x, _ float64) float64 { return math.Cosh(x) }).row(),
	op.Tan:        plain(math.Tan, func(_, y float64) float64 { return 1 + y*y }).row(),
	op.Digamma:    plain(digamma, func(x, _ float64) float64 { return trigamma(x) }).row(),
	op.Lgamma:     plain(func(x float64) float64 { v, _ := math.Lgamma(x); return v }, func(x, _ float64) float64 { return digamma(x) }).row(),
	op.Erf:        plain(math.Erf, func(x, _ float64) float64 { return 2 / math.SqrtPi * math.Exp(-x*x) }).row(),
	op.Erfc:       plain(math.Erfc, func(x, _ float64) float64 { return -2 / math.SqrtPi * math.Exp(-x*x) }).row(),
	op.Erfinv:     plain(math.Erfinv, func(x, _ float64) float64 { v := math.Erfinv(x); return math.SqrtPi / 2 * math.Exp(v*v) }).row(),
	op.Exp2:       plain(math.Exp2, func(_, y float64) float64 { return y * math.Ln2 }).row(),
	op.Expm1:      plain(math.Expm1, func(_, y float64) float64 { return y + 1 }).row(),
	op.Log1p:      plain(math.Log1p, func(x, _ float64) float64 { return 1 / (x + 1) }).row(),
	op.Log2:       plain(math.Log2, func(x, _ float64) float64 { return 1 / (x * math.Ln2) }).row(),
	op.Log10:      plain(math.Log10, func(x, _ float64) float64 { return 1 / (x * math.Ln10) }).row(),
	op.Reciprocal: plain(func(x float64) float64 { return 1 / x }, func(_, y float64) float64 { return -y * y }).row(),
	op.Frac:       plain(func(x float64) float64 { return x - math.Trunc(x) }, func(_, _ float64) float64 { return 1 }).row(),
	op.Ceil:       function{of: func(x float64, _ []float64) float64 { return math.Ceil(x) }, slope: flat}.row(),
	op.Floor:      function{of: func(x float64, _ []float64) float64 { return math.Floor(x) }, slope: flat}.row(),
	op.Round:      function{of: func(x float64, _ []float64) float64 { return math.RoundToEven(x) }, slope: flat}.row(),
	op.Trunc:      function{of: func(x float64, _ []float64) float64 { return math.Trunc(x) }, slope: flat}.row(),
	op.Sign:       function{of: func(x float64, _ []float64) float64 { return signum(x) }, slope: flat}.row(),

	op.IsFinite:   plain(func(x float64) float64 { return truth(!math.IsNaN(x) && !math.IsInf(x, 0)) }, nil).row(),
	op.Isinf:      plain(func(x float64) float64 { return truth(math.IsInf(x, 0)) }, nil).row(),
	op.IsNaN:      plain(func(x float64) float64 { return truth(math.IsNaN(x)) }, nil).row(),
	op.LogicalNot: plain(func(x float64) float64 { return truth(x == 0) }, nil).row(),
	op.BitwiseNot: asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		for i, v := range x.v {
			if c.In[0].DType == tensor.Bool {
				x.v[i] = truth(v == 0)
			} else {
				x.v[i] = float64(^int64(v))
			}
		}
		a.put(c.Out[0], x.v)
	}, nil),
}

// digamma is the derivative of the logarithm of the gamma function: by reflection
// and recurrence to where an asymptotic series holds.
func digamma(x float64) float64 {
	switch {
	case x == 0:
		return math.Copysign(math.Inf(1), -x)
	case x < 0 && x == math.Trunc(x):
		return math.NaN()
	case x < 0:
		_, f := math.Modf(x)
		return digamma(1-x) - math.Pi/math.Tan(math.Pi*f)
	}
	sum := 0.0
	for ; x < 10; x++ {
		sum -= 1 / x
	}
	z := 1 / (x * x)
	series := z * (1.0/12 - z*(1.0/120-z*(1.0/252-z*(1.0/240-z*(1.0/132-z*(691.0/32760-z/12))))))
	return sum + math.Log(x) - 0.5/x - series
}

// trigamma is digamma's derivative.
func trigamma(x float64) float64 {
	if x < 0.5 {
		s := math.Sin(math.Pi * x)
		return math.Pi*math.Pi/(s*s) - trigamma(1-x)
	}
	sum := 0.0
	for ; x < 10; x++ {
		sum += 1 / (x * x)
	}
	z := 1 / (x * x)
	return sum + 1/x + z/2 + z/x*(1.0/6-z*(1.0/30-z*(1.0/42-z*(1.0/30-z*(5.0/66-z*(691.0/2730-z*7.0/6))))))
}
