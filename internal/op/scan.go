package op

import "github.com/memplan/memplan/internal/tensor"

// CumsumArgs are the arguments of cumsum.
type CumsumArgs struct {
	Dim   int           `arg:"dim"`
	DType *tensor.DType `arg:"dtype"`
}

// Cumsum is the running sum along a dimension; integers are summed in int64.
var cumsum = define(Row{
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
		one := x.Rank() > 0 && x.Numel() > 0 && x.Numel() == x.Dim(dim) // one scan by CUB
		if one && d.Size() != 8 && d.Size() != 4 {
			c.Fail("cumsum over the only dimension of %v is not modelled", d)
		}
		out := c.New(tensor.Contiguous(x.Size), d)
		if d != x.DType && x.Rank() > 0 { // the kernel takes what it gives; autograd does not see this conversion
			x = c.Local(c.New(x.LikeDense(), d))
		}
		if x.Numel() > 1 {
			c.contiguous(x)
		}
		if one {
			k := cubFor(c.Env())
			if d.Size() == 4 {
				k = cub32For(c.Env())
			}
			c.Drop(c.NewShape(tensor.Uint8, k.scan(x.Numel())))
		}
		c.Return(out)
	},
	Node:   "CumsumBackward0",
	Source: "aten/src/ATen/native/cuda/ScanKernels.cpp, ScanUtils.cuh: scan_dim",
})

func init() {
	cumsum.Grad = func(b *Back) { // cumsum_backward of grad in self's type: grad.flip(dim).cumsum(dim).flip(dim)
		a := b.Args.(*CumsumArgs)
		g := b.Local(b.Do1(To, &ToCopyArgs{DType: b.InM[0].DType}, b.Grads[0]))
		if g.Numel() <= 1 || g.Dim(b.dim(a.Dim, g.Rank())) == 1 {
			b.Set(0, b.Keep(g))
			return
		}
		f := b.Local(b.NewLike(g))
		s := b.Local(b.Do1(cumsum, &CumsumArgs{Dim: a.Dim}, f))
		b.Set(0, b.NewLike(s))
	}
}
