package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// ExtremeArgs are the arguments of max, min, argmax and argmin, and of median and
// kthvalue.
type ExtremeArgs struct {
	Dim     *int64 `arg:"dim"`
	KeepDim bool   `arg:"keepdim"`
	K       int64  `arg:"k"` // of kthvalue
}

// valueIndex is the size in bytes of an accumulator of a value and its index.
const valueIndex = 16

// over returns the arguments as those of a reduction.
func (a *ExtremeArgs) over() *ReduceArgs {
	r := &ReduceArgs{KeepDim: a.KeepDim}
	if a.Dim != nil {
		r.Dim = []int64{*a.Dim}
	}
	return r
}

// Extremes are the rows of max or min.
type Extremes struct {
	Any   *Op // as specs write it
	All   *Op // over everything
	Along *Op // along a dimension, with the indices
	Arg   *Op // the index alone
	Over  *Op // along several dimensions: amax
}

// The largest and the smallest elements.
var (
	Max = extreme("max", "MaxBackward", true)
	Min = extreme("min", "MinBackward", false)

	_ = Max.Along.derive(gradSelected)
	_ = Min.Along.derive(gradSelected)
)

// extreme defines max or min.
func extreme(name, node string, largest bool) (rows Extremes) {
	of := func(x []float64, _ any) float64 { return array.Extreme(x, largest) }
	rows.All = define(Op{
		Name: name + ".all", Run: func(c *Call) {
			x := c.In[0]
			if x.Numel() == 0 {
				c.Fail("%s of no elements", name)
			}
			dims, size := c.reducedDims(x.Meta(), &ReduceArgs{})
			out := c.New(tensor.Contiguous(size), x.DType)
			reduceScratch(c, c.contiguous(x), dims, x.DType.Size(), 4)
			c.Return(out)
		},
		Save: []Save{In(0), Out(0)}, Node: node + "1", Grad: gradExtremeAll,
		Eval:   statistic{of: of, slopes: alike, over: overAll}.eval(),
		Source: "aten/src/ATen/native/ReduceAllOps.cpp",
	})
	rows.Along = define(Op{
		Name: name + ".dim", Args: &ExtremeArgs{}, Run: func(c *Call) {
			x := c.In[0]
			dims, size := c.reducedDims(x.Meta(), c.Args.(*ExtremeArgs).over())
			values, indices := c.New(tensor.Contiguous(size), x.DType), c.New(tensor.Contiguous(size), tensor.Int64)
			reduceScratch(c, x, dims, valueIndex, 4)
			c.Return(values, indices)
		},
		Save: []Save{Out(1)}, Node: node + "0",
		Eval:   picking(func(row []float64, _ any) []int { return []int{array.Best(row, largest)} }),
		Source: "aten/src/ATen/native/TensorCompare.cpp; cuda/ReduceMaxValuesKernel.cu",
	})
	rows.Any = define(Op{
		Name: name, Sig: "torch." + name + "(input, dim: int? = None, keepdim: bool = False)", Args: &ExtremeArgs{}, Composite: true,
		Run: func(c *Call) {
			a, x := c.Args.(*ExtremeArgs), c.In[0]
			if a.Dim == nil {
				c.Return(c.Do1(rows.All, nil, x))
				return
			}
			if d := c.dim(int(*a.Dim), x.Rank()); x.Rank() == 0 || x.Dim(d) == 0 {
				c.Fail("%s along dimension %d of shape %v has no elements", name, *a.Dim, x.Size)
			}
			c.Return(c.Do(rows.Along, a, x)...)
		},
	})
	rows.Arg = define(Op{
		Name: "arg" + name, Sig: "torch.arg" + name + "(input, dim: int? = None, keepdim: bool = False)", Args: &ExtremeArgs{}, Run: argExtreme,
		Eval: aside(func(a Arrays, c *Call) {
			over := c.Args.(*ExtremeArgs).over()
			a.Put(c.Out[0], a.Array(c.In[0]).Reduce(over.Dim, func(x []float64) float64 { return float64(array.Best(x, largest)) }))
		}, nil),
		Source: "aten/src/ATen/native/ReduceOps.cpp: argmax_argmin_impl",
	})
	rows.Over = define(Op{
		Name: "a" + name, Sig: "torch.a" + name + "(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{}, Run: func(c *Call) {
			x := c.In[0]
			if x.Numel() == 0 {
				c.Fail("a%s of no elements is not modelled", name)
			}
			dims, size := c.reducedDims(x.Meta(), c.Args.(*ReduceArgs))
			out := c.New(tensor.Contiguous(size), x.DType)
			reduceScratch(c, x, dims, x.DType.Size(), 4)
			c.Return(out)
		},
		Save: []Save{In(0), Out(0)}, Node: "A" + name + "Backward0", Grad: gradAmax,
		Eval:   statistic{of: of, slopes: alike, over: overDims}.eval(),
		Source: "aten/src/ATen/native/ReduceOps.cpp: amax; cuda/ReduceMaxValuesKernel.cu",
	})
	return rows
}

