package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// WhereArgs are the numbers of where, in the place of a tensor.
type WhereArgs struct {
	Input op.Number `arg:"input"`
	Other op.Number `arg:"other"`
}

// Where is torch.where(condition, input, other). A number becomes a scalar
// tensor of the result's type; a tensor of another type is converted.
var _ = define(op.Op{
	Name: "where.any", Sig: "torch.where(condition, input: operand, other: operand)", Args: &WhereArgs{}, Composite: true, Run: func(c *op.Call) {
		a := c.Args.(*WhereArgs)
		cond, x, y := c.In[0], c.In[1], c.In[2]
		if cond.DType != tensor.Bool {
			c.Fail("the condition must be of type bool, not %v", cond.DType)
		}
		switch {
		case x == nil && y == nil:
			c.Fail("where needs another tensor, not only the condition")
		case x == nil:
			c.Return(where(c, cond, x, y, weak(y.DType, a.Input), a.Input.Value))
		case y == nil:
			c.Return(where(c, cond, x, y, weak(x.DType, a.Other), a.Other.Value))
		default:
			c.Return(c.Do1(WhereSelf, nil, cond, x, y))
		}
	},
	Source: "aten/src/ATen/native/TensorCompare.cpp: where",
})

// where calls the operator with a scalar tensor of a number for the operand that is
// nil and the other one converted. Its locals are freed before it returns.
func where(c *op.Call, cond, x, y *op.Tensor, d tensor.DType, number float64) *op.Tensor {
	mark := c.Mark()
	operand := func(t *op.Tensor) *op.Tensor {
		if t == nil {
			return c.Local(c.Do1(Full, &FullArgs{FillArgs: FillArgs{DType: &d}, Value: number}))
		}
		return c.Local(c.Do1(To, &ToCopyArgs{DType: d}, t))
	}
	x, y = operand(x), operand(y)
	out := c.Do1(WhereSelf, nil, cond, x, y)
	c.DropTo(mark)
	return out
}

// WhereSelf is where of three tensors. Each gradient is where itself, with 0
// in the other's place.
var WhereSelf = define(op.Op{
	Name: "where", Run: func(c *op.Call) {
		cond, x, y := c.In[0], c.In[1], c.In[2]
		d := resultType(x, y, op.Number{})
		operand := func(t *op.Tensor) *op.Tensor { // autograd does not see this conversion
			if t.DType == d {
				return t
			}
			return c.Local(c.New(t.LikeDense(), d))
		}
		x = operand(x)
		y = operand(y)
		c.Return(c.New(c.Elementwise(cond, x, y), d))
	},
	Save: []op.Save{op.In(0)}, Node: "WhereBackward0",
	Eval: mapping(kernel.Where, alike(1)).Otherwise(op.Elements{Of: func(x [3]float64, _ float64) float64 {
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	}}.Eval().DerivedInParts()),
	Source: "tools/autograd/derivatives.yaml: where.self",
})

var _ = WhereSelf.Derive(func(b *op.Back) {
	g := b.Grads[0]
	if b.Need(2) {
		b.Set(2, where(&b.Call, b.SavedIn(0), nil, g, g.DType, 0))
	}
	if b.Need(1) {
		b.Set(1, where(&b.Call, b.SavedIn(0), g, nil, g.DType, 0))
	}
})

// ClampArgs are the bounds of clamp, which are not set where there is none.
type ClampArgs struct {
	Min op.Number `arg:"min"`
	Max op.Number `arg:"max"`
}

// clamp keeps within two bounds; the upper one counts where they cross.
var clamp = op.Element{
	Of: func(x float64, p []float64) float64 {
		if x < p[0] {
			x = p[0]
		}
		if x > p[1] {
			x = p[1]
		}
		return x
	},
	Slope: func(x, _ float64, p []float64) float64 {
		return array.Truth(!(x < p[0]) && !(x > p[1]) && !math.IsNaN(x))
	},
	Numbers: op.NumbersOf(func(a *ClampArgs) []float64 { return []float64{a.Min.OrNaN(), a.Max.OrNaN()} }),
}

