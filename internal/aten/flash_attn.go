package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// What the package flash-attn allocates (2.6 to 2.8): its functions are custom operators
// that autograd does not see. The torch.autograd.Functions around them are blocks of
// specs/hf/flash.yaml. Tensors are (batch, length, heads, head size), or (tokens, heads,
// head size) where sequences of different lengths lie behind each other.

// FlashAttnArgs are the arguments of flash-attn's functions that decide on memory.
type FlashAttnArgs struct {
	Dropout       float64 `arg:"dropout"`
	Causal        bool    `arg:"causal"`
	Deterministic bool    `arg:"deterministic"`
}

// flashAttnTakes refuses what flash_api.cpp's checks refuse.
func flashAttnTakes(c *op.Call) { flashAttnFits(c, c.In[0], c.In[1], c.In[2], c.In[0].Rank()) }

// flashAttnBackTakes does so of a backward pass, whose tensors have a rank.
func flashAttnBackTakes(rank int) func(c *op.Call) {
	return func(c *op.Call) {
		flashAttnFits(c, c.In[1], c.In[2], c.In[3], rank)
		for _, t := range []*op.Tensor{c.In[0], c.In[4]} {
			if t.Size != c.In[1].Size {
				c.Fail("dout and out have the shape of the query %v, not %v", c.In[1].Size, t.Size)
			}
		}
	}
}

func flashAttnFits(c *op.Call, q, k, v *op.Tensor, rank int) {
	if rank < 3 || q.Rank() != rank || k.Rank() != rank || v.Rank() != rank {
		c.Fail("query, key and value are of shape (batch, length, heads, head size), or (tokens, heads, head size) of different lengths, not %v, %v and %v", q.Size, k.Size, v.Size)
	}
	switch d := q.Dim(-1); {
	case q.Numel() == 0 || k.Numel() == 0:
		c.Fail("flash-attn of no elements is not modelled")
	case !q.DType.IsHalf():
		c.Fail("flash-attn takes float16 and bfloat16, not %v", q.DType)
	case k.DType != q.DType || v.DType != q.DType:
		c.Fail("query, key and value must have one type, not %v, %v and %v", q.DType, k.DType, v.DType)
	case c.Env().Arch < 80:
		c.Fail("flash-attn needs sm_80 or later, not sm_%d", c.Env().Arch)
	case d > 256:
		c.Fail("flash-attn takes heads of at most 256 numbers, not %d", d)
	case d%8 != 0:
		c.Fail("flash-attn takes heads of a multiple of 8 numbers, not %d", d)
	case q.Rank() != k.Rank() || k.Dim(-1) != d || k.Dim(-2) == 0 || q.Dim(-2)%k.Dim(-2) != 0:
		c.Fail("query %v, key %v and value %v do not fit", q.Size, k.Size, v.Size)
	}
}

// flashAttnHead is a head size as the kernels' accumulators have it.
func flashAttnHead(d int64) int64 {
	if d <= 128 {
		return roundUp(d, 32)
	}
	return roundUp(d, 64)
}

// lastDense returns copies of tensors whose last dimension is strided (maybe_contiguous);
// they live to the end of the row.
func lastDense(c *op.Call, ts ...*op.Tensor) []*op.Tensor {
	out := make([]*op.Tensor, len(ts))
	for i, t := range ts {
		if out[i] = t; t.Stride.At(-1) != 1 {
			out[i] = c.Local(c.NewShape(t.DType, t.Size.Slice()...))
		}
	}
	return out
}

// flashAttnForward is what mha_fwd allocates after its result.
func flashAttnForward(c *op.Call, k *op.Kernel) (lse, state *op.Tensor) {
	q := &k.In
	lse = c.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), q.Dim(1))
	var lseAcc, outAcc *op.Tensor
	if n := flashSplits(c.Env(), k); n > 1 {
		lseAcc = c.NewShape(tensor.Float32, n, q.Dim(0), q.Dim(2), q.Dim(1))
		outAcc = c.NewShape(tensor.Float32, n, q.Dim(0), q.Dim(2), q.Dim(1), flashAttnHead(q.Dim(3)))
	}
	state = c.NewShape(tensor.Int64, 2)
	c.Drop(outAcc, lseAcc)
	return lse, state
}

