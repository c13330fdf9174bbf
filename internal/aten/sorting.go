package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// ranked defines median or kthvalue: the rank, counted from 0, of a row whose smallest
// element comes first in its order.
func ranked(name, sig string, rank func(row []float64, order []int, args *ExtremeArgs) int) *op.Op {
	return define(op.Op{
		Name: name, Sig: sig, Args: &ExtremeArgs{}, Run: func(c *op.Call) {
			x := c.In[0]
			_, size := reducedDims(c, x.Meta(), c.Args.(*ExtremeArgs).over())
			switch {
			case x.Numel() == 0:
				c.Fail("%s of no elements", name)
			case c.Env().Deterministic:
				c.Fail("%s has no deterministic form in PyTorch; it would raise an error", name)
			}
			c.Contiguous(x)
			l := tensor.Contiguous(size)
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
		},
		Save: []op.Save{op.Out(1)}, Node: op.NodeName(name), Grad: gradSelected,
		Eval: picking(func(row []float64, args any) []int {
			order := array.Order(row, false)
			return order[rank(row, order, args.(*ExtremeArgs)):]
		}),
		Source: "aten/src/ATen/native/cuda/Sorting.cpp",
	})
}

// The values at a rank.
var (
	Median = ranked("median", "torch.median(input, dim: int, keepdim: bool = False)", func(row []float64, order []int, _ *ExtremeArgs) int {
		return array.Median(row, order)
	})
	Kthvalue = ranked("kthvalue", "torch.kthvalue(input, k: int, dim: int = -1, keepdim: bool = False)", func(_ []float64, _ []int, a *ExtremeArgs) int {
		return int(a.K) - 1
	})
)

// sortedAlong picks the first elements along a dimension in their order.
func sortedAlong(descending func(args any) bool) *op.Eval {
	return (&op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			x, l := c.In[0], op.Launch{On: m}
			l.Add(c.Out[0], c.Out[1], x)
			return l.Run(kernel.Sort, []int64{int64(array.Dim(selectedDim(c.Args), x.Rank())), op.Flag(descending(c.Args))})
		},
		Backward: putBack,
	}).Otherwise(picking(func(row []float64, args any) []int { return array.Order(row, descending(args)) }))
}

// SortArgs are the arguments of sort and argsort.
type SortArgs struct {
	Dim        int  `arg:"dim"`
	Descending bool `arg:"descending"`
}

// smallSort is the longest dimension that is sorted in place by one kernel
// (should_use_small_sort in aten/src/ATen/native/cuda/Sort.h).
const smallSort = 4096

// Sort gives the values in order and their int64 indices.
var Sort = define(op.Op{
	Name: "sort", Sig: "torch.sort(input, dim: int = -1, descending: bool = False)", Args: &SortArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		n := sortLength(c, c.Args.(*SortArgs).Dim)
		l := x.LikeDense()
		c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
		if x.Numel() > 0 {
			c.Scratch(tensor.Bytes(8 * n)) // the indices of one slice
			c.Filled(tensor.Int64)
		}
		if n > smallSort {
			c.Scratch(tensor.Bytes(cub.SortPositions(c.Env().Arch, n, x.DType.Size())))
		}
	},
	Save: []op.Save{op.Out(1)}, Node: "SortBackward0", Grad: gradSelected,
	Eval:   sortedAlong(func(args any) bool { return args.(*SortArgs).Descending }),
	Source: "aten/src/ATen/native/cuda/Sort.cpp: sort_cuda_kernel; SortStable.cu: launch_stable_sort_kernel",
})

// sortLength checks that a dimension is short enough for the small sort, or the
// only one.
func sortLength(c *op.Call, dim int) int64 {
	x := c.In[0]
	d := c.Dim(dim, x.Rank())
	if x.Rank() == 0 {
		c.Fail("sorting needs at least one dimension")
	}
	n := x.Dim(d)
	if large := x.Rank() == 1 && x.IsContiguous() && (x.DType.Size() == 1 || x.DType.Size() == 4 || x.DType.Size() == 8); n > smallSort && !large {
		c.Fail("sorting more than %d elements along a dimension is only modelled for one dimension of 1, 4 or 8 bytes an element", smallSort)
	}
	return n
}

