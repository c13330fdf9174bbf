package aten

import (
	"fmt"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// ScatterNumber puts a number at the places of an index.
var ScatterNumber = define(op.Op{
	Name: "scatter_.value", Eval: scattering(false), Args: &ScatterArgs{}, Run: func(*op.Call) {}, InPlace: true,
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: scatter_",
})

// FillValueArgs is the number with which masked_fill fills.
type FillValueArgs struct {
	Value op.Number `arg:"value"`
}

// MaskedFill is x.masked_fill(mask, value), where the value is a number or a
// tensor without dimensions: the mask is kept.
var MaskedFill = define(op.Op{
	Name: "masked_fill", Eval: evalMaskedFill, Sig: "Tensor.masked_fill(self, mask, value: operand)", Args: &FillValueArgs{}, Run: func(c *op.Call) {
		fillValue(c)
		l := c.Elementwise(c.In[0], c.In[1])
		c.Return(c.New(tensor.Contiguous(l.Size), c.In[0].DType)) // a row-major clone, filled in place
	}, Save: []op.Save{op.In(1)}, Node: "MaskedFillBackward0", Grad: gradMaskedFill,
})

// FillByMask is its in-place form, of rows alone.
var FillByMask = define(op.Op{
	Name: "masked_fill_.mask", Eval: evalMaskedFill, Run: func(*op.Call) {}, InPlace: true, Save: []op.Save{op.In(1)}, Node: "MaskedFillBackward0", Grad: gradMaskedFill,
})

// evalMaskedFill fills with a number, which has a kernel, or with a tensor of one element.
var evalMaskedFill = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		y, value := c.Target(), c.Opt(2)
		if value == nil {
			v := 0.0
			if a, is := c.Args.(*FillValueArgs); is {
				v = a.Value.Value
			}
			return m.Apply(kernel.MaskedFill, y, c.In[:2], v)
		}
		return m.OnHost(func(a op.Arrays) {
			x, mask, v := a.Like(c.In[0], y.Size), a.Like(c.In[1], y.Size), a.Get(value)[0]
			for i := range x {
				if mask[i] != 0 {
					x[i] = v
				}
			}
			a.Put(y, x)
		})
	},
	Backward: func(m op.Machine, b *op.Back) error {
		if y := m.Wanted(b, 0); y != nil {
			return m.Apply(kernel.MaskedFill, y, []*op.Tensor{b.Grads[0], b.SavedIn(1)}, 0)
		}
		return nil
	},
}

// fillValue checks the mask and the value of a masked_fill.
func fillValue(c *op.Call) {
	if c.In[1].DType != tensor.Bool {
		c.Fail("the mask must be of type bool, not %v", c.In[1].DType)
	}
	if v := c.Opt(2); v != nil && v.Rank() != 0 {
		c.Fail("the value must be a number or a tensor without dimensions, not of shape %v", v.Size)
	}
}

func gradMaskedFill(b *op.Back) { // grad.masked_fill(mask, 0)
	if b.Need(2) {
		b.Fail("the gradient of the value of masked_fill is not modelled: it selects by the mask, how much depends on the data; detach the value")
	}
	if !b.Need(0) {
		return
	}
	l := b.Elementwise(b.Grads[0], b.SavedIn(1))
	b.Set(0, b.New(tensor.Contiguous(l.Size), b.Grads[0].DType))
}

