package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// checkIndex checks the index tensor of a gather or scatter.
func (c *Call) checkIndex(x, idx *Tensor, dim int) {
	d := c.dim(dim, x.Rank())
	if idx.DType != tensor.Int64 {
		c.Fail("the index must be int64, not %v", idx.DType)
	}
	if x.Rank() == 0 || idx.Rank() != x.Rank() {
		c.Fail("an index of shape %v does not fit shape %v", idx.Size, x.Size)
	}
	for i := range x.Rank() {
		if i != d && idx.Dim(i) > x.Dim(i) {
			c.Fail("an index of shape %v does not fit shape %v along dimension %d", idx.Size, x.Size, i)
		}
	}
}

// Gather takes the elements that an index of the result's shape names.
var Gather = define(Op{
	Name: "gather", Indices: indexingAlong, Eval: linear(func(args any) array.Linear { return array.Gather(args.(*DimArgs).Dim) }, nil), Sig: "torch.gather(input, dim: int, index)", Args: &DimArgs{}, Run: func(c *Call) {
		c.checkIndex(c.In[0], c.In[1], c.Args.(*DimArgs).Dim)
		c.Return(c.New(tensor.Contiguous(c.In[1].Size), c.In[0].DType))
	},
	Save: []Save{In(1), In(0)}, Node: "GatherBackward0",
	Grad: func(b *Back) { // zeros, into which the gradient is scattered
		in := tensor.Contiguous(b.InM[0].Size)
		b.Set(0, b.New(in, b.Grads[0].DType))
		b.scatterDeterministic(in, b.SavedIn(1), b.Grads[0], b.dim(b.Args.(*DimArgs).Dim, in.Rank()))
	},
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: gather, gather_backward",
})

// ScatterArgs are the arguments of scatter.
type ScatterArgs struct {
	Dim int    `arg:"dim"`
	Src Number `arg:"src"`
}

// Along is the dimension.
func (a *ScatterArgs) Along() int { return a.Dim }

// runScatter is a row-major copy with some elements replaced.
func runScatter(c *Call) {
	x := c.In[0]
	c.checkIndex(x, c.In[1], c.Args.(*ScatterArgs).Dim)
	if src := c.Opt(2); src != nil {
		if src.DType != x.DType || src.Rank() != x.Rank() {
			c.Fail("a source of shape %v and type %v does not fit shape %v and type %v", src.Size, src.DType, x.Size, x.DType)
		}
		for i := range x.Rank() {
			if src.Dim(i) < c.In[1].Dim(i) {
				c.Fail("a source of shape %v is smaller than the index of shape %v", src.Size, c.In[1].Size)
			}
		}
	}
	out := c.New(tensor.Contiguous(x.Size), x.DType)
	c.Return(out)
	if src := c.Opt(2); src != nil {
		c.scatterDeterministic(out.Layout, c.In[1], src, c.dim(c.Args.(*ScatterArgs).Dim, x.Rank()))
	}
}

// The scatters.
var (
	Scatter = define(Op{
		Name: "scatter", Indices: indexingAlong, Sig: "torch.scatter(input, dim: int, index, src: operand)", Args: &ScatterArgs{}, Run: runScatter,
		Save: []Save{In(1)}, Node: "ScatterBackward0",
		Grad: func(b *Back) { // grad.scatter(dim, index, 0), grad.gather(dim, index)
			g := b.Grads[0]
			if b.Need(0) {
				b.Set(0, b.New(tensor.Contiguous(g.Size), g.DType))
			}
			if b.Need(2) {
				b.Set(2, b.gathered(g))
			}
		},
		Eval:   scattering(false),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: scatter; tools/autograd/derivatives.yaml",
	})
	ScatterAdd = define(Op{
		Name: "scatter_add", Indices: indexingAlong, Sig: "torch.scatter_add(input, dim: int, index, src)", Args: &ScatterArgs{}, Cast: CastPromote, Run: runScatter,
		Save: []Save{In(1, 2)}, Node: "ScatterAddBackward0",
		Grad: func(b *Back) {
			if b.Need(0) {
				b.Pass(0)
			}
			if b.Need(2) {
				b.Set(2, b.gathered(b.Grads[0]))
			}
		},
		Eval:   scattering(true),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: scatter_add; tools/autograd/derivatives.yaml",
	})
)

// scattering replaces elements, or with add adds to them.
func scattering(add bool) *Eval {
	return aside(func(a Arrays, c *Call) {
		args, x, src := c.Args.(*ScatterArgs), a.Array(c.In[0]), a.Array(c.Opt(2))
		var size []int
		if src != nil {
			size = src.Size
		}
		err := array.Scatter(x.Size, array.Dim(args.Dim, len(x.Size)), a.Array(c.In[1]), size, func(from, to int) {
			v := args.Src.Value
			if src != nil {
				v = src.V[from]
			}
			if add {
				v += x.V[to]
			}
			x.V[to] = v
		})
		if err != nil {
			a.Fail(err)
		}
		a.Put(c.Target(), x.V)
	}, func(a Arrays, b *Back) {
		g := a.Array(b.Grads[0])
		if b.SavedIn(1) == nil { // the gradient is handed on
			return
		}
		index, d := a.Array(b.SavedIn(1)), array.Dim(b.Args.(*ScatterArgs).Dim, len(g.Size))
		if r := a.Wanted(b, 2); r != nil {
			out := make([]float64, r.Numel())
			if err := array.Scatter(g.Size, d, index, r.Size.Ints(), func(from, to int) { out[from] = g.V[to] }); err != nil {
				a.Fail(err)
			}
			a.Put(r, out)
		}
		if r := a.Wanted(b, 0); r != nil {
			if err := array.Scatter(g.Size, d, index, nil, func(_, to int) { g.V[to] = 0 }); err != nil {
				a.Fail(err)
			}
			a.Put(r, g.V)
		}
	})
}

// gathered is the gradient of a source, which has the index's shape.
func (b *Back) gathered(g *Tensor) *Tensor {
	if b.InM[2].Size != b.InM[1].Size {
		b.Fail("the gradient of a source of shape %v beside an index of shape %v is not modelled", b.InM[2].Size, b.InM[1].Size)
	}
	return b.New(tensor.Contiguous(b.InM[1].Size), g.DType)
}

// OneHotArgs is the number of classes.
type OneHotArgs struct {
	Classes int64 `arg:"num_classes"`
}

// OneHot is int64, a row of zeros with a one for each index.
var OneHot = define(Op{
	Name: "one_hot", Indices: []Indices{{In: 0, Below: func(c *Call) int64 { return c.Args.(*OneHotArgs).Classes }}}, Sig: "F.one_hot(input, num_classes: int)", Args: &OneHotArgs{}, Run: func(c *Call) {
		x, n := c.In[0], c.Args.(*OneHotArgs).Classes
		if x.DType != tensor.Int64 {
			c.Fail("one_hot needs indices of type int64, not %v", x.DType)
		}
		if n < 1 || x.Numel() == 0 || x.Rank() == tensor.MaxRank {
			c.Fail("one_hot of shape %v with %d classes is not modelled", x.Size, n)
		}
		c.Return(c.NewShape(tensor.Int64, append(x.Size.Slice(), n)...))
	},
	Eval: aside(func(a Arrays, c *Call) {
		v, err := array.OneHot(a.Get(c.In[0]), int(c.Args.(*OneHotArgs).Classes))
		if err != nil {
			a.Fail(err)
		}
		a.Put(c.Out[0], v)
	}, nil),
	Source: "aten/src/ATen/native/Onehot.cpp",
})
