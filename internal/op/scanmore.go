package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// Cumprod is the running product along a dimension. Its derivative looks for
// zeros, for which the GPU is waited for; there are taken to be none.
var Cumprod = define(Op{
	Name: "cumprod", Sig: "torch.cumprod(input, dim: int, *, dtype: dtype? = None)", Args: &CumsumArgs{}, Cast: CastFP32Out, Run: func(c *Call) {
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
	Save: []Save{In(0), Out(0)}, Node: "CumprodBackward0",
	Eval: aside(running(func(product, x float64) float64 { return product * x }), func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			x := a.Array(b.SavedIn(0))
			a.Put(r, x.ProductsGrad(a.Get(b.Grads[0]), array.Dim(b.Args.(*CumsumArgs).Dim, len(x.Size)), false))
		}
	}),
	NotModelled: "the gradient of cumprod and prod where elements are 0",
	Source:      "aten/src/ATen/native/ReduceOps.cpp: cumprod, cumprod_backward",
})

var _ = Cumprod.derive(func(b *Back) { // reversed_cumsum(result * grad).div(input)
	x, dim := b.SavedIn(0), b.Args.(*CumsumArgs).Dim
	if x.Numel() <= 1 || x.Dim(b.dim(dim, x.Rank())) == 1 {
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
func runningExtreme(name string, largest bool) *Op {
	return define(Op{
		Name: name, Sig: "torch." + name + "(input, dim: int)", Args: &DimArgs{}, Run: func(c *Call) {
			x := c.In[0]
			c.dim(c.Args.(*DimArgs).Dim, x.Rank())
			l := tensor.Contiguous(x.Size)
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
			c.contiguous(x)
		},
		Save: []Save{In(0), Out(1)}, Node: nodeName(name), Grad: gradSelected,
		Eval: aside(func(a Arrays, c *Call) {
			x := a.Array(c.In[0])
			values, indices := x.Extremes(array.Dim(c.Args.(*DimArgs).Dim, len(x.Size)), largest)
			a.Put(c.Out[0], values)
			a.Put(c.Out[1], indices)
		}, func(a Arrays, b *Back) {
			if r := a.Wanted(b, 0); r != nil {
				g := a.Array(b.Grads[0])
				a.Put(r, g.Scattered(array.Dim(b.Args.(*DimArgs).Dim, len(g.Size)), a.Get(b.SavedOut(1))))
			}
		}),
		Source: "aten/src/ATen/native/ReduceOps.cpp: cummax, cummaxmin_backward",
	})
}

// ranked defines median or kthvalue: the rank, counted from 0, of a row whose smallest
// element comes first in its order.
func ranked(name, sig string, rank func(row []float64, order []int, args *ExtremeArgs) int) *Op {
	return define(Op{
		Name: name, Sig: sig, Args: &ExtremeArgs{}, Run: func(c *Call) {
			x := c.In[0]
			_, size := c.reducedDims(x.Meta(), c.Args.(*ExtremeArgs).over())
			switch {
			case x.Numel() == 0:
				c.Fail("%s of no elements", name)
			case c.Env().Deterministic:
				c.Fail("%s has no deterministic form in PyTorch; it would raise an error", name)
			}
			c.contiguous(x)
			l := tensor.Contiguous(size)
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
		},
		Save: []Save{Out(1)}, Node: nodeName(name), Grad: gradSelected,
		Eval: picking(func(row []float64, args any) []int {
			order := array.Order(row, false)
			return order[rank(row, order, args.(*ExtremeArgs)):]
		}),
		Source: "aten/src/ATen/native/cuda/Sorting.cpp",
	})
}

// The running extremes, and the values at a rank.
var (
	Cummax = runningExtreme("cummax", true)
	Cummin = runningExtreme("cummin", false)
	Median = ranked("median", "torch.median(input, dim: int, keepdim: bool = False)", func(row []float64, order []int, _ *ExtremeArgs) int {
		return array.Median(row, order)
	})
	Kthvalue = ranked("kthvalue", "torch.kthvalue(input, k: int, dim: int = -1, keepdim: bool = False)", func(_ []float64, _ []int, a *ExtremeArgs) int {
		return int(a.K) - 1
	})
)

// Prod is the product along a dimension.
var Prod = define(Op{
	Name: "prod", Sig: "torch.prod(input, dim: int, keepdim: bool = False, *, dtype: dtype? = None)", Args: &ProdArgs{}, Cast: CastFP32Out, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*ProdArgs)
		d := x.DType
		switch half := d.IsHalf(); {
		case a.DType != nil && *a.DType != d && !(half && *a.DType == tensor.Float32):
			c.Fail("prod with a conversion from %v to %v is not modelled; convert first", d, *a.DType)
		case a.DType != nil:
			d = *a.DType
		case !d.IsFloating():
			d = tensor.Int64
		}
		over := &Call{Exec: c.Exec, In: c.In, Args: a.over()}
		c.Return(over.reduce(d))
		over.End()
	},
	Save: []Save{In(0), Out(0)}, Node: "ProdBackward1",
	Eval: aside(func(a Arrays, c *Call) {
		x := a.Array(c.In[0])
		a.Put(c.Out[0], x.Products(array.Dim(int(c.Args.(*ProdArgs).Dim), len(x.Size))))
	}, func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			x := a.Array(b.SavedIn(0))
			a.Put(r, x.ProductsGrad(a.Get(b.Grads[0]), array.Dim(int(b.Args.(*ProdArgs).Dim), len(x.Size)), true))
		}
	}),
	Grad: func(b *Back) { // grad * (result / input) where nothing is 0
		x, a := b.SavedIn(0), b.Args.(*ProdArgs)
		x = b.Local(b.Do1(To, &ToCopyArgs{DType: b.Grads[0].DType}, x))
		dims, _ := b.reducedDims(&b.InM[0], a.over())
		g, res := b.restored(b.Grads[0], dims, a.KeepDim), b.restored(b.SavedOut(0), dims, a.KeepDim)
		mark := b.Mark()
		zero := b.Local(b.New(x.LikeDense(), tensor.Bool))
		count := b.Local(b.Do1(Sum, &ReduceArgs{Dim: []int64{a.Dim}, KeepDim: true}, zero))
		b.Drop(b.Do1(Sum, &ReduceArgs{}, count))
		share := b.Local(b.Do1(DivTensor, nil, res, x))
		b.Set(0, b.Do1(MulTensor, nil, g, share))
		b.Early(share)
		b.Early(count)
		b.DropTo(mark)
	},
	Source: "aten/src/ATen/native/ReduceOps.cpp: prod; torch/csrc/autograd/FunctionsManual.cpp: prod_backward",
})

// ProdArgs are the arguments of prod.
type ProdArgs struct {
	Dim     int64         `arg:"dim"`
	KeepDim bool          `arg:"keepdim"`
	DType   *tensor.DType `arg:"dtype"`
}

// OrType implements Typed.
func (a *ProdArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

func (a *ProdArgs) over() *ReduceArgs { return &ReduceArgs{Dim: []int64{a.Dim}, KeepDim: a.KeepDim} }
