package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// indexDim checks an int64 index of at least one dimension.
func indexDim(c *op.Call, x, idx *op.Tensor, dim int) int {
	d := c.Dim(dim, x.Rank())
	if x.Rank() == 0 {
		c.Fail("a tensor without dimensions cannot be indexed")
	}
	if idx.DType != tensor.Int64 || idx.Rank() == 0 || idx.Rank()+x.Rank()-1 > tensor.MaxRank {
		c.Fail("the index must be int64 with at least one dimension, not %v of shape %v", idx.DType, idx.Size)
	}
	return d
}

// IndexSelect takes some indices of a dimension.
var IndexSelect = define(op.Op{
	Name: "index_select", Eval: evalSelect, Indices: op.IndexingAlong, Sig: "torch.index_select(input, dim: int, index)", Args: &DimArgs{}, Run: func(c *op.Call) {
		x, idx := c.In[0], c.In[1]
		d := indexDim(c, x, idx, c.Args.(*DimArgs).Dim)
		if idx.Rank() != 1 {
			c.Fail("the index must have one dimension, not shape %v", idx.Size)
		}
		c.Return(c.Grown(x.DType, x.Size.Set(d, idx.Dim(0)).Slice()...))
	},
	Rows: indexed, Save: []op.Save{op.In(1)}, Node: "IndexSelectBackward0",
	Grad: func(b *op.Back) { // zeros, to which the gradient is added
		in := tensor.Contiguous(b.InM[0].Size)
		b.Set(0, b.New(in, b.Grads[0].DType))
		if b.Env().Deterministic {
			putDeterministic(&b.Call, in, b.SavedIn(1), b.Local(b.NewLike(b.Grads[0])), b.Dim(b.Args.(*DimArgs).Dim, in.Rank()))
		}
	},
	Source: "aten/src/ATen/native/cuda/Indexing.cu: index_select_cuda; FunctionsManual.cpp: index_select_backward",
})

// Index is x[:, index] with an int64 tensor in the place of dim, whose
// dimensions stand in the result for it: each ":" is a view, as it is for
// integers and slices, up to the release that leaves it out.
var _ = define(op.Op{
	Name: "index.any", Sig: "[] index(self, index, dim: int = 0)", Args: &DimArgs{}, Composite: true, Run: func(c *op.Call) {
		x, idx := c.In[0], c.In[1]
		d := indexDim(c, x, idx, c.Args.(*DimArgs).Dim)
		x = c.Keep(x)
		views := d
		if c.Env().Torch.Has(torchver.WholeSlicesSkipped) {
			views = 0
		}
		for i := range views {
			y := c.Do1(Slice, &SliceArgs{Dim: i, Step: 1}, x)
			c.Drop(x)
			x = y
		}
		c.Local(x)
		c.Return(c.Do1(IndexTensor, &DimArgs{Dim: d}, x, idx))
	},
	Source: "torch/csrc/autograd/python_variable_indexing.cpp",
})

// IndexTensor takes elements along a dimension at indices of any shape.
var IndexTensor = define(op.Op{
	Name: "index", Eval: evalSelect, Indices: op.IndexingAlong, Args: &DimArgs{}, Run: func(c *op.Call) {
		x, idx := c.In[0], c.In[1]
		d := c.Args.(*DimArgs).Dim
		// AdvancedIndex: the source seen with stride 0 along the indexed
		// dimension, the index along no other.
		src, at := tensor.Layout{}, tensor.Layout{}
		extend := func(l *tensor.Layout, n, s int64) { l.Size, l.Stride = l.Size.Append(n), l.Stride.Append(s) }
		for i := range x.Rank() {
			if i != d {
				extend(&src, x.Dim(i), x.Stride.At(i))
				extend(&at, 1, 0)
				continue
			}
			for k := range idx.Rank() {
				extend(&src, idx.Dim(k), 0)
				extend(&at, idx.Dim(k), idx.Stride.At(k))
			}
		}
		l, err := tensor.Elementwise(&src, &at)
		if err != nil {
			c.Fail("%v", err)
		}
		c.Return(c.New(l, x.DType))
	},
	Rows: indexed, Save: []op.Save{op.In(1)}, Node: "IndexBackward0", Grad: gradIndex,
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index; cuda/Indexing.cu: index_put_with_sort_kernel",
})

// indexed is the index of a dimension, and what it indexes.
func indexed(c *op.Call) (index *op.Tensor, rows int64) {
	return c.In[1], c.In[0].Dim(c.Dim(c.Args.(*DimArgs).Dim, c.In[0].Rank()))
}

