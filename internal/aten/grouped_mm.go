package aten

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// GroupedMm multiplies parts of a matrix, each by a matrix of its own; offs [groups] of
// int32 says where each part ends. By the ranks of its operands it gives
//
//	[m, k] and [groups, k, n]: [m, n], of parts of the rows of the first
//	[groups, m, k] and [k, n]: [m, n], of parts of the columns of the second
//	[m, k] and [k, n]: [groups, m, n], of parts of k
var GroupedMm = define(op.Op{
	Name: "_grouped_mm", Eval: evalGroupedMm, Sig: "torch._grouped_mm(input, mat2, offs)", Flops: groupedFlops, Run: func(c *op.Call) {
		a, b, offs := c.In[0], c.In[1], c.In[2]
		size := groupedSize(c, a, b, offs)
		// The rows of the result begin at multiples of 16 bytes.
		align := int64(16 / a.DType.Size())
		width := size[len(size)-1]
		row := (width + align - 1) / align * align
		l := tensor.Contiguous(tensor.D(append(size[:len(size)-1:len(size)-1], row)...))
		l.Size = tensor.D(size...)
		out := c.New(l, a.DType)
		if fast := a.DType == tensor.BFloat16 && (c.Env().Arch == 90 || c.Env().Arch == 100); fast && !c.Env().NoKernels() {
			c.Scratch(groupedArguments(offs.Dim(0)))
		} else if out.Numel() > 0 {
			c.BlasHandle()
		}
		c.Return(out)
	},
	Save: []op.Save{op.In(1, 0), op.In(2, 0, 1), op.In(0, 1)}, Node: "GroupedMmBackward0",
	Source:      "aten/src/ATen/native/GroupedMMUtils.h, aten/src/ATen/native/cuda/GroupMM.cu of 2.9.1",
	NotModelled: "the workspace of CUTLASS's grouped kernels for bfloat16 on sm_90 and sm_100, less than 1 MiB while one runs",
})

var _ = GroupedMm.Derive(func(b *op.Back) {
	g, last := b.Grads[0], func(t *op.Tensor) *op.Tensor {
		return b.Local(b.Alias(t, t.Transpose(t.Rank()-2, t.Rank()-1), t.DType))
	}
	columns := func(m op.Meta) bool { // column-major, as a transposed weight is
		n := m.Rank()
		return m.Stride.At(n-2) == 1 && m.Stride.At(n-1) == m.Dim(n-2)
	}
	turned := func(i int, y *op.Tensor) {
		defer b.Drop(y)
		b.Set(i, b.ViewOf(y, y.Transpose(y.Rank()-2, y.Rank()-1)))
	}
	if b.Need(0) {
		if mat2 := b.SavedIn(1); columns(b.InM[0]) {
			turned(0, b.Do1(GroupedMm, nil, mat2, last(g), b.SavedIn(2)))
		} else {
			b.Set(0, b.Do1(GroupedMm, nil, g, last(mat2), b.SavedIn(2)))
		}
	}
	if b.Need(1) {
		if self := b.SavedIn(0); columns(b.InM[1]) {
			turned(1, b.Do1(GroupedMm, nil, last(g), self, b.SavedIn(2)))
		} else {
			b.Set(1, b.Do1(GroupedMm, nil, last(self), g, b.SavedIn(2)))
		}
	}
})

// evalGroupedMm is one kernel, for which what is not of a part has one group. Rows and columns
// of no part are left as they are.
var evalGroupedMm = &op.Eval{InParts: true, Forward: func(m op.Machine, c *op.Call) error {
	l, divided := op.Launch{On: m}, int64(0)
	switch a, b := c.In[0], c.In[1]; {
	case a.Rank() == 2 && b.Rank() == 2:
		divided = 2
	case a.Rank() == 3:
		divided = 1
	}
	for _, t := range []*op.Tensor{c.Out[0], c.In[0], c.In[1]} {
		of := t.Layout
		if t.Rank() == 2 {
			of = of.Unsqueeze(0)
		}
		l.Operands = append(l.Operands, m.At(t, of))
	}
	l.Add(c.In[2])
	return l.Run(kernel.GroupedGemm, []int64{divided})
}}

// groupedSize is the size of a grouped product, whose operands it checks.
func groupedSize(c *op.Call, a, b, offs *op.Tensor) []int64 {
	if a.DType != b.DType || !a.DType.IsFloating() {
		c.Fail("a grouped product of %v and %v: both must have one floating type", a.DType, b.DType)
	}
	if !c.Env().Torch.Has(torchver.GroupedExpertsHopper) {
		c.Fail("PyTorch %v has no torch._grouped_mm; 2.8 has", c.Env().Torch)
	}
	if !c.Env().Torch.Has(torchver.GroupedExperts) && a.DType != tensor.BFloat16 {
		c.Fail("torch._grouped_mm of PyTorch %v takes bfloat16 alone, not %v", c.Env().Torch, a.DType)
	}
	if offs.DType != tensor.Int32 || offs.Rank() != 1 {
		c.Fail("offs must have one dimension and type int32, it is %v of type %v", offs.Size, offs.DType)
	}
	groups := offs.Dim(0)
	switch {
	case a.Rank() == 2 && b.Rank() == 3 && a.Dim(1) == b.Dim(1) && b.Dim(0) == groups:
		return []int64{a.Dim(0), b.Dim(2)}
	case a.Rank() == 3 && b.Rank() == 2 && a.Dim(2) == b.Dim(0) && a.Dim(0) == groups:
		return []int64{a.Dim(1), b.Dim(1)}
	case a.Rank() == 2 && b.Rank() == 2 && a.Dim(1) == b.Dim(0):
		return []int64{groups, a.Dim(0), b.Dim(1)}
	}
	c.Fail("shapes %v and %v with %d groups have no grouped product", a.Size, b.Size, groups)
	return nil
}

// groupedArguments are the pointers, strides and sizes of the groups' products: three
// pointers for each of an even number of groups, three strides of 8 bytes and a size of three int32 for
// each.
func groupedArguments(groups int64) tensor.Bytes {
	return tensor.Bytes((groups+1)/2*2*3*8 + groups*3*8 + groups*3*4)
}

// groupedFlops counts each row once.
func groupedFlops(c *op.Call) float64 {
	a, b := c.In[0], c.In[1]
	if a.Rank() == 2 && b.Rank() == 2 {
		return 2 * float64(a.Numel()) * float64(b.Dim(1))
	}
	return product(c.Out[0], a.Dim(-1))
}