// MaskedScatter writes the elements of a source, one after another, where a mask of the
// shape of x is set: as many are as the source has elements.
var MaskedScatter = define(op.Op{
	Name: "masked_scatter", Eval: evalMaskedScatter, Sig: "Tensor.masked_scatter(self, mask, source)", Run: func(c *op.Call) {
		x, mask, source := c.In[0], c.In[1], c.In[2]
		switch size, err := tensor.Broadcast(x.Size, mask.Size); {
		case mask.DType != tensor.Bool:
			c.Fail("the mask must be of type bool, not %v", mask.DType)
		case source.DType != x.DType:
			c.Fail("the source must be of type %v, not %v", x.DType, source.DType)
		case err != nil || size != x.Size:
			c.Fail("a mask of shape %v does not fit shape %v", mask.Size, x.Size)
		case source.Numel() > x.Numel():
			c.Fail("a source of shape %v has more elements than shape %v", source.Size, x.Size)
		}
		c.Return(c.New(tensor.Contiguous(x.Size), x.DType)) // a row-major clone, written in place
		if x.Numel() == 0 {
			return
		}
		c.Local(c.New(tensor.Contiguous(x.Size), tensor.Int64)) // where in the source each element is
		if l := expanded(c, mask, x.Size); !l.IsContiguous() {
			c.Rearranged(mask, tensor.Contiguous(x.Size))
		}
		k := op.Kernel{Rule: cubMaskScanRule, In: tensor.Layout{Size: tensor.D(x.Numel())}}
		c.Kernel(k)
		k.Rule.Run(c, &k)
		c.Contiguous(source)
	},
	Save: []op.Save{op.In(1)}, Node: "MaskedScatterBackward0", Grad: func(b *op.Back) {
		g, mask := b.Grads[0], b.SavedIn(1)
		if b.Need(0) { // grad.masked_fill(mask, 0)
			b.Set(0, b.New(tensor.Contiguous(g.Size), g.DType))
		}
		if b.Need(2) { // grad.masked_select(mask), which is x[mask] of a mask of x's shape
			n := b.InM[2].Numel()
			indices := nonzero(&b.Call, mask, expanded(&b.Call, mask, g.Size), n)
			b.Set(2, b.NewShape(g.DType, b.InM[2].Size.Slice()...))
			b.Drop(indices)
		}
	},
	NotModelled: "how many elements a mask picks is the data's; memplan takes as many as the source has",
	Source:      "aten/src/ATen/native/TensorAdvancedIndexing.cpp: masked_scatter; cuda/IndexKernel.cpp: masked_scatter__cuda, masked_select_out_cuda_impl; tools/autograd: masked_scatter_backward",
})

// cubMaskScanRule is what CUB takes to count the elements before each.
var cubMaskScanRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
	c.Drop(c.NewShape(tensor.Uint8, cub.Words64(c.Env().Arch).Scan(k.In.Dim(0))))
}}

// expanded is the layout of t as a view of a size.
func expanded(c *op.Call, t *op.Tensor, size tensor.Dims) tensor.Layout {
	l, err := t.Expand(size.Slice())
	if err != nil {
		c.Fail("%v", err)
	}
	return l
}

var evalMaskedScatter = op.OnHost(func(a op.Arrays, c *op.Call) {
	y := c.Target()
	x, mask, source, k := a.Like(c.In[0], y.Size), a.Like(c.In[1], y.Size), a.Get(c.In[2]), 0
	for i := range x {
		if mask[i] != 0 {
			if k == len(source) {
				a.Fail(fmt.Errorf("the mask picks more than the %d elements of the source", k))
				return
			}
			x[i], k = source[k], k+1
		}
	}
	a.Put(y, x)
}, func(a op.Arrays, b *op.Back) {
	size := b.Grads[0].Size
	g, mask := a.Get(b.Grads[0]), a.Like(b.SavedIn(1), size)
	r, s := a.Wanted(b, 0), a.Wanted(b, 2)
	var kept, picked []float64
	for i, v := range g {
		if mask[i] != 0 {
			picked, v = append(picked, v), 0
		}
		kept = append(kept, v)
	}
	if r != nil {
		a.Put(r, kept)
	}
	if s != nil {
		a.Put(s, append(picked, make([]float64, int(s.Numel())-len(picked))...))
	}
})

// checkIndex checks the index tensor of a gather or scatter.
func checkIndex(c *op.Call, x, idx *op.Tensor, dim int) {
	d := c.Dim(dim, x.Rank())
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

var evalGather = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		l := op.Launch{On: m}
		l.Add(c.Out[0], c.In[0], c.In[1])
		return l.Run(kernel.Gather, []int64{int64(array.Dim(c.Args.(*DimArgs).Dim, c.In[0].Rank()))})
	},
	Backward: func(m op.Machine, b *op.Back) error {
		y := m.Wanted(b, 0)
		if y == nil || !y.DType.IsFloating() {
			return op.ErrView
		}
		return scatterInto(m, array.Dim(b.Args.(*DimArgs).Dim, y.Rank()), y, b.SavedIn(1), b.Grads[0])
	},
}).Otherwise(op.Linear(func(args any) array.Linear { return array.Gather(args.(*DimArgs).Dim) }))

