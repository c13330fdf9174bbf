package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// GroupNormArgs are the arguments of group_norm.
type GroupNormArgs struct {
	Groups int64   `arg:"num_groups"`
	Eps    float64 `arg:"eps"`
}

// GroupNorm normalizes over groups of channels.
var GroupNorm = define(op.Op{
	Name: "group_norm", Takes: op.FloatsOfOneType, Args: &GroupNormArgs{}, Cast: op.CastFP32, Composite: true,
	Sig: "F.group_norm(input, num_groups: int, weight: tensor? = None, bias: tensor? = None, eps: float = 1e-05)",
	Run: func(c *op.Call) {
		in := slices.Clone(c.In)
		if !c.Env().Torch.Has(torchver.GroupNormKeepsInput) {
			in[0] = c.Local(c.Do1(Contiguous, nil, in[0]))
		}
		outs := c.Do(NativeGroupNorm, c.Args, in...)
		c.Return(outs[0])
		c.Drop(outs[1], outs[2])
	},
})

// groupNormOperand is t as the kernels of group_norm of images x take it, and whether those
// of channels_last do (group_norm_memory_format).
func groupNormOperand(c *op.Call, t, x *op.Tensor) (*op.Tensor, bool) {
	nhwc := c.Env().Torch.Has(torchver.GroupNormNHWC)
	t = c.InFormat(t, nhwc && x.IsChannelsLast())
	return t, nhwc && t.IsChannelsLastContiguous()
}

// NativeGroupNorm is the kernel of group_norm, which keeps mean and rstd.
var NativeGroupNorm = define(op.Op{
	Name: "native_group_norm", Args: &GroupNormArgs{}, Eval: evalGroupNorm, Run: func(c *op.Call) {
		if c.In[0].Rank() < 2 {
			c.Fail("group_norm needs at least two dimensions, not shape %v", c.In[0].Size)
		}
		if c.Opt(1) == nil && c.Opt(2) != nil {
			c.Fail("a bias without a weight is not modelled")
		}
		x, g := c.In[0], c.Args.(*GroupNormArgs).Groups
		n, ch := x.Dim(0), x.Dim(1)
		if g <= 0 || ch%g != 0 {
			c.Fail("%d channels do not divide into %d groups", ch, g)
		}
		for i := 1; i <= 2; i++ {
			if w := c.Opt(i); w != nil && w.Size != tensor.D(ch) {
				c.Fail("weight and bias must have shape [%d], not %v", ch, w.Size)
			}
		}
		y := c.New(tensor.InFormat(x.Size, c.Env().Torch.Has(torchver.GroupNormNHWC) && x.IsChannelsLast()), x.DType)
		mean, rstd := c.NewShape(x.DType, n, g), c.NewShape(x.DType, n, g)
		c.Return(y, mean, rstd)
		_, last := groupNormOperand(c, x, x)
		if hxw := x.Numel() / max(n*ch, 1); last || hxw > 1 && (c.Opt(1) != nil || c.Opt(2) != nil) {
			acc := x.DType.Accumulate()
			a, b := c.NewShape(acc, n, ch), c.NewShape(acc, n, ch)
			c.Drop(b, a)
		}
	},
	Save: []op.Save{op.In(0), op.In(1), op.Out(1), op.Out(2)}, NoGrad: []int{1, 2}, Node: "NativeGroupNormBackward0",
	Grad: func(b *op.Back) { // GroupNormBackwardKernelImplInternal
		x, w := b.SavedIn(0), b.SavedIn(1)
		n, ch, g := x.Dim(0), x.Dim(1), b.Args.(*GroupNormArgs).Groups
		acc := x.DType.Accumulate()
		groupNormOperand(&b.Call, b.Grads[0], x)
		like, last := groupNormOperand(&b.Call, x, x)
		if b.Need(0) {
			b.Set(0, b.NewLike(like))
		}
		for i := 1; i <= 2; i++ {
			if b.Need(i) {
				b.Set(i, b.NewShape(w.DType, ch))
			}
		}
		ds, db := b.Local(b.NewShape(acc, n, ch)), b.Local(b.NewShape(acc, n, ch))
		_, _ = ds, db
		if b.Need(0) {
			c2, c3 := b.NewShape(acc, n, g), b.NewShape(acc, n, g)
			var c1 *op.Tensor
			if w != nil && !last && x.Numel() > n*ch {
				c1 = b.NewShape(acc, n, ch)
			}
			b.Drop(c3, c2, c1)
		}
	},
	Source: "aten/src/ATen/native/cuda/group_norm_kernel.cu",
})

// grouped adds a tensor of images as [N, G, C/G, S].
func grouped(l *op.Launch, t *op.Tensor, g int64) {
	if t == nil {
		l.Seen(nil)
		return
	}
	l.Seen(t, t.Dim(0), g, t.Dim(1)/g, pixels(t))
}

var evalGroupNorm = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		a, x := c.Args.(*GroupNormArgs), c.In[0]
		l := op.Launch{On: m}
		grouped(&l, c.Out[0], a.Groups)
		l.Add(c.Out[1], c.Out[2])
		grouped(&l, x, a.Groups)
		l.Seen(c.Opt(1), a.Groups, x.Dim(1)/a.Groups)
		l.Seen(c.Opt(2), a.Groups, x.Dim(1)/a.Groups)
		return l.Run(kernel.GroupNorm, nil, a.Eps)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		x, g := b.SavedIn(0), b.Args.(*GroupNormArgs).Groups
		l := op.Launch{On: m}
		grouped(&l, m.Wanted(b, 0), g)
		l.Seen(m.Wanted(b, 1), g, x.Dim(1)/g)
		l.Seen(m.Wanted(b, 2), g, x.Dim(1)/g)
		grouped(&l, b.Grads[0], g)
		grouped(&l, x, g)
		l.Add(b.SavedOut(1), b.SavedOut(2))
		l.Seen(b.SavedIn(1), g, x.Dim(1)/g)
		return l.Run(kernel.GroupNormGrad, nil)
	},
}).Otherwise(normalized(func(args any, size []int) (*array.Normalization, float64) {
	a := args.(*GroupNormArgs)
	return array.OverGroups(size, int(a.Groups)), a.Eps
}))
