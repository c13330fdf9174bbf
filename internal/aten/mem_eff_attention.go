package aten

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// efficient pads a mask whose rows are not aligned and runs the
// memory-efficient kernel.
func efficient(c *op.Call, q, k, v, mask *op.Tensor, a *SDPAArgs) *op.Tensor {
	if mask != nil {
		if !alignedMask(mask) {
			n := mask.Dim(-1)
			padded := c.Do1(ConstantPad, &PadArgs{Pad: []int64{0, maskAlignment - n%maskAlignment}}, mask)
			sliced := c.Local(c.Do1(Slice, &SliceArgs{Dim: -1, End: &n, Step: 1}, padded))
			c.Drop(padded)
			c.Early(mask) // the padded one takes its place, if it was made from bools
			mask = sliced
		}
		mask = c.Local(c.Do1(Expand, &ShapeArgs{Shape: []int64{q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)}}, mask))
	}
	outs := c.Do(EfficientAttention, &efficientArgs{SDPAArgs: *a, lse: c.NeedsGrad(q) || c.NeedsGrad(k) || c.NeedsGrad(v)}, q, k, v, mask)
	c.Drop(outs[1:]...)
	return outs[0]
}

// maskAlignment is the number of elements to which the rows of a mask must be
// aligned for the memory-efficient kernels (preprocess_mask).
const maskAlignment = 8

// alignedMask reports whether all strides but the last are aligned
// (aligned_tensor).
func alignedMask(mask *op.Tensor) bool {
	for i := range mask.Rank() - 1 {
		if mask.Stride.At(i)%maskAlignment != 0 {
			return false
		}
	}
	return mask.Stride.At(-1) == 1
}

type efficientArgs struct {
	SDPAArgs
	lse bool // compute_log_sumexp
}

// EfficientAttention is the memory-efficient implementation.
var EfficientAttention = define(op.Op{
	Name: "_scaled_dot_product_efficient_attention", Seeds: 2, Passed: passedOn, Eval: evalAttention, Flops: attentionFlops, Args: &efficientArgs{}, Run: func(c *op.Call) {
		t := swapHeads(c, c.In[0], c.In[1], c.In[2])
		q, v := t[0], t[2]
		out := c.NewShape(q.DType, q.Dim(0), q.Dim(1), q.Dim(2), v.Dim(3))
		rows := int64(0)
		if c.Args.(*efficientArgs).lse {
			rows = roundUp(q.Dim(1), 32)
		}
		lse := c.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), rows)
		if q.DType.IsHalf() && v.Dim(3) > 128 && !c.Env().NoKernels() { // the output does not fit the registers
			c.Drop(c.NewShape(tensor.Float32, q.Dim(0), q.Dim(1), q.Dim(2), v.Dim(3)))
		}
		c.Return(swapBack(c, out), lse)
		if c.Env().FakeTensors { // seed and offset are numbers on the host, but fake tensors are where the operands are
			c.Return(c.NewShape(tensor.Int64), c.NewShape(tensor.Int64))
		}
	},
	Save:   []op.Save{op.In(3), op.In(1), op.In(0), op.In(2), op.Out(1), op.Out(0), op.Out(2), op.Out(3)},
	NoGrad: []int{1}, Node: "ScaledDotProductEfficientAttentionBackward0",
	Grad: func(b *op.Back) {
		t := swapHeads(&b.Call, b.Grads[0], b.SavedOut(0), b.SavedIn(0), b.SavedIn(1), b.SavedIn(2))
		g, out, q, k, v := t[0], t[1], t[2], t[3], t[4]
		b.Contiguous(g)
		fresh := func(t *op.Tensor) *op.Tensor { return b.New(tensor.Contiguous(t.Size), t.DType) }
		dq, dk, dv := fresh(q), fresh(k), fresh(v)
		if b.Need(3) { // rows of a multiple of 16, of which a slice is the gradient
			last := k.Dim(1)
			rows := b.NewShape(b.InM[3].DType, q.Dim(0), q.Dim(2), q.Dim(1), roundUp(last, 16))
			b.Set(3, b.Alias(rows, rows.Narrow(3, 0, last, 1), rows.DType))
			b.Drop(rows)
		}
		b.Set(0, swapBack(&b.Call, dq))
		b.Set(1, swapBack(&b.Call, dk))
		b.Set(2, swapBack(&b.Call, dv))
		if b.Env().NoKernels() {
			return
		}
		if shared := k.Dim(2); shared != q.Dim(2) { // the gradients for each head, which another kernel sums (PR 191085; in which order is assumed)
			b.Local(b.NewShape(k.DType, k.Dim(0), k.Dim(1), q.Dim(2), k.Dim(3)))
			b.Local(b.NewShape(v.DType, v.Dim(0), v.Dim(1), q.Dim(2), v.Dim(3)))
		}
		var delta *op.Tensor                                                            // sum over the head of grad_out * out, as (batch, heads, length)
		if q.DType.IsHalf() && (b.Env().Arch >= 75 || max(q.Dim(3), v.Dim(3)) <= 128) { // the kernel computes it (kKernelComputesDelta)
			delta = b.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), q.Dim(1))
		} else {
			g32, out32 := b.Do1(To, &ToCopyArgs{DType: tensor.Float32}, g), b.Do1(To, &ToCopyArgs{DType: tensor.Float32}, out)
			prod := b.Do1(MulTensor, nil, g32, out32)
			sum := b.Do1(Sum, &ReduceArgs{Dim: []int64{-1}}, prod)
			swapped := b.Alias(sum, sum.Transpose(1, 2), sum.DType)
			delta = b.Do1(Contiguous, nil, swapped)
			b.Drop(swapped, sum, prod, out32, g32)
		}
		scratch := op.Kernel{Rule: efficientRule, In: tensor.Layout{Size: tensor.D(q.Dim(0)*q.Dim(2), q.Dim(1), q.Dim(3), k.Dim(1), v.Dim(3))}, DType: q.DType}
		if b.Args.(*efficientArgs).DropoutP > 0 {
			scratch.Reduced |= efficientDropout
		}
		if b.Env().Deterministic {
			scratch.Reduced |= efficientOnePart
		}
		b.Kernel(scratch)
		b.Drop(delta, efficientScratch(&b.Call, &scratch))
	},
	Source: "aten/src/ATen/native/transformers/cuda/attention_backward.cu",
})