// Argsort keeps the indices of sort alone.
var _ = define(op.Op{
	Name: "argsort", Sig: "torch.argsort(input, dim: int = -1, descending: bool = False)", Args: &SortArgs{}, Composite: true, Run: func(c *op.Call) {
		outs := c.Do(Sort, c.Args, c.In[0])
		c.Return(outs[1])
		c.Drop(outs[0])
	},
})

// TopkArgs are the arguments of topk.
type TopkArgs struct {
	K       int64 `arg:"k"`
	Dim     int   `arg:"dim"`
	Largest bool  `arg:"largest"`
	Sorted  bool  `arg:"sorted"`
}

// Topk gives the k largest elements along a dimension and their indices.
var Topk = define(op.Op{
	Name: "topk", Sig: "torch.topk(input, k: int, dim: int = -1, largest: bool = True, sorted: bool = True)", Args: &TopkArgs{}, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*TopkArgs)
		d := c.Dim(a.Dim, x.Rank())
		if x.Rank() == 0 || a.K < 1 || a.K > x.Dim(d) {
			c.Fail("cannot take %d elements along dimension %d of shape %v", a.K, a.Dim, x.Size)
		}
		if a.K > smallSort {
			c.Fail("topk of more than %d elements, not %d, is not modelled", smallSort, a.K)
		}
		n := x.Dim(d)
		size := tensor.Contiguous(x.Size.Set(d, a.K))
		values, indices := c.New(size, x.DType), c.New(size, tensor.Int64)
		c.Contiguous(x)
		if slices := x.Numel() / n; multiBlock(slices, n) {
			topkScratch(c, slices, n, x.DType.Size())
		}
		c.Return(values, indices)
	},
	Save: []op.Save{op.Out(1)}, Node: "TopkBackward0", Grad: gradSelected,
	Eval:   sortedAlong(func(args any) bool { return args.(*TopkArgs).Largest }),
	Source: "aten/src/ATen/native/cuda/TensorTopK.cpp, TensorTopK.cu",
})

// multiBlock reports whether topk works with several thread blocks a slice
// (should_use_multiblock).
func multiBlock(slices, size int64) bool {
	for _, r := range []struct{ slices, size int64 }{{20, 20000}, {40, 10000}, {80, 8000}, {199, 5000}, {799, 3000}, {4000, 800}} {
		if slices <= r.slices {
			return size >= r.size
		}
	}
	return size >= 400
}

// topkScratch is what topk with several thread blocks a slice allocates (mbtopk::launch):
// of each slice the element at rank k, a semaphore, the rank that is still looked for and
// the bits that are found; of each block a histogram and two counts; and twice the scratch
// of their sums.
func topkScratch(c *op.Call, slices, size, element int64) {
	const (
		threads   = 256
		blocks    = 6       // of a multiprocessor: each thread has 40 of its 65536 registers
		count     = 4       // bytes
		histogram = 256 * 2 // bytes: a short for each digit
	)
	items := min(max(tensor.DivUp(slices*size, int64(c.Env().SMs)*blocks*threads), 4), 64) // of a thread
	n := slices * tensor.DivUp(size, items*threads)
	passes := int64(1) // whose ranks and bits there are
	if c.Env().Torch.Has(torchver.TopkSwapsBuffers) {
		passes = 2
	}
	for _, bytes := range []int64{slices * element, slices * count, passes * slices * count, passes * slices * max(count, element), n * histogram, n * count, n * count} {
		c.Scratch(tensor.Bytes(bytes))
	}
	for range 2 {
		mark := c.Mark()
		c.Scratch(tensor.Bytes(cub.SumByKey(c.Env().Arch, n)))
		c.DropTo(mark)
	}
}
