package cudnn

import "github.com/memplan/memplan/internal/tensor"

// Attention is a call of scaled dot product attention.
type Attention struct {
	Batch, Heads, Queries, Head int64 // of the queries, and the size of their heads
	Shared, Keys, Value         int64 // heads and length of keys and values, and the size of the values' heads
	DType                       tensor.DType
}

// BackwardWorkspace is what cuDNN's frontend, which PyTorch is built with, takes for
// the derivative beside what the plan takes that cuDNN picks: the gradient of the
// queries and the sum over each row in float32 (get_fe_workspace_size_node of
// CompositeSDPABackwardNode in node/scaled_dot_product_flash_attention.h, from 1.7 to
// 1.23 for cuDNN 9). The forward pass has none.
func (a *Attention) BackwardWorkspace() tensor.Bytes {
	return tensor.Bytes(a.Batch * a.Heads * a.Queries * (a.Head + 1) * 4)
}

// MostPlan is what the workspace of a plan is taken to be at most, since cuDNN
// documents none: copies of all operands and, in the derivative, of the gradients of
// keys and values for each head of the queries, which are summed if heads share keys.
// What is known of it is that on a B200 a run of torchtitan had a peak 1.8 GiB lower
// with cuDNN than with FlashAttention, whose buffers are as large as the frontend's
// (pytorch/torchtitan pull request 1196).
func (a *Attention) MostPlan(backward bool) tensor.Bytes {
	q, o := a.Batch*a.Heads*a.Queries*a.Head, a.Batch*a.Heads*a.Queries*a.Value
	k, v := a.Batch*a.Shared*a.Keys*a.Head, a.Batch*a.Shared*a.Keys*a.Value
	n := q + k + v + o
	if backward {
		n *= 2
		if a.Shared != a.Heads {
			n += a.Batch * a.Heads * a.Keys * (a.Head + a.Value)
		}
	}
	return tensor.Bytes(n * a.DType.Size())
}
