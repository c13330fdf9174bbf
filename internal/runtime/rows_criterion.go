package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
)

// criterion is a loss of the elements x of its inputs: of gives it, slopes its
// derivatives by input and target. Further inputs are weights; one that is absent
// counts as 1.
type criterion struct {
	of     func(x []float64, args any) float64
	slopes [2]func(x []float64, args any) float64
	inputs int
}

// reduce says by what the sum of so many elements is multiplied; whole reports
// whether there is one.
func reduce(args any, n int) (scale float64, whole bool) {
	reduction := ""
	switch a := args.(type) {
	case *op.LossArgs:
		reduction = a.Reduction
	case *op.MarginArgs:
		reduction = a.Reduction
	}
	switch reduction {
	case "mean":
		return 1 / float64(n), true
	case "sum":
		return 1, true
	}
	return 1, false
}

// reduced writes losses, or their mean or sum.
func (a *aside) reduced(y *op.Tensor, losses []float64, args any) {
	scale, is := reduce(args, len(losses))
	if is {
		sum := 0.0
		for _, v := range losses {
			sum += v
		}
		losses = []float64{sum * scale}
	}
	a.put(y, losses)
}

// gradients is what the gradient of a loss is of each of n losses.
func (a *aside) gradients(b *op.Back, n int) []float64 {
	g := a.get(b.Grads[0]).v
	if scale, is := reduce(b.Args, n); is {
		each := g[0] * scale
		g = make([]float64, n)
		for i := range g {
			g[i] = each
		}
	}
	return g
}

func (l criterion) row() row {
	operands := func(a *aside, ts []*op.Tensor) func(i int) []float64 {
		v := make([][]float64, l.inputs)
		for k := range v {
			v[k] = a.like(optional(ts, k), ts[0].Size)
		}
		x := make([]float64, l.inputs)
		return func(i int) []float64 {
			for k := range x {
				if x[k] = 1; v[k] != nil {
					x[k] = v[k][i]
				}
			}
			return x
		}
	}
	return asideRow(func(a *aside, c *op.Call) {
		x := operands(a, c.In)
		losses := make([]float64, c.In[0].Numel())
		for i := range losses {
			losses[i] = l.of(x(i), c.Args)
		}
		a.reduced(c.Out[0], losses, c.Args)
	}, func(a *aside, b *op.Back) {
		x, g := operands(a, b.SavedIn), a.gradients(b, int(b.SavedIn[0].Numel()))
		for k, f := range l.slopes {
			r := wanted(b, k)
			if r == nil {
				continue
			}
			out := make([]float64, len(g))
			for i := range out {
				out[i] = g[i] * f(x(i), b.Args)
			}
			a.put(r, out)
		}
	})
}

// distance makes a loss of the difference of input and target.
func distance(of, slope func(d float64, args any) float64) criterion {
	return criterion{inputs: 2,
		of: func(x []float64, args any) float64 { return of(x[0]-x[1], args) },
		slopes: [2]func(x []float64, args any) float64{
			func(x []float64, args any) float64 { return slope(x[0]-x[1], args) },
			func(x []float64, args any) float64 { return -slope(x[0]-x[1], args) },
		}}
}

// squared is mse_loss.
var squared = distance(func(d float64, _ any) float64 { return d * d }, func(d float64, _ any) float64 { return 2 * d }).row()

func logSigmoid(x float64) float64 { return -softplus(-x) }

// leastLog is the least logarithm that binary_cross_entropy knows.
const leastLog = -100

// criterionRows are losses of single elements (aten/src/ATen/native/Loss.cpp).
var criterionRows = map[*op.Op]row{
	op.SmoothL1: distance(func(d float64, args any) float64 {
		beta := args.(*op.LossArgs).Beta
		if d = math.Abs(d); d < beta {
			return 0.5 * d * d / beta
		}
		return d - 0.5*beta
	}, func(d float64, args any) float64 {
		if beta := args.(*op.LossArgs).Beta; math.Abs(d) < beta {
			return d / beta
		}
		return signum(d)
	}).row(),
	op.HuberLoss: distance(func(d float64, args any) float64 {
		delta := args.(*op.LossArgs).Delta
		if d = math.Abs(d); d <= delta {
			return 0.5 * d * d
		}
		return delta * (d - 0.5*delta)
	}, func(d float64, args any) float64 {
		delta := args.(*op.LossArgs).Delta
		return min(max(d, -delta), delta)
	}).row(),
	op.SoftMarginLoss: criterion{inputs: 2,
		of: func(x []float64, _ any) float64 { return softplus(-x[1] * x[0]) },
		slopes: [2]func(x []float64, _ any) float64{
			func(x []float64, _ any) float64 { return -x[1] * logistic(-x[1]*x[0]) },
		}}.row(),
	op.BinaryCrossEntropy: criterion{inputs: 3,
		of: func(x []float64, _ any) float64 {
			return -x[2] * (x[1]*max(math.Log(x[0]), leastLog) + (1-x[1])*max(math.Log1p(-x[0]), leastLog))
		},
		slopes: [2]func(x []float64, _ any) float64{
			func(x []float64, _ any) float64 { return x[2] * (x[0] - x[1]) / max((1-x[0])*x[0], 1e-12) },
			func(x []float64, _ any) float64 {
				return x[2] * (max(math.Log1p(-x[0]), leastLog) - max(math.Log(x[0]), leastLog))
			},
		}}.row(),
	op.BinaryCrossEntropyWithLogits: criterion{inputs: 4,
		of: func(x []float64, _ any) float64 {
			return x[2] * ((1-x[1])*x[0] - (1+(x[3]-1)*x[1])*logSigmoid(x[0]))
		},
		slopes: [2]func(x []float64, _ any) float64{
			func(x []float64, _ any) float64 {
				t := x[3] * x[1]
				return x[2] * ((t+1-x[1])*logistic(x[0]) - t)
			},
			func(x []float64, _ any) float64 { return x[2] * (logSigmoid(-x[0]) - x[3]*logSigmoid(x[0])) },
		}}.row(),
	op.MultiMarginLoss:  multiMargin,
	op.MultilabelMargin: multilabelMargin,
}