// evalClamp is clamp by kernels where the bounds do not cross.
var evalClamp = (&op.Eval{
	Single: true,
	Forward: func(m op.Machine, c *op.Call) error {
		p, in := clampBounds(c.Args), c.In[0]
		if !(p[0] <= p[1]) || !in.DType.IsFloating() {
			return op.ErrView
		}
		return m.Apply(kernel.Hardtanh, c.Target(), c.In[:1], p...)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		x := b.SavedIn(0)
		if !x.DType.IsFloating() {
			return op.ErrView
		}
		return m.Apply(kernel.ClampGrad, b.Results[0], []*op.Tensor{b.Grads[0], x}, clampBounds(b.Args)...)
	},
}).Otherwise(clamp.Eval())

// clampBounds are the bounds, which are infinite where there are none.
func clampBounds(args any) []float64 {
	a, p := args.(*ClampArgs), []float64{math.Inf(-1), math.Inf(1)}
	for i, n := range []op.Number{a.Min, a.Max} {
		if n.Set {
			p[i] = n.Value
		}
	}
	return p
}

// clampRun makes the result. Bounds that are floats make integers float32.
func clampRun(c *op.Call) {
	a := c.Args.(*ClampArgs)
	convertedMap(c, weak(weak(c.In[0].DType, a.Min), a.Max))
}

// atLeast are the arguments of a clamp to a least number.
func atLeast(n float64) *ClampArgs {
	return &ClampArgs{Min: op.Number{Set: true, Float: true, Value: n}}
}

// The clamps to numbers. Outside of the bounds the gradient is 0.
var (
	Clamp = define(op.Op{
		Name: "clamp", Sig: "torch.clamp(input, min: number? = None, max: number? = None)", Args: &ClampArgs{}, Run: func(c *op.Call) {
			bounded(c)
			clampRun(c)
		}, Save: []op.Save{op.In(0)}, Node: "ClampBackward1", Grad: gradClamp, Eval: evalClamp,
		Source: "torch/csrc/autograd/FunctionsManual.cpp: clamp_backward",
	})
	ClampMin = define(op.Op{
		Name: "clamp_min", Sig: "Tensor.clamp_min(self, min: number)", Args: &ClampArgs{}, Run: clampRun, Save: []op.Save{op.In(0)},
		Node: "ClampMinBackward0", Grad: gradClamp, Eval: evalClamp, Source: "tools/autograd/derivatives.yaml: clamp_min",
	})
	ClampMax = define(op.Op{
		Name: "clamp_max", Sig: "Tensor.clamp_max(self, max: number)", Args: &ClampArgs{}, Run: clampRun, Save: []op.Save{op.In(0)},
		Node: "ClampMaxBackward0", Grad: gradClamp, Eval: evalClamp, Source: "tools/autograd/derivatives.yaml: clamp_max",
	})
)

// Their in-place forms.
var (
	ClampInPlace    = clampInPlace(Clamp)
	ClampMaxInPlace = clampInPlace(ClampMax)
	ClampMinInPlace = clampInPlace(ClampMin)
)

func clampInPlace(of *op.Op) *op.Op {
	return define(op.Op{
		Name: of.Name + "_", Of: of, Args: &ClampArgs{}, Run: func(c *op.Call) { bounded(c) }, InPlace: true, Save: []op.Save{op.In(0)}, Node: of.Node, Grad: gradClamp, Eval: of.Eval,
		Source: "torch/csrc/autograd/FunctionsManual.cpp: clamp_backward",
	})
}

// bounded refuses a clamp without bounds.
func bounded(c *op.Call) {
	if a := c.Args.(*ClampArgs); !a.Min.Set && !a.Max.Set {
		c.Fail("clamp needs min, max or both")
	}
}

