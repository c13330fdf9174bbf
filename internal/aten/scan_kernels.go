package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// CumsumArgs are the arguments of cumsum.
type CumsumArgs struct {
	Dim   int           `arg:"dim"`
	DType *tensor.DType `arg:"dtype"`
}

// OrType implements Typed.
func (a *CumsumArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

// Cumsum is the running sum along a dimension; integers are summed in int64.
var Cumsum = define(op.Op{
	Name: "cumsum", Sig: "torch.cumsum(input, dim: int, *, dtype: dtype? = None)", Args: &CumsumArgs{}, Cast: op.CastFP32Out,
	Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*CumsumArgs)
		dim := c.Dim(a.Dim, x.Rank())
		d := x.DType
		if a.DType != nil {
			d = *a.DType
		} else if !d.IsFloating() {
			d = tensor.Int64
		}
		c.Return(scanned(c, x, dim, d))
	},
	Node: "CumsumBackward0",
	Eval: (&op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			return summedAlong(m, c.Args.(*CumsumArgs).Dim, c.Out[0], c.In[0], false)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			y := m.Wanted(b, 0)
			if y == nil {
				return nil
			}
			return summedAlong(m, b.Args.(*CumsumArgs).Dim, y, b.Grads[0], true)
		},
	}).Otherwise(op.OnHost(running(func(sum, x float64) float64 { return sum + x }), func(a op.Arrays, b *op.Back) {
		if r := a.Wanted(b, 0); r != nil {
			g := a.Array(b.Grads[0])
			g.SumBehind(array.Dim(b.Args.(*CumsumArgs).Dim, len(g.Size)))
			a.Put(r, g.V)
		}
	})),
	Source: "aten/src/ATen/native/cuda/ScanKernels.cpp, ScanUtils.cuh: scan_dim",
})

// summedAlong is the running sum of x along a dimension, or that of what comes behind.
func summedAlong(m op.Machine, dim int, y, x *op.Tensor, reverse bool) error {
	if x.Rank() == 0 {
		return op.ErrView
	}
	l := op.Launch{On: m}
	l.Add(y, x)
	return l.Run(kernel.Cumsum, []int64{int64(array.Dim(dim, x.Rank())), op.Flag(reverse)})
}

// running goes on with f along a dimension, from each element to the next.
func running(f func(sum, x float64) float64) func(a op.Arrays, c *op.Call) {
	return func(a op.Arrays, c *op.Call) {
		x := a.Array(c.In[0])
		x.Running(array.Dim(c.Args.(*CumsumArgs).Dim, len(x.Size)), f)
		a.Put(c.Target(), x.V)
	}
}

// scanned is the running sum or product of x along a dimension, in type d. Over
// the only dimension it is one scan by CUB.
func scanned(c *op.Call, x *op.Tensor, dim int, d tensor.DType) *op.Tensor {
	out := c.New(tensor.Contiguous(x.Size), d)
	if d != x.DType && x.Rank() > 0 { // the kernel takes what it gives; autograd does not see this conversion
		x = c.Local(c.New(x.LikeDense(), d))
	}
	if x.Numel() > 1 {
		c.Contiguous(x)
	}
	if n := x.Numel(); x.Rank() > 0 && n > 0 && n == x.Dim(dim) {
		k := op.Kernel{Rule: cubScanRule, In: tensor.Layout{Size: tensor.D(n)}, DType: d}
		c.Kernel(k)
		k.Rule.Run(c, &k)
	}
	return out
}

// cubScanRule is what CUB takes for a scan: the operand is of how many elements.
var cubScanRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
	c.Drop(c.NewShape(tensor.Uint8, scanScratch(c, k.DType, k.In.Dim(0))))
}}

// scanScratch is the scratch of cub::DeviceScan::InclusiveScan over n elements.
func scanScratch(c *op.Call, d tensor.DType, n int64) int64 {
	switch {
	case d.Size() == 8:
		return cub.Words64(c.Env().Arch).Scan(n)
	case d.Size() == 4:
		return cub.Words32(c.Env().Arch).Scan(n)
	case d.Size() != 2 || !d.IsFloating():
		c.Fail("a scan over the only dimension of %v is not modelled", d)
	}
	return cub.ScanHalves(n)
}

