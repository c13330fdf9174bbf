package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// lse is the log-sum-exp as [B, H, L]: rows may be padded.
func (x *Executor) lse(t *op.Tensor, length int64) kernel.Tensor {
	if t == nil || t.Numel() == 0 {
		return kernel.Tensor{}
	}
	return x.at(t, t.Narrow(2, 0, length, 1))
}

func attentionNumbers(args any, width int64) (causal int64, scale, p float64) {
	a := args.(interface{ Attention() *op.SDPAArgs }).Attention()
	scale = 1 / math.Sqrt(float64(width))
	if a.Scale != nil {
		scale = *a.Scale
	}
	return flag(a.IsCausal), scale, a.DropoutP
}

// attention is a fused one, whose rows differ in what they allocate. The seed of
// its dropout is that of the forward pass.
func attention(x *Executor, c *op.Call) error {
	q := c.In[0]
	if c.In[1].Dim(1) != q.Dim(1) {
		return attentionAside.forward(x, c)
	}
	causal, scale, p := attentionNumbers(c.Args, q.Dim(3))
	seed := int64(0)
	if p > 0 {
		seed = x.draw()
		x.seeds[engine.BlockOf(c.Out[1])] = seed
	}
	mask, err := x.mask(optional(c.In, 3), q, c.In[1])
	if err != nil {
		return err
	}
	ts := []kernel.Tensor{x.operand(c.Out[0]), x.lse(c.Out[1], q.Dim(2)), x.operand(q), x.operand(c.In[1]), x.operand(c.In[2]), mask}
	return x.launch(kernel.Attention, ts, []int64{causal, seed}, scale, p)
}

func (x *Executor) mask(m, q, k *op.Tensor) (kernel.Tensor, error) {
	if m == nil {
		return kernel.Tensor{}, nil
	}
	l, err := m.Expand([]int64{q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)})
	return x.at(m, l), err
}

func attentionGrad(x *Executor, b *op.Back) error {
	q, k, v := b.SavedIn[0], b.SavedIn[1], b.SavedIn[2]
	causal, scale, p := attentionNumbers(b.Args, q.Dim(3))
	switch masked := wanted(b, 3) != nil; {
	case k.Dim(1) != q.Dim(1), masked && p == 0:
		return attentionAside.backward(x, b)
	case masked: // the kernel dropped out by numbers of its own
		return unsupported("the gradient of the mask of an attention with dropout")
	}
	mask, err := x.mask(optional(b.SavedIn, 3), q, k)
	if err != nil {
		return err
	}
	ts := []kernel.Tensor{x.operand(b.Results[0]), x.operand(b.Results[1]), x.operand(b.Results[2]), x.operand(b.Grads[0]),
		x.operand(b.SavedOut[0]), x.lse(b.SavedOut[1], q.Dim(2)), x.operand(q), x.operand(k), x.operand(v), mask}
	return x.launch(kernel.AttentionGrad, ts, []int64{causal, x.seeds[engine.BlockOf(b.SavedOut[1])]}, scale, p)
}

// attentionRows are fused attentions.
var attentionRows = map[*op.Op]row{
	// 0 where the mask is set, else -inf.
	op.BoolMask: {forward: func(x *Executor, c *op.Call) error {
		if err := x.Fill(c.Out[0], math.Inf(-1)); err != nil {
			return err
		}
		return x.apply(kernel.MaskedFill, c.Out[0], []*op.Tensor{c.Out[0], c.In[0]}, 0)
	}},
	op.SafeSoftmax:        {forward: asideRow(safeSoftmax, nil).forward, backward: softmax(kernel.Softmax, kernel.SoftmaxGrad).backward},
	op.EfficientAttention: {forward: attention, backward: attentionGrad},
	op.FlashAttention:     {forward: attention, backward: attentionGrad},
}