// gradClamp is where(within the bounds, grad, 0).
func gradClamp(b *op.Back) {
	a, x, g := b.Args.(*ClampArgs), b.SavedIn(0), b.Grads[0]
	zero := b.Local(b.NewShape(g.DType))
	within := b.Local(b.New(x.LikeDense(), tensor.Bool))
	if a.Min.Set && a.Max.Set { // the second comparison is and-ed into the first
		b.Local(b.New(x.LikeDense(), tensor.Bool))
	}
	b.Set(0, b.Do1(WhereSelf, nil, within, g, zero))
}

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
	Any   *op.Op // as specs write it
	All   *op.Op // over everything
	Along *op.Op // along a dimension, with the indices
	Arg   *op.Op // the index alone
	Over  *op.Op // along several dimensions: amax
}

// The largest and the smallest elements.
var (
	Max = extreme("max", "MaxBackward", true)
	Min = extreme("min", "MinBackward", false)

	_ = Max.Along.Derive(gradSelected)
	_ = Min.Along.Derive(gradSelected)
)

// extreme defines max or min.
func extreme(name, node string, largest bool) (rows Extremes) {
	of := func(x []float64, _ any) float64 { return array.Extreme(x, largest) }
	rows.All = define(op.Op{
		Name: name + ".all", Run: func(c *op.Call) {
			x := c.In[0]
			if x.Numel() == 0 {
				c.Fail("%s of no elements", name)
			}
			dims, size := reducedDims(c, x.Meta(), &ReduceArgs{})
			out := c.New(tensor.Contiguous(size), x.DType)
			reduceScratch(c, c.Contiguous(x), dims, x.DType.Size(), 4)
			c.Return(out)
		},
		Save: []op.Save{op.In(0), op.Out(0)}, Node: node + "1", Grad: gradExtremeAll,
		Eval:   op.Statistic{Of: of, Slopes: op.SlopesOfExtreme, Over: op.OverAll}.Eval(),
		Source: "aten/src/ATen/native/ReduceAllOps.cpp",
	})
	rows.Along = define(op.Op{
		Name: name + ".dim", Args: &ExtremeArgs{}, Run: func(c *op.Call) {
			x := c.In[0]
			dims, size := reducedDims(c, x.Meta(), c.Args.(*ExtremeArgs).over())
			values, indices := c.New(tensor.Contiguous(size), x.DType), c.New(tensor.Contiguous(size), tensor.Int64)
			reduceScratch(c, x, dims, valueIndex, 4)
			c.Return(values, indices)
		},
		Save: []op.Save{op.Out(1)}, Node: node + "0",
		Eval: (&op.Eval{
			Forward: func(m op.Machine, c *op.Call) error {
				return extremeAlong(m, c.Args, c.In[0], c.Out[0], c.Out[1], largest)
			},
			Backward: putBack,
		}).Otherwise(picking(func(row []float64, _ any) []int { return []int{array.Best(row, largest)} })),
		Source: "aten/src/ATen/native/TensorCompare.cpp; cuda/ReduceMaxValuesKernel.cu",
	})
	rows.Any = define(op.Op{
		Name: name, Sig: "torch." + name + "(input, dim: int? = None, keepdim: bool = False)", Args: &ExtremeArgs{}, Composite: true,
		Run: func(c *op.Call) {
			a, x := c.Args.(*ExtremeArgs), c.In[0]
			if a.Dim == nil {
				c.Return(c.Do1(rows.All, nil, x))
				return
			}
			if d := c.Dim(int(*a.Dim), x.Rank()); x.Rank() == 0 || x.Dim(d) == 0 {
				c.Fail("%s along dimension %d of shape %v has no elements", name, *a.Dim, x.Size)
			}
			c.Return(c.Do(rows.Along, a, x)...)
		},
	})
	rows.Arg = define(op.Op{
		Name: "arg" + name, Sig: "torch.arg" + name + "(input, dim: int? = None, keepdim: bool = False)", Args: &ExtremeArgs{}, Run: argExtreme,
		Eval: (&op.Eval{Forward: func(m op.Machine, c *op.Call) error { return extremeAlong(m, c.Args, c.In[0], nil, c.Out[0], largest) }}).
			Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
				over := c.Args.(*ExtremeArgs).over()
				a.Put(c.Out[0], a.Array(c.In[0]).Reduce(over.Dim, func(x []float64) float64 { return float64(array.Best(x, largest)) }))
			}, nil)),
		Source: "aten/src/ATen/native/ReduceOps.cpp: argmax_argmin_impl",
	})
	rows.Over = define(op.Op{
		Name: "a" + name, Sig: "torch.a" + name + "(input, dim: ints? = None, keepdim: bool = False)", Args: &ReduceArgs{}, Run: func(c *op.Call) {
			x := c.In[0]
			if x.Numel() == 0 {
				c.Fail("a%s of no elements is not modelled", name)
			}
			dims, size := reducedDims(c, x.Meta(), c.Args.(*ReduceArgs))
			out := c.New(tensor.Contiguous(size), x.DType)
			reduceScratch(c, x, dims, x.DType.Size(), 4)
			c.Return(out)
		},
		Save: []op.Save{op.In(0), op.Out(0)}, Node: "A" + name + "Backward0", Grad: gradAmax,
		Eval:   op.Statistic{Of: of, Slopes: op.SlopesOfExtreme, Over: overDims}.Eval(),
		Source: "aten/src/ATen/native/ReduceOps.cpp: amax; cuda/ReduceMaxValuesKernel.cu",
	})
	return rows
}

