package cuda

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

var normPlans = map[*kernel.Kernel]planner{
	kernel.Softmax:        softmax(false, false),
	kernel.SafeSoftmax:    softmax(false, true),
	kernel.LogSoftmax:     softmax(true, false),
	kernel.SoftmaxGrad:    softmaxGrad(false),
	kernel.LogSoftmaxGrad: softmaxGrad(true),
	kernel.LayerNorm:      rowNorm,
	kernel.RMSNorm:        rowNorm,
	kernel.LayerNormGrad:  rowNormGrad,
	kernel.RMSNormGrad:    rowNormGrad,
	kernel.BatchNorm:      groupNorm,
	kernel.GroupNorm:      groupNorm,
	kernel.BatchNormGrad:  groupNormGrad,
	kernel.GroupNormGrad:  groupNormGrad,
}

// row is an operand over rows with its stride along them.
func (a args) row(s shape, i int, t *kernel.Tensor) args {
	inner := int64(0)
	if n := t.Stride.Len(); n > 0 {
		inner = t.Stride.At(n - 1)
	}
	return a.tensor(t, s.stride[i]...).ints(inner)
}

// rows are the shape of all dimensions but the last of the first operand, and
// the size of that one.
func rows(ts ...*kernel.Tensor) (shape, int64) {
	rank := ts[0].Size.Len()
	return over(rank-1, ts...), ts[0].Size.At(rank - 1)
}

func softmax(logarithm, safe bool) planner {
	return func(c *kernel.Call) ([]launch, error) {
		y, a := &c.T[0], &c.T[1]
		s, n := rows(y, a)
		p := args{}.ints(truth(logarithm), truth(safe), n).sizes(s.size).row(s, 0, y).row(s, 1, a)
		return []launch{{"softmax", numel(s.size), 1, p}}, nil
	}
}

func softmaxGrad(logarithm bool) planner {
	return func(c *kernel.Call) ([]launch, error) {
		y, g, r := &c.T[0], &c.T[1], &c.T[2]
		s, n := rows(y, g, r)
		p := args{}.ints(truth(logarithm), n).sizes(s.size).row(s, 0, y).row(s, 1, g).row(s, 2, r)
		return []launch{{"softmax_grad", numel(s.size), 1, p}}, nil
	}
}

func rowNorm(c *kernel.Call) ([]launch, error) {
	y, mean, rstd, x := operand(c, "y"), operand(c, "mean"), operand(c, "rstd"), operand(c, "x")
	s, n := rows(y, x, mean, rstd)
	p := args{}.ints(truth(c.Kernel == kernel.LayerNorm), n).floats(float(c, "eps")).sizes(s.size).row(s, 0, y).
		tensor(mean, s.stride[2]...).tensor(rstd, s.stride[3]...).row(s, 1, x).whole(operand(c, "weight")).whole(operand(c, "bias"))
	return []launch{{"row_norm", numel(s.size), 1, p}}, nil
}

func rowNormGrad(c *kernel.Call) ([]launch, error) {
	gx, gweight, gbias := operand(c, "gx"), operand(c, "gweight"), operand(c, "gbias")
	g, x, mean, rstd := operand(c, "g"), operand(c, "x"), operand(c, "mean"), operand(c, "rstd")
	centred := truth(c.Kernel == kernel.LayerNormGrad)
	var ls []launch
	if !gx.Absent() {
		s, n := rows(x, g, mean, rstd, gx)
		p := args{}.ints(centred, n).sizes(s.size).row(s, 4, gx).row(s, 1, g).row(s, 0, x).
			tensor(mean, s.stride[2]...).tensor(rstd, s.stride[3]...).whole(operand(c, "weight"))
		ls = append(ls, launch{"row_norm_grad", numel(s.size), 1, p})
	}
	if gweight.Absent() && gbias.Absent() {
		return ls, nil
	}
	s, n := rows(x, g, mean, rstd)
	lines := numel(s.size)
	count, length := parts(lines, tensor.DivUp(n, 32), tuning.partOf, 2*n, tuning.scratch)
	if 2*n > tuning.scratch {
		return nil, unsupported(c, "the rows are too long for the gradients of weight and bias")
	}
	p := args{}.ints(centred, n, count, length).sizes(s.size).row(s, 1, g).row(s, 0, x).tensor(mean, s.stride[2]...).tensor(rstd, s.stride[3]...)
	ls = append(ls, launch{"row_norm_params", tensor.DivUp(n, 32), count, p})
	return append(ls, each("row_norm_finish", n, args{}.ints(n, count).whole(gweight).whole(gbias))...), nil
}