// Gather takes the elements that an index of the result's shape names.
var Gather = define(op.Op{
	Name: "gather", Indices: op.IndexingAlong, Eval: evalGather, Sig: "torch.gather(input, dim: int, index)", Args: &DimArgs{}, Run: func(c *op.Call) {
		checkIndex(c, c.In[0], c.In[1], c.Args.(*DimArgs).Dim)
		c.Return(c.New(tensor.Contiguous(c.In[1].Size), c.In[0].DType))
	},
	Save: []op.Save{op.In(1), op.In(0)}, Node: "GatherBackward0",
	Grad: func(b *op.Back) { // zeros, into which the gradient is scattered
		in := tensor.Contiguous(b.InM[0].Size)
		b.Set(0, b.New(in, b.Grads[0].DType))
		scatterDeterministic(&b.Call, in, b.SavedIn(1), b.Grads[0], b.Dim(b.Args.(*DimArgs).Dim, in.Rank()))
	},
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: gather, gather_backward",
})

// ScatterArgs are the arguments of scatter.
type ScatterArgs struct {
	Dim int       `arg:"dim"`
	Src op.Number `arg:"src"`
}

// Along is the dimension.
func (a *ScatterArgs) Along() int { return a.Dim }

// runScatter is a row-major copy with some elements replaced.
func runScatter(c *op.Call) {
	x := c.In[0]
	checkIndex(c, x, c.In[1], c.Args.(*ScatterArgs).Dim)
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
		scatterDeterministic(c, out.Layout, c.In[1], src, c.Dim(c.Args.(*ScatterArgs).Dim, x.Rank()))
	}
}

// The scatters.
var (
	Scatter = define(op.Op{
		Name: "scatter", Indices: op.IndexingAlong, Sig: "torch.scatter(input, dim: int, index, src: operand)", Args: &ScatterArgs{}, Run: runScatter,
		Save: []op.Save{op.In(1)}, Node: "ScatterBackward0",
		Grad: func(b *op.Back) { // grad.scatter(dim, index, 0), grad.gather(dim, index)
			g := b.Grads[0]
			if b.Need(0) {
				b.Set(0, b.New(tensor.Contiguous(g.Size), g.DType))
			}
			if b.Need(2) {
				b.Set(2, gathered(b, g))
			}
		},
		Eval:   scattering(false),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: scatter; tools/autograd/derivatives.yaml",
	})
	ScatterAdd = define(op.Op{
		Name: "scatter_add", Indices: op.IndexingAlong, Sig: "torch.scatter_add(input, dim: int, index, src)", Args: &ScatterArgs{}, Cast: op.CastPromote, Run: runScatter,
		Save: []op.Save{op.In(1, 2)}, Node: "ScatterAddBackward0",
		Grad: func(b *op.Back) {
			if b.Need(0) {
				b.Pass(0)
			}
			if b.Need(2) {
				b.Set(2, gathered(b, b.Grads[0]))
			}
		},
		Eval:   scattering(true),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: scatter_add; tools/autograd/derivatives.yaml",
	})
)

// scattering replaces elements, or with add adds to them.
func scattering(add bool) *op.Eval {
	return (&op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			args, l := c.Args.(*ScatterArgs), op.Launch{On: m}
			l.Add(c.Target(), c.In[0], c.In[1], c.Opt(2))
			dim := []int64{int64(array.Dim(args.Dim, c.In[0].Rank()))}
			switch {
			case !add:
				return l.Run(kernel.Scatter, dim, args.Src.Value)
			case !c.Target().DType.IsFloating() || c.Opt(2) == nil:
				return op.ErrView
			}
			return l.Run(kernel.ScatterAdd, dim)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			g, index := b.Grads[0], b.SavedIn(1)
			if index == nil { // the gradient is handed on
				return nil
			}
			dim := []int64{int64(array.Dim(b.Args.(*ScatterArgs).Dim, g.Rank()))}
			if r := m.Wanted(b, 2); r != nil {
				l := op.Launch{On: m}
				l.Add(r, g, index)
				if err := l.Run(kernel.Gather, dim); err != nil {
					return err
				}
			}
			if r := m.Wanted(b, 0); r != nil {
				l := op.Launch{On: m}
				l.Add(r, g, index, nil)
				return l.Run(kernel.Scatter, dim, 0)
			}
			return nil
		},
	}).Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
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
	}, func(a op.Arrays, b *op.Back) {
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
	}))
}

