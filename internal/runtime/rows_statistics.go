package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// groupsOf sees a tensor of a size as the groups that a reduction makes one element
// of: f gets the places of the elements of each, in row-major order.
func groupsOf(size tensor.Dims, r *op.ReduceArgs, f func(group int, at []int)) {
	kept, reduced := tensor.Dims{}, tensor.Dims{}
	out, in := tensor.Dims{}, tensor.Dims{}
	l := tensor.Contiguous(size)
	is := make([]bool, size.Len())
	for _, d := range r.Dim {
		if size.Len() > 0 {
			is[dim(int(d), size.Len())] = true
		}
	}
	for d := range size.Len() {
		if is[d] || len(r.Dim) == 0 {
			reduced, in = reduced.Append(size.At(d)), in.Append(l.Stride.At(d))
		} else {
			kept, out = kept.Append(size.At(d)), out.Append(l.Stride.At(d))
		}
	}
	members := make([]int, reduced.Numel())
	places(tensor.Layout{Size: reduced, Stride: in}, func(i, at int) { members[i] = at })
	at := make([]int, len(members))
	places(tensor.Layout{Size: kept, Stride: out}, func(group, base int) {
		for i, m := range members {
			at[i] = base + m
		}
		f(group, at)
	})
}

// statistic is a reduction of groups x of elements to one number, y; slope gives the
// derivatives by each of them.
type statistic struct {
	of    func(x []float64, args any) float64
	slope func(x []float64, y float64, args any) []float64
	over  func(args any) *op.ReduceArgs
}

func (s statistic) row() row {
	pick := func(x []float64, at []int, into []float64) []float64 {
		into = into[:0]
		for _, i := range at {
			into = append(into, x[i])
		}
		return into
	}
	var backward func(a *aside, b *op.Back)
	if s.slope != nil {
		backward = func(a *aside, b *op.Back) {
			r := wanted(b, 0)
			if r == nil {
				return
			}
			x, g := a.get(b.SavedIn[0]), a.get(b.Grads[0])
			out := make([]float64, len(x.v))
			var room []float64
			groupsOf(b.SavedIn[0].Size, s.over(b.Args), func(group int, at []int) {
				room = pick(x.v, at, room)
				y := s.of(room, b.Args)
				for i, v := range s.slope(room, y, b.Args) {
					out[at[i]] = scaled(g.v[group], v)
				}
			})
			a.put(r, out)
		}
	}
	return asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		out := make([]float64, c.Out[0].Numel())
		var room []float64
		groupsOf(c.In[0].Size, s.over(c.Args), func(group int, at []int) {
			room = pick(x.v, at, room)
			out[group] = s.of(room, c.Args)
		})
		a.put(c.Out[0], out)
	}, backward)
}

func overAll(any) *op.ReduceArgs       { return &op.ReduceArgs{} }
func overDims(args any) *op.ReduceArgs { return args.(*op.ReduceArgs) }
func overVar(args any) *op.ReduceArgs  { return &args.(*op.VarArgs).ReduceArgs }
func overNorm(args any) *op.ReduceArgs { return &args.(*op.NormArgs).ReduceArgs }
func normOrder(args any) float64 {
	if p := args.(*op.NormArgs).P; p != nil {
		return *p
	}
	return 2
}