// The backward kernel: its operand is the batches and heads, the sizes of the queries, and
// those of keys and values.
var efficientRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) { efficientScratch(c, k) }}

// What a backward kernel does, as bits of Kernel.Reduced.
const (
	efficientDropout = 1 << iota
	efficientOnePart // the sum is deterministic
)

// efficientScratch is the workspace of a backward kernel.
func efficientScratch(c *op.Call, k *op.Kernel) *op.Tensor {
	heads, queries, head, keys, headV := k.In.Dim(0), k.In.Dim(1), k.In.Dim(2), k.In.Dim(3), k.In.Dim(4)
	kern := efficientKernelFor(c.Env(), k.DType, max(head, headV), k.Reduced&efficientDropout != 0)
	splits := int64(1)
	if k.Reduced&efficientOnePart == 0 {
		splits = kern.splits(keys, heads)
	}
	return c.NewShape(tensor.Uint8, heads*kern.workspace(queries, splits, head, headV))
}

// efficientKernel is one of the backward kernels: its block of queries, the
// columns of its query-gradient tile, and its block of keys if it accumulates
// the gradients of keys and values in float32 (0: in registers).
type efficientKernel struct{ queries, columns, keys int64 }

// efficientKernels lists which kernel PyTorch 2.6 picks, first match first:
// by type, head size, shared memory and dropout. Recorded on sm_70 to sm_90
// for head sizes from 8 to 320.
var efficientKernels = []struct {
	half    bool
	maxHead int64
	shared  int  // least KiB of shared memory a block may have
	tensor  int  // least architecture
	below   int  // architectures below this one; 0: any
	dropout bool // allowed with dropout
	kernel  efficientKernel
}{
	{false, 64, 0, 0, 0, true, efficientKernel{64, 64, 0}},
	{false, math.MaxInt64, 160, 0, 0, true, efficientKernel{128, 64, 0}},
	{false, math.MaxInt64, 0, 0, 0, true, efficientKernel{64, 64, 0}},
	{true, 64, 0, 0, 0, true, efficientKernel{64, 64, 0}},
	{true, 128, 160, 80, 0, true, efficientKernel{128, 128, 0}},
	{true, 128, 0, 0, 80, true, efficientKernel{128, 64, 0}},
	{true, 96, 0, 80, 0, false, efficientKernel{128, 64, 0}},
	{true, 128, 0, 80, 0, true, efficientKernel{64, 64, 64}},
	{true, math.MaxInt64, 0, 0, 0, true, efficientKernel{128, 64, 64}},
}

// sharedMemory is the shared memory that a block may ask for, in KiB, of the
// architectures that differ (CUDA C programming guide, compute capabilities).
func sharedMemory(arch int) int {
	switch {
	case arch == 80 || arch == 87:
		return 163
	case arch >= 90 && arch < 120:
		return 227
	case arch < 75:
		return 96
	case arch < 80:
		return 64
	}
	return 99
}

func efficientKernelFor(env *op.Env, d tensor.DType, head int64, dropout bool) efficientKernel {
	for _, k := range efficientKernels {
		if k.half == d.IsHalf() && head <= k.maxHead && sharedMemory(env.Arch) >= k.shared && env.Arch >= k.tensor &&
			(k.below == 0 || env.Arch < k.below) && (k.dropout || !dropout) {
			return k.kernel
		}
	}
	return efficientKernels[0].kernel
}

// splits is how many parts of the keys run in parallel, of a kernel that accumulates
// their gradients: one for each block of keys, but no more than 200 blocks in all
// batches and heads (num_splits_key in attention_backward.cu).
func (k efficientKernel) splits(keys, heads int64) int64 {
	if k.keys == 0 || heads == 0 {
		return 1
	}
	return max(min(tensor.DivUp(keys, k.keys), 200/heads), 1)
}

// workspace is the bytes of scratch for one batch and head, with so many parts of the
// keys.
func (k efficientKernel) workspace(queries, splits, head, headV int64) int64 {
	const header = 16 // lock and counter of each tile
	n := tensor.DivUp(queries, k.queries) * tensor.DivUp(head, k.columns) * (header + k.queries*k.columns*4)
	if k.keys > 0 {
		n += 4 * splits * k.keys * (roundUp(head, k.queries) + roundUp(headV, k.queries))
	}
	return n
}