// gradIndex adds the gradient to zeros by sorted indices
// (index_put_with_sort_kernel).
func gradIndex(b *op.Back) {
	idx, g, in := b.SavedIn(1), b.Grads[0], b.InM[0]
	d := b.Args.(*DimArgs).Dim
	b.Set(0, b.NewShape(in.DType, in.Size.Slice()...))
	n := idx.Numel()
	linearIndex(&b.Call, n, false)
	slice := int64(1)
	for i := d + 1; i < in.Rank(); i++ {
		slice *= in.Dim(i)
	}
	putSorted(&b.Call, g, n, in.Numel(), slice)
}

// linearIndex adds up indices of n elements, each times the stride of its dimension
// (computeLinearIndex): one in host memory is counted there, and then copied.
func linearIndex(c *op.Call, n int64, onHost ...bool) {
	vec := func() *op.Tensor { return c.NewShape(tensor.Int64, n) }
	for i, host := range onHost {
		var wrapped *op.Tensor
		if !host {
			wrapped = vec()
		}
		index := vec()
		c.Drop(wrapped)
		if i == 0 {
			c.Local(index)
		} else {
			c.Drop(index)
		}
	}
}

// putSorted sorts n linear indices of slices of a tensor of numel elements and
// adds g by them.
func putSorted(c *op.Call, g *op.Tensor, n, numel, slice int64) {
	c.Contiguous(g)
	if n == 0 || numel == 0 {
		return
	}
	vec := func() *op.Tensor { return c.NewShape(tensor.Int64, n) }
	c.Local(vec()) // sorted
	c.Local(vec()) // original positions
	c.Local(vec()) // range
	c.Filled(tensor.Int64)
	k := op.Kernel{Rule: cubSortRule, In: tensor.Layout{Size: tensor.D(n, (numel-1)/slice+1)}}
	c.Kernel(k)
	k.Rule.Run(c, &k)
}

// cubSortRule is what CUB takes to sort indices: the operand is how many there are, and of how
// many slices.
var cubSortRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
	c.Drop(c.NewShape(tensor.Uint8, cub.Words64(c.Env().Arch).SortBits(k.In.Dim(0), bitLength(k.In.Dim(1)-1))))
}}

// bitLength is the number of bits that n needs, at least 1.
func bitLength(n int64) int64 {
	bits := int64(1)
	for n > 1 {
		n >>= 1
		bits++
	}
	return bits
}

// evalSelect takes slices by an index, whose kernels see what is around the dimension as
// one dimension on each side.
var evalSelect = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		return selected(m, kernel.Index, c.Args, c.In[0].Size, c.In[1], c.Out[0], c.In[0])
	},
	Backward: func(m op.Machine, b *op.Back) error {
		y := m.Wanted(b, 0)
		if y == nil || !y.DType.IsFloating() {
			return op.ErrView
		}
		return selected(m, kernel.IndexGrad, b.Args, y.Size, b.SavedIn(1), y, b.Grads[0])
	},
}).Otherwise(op.Linear(func(args any) array.Linear { return array.Select(args.(*DimArgs).Dim) }))

// selected runs a kernel that writes to and reads from, of which one has a size and the other the
// slices of it that an index names.
func selected(m op.Machine, k *kernel.Kernel, args any, size tensor.Dims, index, to, from *op.Tensor) error {
	d := array.Dim(args.(*DimArgs).Dim, size.Len())
	n := size.Slice()
	outer, inner := tensor.D(n[:d]...).Numel(), tensor.D(n[d+1:]...).Numel()
	whole, slices := []int64{outer, n[d], inner}, []int64{outer, index.Numel(), inner}
	if k == kernel.Index {
		whole, slices = slices, whole
	}
	l := op.Launch{On: m}
	l.Seen(to, whole...)
	l.Seen(from, slices...)
	l.Seen(index, index.Numel())
	for i := range l.Operands[:2] { // columns of one element are rows of many
		if o := &l.Operands[i]; inner == 1 {
			o.Size, o.Stride = tensor.D(1, o.Size.At(1), outer), tensor.D(0, o.Stride.At(1), o.Stride.At(0))
		}
	}
	return l.Run(k, nil)
}

