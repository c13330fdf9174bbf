package aten

import (
	"cmp"
	"slices"

	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// byCudnn runs cuDNN's attention. The mask is expanded as a view.
func byCudnn(c *op.Call, q, k, v, mask *op.Tensor, a *SDPAArgs) *op.Tensor {
	outs := c.Do(CudnnAttention, &cudnnArgs{SDPAArgs: *a, lse: c.NeedsGrad(q) || c.NeedsGrad(k) || c.NeedsGrad(v)}, q, k, v, mask)
	c.Drop(outs[1:]...)
	return outs[0]
}

type cudnnArgs struct {
	SDPAArgs
	lse bool // compute_logsumexp
}

// CudnnAttention is the implementation by cuDNN. The plan's own workspace is not in it:
// cuDNN.Attention bounds it.
var CudnnAttention = define(op.Op{
	Name: "_scaled_dot_product_cudnn_attention", Seeds: 2, Eval: evalAttention, Flops: attentionFlops, Args: &cudnnArgs{}, Run: func(c *op.Call) {
		q, v := c.In[0], c.In[2]
		var seeds [2]*op.Tensor
		if !c.Env().FakeTensors {
			seeds = [2]*op.Tensor{c.NewShape(tensor.Int64), c.NewShape(tensor.Int64)}
		}
		out := c.New(matchingLayout(q, q.Size.Set(3, v.Dim(3))), q.DType)
		rows := int64(0)
		if c.Args.(*cudnnArgs).lse {
			rows = q.Dim(2)
		}
		lse := c.NewShape(tensor.Float32, q.Dim(0), q.Dim(1), rows)
		if c.Env().FakeTensors { // meta tensors, of which nothing is kept
			c.Return(out, lse)
			return
		}
		call := cudnnCall(q, c.In[1], v)
		c.AttentionPlan(call.MostPlan(false))
		c.Return(out, lse, seeds[0], seeds[1])
	},
	Save:   []op.Save{op.In(3), op.In(1), op.In(0), op.In(2), op.Out(1), op.Out(0), op.Out(3), op.Out(2)},
	NoGrad: []int{1}, Node: "ScaledDotProductCudnnAttentionBackward0",
	Grad: func(b *op.Back) {
		g, out, q, k, v := b.Grads[0], b.SavedOut(0), b.SavedIn(0), b.SavedIn(1), b.SavedIn(2)
		dq, dk, dv := b.NewLike(q), b.NewLike(k), b.NewLike(v)
		b.Set(0, dq)
		b.Set(1, dk)
		b.Set(2, dv)
		if b.Env().FakeTensors {
			return
		}
		l := matchingLayout(out, g.Size)
		if b.Env().Cudnn >= 90501 && g.Stride.At(-1) != 1 || b.Env().Cudnn < 90501 && !sameStrides(out, g) {
			if !sameStrides(&op.Tensor{Layout: l}, g) {
				b.Rearranged(g, l)
			}
		}
		call := cudnnCall(q, k, v)
		b.AttentionPlan(call.MostPlan(true))
		b.Scratch(call.BackwardWorkspace())
	},
	Source: "aten/src/ATen/native/cudnn/MHA.cpp, transformers/cuda/attention.cu, attention_backward.cu; recorded on sm_90 of 2.6, where sdpa_kernel asks for it",
})

// AttentionByCudnn are the names of operators that cuDNN's attention computes.
func AttentionByCudnn() []string { return []string{CudnnAttention.Name} }

func cudnnCall(q, k, v *op.Tensor) *cudnn.Attention {
	return &cudnn.Attention{
		Batch: q.Dim(0), Heads: q.Dim(1), Queries: q.Dim(2), Head: q.Dim(3),
		Shared: k.Dim(1), Keys: k.Dim(2), Value: v.Dim(3), DType: q.DType,
	}
}

// matchingLayout lays sizes out densely in the order of a tensor's strides
// (alloc_with_matching_layout).
func matchingLayout(like *op.Tensor, size tensor.Dims) tensor.Layout {
	if like.Size == size {
		return like.LikeDense()
	}
	order := make([]int, size.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(like.Stride.At(a), like.Stride.At(b)) })
	l, n := tensor.Contiguous(size), int64(1)
	for _, d := range order {
		l.Stride = l.Stride.Set(d, n)
		n *= size.At(d)
	}
	return l
}

// sameStrides compares strides of dimensions that are not 1.
func sameStrides(x, y *op.Tensor) bool {
	strides := func(t *op.Tensor) (out []int64) {
		for i := range t.Rank() {
			if t.Dim(i) > 1 {
				out = append(out, t.Stride.At(i))
			}
		}
		return out
	}
	return slices.Equal(strides(x), strides(y))
}
