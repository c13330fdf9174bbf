package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// IndexFillArgs are the arguments of index_add, index_copy and index_fill.
type IndexFillArgs struct {
	Dim   int     `arg:"dim"`
	Value float64 `arg:"value"`
	Alpha float64 `arg:"alpha"`
}

// Along is the dimension.
func (a *IndexFillArgs) Along() int { return a.Dim }

// indexVector is indexDim for an index that must have one dimension.
func (c *Call) indexVector(x, idx *Tensor, dim int) int {
	d := c.indexDim(x, idx, dim)
	if idx.Rank() != 1 {
		c.Fail("the index must have one dimension, not shape %v", idx.Size)
	}
	return d
}

// indexSource checks the source of index_add and index_copy: a slice for each
// index.
func (c *Call) indexSource() {
	x, idx, src := c.In[0], c.In[1], c.In[2]
	d := c.indexVector(x, idx, c.Args.(*IndexFillArgs).Dim)
	if want := x.Size.Set(d, idx.Dim(0)); src.Size != want || src.DType != x.DType {
		c.Fail("a source of shape %v and %v does not fit; it must have shape %v and type %v", src.Size, src.DType, want, x.DType)
	}
}

// gradIndexSource selects the gradient of the source: a view of what was selected
// (expand_as).
func (b *Back) gradIndexSource() {
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

func (s slicing) eval() *Eval {
	return aside(func(a Arrays, c *Call) {
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
	}, func(a Arrays, b *Back) {
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
	IndexAdd = define(Op{
		Name: "index_add", Indices: indexingAlong, Sig: "torch.index_add(input, dim: int, index, source, *, alpha: float = 1.0)", Args: &IndexFillArgs{}, Run: func(c *Call) {
			c.indexSource()
			c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType))
			if c.Env().Deterministic { // index_put_ of source * alpha
				scaled := c.Local(c.NewLike(c.In[2]))
				c.putDeterministic(c.In[0].Layout, c.In[1], scaled, c.dim(c.Args.(*IndexFillArgs).Dim, c.In[0].Rank()))
			}
		},
		Save: []Save{In(1, 2), In(2, 2)}, Node: "IndexAddBackward0",
		Grad: func(b *Back) {
			if b.Need(0) {
				b.Pass(0)
			}
			if b.Need(2) {
				b.gradIndexSource()
				b.Set(2, b.maybeMultiply(b.Results[2], b.Args.(*IndexFillArgs).Alpha))
			}
		},
		Eval: slicing{
			change: func(a *IndexFillArgs, old, src float64) float64 { return old + a.Alpha*src },
			keeps:  1, gives: func(a *IndexFillArgs) float64 { return a.Alpha },
		}.eval(),
		Source: "aten/src/ATen/native/cuda/Indexing.cu: index_add_cuda_out",
	})
	IndexCopy = define(Op{
		Name: "index_copy", Indices: indexingAlong, Sig: "torch.index_copy(input, dim: int, index, source)", Args: &IndexFillArgs{}, Run: func(c *Call) {
			c.indexSource()
			c.Return(c.New(tensor.Contiguous(c.In[0].Size), c.In[0].DType))
			if c.Env().Deterministic {
				c.putDeterministic(c.In[0].Layout, c.In[1], c.In[2], c.dim(c.Args.(*IndexFillArgs).Dim, c.In[0].Rank()))
			}
		},
		Save: []Save{In(1), In(2, 2)}, Node: "IndexCopyBackward0",
		Grad: func(b *Back) {
			if b.Need(0) {
				b.Set(0, b.NewLike(b.Grads[0]))
			}
			if b.Need(2) {
				b.gradIndexSource()
			}
		},
		Eval: slicing{
			change: func(_ *IndexFillArgs, _, src float64) float64 { return src },
			gives:  func(*IndexFillArgs) float64 { return 1 },
		}.eval(),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_copy",
	})
	IndexFill = define(Op{
		Name: "index_fill", Indices: indexingAlong, Sig: "torch.index_fill(input, dim: int, index, value: float)", Args: &IndexFillArgs{}, Run: func(c *Call) {
			c.indexVector(c.In[0], c.In[1], c.Args.(*IndexFillArgs).Dim)
			c.Return(c.NewLike(c.In[0]))
		},
		Save: []Save{In(1)}, Node: "IndexFillBackward0", Grad: func(b *Back) { b.Set(0, b.NewLike(b.Grads[0])) },
		Eval:   slicing{change: func(a *IndexFillArgs, _, _ float64) float64 { return a.Value }}.eval(),
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_fill",
	})
	_ = define(Op{ // the index broadcasts against the input in the other dimensions
		Name: "take_along_dim", Sig: "torch.take_along_dim(input, indices, dim: int)", Args: &DimArgs{}, Composite: true, Run: func(c *Call) {
			x, idx := c.In[0], c.In[1]
			d := c.dim(c.Args.(*DimArgs).Dim, x.Rank())
			if idx.Rank() != x.Rank() || x.Rank() == 0 {
				c.Fail("indices of shape %v do not fit shape %v", idx.Size, x.Size)
			}
			expand := func(t *Tensor, to tensor.Dims) *Tensor {
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