// IndexPair is x[first, second] with int64 tensors in the places of the first
// two dimensions, which are broadcast against each other.
var IndexPair = define(op.Op{
	Name: "index.pair", Eval: evalPairs, Indices: []op.Indices{op.Indexing(1, 0, 0), op.Indexing(2, 0, 1)}, Sig: "[] index_pair(self, first, second)", Run: func(c *op.Call) {
		x, i, j := c.In[0], c.In[1], c.In[2]
		if x.Rank() < 2 || i.DType != tensor.Int64 || j.DType != tensor.Int64 {
			c.Fail("two indices must be int64 and take two dimensions, not %v and %v of shape %v", i.DType, j.DType, x.Size)
		}
		size, err := tensor.Broadcast(i.Size, j.Size)
		if err != nil {
			c.Fail("indices: %v", err)
		}
		// expand_outplace; then all indices get the same strides: if they
		// differ, each becomes contiguous.
		li, err1 := i.Expand(size.Slice())
		lj, err2 := j.Expand(size.Slice())
		if err1 != nil || err2 != nil {
			c.Fail("indices of shapes %v and %v do not fit", i.Size, j.Size)
		}
		if li.Stride != lj.Stride {
			for _, l := range []tensor.Layout{li, lj} {
				if !l.IsContiguous() {
					c.Local(c.New(tensor.Contiguous(l.Size), tensor.Int64))
				}
			}
		}
		for k := 2; k < x.Rank(); k++ {
			size = size.Append(x.Dim(k))
		}
		c.Return(c.New(tensor.Contiguous(size), x.DType))
	},
	Save: []op.Save{op.In(1), op.In(2)}, Node: "IndexBackward0",
	Grad: func(b *op.Back) { // by sorted indices, as that of one index
		g, in := b.Grads[0], b.InM[0]
		b.Set(0, b.NewShape(in.DType, in.Size.Slice()...))
		slice := int64(1)
		for i := 2; i < in.Rank(); i++ {
			slice *= in.Dim(i)
		}
		n := g.Numel() / max(slice, 1)
		linearIndex(&b.Call, n, false, false)
		putSorted(&b.Call, g, n, in.Numel(), slice)
	},
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index, make_info; cuda/Indexing.cu: index_put_with_sort_kernel",
})

// evalPairs takes the elements that two indices, broadcast against each other, name.
var evalPairs = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		return paired(m, kernel.IndexPairs, c.In[0].Size, c.Out[0], c.In[0], c.In[1], c.In[2])
	},
	Backward: func(m op.Machine, b *op.Back) error {
		y := m.Wanted(b, 0)
		if y == nil || !y.DType.IsFloating() {
			return op.ErrView
		}
		return paired(m, kernel.IndexPairsGrad, y.Size, y, b.Grads[0], b.SavedIn(1), b.SavedIn(2))
	},
}).Otherwise(op.OnHost(func(a op.Arrays, c *op.Call) {
	x, y := a.Array(c.In[0]), make([]float64, c.Out[0].Numel())
	pairs(a, x.Size, c.In[1], c.In[2], func(to, from int) { y[to] = x.V[from] })
	a.Put(c.Out[0], y)
}, func(a op.Arrays, b *op.Back) {
	if r := a.Wanted(b, 0); r != nil {
		g, out := a.Get(b.Grads[0]), make([]float64, r.Numel())
		pairs(a, r.Size.Ints(), b.SavedIn(1), b.SavedIn(2), func(to, from int) { out[from] += g[to] })
		a.Put(r, out)
	}
}))

// paired runs a kernel that writes to and reads from, of which one has a size and the other
// the rows that two indices, broadcast against each other, name.
func paired(m op.Machine, k *kernel.Kernel, size tensor.Dims, to, from, first, second *op.Tensor) error {
	lead, err := tensor.Broadcast(first.Size, second.Size)
	if err != nil {
		return err
	}
	n := size.Slice()
	inner := tensor.D(n[2:]...).Numel()
	whole, rows := []int64{n[0], n[1], inner}, []int64{lead.Numel(), inner}
	if k == kernel.IndexPairs {
		whole, rows = rows, whole
	}
	l := op.Launch{On: m}
	l.Seen(to, whole...)
	l.Seen(from, rows...)
	for _, t := range []*op.Tensor{first, second} {
		e, err := t.Expand(lead.Slice())
		if err != nil {
			return err
		}
		flat, ok := e.View(tensor.D(lead.Numel()))
		if !ok {
			return op.ErrView
		}
		l.Operands = append(l.Operands, m.At(t, flat))
	}
	return l.Run(k, nil)
}

func pairs(a op.Arrays, size []int, i, j *op.Tensor, f func(to, from int)) {
	lead, err := tensor.Broadcast(i.Size, j.Size)
	if err == nil {
		err = array.Pairs(size, a.Like(i, lead), a.Like(j, lead), f)
	}
	if err != nil {
		a.Fail(err)
	}
}

// MaskIndexArgs says how many elements of the mask are true, which the data
// decides.
type MaskIndexArgs struct {
	Count int64 `arg:"count"`
}