// groups is how group_norm sees the tensors of a batch or group norm: the sizes A,
// B, C and S, and the strides of each operand.
type groups struct {
	a, b, c, s int64
	batch      bool // norm
}

func groupsOf(c *kernel.Call) groups {
	x := operand(c, "x")
	if c.Kernel == kernel.BatchNorm || c.Kernel == kernel.BatchNormGrad {
		return groups{1, x.Size.At(1), x.Size.At(0), x.Size.At(2), true}
	}
	return groups{x.Size.At(0), x.Size.At(1), x.Size.At(2), x.Size.At(3), false}
}

// image is an operand of all elements.
func (g groups) image(a args, t *kernel.Tensor) args {
	if g.batch && !t.Absent() {
		return a.tensor(t, 0, t.Stride.At(1), t.Stride.At(0), t.Stride.At(2))
	}
	return a.whole(t)
}

// stat is an operand of A and B, param one of B and C.
func (g groups) stat(a args, t *kernel.Tensor) args { return a.whole(t) }
func (g groups) param(a args, t *kernel.Tensor) args {
	if g.batch && !t.Absent() {
		return a.tensor(t, t.Stride.At(0), 0)
	}
	return a.whole(t)
}

func groupNorm(c *kernel.Call) ([]launch, error) {
	g := groupsOf(c)
	training := !g.batch || number(c, "training") != 0
	n := float64(g.c * g.s)
	p := args{}.ints(truth(training), g.b, g.c, g.s).floats(float(c, "eps"), float(c, "momentum"), n/(n-1))
	p = g.image(p, operand(c, "y"))
	p = g.stat(g.stat(p, operand(c, "mean")), operand(c, "rstd"))
	p = g.image(p, operand(c, "x"))
	p = g.param(g.param(p, operand(c, "weight")), operand(c, "bias"))
	p = p.whole(operand(c, "running_mean")).whole(operand(c, "running_var"))
	return []launch{{"group_norm", g.a * g.b, 1, p}}, nil
}

func groupNormGrad(c *kernel.Call) ([]launch, error) {
	g := groupsOf(c)
	gx, gweight, gbias := operand(c, "gx"), operand(c, "gweight"), operand(c, "gbias")
	var ls []launch
	if !gx.Absent() {
		p := g.image(args{}.ints(truth(!g.batch || number(c, "training") != 0), g.b, g.c, g.s), gx)
		p = g.image(g.image(p, operand(c, "g")), operand(c, "x"))
		p = g.stat(g.stat(p, operand(c, "mean")), operand(c, "rstd"))
		ls = append(ls, launch{"group_norm_grad", g.a * g.b, 1, g.param(p, operand(c, "weight"))})
	}
	if gweight.Absent() && gbias.Absent() {
		return ls, nil
	}
	blocks := g.b
	if !g.batch {
		blocks *= g.c
	}
	p := g.param(g.param(args{}.ints(g.b, g.c, g.a, g.s, truth(!g.batch)), gweight), gbias)
	p = g.image(g.image(p, operand(c, "g")), operand(c, "x"))
	return append(ls, launch{"group_norm_params", blocks, 1, g.stat(g.stat(p, operand(c, "mean")), operand(c, "rstd"))}), nil
}
