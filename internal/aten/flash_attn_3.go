package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// What the package flash-attn-3 allocates (hopper/ of flash-attention, December 2025). The
// torch.autograd.Functions around its operators are blocks of specs/hf/flash.yaml. Tensors
// have the shapes of those of flash-attn 2.

// FlashAttn3Args are the arguments of flash-attn-3's functions that decide on memory.
type FlashAttn3Args struct {
	Longest int64   `arg:"max_seqlen"` // of sequences of different lengths
	Causal  bool    `arg:"causal"`
	Window  int64   `arg:"window"` // window_size on both sides; -1: none
	Softcap float64 `arg:"softcap"`
}

const flashAttn3Sig = "max_seqlen: int = 0, causal: bool = False, window: int = -1, softcap: float = 0.0)"

// flash3Lengths are the sequences of a call: how many there are, how many rows queries and
// keys have, all together if they lie behind each other, and the longest.
type flash3Lengths struct {
	batch, queries, keys, longest, longestKey int64
	apart                                     bool // sequences of different lengths
}

func flash3LengthsOf(c *op.Call, q, k, starts *op.Tensor) flash3Lengths {
	if starts == nil {
		return flash3Lengths{batch: q.Dim(0), queries: q.Dim(1), keys: k.Dim(1), longest: q.Dim(1), longestKey: k.Dim(1)}
	}
	n := c.Args.(*FlashAttn3Args).Longest
	if starts.Numel() < 2 {
		c.Fail("cu_seqlens says where sequences begin and end: two numbers or more")
	}
	if most := max(q.Dim(0), k.Dim(0)); n < 1 || n > most {
		c.Fail("max_seqlen, the length of the longest sequence, must be from 1 to %d, not %d", most, n)
	}
	return flash3Lengths{batch: starts.Numel() - 1, queries: q.Dim(0), keys: k.Dim(0), longest: n, longestKey: n, apart: true}
}

// Which rows of keys a query sees, as bits of Kernel.Reduced, and what else decides.
const (
	flash3Apart = 1 << iota
	flash3Causal
	flash3Local
	flash3Softcap
)

// flash3Mask is is_causal and is_local of flash_api.cpp, whose forward pass takes one query
// that sees all keys as not causal.
func flash3Mask(a *FlashAttn3Args, n flash3Lengths, forward bool) (bits uint16) {
	left, right := a.Window, a.Window
	if left >= n.longestKey-1 {
		left = -1
	}
	if right >= n.longest-1 {
		right = -1
	}
	if a.Causal && (!forward || n.longest != 1 || left >= 0) {
		right = 0
	}
	switch {
	case left < 0 && right == 0:
		bits = flash3Causal
	case left >= 0 || right >= 0:
		bits = flash3Local
	}
	if n.apart {
		bits |= flash3Apart
	}
	if a.Softcap > 0 {
		bits |= flash3Softcap
	}
	return bits
}

// flash3Takes refuses what the checks of flash_api.cpp refuse, as flashAttnFits does.
func flash3Takes(c *op.Call, q, k, v, starts *op.Tensor) {
	rank := 4
	if starts != nil {
		rank = 3
	}
	flashAttnFits(c, q, k, v, rank)
	switch {
	case c.Env().Arch >= 100:
		c.Fail("flash-attn 3 takes sm_80 to sm_90, not sm_%d", c.Env().Arch)
	case v.Size != k.Size:
		c.Fail("flash-attn 3 of values %v of another shape than the keys %v is not modelled", v.Size, k.Size)
	case starts == nil && q.Dim(0) != k.Dim(0):
		c.Fail("query %v and key %v must have one batch size", q.Size, k.Size)
	}
}

// FlashAttn3Forward is mha_fwd of flash-attn-3: the result and the log-sum-exp. Training does
// not split the keys (num_splits=1).
var FlashAttn3Forward = define(op.Op{
	Name: "_flash_attn3_forward", Flops: flash3Flops, Args: &FlashAttn3Args{},
	Takes: func(c *op.Call) { flash3Takes(c, c.In[0], c.In[1], c.In[2], c.Opt(3)) },
	Sig:   "_flash_attn3_forward(q, k, v, cu_seqlens: tensor? = None, " + flashAttn3Sig,
	Run: func(c *op.Call) {
		q, starts := c.In[0], c.Opt(3)
		lastDense(c, c.In[:3]...)
		n := flash3LengthsOf(c, q, c.In[1], starts)
		out := c.NewShape(q.DType, q.Size.Slice()...)
		lse := []int64{q.Dim(-2), q.Dim(0)}
		if starts == nil {
			lse = []int64{q.Dim(0), q.Dim(2), q.Dim(1)}
		}
		sums := c.NewShape(tensor.Float32, lse...)
		kern := op.Kernel{Rule: flash3ForwardRule, In: tensor.Layout{Size: tensor.D(n.batch)}, Reduced: flash3Mask(c.Args.(*FlashAttn3Args), n, true)}
		c.Kernel(kern)
		kern.Rule.Run(c, &kern)
		c.Return(out, sums)
	},
	Source: "flash-attention: hopper/flash_api.cpp: mha_fwd; hopper/flash_attn_interface.py",
})