// IndexMask is x[mask], of a bool tensor for the first dimensions. The mask is turned
// into indices (nonzero), of which the host reads how many there are.
var IndexMask = define(op.Op{
	Name: "index.mask", Eval: op.Linear(func(any) array.Linear { return array.Masked }), Sig: "[] index_mask(self, mask, count: int)", Args: &MaskIndexArgs{}, Run: func(c *op.Call) {
		x, m, n := c.In[0], c.In[1], c.Args.(*MaskIndexArgs).Count
		k := m.Rank()
		if m.DType != tensor.Bool || k == 0 || k > x.Rank() {
			c.Fail("the mask must be a bool tensor of up to %d dimensions, not %v of shape %v", x.Rank(), m.DType, m.Size)
		}
		size := tensor.D(n)
		for i := range x.Rank() {
			if i < k && x.Dim(i) != m.Dim(i) {
				c.Fail("a mask of shape %v does not fit shape %v", m.Size, x.Size)
			}
			if i >= k {
				size = size.Append(x.Dim(i))
			}
		}
		if n < 0 || n > m.Numel() {
			c.Fail("%d elements of a mask of shape %v cannot be true", n, m.Size)
		}
		indices := nonzero(c, m, m.Layout, n)
		c.Return(c.New(tensor.Contiguous(size), x.DType))
		c.Drop(indices)
	},
	Save: []op.Save{op.In(1)}, Node: "IndexBackward0", Grad: gradMaskIndex,
	NotModelled: "how many elements a mask picks is the data's; memplan takes the number in the spec",
	Source:      "aten/src/ATen/native/IndexingUtils.h: expandTensors; cuda/Nonzero.cu",
})

// nonzero makes the indices of the n elements of a mask that are true, where l is m's
// layout or that of a view of it.
func nonzero(c *op.Call, m *op.Tensor, l tensor.Layout, n int64) *op.Tensor {
	mark := c.Mark()
	if !l.IsContiguous() {
		c.Rearranged(m, tensor.Contiguous(l.Size))
	}
	run := func(rule *op.KernelRule) {
		k := op.Kernel{Rule: rule, In: tensor.Layout{Size: tensor.D(l.Numel())}}
		c.Kernel(k)
		rule.Run(c, &k)
	}
	count := c.NewShape(tensor.Int32)
	run(cubSumRule)
	out := c.NewShape(tensor.Int64, n, int64(l.Rank()))
	if l.Rank() > 0 {
		run(cubFlaggedRule)
	}
	c.Drop(count)
	c.DropTo(mark)
	return out
}

// What CUB takes to count elements and to choose some: the operand is how many there are.
var (
	cubSumRule     = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) { c.Drop(c.NewShape(tensor.Uint8, cub.Sum(c.Env().SMs, k.In.Dim(0)))) }}
	cubFlaggedRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
		c.Drop(c.NewShape(tensor.Uint8, cub.Flagged(c.Env().Arch, k.In.Dim(0))))
	}}
)

// NonzeroCount is torch.nonzero of a tensor of which so many elements are not zero.
var NonzeroCount = define(op.Op{
	Name: "nonzero_count", Sig: "nonzero_count(input, count: int)", Args: &MaskIndexArgs{}, Run: func(c *op.Call) {
		x, n := c.In[0], c.Args.(*MaskIndexArgs).Count
		if n < 0 || n > x.Numel() {
			c.Fail("%d elements of shape %v cannot be other than zero", n, x.Size)
		}
		c.Return(nonzero(c, x, x.Layout, n))
	},
	NotModelled: "how many elements are not zero is the data's; memplan takes the number in the spec",
	Source:      "aten/src/ATen/native/cuda/Nonzero.cu",
})

// gradMaskIndex adds the gradient to zeros by sorted indices, as gradIndex.
func gradMaskIndex(b *op.Back) {
	m, g, in, n := b.SavedIn(1), b.Grads[0], b.InM[0], b.Args.(*MaskIndexArgs).Count
	b.Set(0, b.NewShape(in.DType, in.Size.Slice()...))
	indices := nonzero(&b.Call, m, m.Layout, n)
	if n == 0 {
		b.Drop(indices)
		return
	}
	vec := func() *op.Tensor { return b.NewShape(tensor.Int64, n) }
	for i := range m.Rank() {
		wrapped, part := vec(), vec()
		b.Drop(wrapped)
		if i == 0 {
			b.Local(part) // linear index, to which the others are added
		} else {
			b.Drop(part)
		}
	}
	b.Drop(indices)
	putSorted(&b.Call, g, n, in.Numel(), in.Numel()/m.Numel())
}