// gathered is the gradient of a source, which has the index's shape.
func gathered(b *op.Back, g *op.Tensor) *op.Tensor {
	if b.InM[2].Size != b.InM[1].Size {
		b.Fail("the gradient of a source of shape %v with an index of shape %v is not modelled", b.InM[2].Size, b.InM[1].Size)
	}
	return b.New(tensor.Contiguous(b.InM[1].Size), g.DType)
}

// IndexFillArgs are the arguments of index_add, index_copy and index_fill.
type IndexFillArgs struct {
	Dim   int     `arg:"dim"`
	Value float64 `arg:"value"`
	Alpha float64 `arg:"alpha"`
}

// Along is the dimension.
func (a *IndexFillArgs) Along() int { return a.Dim }

// indexVector is indexDim for an index that must have one dimension.
func indexVector(c *op.Call, x, idx *op.Tensor, dim int) int {
	d := indexDim(c, x, idx, dim)
	if idx.Rank() != 1 {
		c.Fail("the index must have one dimension, not shape %v", idx.Size)
	}
	return d
}

// indexSource checks the source of index_add and index_copy: a slice for each
// index.
func indexSource(c *op.Call) {
	x, idx, src := c.In[0], c.In[1], c.In[2]
	d := indexVector(c, x, idx, c.Args.(*IndexFillArgs).Dim)
	if want := x.Size.Set(d, idx.Dim(0)); src.Size != want || src.DType != x.DType {
		c.Fail("a source of shape %v and %v does not fit; it must have shape %v and type %v", src.Size, src.DType, want, x.DType)
	}
}

// gradIndexSource selects the gradient of the source: a view of what was selected
// (expand_as).
func gradIndexSource(b *op.Back) {
	selected := b.Do1(IndexSelect, &DimArgs{Dim: b.Args.(*IndexFillArgs).Dim}, b.Grads[0], b.SavedIn(1))
	b.Set(2, b.Do1(Expand, &ShapeArgs{Shape: b.InM[2].Size.Slice()}, selected))
	b.Drop(selected)
}

// slicing changes slices along a dimension: change gives the new element from the old
// one and that of the source, 0 if there is none; keeps says how much of the gradient
// passes what was changed, gives how much goes to the source.
type slicing struct {
	change func(a *IndexFillArgs, old, src float64) float64
	keeps  float64
	gives  func(a *IndexFillArgs) float64
}

func (s slicing) eval() *op.Eval {
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		args, x, src := c.Args.(*IndexFillArgs), a.Array(c.In[0]), a.Get(c.Opt(2))
		err := array.Slices(x.Size, array.Dim(args.Dim, len(x.Size)), a.Get(c.In[1]), func(from, to int) {
			v := 0.0
			if src != nil {
				v = src[from]
			}
			x.V[to] = s.change(args, x.V[to], v)
		})
		if err != nil {
			a.Fail(err)
		}
		a.Put(c.Target(), x.V)
	}, func(a op.Arrays, b *op.Back) {
		args, g := b.Args.(*IndexFillArgs), a.Array(b.Grads[0])
		if b.SavedIn(1) == nil { // the gradient is handed on
			return
		}
		d, index := array.Dim(args.Dim, len(g.Size)), a.Get(b.SavedIn(1))
		if r := a.Wanted(b, 2); r != nil {
			out := make([]float64, r.Numel())
			if err := array.Slices(g.Size, d, index, func(from, to int) { out[from] = s.gives(args) * g.V[to] }); err != nil {
				a.Fail(err)
			}
			a.Put(r, out)
		}
		if r := a.Wanted(b, 0); r != nil {
			if err := array.Slices(g.Size, d, index, func(_, to int) { g.V[to] *= s.keeps }); err != nil {
				a.Fail(err)
			}
			a.Put(r, g.V)
		}
	})
}