// FlashAttnForward is mha_fwd: the result, the log-sum-exp and the state of the dropout.
var FlashAttnForward = define(op.Op{
	Name: "_flash_attn_forward", Flops: flashAttnFlops, Args: &FlashAttnArgs{}, Takes: flashAttnTakes,
	Sig: "_flash_attn_forward(q, k, v, dropout: float = 0.0, causal: bool = False)",
	Run: func(c *op.Call) {
		if c.In[0].Rank() != 4 {
			c.Fail("query must be of shape (batch, length, heads, head size), not %v", c.In[0].Size)
		}
		t := lastDense(c, c.In[:3]...)
		q, k := t[0], t[1]
		if q.Dim(1) == 1 && q.Dim(2) > k.Dim(2) {
			c.Fail("flash-attn of one query, whose heads share keys, is not modelled")
		}
		kern := flashKernel(flashAttnRule, q, k, c.Args.(*FlashAttnArgs).Dropout)
		c.Kernel(kern)
		out := c.NewLike(q)
		lse, state := flashAttnForward(c, &kern)
		c.Return(out, lse, state)
	},
	Source: "flash-attn 2.8: csrc/flash_attn/flash_api.cpp: mha_fwd; flash_attn/flash_attn_interface.py",
})

// FlashAttnBackward is mha_bwd, which writes into dq, dk and dv. It returns the sums of
// the rows.
var FlashAttnBackward = define(op.Op{
	Name: "_flash_attn_backward", Args: &FlashAttnArgs{}, Takes: flashAttnBackTakes(4),
	Sig: "_flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout: float = 0.0, causal: bool = False, deterministic: bool = False)",
	Run: func(c *op.Call) {
		lastDense(c, c.In[:5]...)
		q, k := c.In[1], c.In[2]
		rows := roundUp(q.Dim(1), 128)
		sums := c.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), rows)
		flashAttnScratch(c, q, k, q.Dim(0), q.Dim(0), rows)
		c.Return(sums)
	},
	Source: "flash-attn 2.8: csrc/flash_attn/flash_api.cpp: mha_bwd",
})

// flashAttnScratch is what a backward pass allocates beside its results: the gradient of
// the queries in float32, one for each part if the sum is deterministic, and those of keys
// and values for each head that shares them. The queries are size tensors of so many rows.
func flashAttnScratch(c *op.Call, q, k *op.Tensor, batch, size, rows int64) {
	heads := q.Dim(-2)
	accs := int64(1)
	if c.Args.(*FlashAttnArgs).Deterministic {
		accs = tensor.DivUp(int64(c.Env().SMs), batch*heads)
	}
	c.Local(c.NewShape(tensor.Float32, accs, size, rows, heads, flashAttnHead(q.Dim(-1))))
	if groups := heads / k.Dim(-2); groups > 1 {
		if groups >= 256 {
			c.Fail("a sum over %d heads that share a key is not modelled", groups)
		}
		n := tensor.Bytes(k.Numel() * groups * k.DType.Size())
		c.Scratch(n)
		c.Scratch(n)
	}
}

// FlashAttnVarlenForward is mha_varlen_fwd of sequences that begin at cu_seqlens.
var FlashAttnVarlenForward = define(op.Op{
	Name: "_flash_attn_varlen_forward", Args: &FlashAttnArgs{}, Takes: flashAttnTakes,
	Sig: "_flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, dropout: float = 0.0, causal: bool = False)",
	Run: func(c *op.Call) {
		if c.In[0].Rank() != 3 {
			c.Fail("query must be of shape (tokens, heads, head size), not %v", c.In[0].Size)
		}
		q := lastDense(c, c.In[:3]...)[0]
		c.Return(c.NewLike(q), c.NewShape(tensor.Float32, q.Dim(1), q.Dim(0)), c.NewShape(tensor.Int64, 2))
	},
	Source: "flash-attn 2.8: csrc/flash_attn/flash_api.cpp: mha_varlen_fwd",
})

// FlashAttnVarlenBackward is mha_varlen_bwd, which leaves room for 128 rows behind each
// sequence.
var FlashAttnVarlenBackward = define(op.Op{
	Name: "_flash_attn_varlen_backward", Args: &FlashAttnArgs{}, Takes: flashAttnBackTakes(3),
	Sig: "_flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, dropout: float = 0.0, causal: bool = False, deterministic: bool = False)",
	Run: func(c *op.Call) {
		lastDense(c, c.In[:5]...)
		q, k := c.In[1], c.In[2]
		batch := c.In[9].Numel() - 1
		if batch < 1 {
			c.Fail("cu_seqlens_q says where sequences begin and end: two numbers or more")
		}
		rows := q.Dim(0) + 128*batch
		sums := c.NewShape(tensor.Float32, q.Dim(1), rows)
		flashAttnScratch(c, q, k, batch, 1, rows)
		c.Return(sums)
	},
	Source: "flash-attn 2.8: csrc/flash_attn/flash_api.cpp: mha_varlen_bwd",
})

// flashAttnFlops: the products of queries and keys, and of what comes of them and the
// values.
func flashAttnFlops(c *op.Call) float64 {
	q, k, v := c.In[0], c.In[1], c.In[2]
	rows := float64(q.Numel() / max(q.Dim(-1), 1))
	return 2 * rows * float64(k.Dim(1)) * float64(q.Dim(-1)+v.Dim(-1))
}