// argExtreme is the index of the extreme value, in a flattened tensor if no
// dimension is given.
func argExtreme(c *op.Call) {
	a, x := c.Args.(*ExtremeArgs), c.In[0]
	if x.Numel() == 0 {
		c.Fail("the index of an extreme value among none")
	}
	dims, size := reducedDims(c, x.Meta(), a.over())
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
	} else if x.Rank() > 0 && x.Dim(c.Dim(int(*a.Dim), x.Rank())) == 1 {
		return // filled with 0
	}
	reduceScratch(c, x, dims, valueIndex, 4)
}

// gradSelected puts the gradient where the indices say, among zeros
// (value_selecting_reduction_backward).
func gradSelected(b *op.Back) {
	in := tensor.Contiguous(b.InM[0].Size)
	b.Set(0, b.New(in, b.Grads[0].DType))
	if !b.Env().Deterministic || in.Rank() == 0 {
		return
	}
	dim := b.Dim(selectedDim(b.Args), in.Rank())
	idx := *b.Saved()[len(b.Saved())-1]
	if idx.Rank() < in.Rank() { // indices.unsqueeze(dim)
		idx.Layout = tensor.Contiguous(in.Size.Set(dim, 1))
	}
	scatterDeterministic(&b.Call, in, &idx, b.Grads[0], dim)
}

// extremeAlong finds the extreme elements of x along a dimension or, without one, of all.
func extremeAlong(m op.Machine, args any, x, values, index *op.Tensor, largest bool) error {
	a, l, size := args.(*ExtremeArgs), op.Launch{On: m}, x.Size
	d := 0
	switch {
	case a.Dim == nil:
		size = tensor.D(x.Numel())
	case x.Rank() == 0:
		return op.ErrView
	default:
		d = array.Dim(int(*a.Dim), x.Rank())
	}
	one := size.Set(d, 1).Slice()
	l.Seen(values, one...)
	l.Seen(index, one...)
	l.Seen(x, size.Slice()...)
	return l.Run(kernel.Extreme, []int64{int64(d), op.Flag(largest)})
}

// putBack puts gradients where an index along a dimension says, among zeros.
func putBack(m op.Machine, b *op.Back) error {
	y := m.Wanted(b, 0)
	if y == nil || y.Rank() == 0 || !y.DType.IsFloating() {
		return op.ErrView
	}
	return scatterInto(m, array.Dim(selectedDim(b.Args), y.Rank()), y, b.SavedOut(1), b.Grads[0])
}

