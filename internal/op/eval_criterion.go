package op

// criterion is a loss of the elements x of its inputs: of gives it, slopes its
// derivatives by input and target. Further inputs are weights; one that is absent
// counts as 1.
type criterion struct {
	inputs int
	of     func(x []float64, args any) float64
	slopes func(x []float64, args any) (byInput, byTarget float64)
}

// lossScale says by what the sum of n losses is multiplied; whole reports whether there
// is a sum.
func lossScale(args any, n int) (scale float64, whole bool) {
	switch args.(interface{ reduction() string }).reduction() {
	case "mean":
		return 1 / float64(n), true
	case "sum":
		return 1, true
	}
	return 1, false
}

// reducedLosses are losses, or their mean or sum.
func reducedLosses(losses []float64, args any) []float64 {
	scale, whole := lossScale(args, len(losses))
	if !whole {
		return losses
	}
	sum := 0.0
	for _, v := range losses {
		sum += v
	}
	return []float64{sum * scale}
}

// gradOfLosses is what the gradient of a loss is of each of n losses.
func gradOfLosses(a Arrays, b *Back, n int) []float64 {
	g := a.Get(b.Grads[0])
	if scale, whole := lossScale(b.Args, n); whole {
		each := g[0] * scale
		g = make([]float64, n)
		for i := range g {
			g[i] = each
		}
	}
	return g
}

// operands reads the elements of the inputs.
func (l criterion) operands(a Arrays, ts []*Tensor) func(i int) []float64 {
	v := make([][]float64, l.inputs)
	for k := range v {
		v[k] = a.Like(optional(ts, k), ts[0].Size)
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

func (l criterion) eval() *Eval {
	return aside(func(a Arrays, c *Call) {
		x := l.operands(a, c.In)
		losses := make([]float64, c.In[0].Numel())
		for i := range losses {
			losses[i] = l.of(x(i), c.Args)
		}
		a.Put(c.Out[0], reducedLosses(losses, c.Args))
	}, func(a Arrays, b *Back) {
		x, g := l.operands(a, b.SavedIns()), gradOfLosses(a, b, int(b.SavedIn(0).Numel()))
		gx, gt := make([]float64, len(g)), make([]float64, len(g))
		for i := range g {
			byInput, byTarget := l.slopes(x(i), b.Args)
			gx[i], gt[i] = g[i]*byInput, g[i]*byTarget
		}
		a.Put(a.Wanted(b, 0), gx)
		a.Put(a.Wanted(b, 1), gt)
	})
}

// distance makes a loss of the difference d of input and target.
func distance(of, slope func(d float64, a *LossArgs) float64) criterion {
	return criterion{
		inputs: 2,
		of:     func(x []float64, args any) float64 { return of(x[0]-x[1], args.(*LossArgs)) },
		slopes: func(x []float64, args any) (float64, float64) {
			s := slope(x[0]-x[1], args.(*LossArgs))
			return s, -s
		},
	}
}