func each(n int, f func(i int) float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// sharedBy are the derivatives of an extreme: all elements that equal it share one.
func sharedBy(x []float64, y float64, _ any) []float64 {
	is := func(v float64) bool { return v == y || math.IsNaN(v) && math.IsNaN(y) }
	n := 0.0
	for _, v := range x {
		n += truth(is(v))
	}
	return each(len(x), func(i int) float64 { return truth(is(x[i])) / n })
}

func extremeIn(largest bool) func(x []float64, _ any) float64 {
	return func(x []float64, _ any) float64 {
		return x[bestOf(&array{v: x}, 0, 1, len(x), largest)]
	}
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func variance(x []float64, args any) float64 {
	m, sum := mean(x), 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return sum / max(float64(len(x))-args.(*op.VarArgs).Correction, 0)
}

func varianceSlope(x []float64, args any) []float64 {
	m, n := mean(x), float64(len(x))-args.(*op.VarArgs).Correction
	return each(len(x), func(i int) float64 { return 2 / n * (x[i] - m) })
}

// vectorNorm is the norm of any order.
var vectorNorm = statistic{
	over: overNorm,
	of: func(x []float64, args any) float64 {
		p, sum := normOrder(args), 0.0
		for _, v := range x {
			switch v = math.Abs(v); {
			case math.IsInf(p, 1):
				if !(v <= sum) {
					sum = v
				}
			case p == 2:
				sum += v * v
			default:
				sum += math.Pow(v, p)
			}
		}
		switch {
		case math.IsInf(p, 1):
			return sum
		case p == 2:
			return math.Sqrt(sum)
		}
		return math.Pow(sum, 1/p)
	},
	slope: func(x []float64, y float64, args any) []float64 {
		p := normOrder(args)
		if math.IsInf(p, 1) {
			size := each(len(x), func(i int) float64 { return math.Abs(x[i]) })
			s := sharedBy(size, y, nil)
			return each(len(x), func(i int) float64 { return signum(x[i]) * s[i] })
		}
		return each(len(x), func(i int) float64 {
			switch {
			case p == 1:
				return signum(x[i])
			case y == 0:
				return 0
			}
			return x[i] * math.Pow(math.Abs(x[i]), p-2) / math.Pow(y, p-1)
		})
	},
}

// quantifier is any or all.
func quantifier(all bool) row {
	return statistic{over: overDims, of: func(x []float64, _ any) float64 {
		for _, v := range x {
			if (v != 0) != all {
				return truth(!all)
			}
		}
		return truth(all)
	}}.row()
}

// statisticRows reduce dimensions to numbers that are no plain sums.
var statisticRows = map[*op.Op]row{
	op.Any: quantifier(false), op.All: quantifier(true),
	op.Max.All:  statistic{over: overAll, of: extremeIn(true), slope: sharedBy}.row(),
	op.Min.All:  statistic{over: overAll, of: extremeIn(false), slope: sharedBy}.row(),
	op.Max.Over: statistic{over: overDims, of: extremeIn(true), slope: sharedBy}.row(),
	op.Min.Over: statistic{over: overDims, of: extremeIn(false), slope: sharedBy}.row(),
	op.Var: statistic{over: overVar, of: variance, slope: func(x []float64, _ float64, args any) []float64 {
		return varianceSlope(x, args)
	}}.row(),
	op.Std: statistic{over: overVar, of: func(x []float64, args any) float64 { return math.Sqrt(variance(x, args)) },
		slope: func(x []float64, y float64, args any) []float64 {
			s := varianceSlope(x, args)
			return each(len(s), func(i int) float64 {
				if y == 0 {
					return 0
				}
				return s[i] / (2 * y)
			})
		}}.row(),
	op.VectorNorm: vectorNorm.row(), op.Norm: vectorNorm.row(),
	op.LogSumExp: statistic{over: overDims,
		of: func(x []float64, _ any) float64 {
			most, sum := extremeIn(true)(x, nil), 0.0
			if math.IsInf(most, 0) {
				return most
			}
			for _, v := range x {
				sum += math.Exp(v - most)
			}
			return most + math.Log(sum)
		},
		slope: func(x []float64, y float64, _ any) []float64 {
			return each(len(x), func(i int) float64 { return math.Exp(x[i] - y) })
		}}.row(),
	op.Histc: asideRow(func(a *aside, c *op.Call) {
		h, x := c.Args.(*op.HistcArgs), a.get(c.In[0])
		low, high := h.Min, h.Max
		if low == high && len(x.v) > 0 {
			low, high = extremeIn(false)(x.v, nil), extremeIn(true)(x.v, nil)
		}
		if low == high {
			low, high = low-1, high+1
		}
		out := make([]float64, h.Bins)
		for _, v := range x.v {
			if v >= low && v <= high {
				out[min(int((v-low)/(high-low)*float64(h.Bins)), int(h.Bins)-1)]++
			}
		}
		a.put(c.Out[0], out)
	}, nil),
}