// scatterInto adds the elements of src to zeros, where an index along a dimension says.
// What has been reduced has one element there.
func scatterInto(m op.Machine, d int, y, index, src *op.Tensor) error {
	l := op.Launch{On: m}
	l.Add(y, nil)
	for _, t := range []*op.Tensor{index, src} {
		if t.Rank() == y.Rank() {
			l.Add(t)
			continue
		}
		l.Operands = append(l.Operands, m.At(t, t.Unsqueeze(d)))
	}
	return l.Run(kernel.ScatterAdd, []int64{int64(d)})
}

// picking is an operator that picks elements along a dimension: pick says which, of each
// row, and the results are their values and their indices. Its derivative puts the
// gradients there.
func picking(pick func(row []float64, args any) []int) *op.Eval {
	per := func(picked, all *op.Tensor, d int) int { // of each row
		if all.Rank() == 0 {
			return int(picked.Numel())
		}
		return int(picked.Numel() * all.Dim(d) / max(all.Numel(), 1))
	}
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		d := array.Dim(selectedDim(c.Args), c.In[0].Rank())
		values, indices := a.Array(c.In[0]).Pick(d, per(c.Out[0], c.In[0], d), func(row []float64) []int { return pick(row, c.Args) })
		a.Put(c.Out[0], values)
		a.Put(c.Out[1], indices)
	}, func(a op.Arrays, b *op.Back) {
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
func gradAmax(b *op.Back) {
	a, x := b.Args.(*ReduceArgs), b.SavedIn(0)
	dims, _ := reducedDims(&b.Call, &b.InM[0], a)
	keep := *a
	keep.KeepDim = true
	g, res := restored(b, b.Grads[0], dims, a.KeepDim), restored(b, b.SavedOut(0), dims, a.KeepDim)
	mask := b.Local(b.New(b.Elementwise(res, x), tensor.Bool))
	shareGradient(b, g, mask, &keep)
}

// restored returns t with the reduced dimensions back, of size 1.
func restored(b *op.Back, t *op.Tensor, dims []bool, keepDim bool) *op.Tensor {
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
func shareGradient(b *op.Back, g, mask *op.Tensor, a *ReduceArgs) {
	count := b.Local(b.Do1(Sum, a, mask))
	each := b.Local(b.Do1(DivTensor, nil, g, count))
	b.Set(0, b.Do1(MulTensor, nil, each, mask))
}

// gradExtremeAll shares the gradient among all elements that equal the result,
// NaN among them (evenly_distribute_backward).
func gradExtremeAll(b *op.Back) {
	x, res := b.SavedIn(0), b.SavedOut(0)
	b.Local(b.New(x.LikeDense(), tensor.Bool))   // input.isnan()
	b.Local(b.New(res.LikeDense(), tensor.Bool)) // value.isnan()
	mask := b.Local(b.New(b.Elementwise(x, res), tensor.Bool))
	shareGradient(b, b.Grads[0], mask, &ReduceArgs{})
}

// IsFinite is (self == self) * (self.abs() != inf), Isinf self.abs() == inf;
// integers are filled in.
var (
	IsFinite = define(op.Op{
		Name: "isfinite", Eval: op.Single(func(x float64) float64 { return array.Truth(isFiniteNumber(x)) }).Eval(), Sig: "torch.isfinite(input)", Run: func(c *op.Call) {
			x := c.In[0]
			flags := func() *op.Tensor { return c.New(x.LikeDense(), tensor.Bool) }
			if x.DType.IsFloating() {
				c.Local(c.NewLike(x))
				c.Filled(x.DType)
				c.Local(flags())
				c.Local(flags())
			}
			c.Return(flags())
		},
		Source: "aten/src/ATen/native/TensorCompare.cpp: isfinite",
	})
	Isinf = define(op.Op{
		Name: "isinf", Eval: op.Single(func(x float64) float64 { return array.Truth(math.IsInf(x, 0)) }).Eval(), Sig: "torch.isinf(input)", Run: func(c *op.Call) {
			x := c.In[0]
			if x.DType.IsFloating() {
				c.Local(c.NewLike(x))
				c.Filled(x.DType)
			}
			c.Return(c.New(x.LikeDense(), tensor.Bool))
		},
		Source: "aten/src/ATen/native/TensorCompare.cpp: isinf",
	})
)