// Slices along a dimension that are added to, replaced or filled. The copy that
// they change keeps the order of the input's dimensions.
var (
	IndexAdd = define(op.Op{
		Name: "index_add", Indices: op.IndexingAlong, Sig: "torch.index_add(input, dim: int, index, source, *, alpha: float = 1.0)", Args: &IndexFillArgs{}, Run: func(c *op.Call) {
			indexSource(c)
			c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType))
			if c.Env().Deterministic { // index_put_ of source * alpha
				scaled := c.Local(c.NewLike(c.In[2]))
				putDeterministic(c, c.In[0].Layout, c.In[1], scaled, c.Dim(c.Args.(*IndexFillArgs).Dim, c.In[0].Rank()))
			}
		},
		Save: []op.Save{op.In(1, 2), op.In(2, 2)}, Node: "IndexAddBackward0",
		Grad: func(b *op.Back) {
			if b.Need(0) {
				b.Pass(0)
			}
			if b.Need(2) {
				gradIndexSource(b)
				b.Set(2, maybeMultiply(b, b.Results[2], b.Args.(*IndexFillArgs).Alpha))
			}
		},
		Eval: slicing{
			change: func(a *IndexFillArgs, old, src float64) float64 { return old + a.Alpha*src },
			keeps:  1, gives: func(a *IndexFillArgs) float64 { return a.Alpha },
		}.eval(),
		Source: "aten/src/ATen/native/cuda/Indexing.cu: index_add_cuda_out",
	})
	IndexCopy = define(op.Op{
		Name: "index_copy", Indices: op.IndexingAlong, Sig: "torch.index_copy(input, dim: int, index, source)", Args: &IndexFillArgs{}, Run: func(c *op.Call) {
			indexSource(c)
			c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType))
			if c.Env().Deterministic {
				putDeterministic(c, c.In[0].Layout, c.In[1], c.In[2], c.Dim(c.Args.(*IndexFillArgs).Dim, c.In[0].Rank()))
			}
		},
		Save: []op.Save{op.In(1), op.In(2, 2)}, Node: "IndexCopyBackward0",
		Grad: func(b *op.Back) {
			if b.Need(0) {
				b.Set(0, b.NewLike(b.Grads[0]))
			}
			if b.Need(2) {
				gradIndexSource(b)
			}
		},
		Eval: slicing{
			change: func(_ *IndexFillArgs, _, src float64) float64 { return src },
			gives:  func(*IndexFillArgs) float64 { return 1 },
		}.eval(),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_copy",
	})
	IndexFill = define(op.Op{
		Name: "index_fill", Indices: op.IndexingAlong, Sig: "torch.index_fill(input, dim: int, index, value: float)", Args: &IndexFillArgs{}, Run: func(c *op.Call) {
			indexVector(c, c.In[0], c.In[1], c.Args.(*IndexFillArgs).Dim)
			c.Return(c.NewLike(c.In[0]))
		},
		Save: []op.Save{op.In(1)}, Node: "IndexFillBackward0", Grad: func(b *op.Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Eval:   slicing{change: func(a *IndexFillArgs, _, _ float64) float64 { return a.Value }}.eval(),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_fill",
	})
	_ = define(op.Op{ // the index broadcasts against the input in the other dimensions
		Name: "take_along_dim", Sig: "torch.take_along_dim(input, indices, dim: int)", Args: &DimArgs{}, Composite: true, Run: func(c *op.Call) {
			x, idx := c.In[0], c.In[1]
			d := c.Dim(c.Args.(*DimArgs).Dim, x.Rank())
			if idx.Rank() != x.Rank() || x.Rank() == 0 {
				c.Fail("indices of shape %v do not fit shape %v", idx.Size, x.Size)
			}
			expand := func(t *op.Tensor, to tensor.Dims) *op.Tensor {
				if t.Size == to {
					return t
				}
				return c.Local(c.Do1(Expand, &ShapeArgs{Shape: to.Slice()}, t))
			}
			both, err := tensor.Broadcast(x.Size.Set(d, 1), idx.Size.Set(d, 1))
			if err != nil {
				c.Fail("indices: %v", err)
			}
			idx, x = expand(idx, both.Set(d, idx.Dim(d))), expand(x, both.Set(d, x.Dim(d)))
			c.Return(c.Do1(Gather, &DimArgs{Dim: d}, x, idx))
		},
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: take_along_dim",
	})
)

// Filling in place makes no copy.
var MaskedFillInPlace = define(op.Op{
	Name: "masked_fill_", Eval: evalMaskedFill, Of: MaskedFill, Args: MaskedFill.Args, Run: func(c *op.Call) {
		fillValue(c)
		checkInPlace(c)
	}, InPlace: true, Save: []op.Save{op.In(1)}, Node: "MaskedFillBackward0",
	Grad: gradMaskedFill,
})