var _ = Cumsum.Derive(func(b *op.Back) { // cumsum_backward of grad in self's type: grad.flip(dim).cumsum(dim).flip(dim)
	a := b.Args.(*CumsumArgs)
	g := b.Local(b.Do1(To, &ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0]))
	if g.Numel() <= 1 || g.Dim(b.Dim(a.Dim, g.Rank())) == 1 {
		b.Set(0, b.Keep(g))
		return
	}
	f := b.Local(b.NewLike(g))
	s := b.Local(b.Do1(Cumsum, &CumsumArgs{Dim: a.Dim}, f))
	b.Set(0, b.NewLike(s))
})

// Cumprod is the running product along a dimension. Its derivative looks for
// zeros, for which the GPU is waited for; there are taken to be none.
var Cumprod = define(op.Op{
	Name: "cumprod", Sig: "torch.cumprod(input, dim: int, *, dtype: dtype? = None)", Args: &CumsumArgs{}, Cast: op.CastFP32Out, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*CumsumArgs)
		dim := c.Dim(a.Dim, x.Rank())
		d := x.DType
		if a.DType != nil {
			d = *a.DType
		} else if !d.IsFloating() {
			d = tensor.Int64
		}
		c.Return(scanned(c, x, dim, d))
	},
	Save: []op.Save{op.In(0), op.Out(0)}, Node: "CumprodBackward0",
	Eval: op.OnHost(running(func(product, x float64) float64 { return product * x }), func(a op.Arrays, b *op.Back) {
		if r := a.Wanted(b, 0); r != nil {
			x := a.Array(b.SavedIn(0))
			a.Put(r, x.ProductsGrad(a.Get(b.Grads[0]), array.Dim(b.Args.(*CumsumArgs).Dim, len(x.Size)), false))
		}
	}),
	NotModelled: "the gradient of cumprod and prod where elements are 0",
	Source:      "aten/src/ATen/native/ReduceOps.cpp: cumprod, cumprod_backward",
})

var _ = Cumprod.Derive(func(b *op.Back) { // reversed_cumsum(result * grad).div(input)
	x, dim := b.SavedIn(0), b.Args.(*CumsumArgs).Dim
	if x.Numel() <= 1 || x.Dim(b.Dim(dim, x.Rank())) == 1 {
		b.Pass(0)
		return
	}
	g := b.Local(b.Do1(To, &ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0]))
	w := b.Local(b.Do1(MulTensor, nil, b.SavedOut(0), g))
	zero := b.Local(b.New(x.LikeDense(), tensor.Bool))
	b.Drop(b.Do1(Any, &ReduceArgs{}, zero))
	flipped := b.NewLike(w)
	sum := b.Do1(Cumsum, &CumsumArgs{Dim: dim}, flipped)
	back := b.NewLike(sum)
	b.Drop(sum, flipped)
	b.Set(0, b.Do1(DivTensor, nil, back, x))
	b.Drop(back)
})

// runningExtreme defines cummax or cummin.
func runningExtreme(name string, largest bool) *op.Op {
	return define(op.Op{
		Name: name, Sig: "torch." + name + "(input, dim: int)", Args: &DimArgs{}, Run: func(c *op.Call) {
			x := c.In[0]
			c.Dim(c.Args.(*DimArgs).Dim, x.Rank())
			l := tensor.Contiguous(x.Size)
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
			c.Contiguous(x)
		},
		Save: []op.Save{op.In(0), op.Out(1)}, Node: op.NodeName(name), Grad: gradSelected,
		Eval: op.OnHost(func(a op.Arrays, c *op.Call) {
			x := a.Array(c.In[0])
			values, indices := x.Extremes(array.Dim(c.Args.(*DimArgs).Dim, len(x.Size)), largest)
			a.Put(c.Out[0], values)
			a.Put(c.Out[1], indices)
		}, func(a op.Arrays, b *op.Back) {
			if r := a.Wanted(b, 0); r != nil {
				g := a.Array(b.Grads[0])
				a.Put(r, g.Scattered(array.Dim(b.Args.(*DimArgs).Dim, len(g.Size)), a.Get(b.SavedOut(1))))
			}
		}),
		Source: "aten/src/ATen/native/ReduceOps.cpp: cummax, cummaxmin_backward",
	})
}

// The running extremes.
var (
	Cummax = runningExtreme("cummax", true)
	Cummin = runningExtreme("cummin", false)
)