// Where algorithms must be deterministic, what adds or writes by an index becomes
// an index_put_, which sorts.

// putDeterministic is x.index_put_(index, src) along a dimension: the index is
// checked on the device first.
func putDeterministic(c *op.Call, x tensor.Layout, idx, src *op.Tensor, dim int) {
	withinBounds(c, idx, x.Dim(dim))
	mark := c.Mark()
	linearIndex(c, idx.Numel(), false)
	slice := int64(1)
	for i := dim + 1; i < x.Rank(); i++ {
		slice *= x.Dim(i)
	}
	putSorted(c, src, idx.Numel(), x.Numel(), slice)
	c.DropTo(mark)
}

// scatterDeterministic is what scatter and scatter_add of src into a tensor like x
// do (_scatter_via_index_put in aten/src/ATen/native/TensorAdvancedIndexing.cpp):
// each element of the index becomes coordinates, which become one linear index.
func scatterDeterministic(c *op.Call, x tensor.Layout, idx, src *op.Tensor, dim int) {
	if !c.Env().Deterministic {
		return
	}
	if x.Rank() == 1 {
		putDeterministic(c, x, idx, src, 0)
		return
	}
	n, rank := idx.Numel(), int64(x.Rank())
	mark := c.Mark()
	c.Local(c.NewShape(tensor.Int64, n, rank))
	for i := range idx.Rank() {
		if i != dim {
			c.Drop(c.Grown(tensor.Int64, idx.Dim(i)))
		}
	}
	c.Local(c.NewShape(tensor.Int64, rank)) // strides
	product := c.NewShape(tensor.Int64, n, rank)
	flat := c.Local(c.Do1(Sum, &ReduceArgs{Dim: []int64{-1}}, product))
	c.Drop(product)
	if src.Numel() != n || !src.IsContiguous() { // as many elements of it as the index has
		src = c.Local(c.NewShape(src.DType, n))
	}
	putDeterministic(c, tensor.Contiguous(tensor.D(x.Numel())), flat, src, 0)
	c.DropTo(mark)
}

// IndexPutArgs say how _index_put_impl_ writes.
type IndexPutArgs struct {
	Accumulate bool `arg:"accumulate"`
	Unsafe     bool `arg:"unsafe"` // indices are known to be within
}

// IndexPutInPlace is self.index_put_(indices, values). Inputs: self, values, and an index
// for each of the first dimensions, nil where there is none.
var IndexPutInPlace = define(op.Op{
	Name: "_index_put_impl_", Args: &IndexPutArgs{}, InPlace: true, Run: func(c *op.Call) {
		x, src, a := c.In[0], c.In[1], c.Args.(*IndexPutArgs)
		size, slice := tensor.D(), int64(1)
		var onHost []bool
		for i := range x.Rank() {
			idx := c.Opt(2 + i)
			switch {
			case idx == nil:
				slice *= x.Dim(i)
			case idx.DType == tensor.Bool || idx.DType == tensor.Uint8:
				if src.Numel() != 1 || a.Accumulate { // else masked_fill_
					c.Fail("how many elements a mask picks is the data's")
				}
				return
			default:
				var err error
				if size, err = tensor.Broadcast(size, idx.Size); err != nil {
					c.Fail("indices: %v", err)
				}
				onHost = append(onHost, c.InHostMemory(idx))
			}
		}
		if !a.Accumulate && !(c.Env().Deterministic && src.Numel() > 1) {
			return
		}
		n := size.Numel()
		for i := range x.Rank() {
			if idx := c.Opt(2 + i); idx != nil && !a.Unsafe && !c.InHostMemory(idx) {
				withinBounds(c, idx, x.Dim(i))
			}
		}
		linearIndex(c, n, onHost...)
		if src.Numel() < n*slice { // expanded, then contiguous
			c.Local(c.NewShape(src.DType, n*slice))
		}
		putSorted(c, src, n, x.Numel(), slice)
	},
	Eval: &op.Eval{Over: true, Forward: func(op.Machine, *op.Call) error {
		return &op.Refusal{What: "index_put_ of a recording"}
	}},
	Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: _index_put_impl_; cuda/Indexing.cu: index_put_with_sort_kernel",
})

// withinBounds has the device check an index of a dimension of n.
func withinBounds(c *op.Call, idx *op.Tensor, n int64) {
	within := func(extreme, compare *op.Op, bound int64) {
		value := c.Do1(extreme, nil, idx)
		c.Drop(c.Do1(compare, &BinaryArgs{Other: op.Number{Set: true, Value: float64(bound)}}, value), value)
	}
	within(Max.All, Less, n)
	within(Min.All, GreaterEqual, -n)
}
