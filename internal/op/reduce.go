package op

import "github.com/memplan/memplan/internal/tensor"

// ReduceArgs are the dimensions of a reduction, none meaning all, and the type
// of the result where it can be chosen.
type ReduceArgs struct {
	Dim     []int64       `arg:"dim"`
	KeepDim bool          `arg:"keepdim"`
	DType   *tensor.DType `arg:"dtype"`
}

// OrType implements Typed.
func (a *ReduceArgs) OrType(d tensor.DType) any {
	b := *a
	if b.DType == nil {
		b.DType = &d
	}
	return &b
}

// reducedDims resolves the dimensions, with the sizes of the result.
func (c *Call) reducedDims(x *Meta, a *ReduceArgs) ([]bool, tensor.Dims) {
	dims := make([]bool, x.Rank())
	for _, d := range a.Dim {
		if x.Rank() > 0 {
			dims[c.dim(int(d), x.Rank())] = true
		}
	}
	if len(a.Dim) == 0 {
		for i := range dims {
			dims[i] = true
		}
	}
	var size tensor.Dims
	for i, red := range dims {
		switch {
		case !red:
			size = size.Append(x.Dim(i))
		case a.KeepDim:
			size = size.Append(1)
		}
	}
	return dims, size
}

// reduce is the Run of a reduction by Reduce.cuh into type d.
func (c *Call) reduce(d tensor.DType) *Tensor {
	x := c.In[0]
	dims, size := c.reducedDims(x.Meta(), c.Args.(*ReduceArgs))
	out := c.New(tensor.Contiguous(size), d)
	if x.DType != d && !(x.DType.IsHalf() && d == tensor.Float32) { // make_reduction converts the input
		x = c.Local(c.New(x.LikeDense(), d))
	}
	reduceScratch(&Call{Exec: c.Exec}, x, dims, d.Accumulate().Size(), 4)
	return out
}

// gradExpand gives the gradient of a reduction the input's shape by strides of
// 0 (sum_backward); no memory.
func (b *Back) gradExpand() *Tensor {
	g, in := b.Grads[0], b.InM[0]
	a := b.Args.(*ReduceArgs)
	dims, _ := b.reducedDims(&in, a)
	l := g.Layout
	if !a.KeepDim && g.Rank() != in.Rank() {
		for i, red := range dims {
			if red {
				l = l.Unsqueeze(i)
			}
		}
	}
	e, err := l.Expand(in.Size.Slice())
	if err != nil {
		b.Fail("%v", err)
	}
	return b.ViewOf(g, e)
}

// Sum over some or all dimensions. Integers are summed in int64.
var Sum = define(Op{
	Name: "sum", Eval: evalSum, Sig: "torch.sum(input, dim: ints? = None, keepdim: bool = False, *, dtype: dtype? = None)", Args: &ReduceArgs{}, Cast: CastFP32Out,
	Run: func(c *Call) {
		d, a := c.In[0].DType, c.Args.(*ReduceArgs)
		switch half := d.IsHalf(); {
		case a.DType != nil && *a.DType != d && !(half && *a.DType == tensor.Float32):
			c.Fail("sum with a conversion from %v to %v is not modelled; convert first", d, *a.DType)
		case a.DType != nil: // half to float is one kernel (ReduceSumProdKernel.cu)
			d = *a.DType
		case !d.IsFloating():
			d = tensor.Int64
		}
		c.Return(c.reduce(d))
	},
	Node: "SumBackward1", Grad: func(b *Back) { b.Set(0, b.gradExpand()) },
})

// Mean over some or all dimensions.
var Mean = define(Op{
	Name: "mean", Eval: evalMean, Takes: (*Call).floats, Sig: "torch.mean(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{},
	Run:  func(c *Call) { c.Return(c.reduce(c.In[0].DType)) },
	Node: "MeanBackward1",
	Grad: func(b *Back) { // grad.expand(sizes) / n, a new tensor
		e := b.Local(b.gradExpand())
		b.Set(0, b.Do1(MulScalar, nil, e))
	},
})
