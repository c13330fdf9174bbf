package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
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
var Cumsum = define(Op{
	Name: "cumsum", Sig: "torch.cumsum(input, dim: int, *, dtype: dtype? = None)", Args: &CumsumArgs{}, Cast: CastFP32Out,
	Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*CumsumArgs)
		dim := c.dim(a.Dim, x.Rank())
		d := x.DType
		if a.DType != nil {
			d = *a.DType
		} else if !d.IsFloating() {
			d = tensor.Int64
		}
		c.Return(c.scanned(x, dim, d))
	},
	Node: "CumsumBackward0",
	Eval: aside(running(func(sum, x float64) float64 { return sum + x }), func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			g := a.Array(b.Grads[0])
			g.SumBehind(array.Dim(b.Args.(*CumsumArgs).Dim, len(g.Size)))
			a.Put(r, g.V)
		}
	}),
	Source: "aten/src/ATen/native/cuda/ScanKernels.cpp, ScanUtils.cuh: scan_dim",
})

// running goes on with f along a dimension, from each element to the next.
func running(f func(sum, x float64) float64) func(a Arrays, c *Call) {
	return func(a Arrays, c *Call) {
		x := a.Array(c.In[0])
		x.Running(array.Dim(c.Args.(*CumsumArgs).Dim, len(x.Size)), f)
		a.Put(c.Target(), x.V)
	}
}

// scanned is the running sum or product of x along a dimension, in type d. Over
// the only dimension it is one scan by CUB.
func (c *Call) scanned(x *Tensor, dim int, d tensor.DType) *Tensor {
	out := c.New(tensor.Contiguous(x.Size), d)
	if d != x.DType && x.Rank() > 0 { // the kernel takes what it gives; autograd does not see this conversion
		x = c.Local(c.New(x.LikeDense(), d))
	}
	if x.Numel() > 1 {
		c.contiguous(x)
	}
	if n := x.Numel(); x.Rank() > 0 && n > 0 && n == x.Dim(dim) {
		c.Drop(c.NewShape(tensor.Uint8, c.scanScratch(d, n)))
	}
	return out
}

// scanScratch is the scratch of cub::DeviceScan::InclusiveScan over n elements.
func (c *Call) scanScratch(d tensor.DType, n int64) int64 {
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

var _ = Cumsum.derive(func(b *Back) { // cumsum_backward of grad in self's type: grad.flip(dim).cumsum(dim).flip(dim)
	a := b.Args.(*CumsumArgs)
	g := b.Local(b.Do1(To, &ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0]))
	if g.Numel() <= 1 || g.Dim(b.dim(a.Dim, g.Rank())) == 1 {
		b.Set(0, b.Keep(g))
		return
	}
	f := b.Local(b.NewLike(g))
	s := b.Local(b.Do1(Cumsum, &CumsumArgs{Dim: a.Dim}, f))
	b.Set(0, b.NewLike(s))
})