// argExtreme is the index of the extreme value, in a flattened tensor if no
// dimension is given.
func argExtreme(c *Call) {
	a, x := c.Args.(*ExtremeArgs), c.In[0]
	if x.Numel() == 0 {
		c.Fail("the index of an extreme value among none")
	}
	r := a.over()
	if a.Dim == nil {
		r.KeepDim = a.KeepDim
	}
	dims, size := c.reducedDims(x.Meta(), r)
	out := c.New(tensor.Contiguous(size), tensor.Int64)
	c.Return(out)
	if a.Dim == nil {
		l, ok := x.View(tensor.D(x.Numel()))
		if !ok {
			l = tensor.Contiguous(tensor.D(x.Numel()))
			x = c.Local(c.New(l, x.DType))
		}
		x = c.Local(c.Alias(x, l, x.DType))
		dims = []bool{true}
	} else if x.Rank() > 0 && x.Dim(c.dim(int(*a.Dim), x.Rank())) == 1 {
		return // filled with 0
	}
	reduceScratch(c, x, dims, valueIndex, 4)
}

// gradSelected puts the gradient where the indices say, among zeros
// (value_selecting_reduction_backward).
func gradSelected(b *Back) {
	in := tensor.Contiguous(b.InM[0].Size)
	b.Set(0, b.New(in, b.Grads[0].DType))
	if !b.Env().Deterministic || in.Rank() == 0 {
		return
	}
	dim := b.dim(selectedDim(b.Args), in.Rank())
	idx := *b.saved()[len(b.saved())-1]
	if idx.Rank() < in.Rank() { // indices.unsqueeze(dim)
		idx.Layout = tensor.Contiguous(in.Size.Set(dim, 1))
	}
	b.scatterDeterministic(in, &idx, b.Grads[0], dim)
}

// picking is an operator that picks elements along a dimension: pick says which, of each
// row, and the results are their values and their indices. Its derivative puts the
// gradients there.
func picking(pick func(row []float64, args any) []int) *Eval {
	per := func(picked, all *Tensor, d int) int { // of each row
		if all.Rank() == 0 {
			return int(picked.Numel())
		}
		return int(picked.Numel() * all.Dim(d) / max(all.Numel(), 1))
	}
	return aside(func(a Arrays, c *Call) {
		d := array.Dim(selectedDim(c.Args), c.In[0].Rank())
		values, indices := a.Array(c.In[0]).Pick(d, per(c.Out[0], c.In[0], d), func(row []float64) []int { return pick(row, c.Args) })
		a.Put(c.Out[0], values)
		a.Put(c.Out[1], indices)
	}, func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			d := array.Dim(selectedDim(b.Args), r.Rank())
			a.Put(r, array.Unpick(r.Size.Ints(), d, per(b.Grads[0], r, d), a.Get(b.Grads[0]), a.Get(b.SavedOut(1))))
		}
	})
}

// selectedDim is the dimension along which elements were selected.
func selectedDim(args any) int {
	switch a := args.(type) {
	case *ExtremeArgs:
		return int(*a.Dim)
	case *SortArgs:
		return a.Dim
	case *TopkArgs:
		return a.Dim
	}
	return args.(*DimArgs).Dim
}

// gradAmax is (grad / mask.sum) * mask with a mask of the elements that equal
// the result (scale_grad_by_count).
func gradAmax(b *Back) {
	a, x := b.Args.(*ReduceArgs), b.SavedIn(0)
	dims, _ := b.reducedDims(&b.InM[0], a)
	keep := *a
	keep.KeepDim = true
	g, res := b.restored(b.Grads[0], dims, a.KeepDim), b.restored(b.SavedOut(0), dims, a.KeepDim)
	mask := b.Local(b.New(b.elementwise(res, x), tensor.Bool))
	b.shareGradient(g, mask, &keep)
}

// restored returns t with the reduced dimensions back, of size 1.
func (b *Back) restored(t *Tensor, dims []bool, keepDim bool) *Tensor {
	l := t.Layout
	if !keepDim {
		for i, red := range dims {
			if red {
				l = l.Unsqueeze(i)
			}
		}
	}
	return b.Local(b.Alias(t, l, t.DType))
}

// shareGradient sets (grad / mask.sum) * mask.
func (b *Back) shareGradient(g, mask *Tensor, a *ReduceArgs) {
	count := b.Local(b.Do1(Sum, a, mask))
	each := b.Local(b.Do1(DivTensor, nil, g, count))
	b.Set(0, b.Do1(MulTensor, nil, each, mask))
}

// gradExtremeAll shares the gradient among all elements that equal the result,
// NaN among them (evenly_distribute_backward).
func gradExtremeAll(b *Back) {
	x, res := b.SavedIn(0), b.SavedOut(0)
	b.Local(b.New(x.LikeDense(), tensor.Bool))   // input.isnan()
	b.Local(b.New(res.LikeDense(), tensor.Bool)) // value.isnan()
	mask := b.Local(b.New(b.elementwise(x, res), tensor.Bool))
	b.shareGradient(b.Grads[0], mask, &ReduceArgs{})
}