// rowsOfClasses are the rows of an input of classes, or the one.
func rowsOfClasses(x *array) (rows, classes int) {
	classes = x.size[len(x.size)-1]
	return len(x.v) / classes, classes
}

// multiMargin is the loss of the margins between a row's class and all others.
var multiMargin = func() row {
	// hinge calls f for each class that counts, with its share of the loss.
	hinge := func(x *array, target, weight []float64, args *op.MarginArgs, f func(i, k, y int, margin, w float64)) {
		rows, n := rowsOfClasses(x)
		for i := range rows {
			y, w := int(target[i]), 1/float64(n)
			if weight != nil {
				w *= weight[y]
			}
			for k := range n {
				if z := args.Margin - x.v[i*n+y] + x.v[i*n+k]; k != y && z > 0 {
					f(i, k, y, z, w)
				}
			}
		}
	}
	weights := func(a *aside, ts []*op.Tensor) []float64 {
		if w := a.get(optional(ts, 2)); w != nil {
			return w.v
		}
		return nil
	}
	return asideRow(func(a *aside, c *op.Call) {
		args, x := c.Args.(*op.MarginArgs), a.get(c.In[0])
		rows, _ := rowsOfClasses(x)
		losses := make([]float64, rows)
		hinge(x, a.get(c.In[1]).v, weights(a, c.In), args, func(i, _, _ int, z, w float64) { losses[i] += w * math.Pow(z, float64(args.P)) })
		a.reduced(c.Out[0], losses, args)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		args, x := b.Args.(*op.MarginArgs), a.get(b.SavedIn[0])
		rows, n := rowsOfClasses(x)
		g, out := a.gradients(b, rows), make([]float64, len(x.v))
		hinge(x, a.get(b.SavedIn[1]).v, weights(a, b.SavedIn), args, func(i, k, y int, z, w float64) {
			d := g[i] * w
			if args.P == 2 {
				d *= 2 * z
			}
			out[i*n+k] += d
			out[i*n+y] -= d
		})
		a.put(r, out)
	})
}()

// multilabelMargin is the loss of the margins between a row's classes, which end
// with the first negative one, and all others; it returns which they are, too.
var multilabelMargin = func() row {
	hinge := func(x *array, target []float64, f func(i, k, y int, margin float64)) (is []float64) {
		rows, n := rowsOfClasses(x)
		is = make([]float64, len(x.v))
		for i := range rows {
			var classes []int
			for k := range n {
				y := int(target[i*n+k])
				if y < 0 || y >= n {
					break
				}
				classes = append(classes, y)
				is[i*n+y] = 1
			}
			for _, y := range classes {
				for k := range n {
					if z := 1 - x.v[i*n+y] + x.v[i*n+k]; is[i*n+k] == 0 && z > 0 {
						f(i, k, y, z)
					}
				}
			}
		}
		return is
	}
	return asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		rows, n := rowsOfClasses(x)
		losses := make([]float64, rows)
		is := hinge(x, a.get(c.In[1]).v, func(i, _, _ int, z float64) { losses[i] += z / float64(n) })
		a.reduced(c.Out[0], losses, c.Args)
		a.put(c.Out[1], is)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		x := a.get(b.SavedIn[0])
		rows, n := rowsOfClasses(x)
		g, out := a.gradients(b, rows), make([]float64, len(x.v))
		hinge(x, a.get(b.SavedIn[1]).v, func(i, k, y int, _ float64) {
			out[i*n+k] += g[i] / float64(n)
			out[i*n+y] -= g[i] / float64(n)
		})
		a.put(r, out)
	})
}()