// FlashAttn3Backward is mha_bwd of flash-attn-3, which writes into dq, dk and dv. It returns
// the sums of the rows.
var FlashAttn3Backward = define(op.Op{
	Name: "_flash_attn3_backward", Args: &FlashAttn3Args{},
	Takes: func(c *op.Call) {
		q := c.In[1]
		flash3Takes(c, q, c.In[2], c.In[3], c.Opt(9))
		for _, t := range []*op.Tensor{c.In[0], c.In[4]} {
			if t.Size != q.Size {
				c.Fail("dout and out have the shape of the query %v, not %v", q.Size, t.Size)
			}
		}
	},
	Sig: "_flash_attn3_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens: tensor? = None, " + flashAttn3Sig,
	Run: func(c *op.Call) {
		lastDense(c, c.In[:5]...)
		q, k := c.In[1], c.In[2]
		n := flash3LengthsOf(c, q, k, c.Opt(9))
		kern := op.Kernel{Rule: flash3BackwardRule, Reduced: flash3Mask(c.Args.(*FlashAttn3Args), n, false),
			In: tensor.Layout{Size: tensor.D(n.batch, n.queries, n.keys, q.Dim(-2), k.Dim(-2), q.Dim(-1), n.longest)}}
		c.Kernel(kern)
		c.Return(flash3Scratch(c, &kern))
	},
	Source: "flash-attention: hopper/flash_api.cpp: mha_bwd; hopper/flash_attn_interface.py",
})

// The kernels: the operand of the forward one is the batch size, that of the backward one the
// batch size, rows of queries and keys, heads of both, the head size and the longest sequence.
var (
	flash3ForwardRule  = &op.KernelRule{Run: flash3Scheduler}
	flash3BackwardRule = &op.KernelRule{Run: func(c *op.Call, k *op.Kernel) { flash3Scratch(c, k) }}
)

// flash3Scheduler is tile_count_semaphore: what the scheduler of tiles knows of each sequence,
// and a counter.
func flash3Scheduler(c *op.Call, k *op.Kernel) {
	apart, causal, local := k.Reduced&flash3Apart != 0, k.Reduced&flash3Causal != 0, k.Reduced&flash3Local != 0
	counts := causal && !apart
	if c.Env().Arch >= 90 {
		counts = causal || local || apart
	}
	if !counts && !apart {
		return
	}
	vectors, counter := int64(0), int64(0)
	if apart {
		vectors = 2
	}
	if !local { // the batches are sorted
		vectors++
	}
	if causal || local {
		vectors++
	}
	if counts {
		counter = 1
	}
	c.Drop(c.NewShape(tensor.Int32, roundUp(k.In.Dim(0), 4)*vectors+counter))
}

// flash3Head is a head size as the kernels have it (round_up_headdim).
func flash3Head(d int64) int64 {
	for _, n := range []int64{64, 96, 128, 192} {
		if d <= n {
			return n
		}
	}
	return 256
}

// flash3Blocks are the rows of queries and of keys of a block of the backward kernel.
func flash3Blocks(arch int, d int64, bits uint16) (queries, keys int64) {
	switch {
	case arch >= 90:
		queries, keys = 64, 128
		switch {
		case d <= 64:
			queries = 128
			if bits&flash3Causal != 0 && bits&flash3Softcap != 0 {
				queries = 96
			}
		case d > 96 && d <= 128 && bits&(flash3Causal|flash3Local|flash3Softcap) == 0:
			queries = 80
		case d > 192:
			keys = 80
		case d > 128:
			keys = 96
		}
	case arch == 86 || arch == 89:
		queries, keys = 64, 64
		switch {
		case d <= 96:
			keys = 128
		case d <= 128:
			keys = 96
		case d > 192:
			queries = 32
		}
	default:
		queries, keys = 64, 128
		switch {
		case d <= 64:
			queries = 128
		case d > 192:
			keys = 64
		case d > 128:
			keys = 80
		}
	}
	return queries, keys
}

// flash3Scratch is what a backward pass allocates beside its results: the sums of the rows,
// the log-sum-exp in base 2, the gradient of the queries in float32 and, if heads share keys,
// those of keys and values, and a counter of each block. It returns the sums.
func flash3Scratch(c *op.Call, kern *op.Kernel) *op.Tensor {
	batch, queries, keys, heads, shared, longest := kern.In.Dim(0), kern.In.Dim(1), kern.In.Dim(2), kern.In.Dim(3), kern.In.Dim(4), kern.In.Dim(6)
	d := flash3Head(kern.In.Dim(5))
	m, n := flash3Blocks(c.Env().Arch, d, kern.Reduced)
	if kern.Reduced&flash3Apart != 0 {
		queries, keys = roundUp(queries+batch*m, m), roundUp(keys+batch*n, n)
	} else {
		queries, keys = batch*roundUp(queries, m), batch*roundUp(keys, n)
	}
	sums := c.NewShape(tensor.Float32, heads*queries)
	log2 := c.NewShape(tensor.Float32, heads*queries)
	dq := c.NewShape(tensor.Float32, heads*queries*d)
	var dk, dv *op.Tensor
	if shared != heads {
		dk, dv = c.NewShape(tensor.Float32, shared*keys*d), c.NewShape(tensor.Float32, shared*keys*d)
	}
	c.Drop(c.NewShape(tensor.Int32, tensor.DivUp(longest, m), batch, heads)) // dq_semaphore
	c.Drop(dv, dk, dq, log2)
	return sums
}

// flash3Flops: the products of queries and keys, and of what comes of them and the values.
func flash3Flops(c *op.Call) float64 {
	q, keys := c.In[0], c.In[1].Dim(1)
	if c.Opt(3) != nil {
		keys = c.Args.(*FlashAttn3Args).Longest
	}
	return 4 * float64(q.Numel()) * float64(keys)
}
