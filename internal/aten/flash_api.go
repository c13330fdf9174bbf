package aten

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// flash pads head sizes to a multiple of 8 and slices the result.
func flash(c *op.Call, q, k, v *op.Tensor, a *SDPAArgs) *op.Tensor {
	d := q.Dim(-1)
	ins := []*op.Tensor{q, k, v}
	if pad := (8 - d%8) % 8; pad != 0 {
		for i, t := range ins {
			ins[i] = c.Local(c.Do1(ConstantPad, &PadArgs{Pad: []int64{0, pad}}, t))
		}
	}
	outs := c.Do(FlashAttention, a, ins...)
	c.Drop(outs[1:]...)
	if d%8 == 0 {
		return outs[0]
	}
	defer c.Drop(outs[0])
	return c.Do1(Slice, &SliceArgs{Dim: -1, End: &d, Step: 1}, outs[0])
}

// FlashAttention is the implementation by FlashAttention.
var FlashAttention = define(op.Op{
	Name: "_scaled_dot_product_flash_attention", Seeds: 2, Passed: passedOn, Eval: evalAttention, Flops: attentionFlops, Args: &SDPAArgs{}, Run: func(c *op.Call) {
		t := swapHeads(c, c.In...)
		q, k := t[0], t[1]
		kern := flashKernel(flashRule, q, k, c.Args.(*SDPAArgs).DropoutP)
		if !c.Env().NoKernels() {
			c.Kernel(kern)
		}
		out := c.New(q.LikeDense(), q.DType)
		outs := flashForward(c, &kern)
		c.Return(append([]*op.Tensor{swapBack(c, out)}, outs...)...)
	},
	Save:   []op.Save{op.In(1), op.In(0), op.In(2), op.Out(1), op.Out(0), op.Out(2), op.Out(3)},
	NoGrad: []int{1}, Node: "ScaledDotProductFlashAttentionBackward0",
	Grad: func(b *op.Back) {
		t := swapHeads(&b.Call, b.Grads[0], b.SavedOut(0), b.SavedIn(0), b.SavedIn(1), b.SavedIn(2))
		g, out, q, k, v := t[0], t[1], t[2], t[3], t[4]
		b.Contiguous(g)
		b.Contiguous(out)
		dq, dk, dv := b.NewLike(q), b.NewLike(k), b.NewLike(v)
		rows := roundUp(q.Dim(1), 128)
		b.Scratch(tensor.Bytes(q.Dim(0) * q.Dim(2) * rows * 4)) // softmax_d
		accs := int64(1)
		if b.Env().Deterministic {
			accs = tensor.DivUp(int64(b.Env().SMs), q.Dim(0)*q.Dim(2))
		}
		b.Scratch(tensor.Bytes(accs * q.Dim(0) * rows * q.Dim(2) * roundUp(q.Dim(3), 32) * 4)) // dq in float32
		if groups := q.Dim(2) / max(k.Dim(2), 1); groups > 1 {                                 // dk_expanded, dv_expanded: for each head, then summed
			if groups >= 256 {
				b.Fail("a sum over %d heads that share a key is not modelled", groups)
			}
			n := tensor.Bytes(k.Dim(0) * k.Dim(1) * q.Dim(2) * k.Dim(3) * k.DType.Size())
			b.Scratch(n)
			b.Scratch(n)
		}
		b.Set(0, swapBack(&b.Call, dq))
		b.Set(1, swapBack(&b.Call, dk))
		b.Set(2, swapBack(&b.Call, dv))
	},
	Source: "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp; recorded on sm_80, sm_86, sm_90",
})

// The forward kernels: their operands are the sizes of the queries, the length of the keys,
// and the heads of these.
var (
	flashRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
		c.NewShape(k.DType, k.In.Size.Slice()[:4]...)
		flashForward(c, k)
	}}
	flashAttnRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) {
		c.NewShape(k.DType, k.In.Size.Slice()[:4]...)
		flashAttnForward(c, k)
	}}
)

func flashKernel(rule *op.KernelRule, q, k *op.Tensor, dropout float64) op.Kernel {
	size := append(q.Size.Slice(), k.Dim(1), k.Dim(2))
	out := op.Kernel{Rule: rule, In: tensor.Layout{Size: tensor.D(size...)}, DType: q.DType}
	if dropout != 0 {
		out.Reduced = 1
	}
	return out
}

// flashForward is what the forward pass allocates after its result, and returns what it
// returns with it.
func flashForward(c *op.Call, k *op.Kernel) []*op.Tensor {
	q := &k.In
	outs := []*op.Tensor{c.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), q.Dim(1))} // log-sum-exp
	var lseAcc, outAcc *op.Tensor
	if n := flashSplits(c.Env(), k); n > 1 && !c.Env().NoKernels() {
		lseAcc = c.NewShape(tensor.Float32, n, q.Dim(0), q.Dim(2), q.Dim(1))
		outAcc = c.NewShape(tensor.Float32, n, q.Dim(0), q.Dim(2), q.Dim(1), roundUp(q.Dim(3), 32))
	}
	if c.Env().Torch.Has(torchver.FlashStateOnDevice) {
		state, unused := c.NewShape(tensor.Int64, 2), c.NewShape(tensor.Int64)
		if k.Reduced != 0 && !c.Env().NoKernels() { // made again
			again := c.NewShape(tensor.Int64, 2)
			c.Drop(state)
			state = again
		}
		outs = append(outs, state, unused)
	}
	c.Drop(outAcc, lseAcc)
	return outs
}

// flashSplits is the number of parts into which a forward kernel cuts the
// keys when batch and heads alone do not fill the GPU (num_splits_heuristic).
func flashSplits(env *op.Env, k *op.Kernel) int64 {
	if k.Reduced != 0 { // dropout
		return 1
	}
	q, length, shared := &k.In, k.In.Dim(4), k.In.Dim(5)
	block := int64(64)
	switch d := q.Dim(3); {
	case d <= 64:
		block = 256
	case d <= 128:
		block = 128
	}
	keys := tensor.DivUp(length, block)
	heads, rows := q.Dim(2), q.Dim(1)
	if rows == 1 && heads > shared { // the heads that share a key are seen as tokens (seqlenq_ngroups_swapped)
		heads, rows = shared, heads/shared
	}
	work := q.Dim(0) * heads * tensor.DivUp(rows, 64)
	sms := int64(env.SMs) * 2
	if float32(work) >= 0.8*float32(sms) {
		return 1
	}
	limit := min(128, sms, keys)
	eligible := func(n int64) bool { return n == 1 || tensor.DivUp(keys, n) != tensor.DivUp(keys, n-1) }
	efficiency := func(n int64) float32 {
		waves := float32(work*n) / float32(sms)
		return waves / float32(math.Ceil(float64(waves)))
	}
	best := float32(0)
	for n := int64(1); n <= limit; n++ {
		if eligible(n) {
			best = max(best, efficiency(n))
		}
	}
	for n := int64(1); n <= limit; n++ {
		if eligible(n) && float64(efficiency(n)) >= 0.85*float64(best) {
			return n
		}
	}
	return 1
}
