package op

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/tensor"
)

// SDPAArgs are the arguments of scaled_dot_product_attention. Dropout applies
// in training mode only.
type SDPAArgs struct {
	DropoutP  float64  `arg:"dropout_p"`
	IsCausal  bool     `arg:"is_causal"`
	Scale     *float64 `arg:"scale"`
	EnableGQA bool     `arg:"enable_gqa"`

	unfused string // why no fused kernel runs, of what is computed in products
}

// Attention are the arguments as those of the function, of its kernels too.
func (a *SDPAArgs) Attention() *SDPAArgs { return a }

// SDPA is scaled dot product attention over query, key, value of shape
// (batch, heads, length, head size), and an optional mask. PyTorch chooses
// the first of three implementations whose conditions hold: flash,
// memory-efficient, and plain matrix products.
var SDPA = define(Op{
	Name: "scaled_dot_product_attention", Takes: func(c *Call) { c.typesOf(c.In[:3]) }, Args: &SDPAArgs{}, Composite: true, Cast: CastLower,
	Sig: "F.scaled_dot_product_attention(query, key, value, attn_mask: tensor? = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float? = None, enable_gqa: bool = False)",
	Run: func(c *Call) {
		q, k, v, mask := c.In[0], c.In[1], c.In[2], c.Opt(3)
		a := *c.Args.(*SDPAArgs)
		if !c.Env().Training {
			a.DropoutP = 0
		}
		if q.Rank() < 3 || q.Rank() != k.Rank() || k.Rank() != v.Rank() || q.Dim(-1) != k.Dim(-1) || k.Dim(-2) != v.Dim(-2) {
			c.Fail("query %v, key %v and value %v do not fit", q.Size, k.Size, v.Size)
		}
		if a.IsCausal && mask != nil {
			c.Fail("attn_mask and is_causal exclude each other")
		}
		backend := c.sdpaBackend(q, k, v, mask, &a)
		if mask != nil && mask.DType == tensor.Bool {
			mask = c.Local(c.Do1(BoolMask, &ToCopyArgs{DType: q.DType}, mask))
		}
		switch backend {
		case sdpaFlash:
			c.Return(c.flash(q, k, v, &a))
		case sdpaEfficient:
			c.Return(c.efficient(q, k, v, mask, &a))
		default:
			a.unfused = c.unfused(q, k, v)
			outs := c.Do(sdpaByMath, &a, q, k, v, mask)
			c.Return(outs[0])
			c.Drop(outs[1])
		}
	},
	Source: "aten/src/ATen/native/transformers/attention.cpp, cuda/sdp_utils.cpp",
})

// BoolMask turns a bool mask into one that is added: 0 or -inf. The two
// numbers become tensors on the device first.
var BoolMask = define(Op{
	Name: "where.bool_mask", Eval: evalBoolMask, Args: &ToCopyArgs{}, Run: func(c *Call) {
		d := c.Args.(*ToCopyArgs).DType
		inf, zero := c.NewShape(d), c.NewShape(d)
		c.Return(c.New(c.elementwise(c.In[0]), d))
		c.Drop(zero, inf)
	},
})

type sdpaBackend uint8

const (
	sdpaMath sdpaBackend = iota
	sdpaFlash
	sdpaEfficient
)

// sdpaBackend applies the filters of sdp_utils.cpp in PyTorch's order.
func (c *Call) sdpaBackend(q, k, v, mask *Tensor, a *SDPAArgs) sdpaBackend {
	env := c.Env()
	same := q.Rank() == 4 && k.Dim(0) == q.Dim(0) && v.Dim(0) == q.Dim(0) && v.Dim(1) == k.Dim(1)
	heads := k.Dim(1) == q.Dim(1)
	lastDense := q.Stride.At(-1) == 1 && k.Stride.At(-1) == 1 && v.Stride.At(-1) == 1
	nonEmpty := q.Numel() > 0 && k.Numel() > 0
	if !same || !lastDense || !nonEmpty {
		return sdpaMath
	}
	d := q.Dim(-1)
	train := c.NeedsGrad(q) || c.NeedsGrad(k) || c.NeedsGrad(v)
	sm8689 := env.Arch == 86 || env.Arch == 89
	narrow := train && sm8689 && ((d > 192 && d <= 224) || (d > 224 && a.DropoutP > 0))
	gqa := a.EnableGQA && k.Dim(1) > 0 && q.Dim(1)%k.Dim(1) == 0
	if mask == nil && d == v.Dim(-1) && d <= 256 && env.Arch >= 80 && q.DType.IsHalf() && !narrow &&
		(heads || gqa) && !(a.IsCausal && q.Dim(2) != k.Dim(2)) {
		return sdpaFlash
	}
	efficientType := q.DType == tensor.Float32 || q.DType == tensor.Float16 || (q.DType == tensor.BFloat16 && env.Arch >= 80)
	align := gemmAlignment(env, q.DType)
	if efficientType && heads && d%align == 0 && v.Dim(-1)%align == 0 {
		return sdpaEfficient
	}
	return sdpaMath
}

// unfused says why neither flash nor the memory-efficient kernels take a call.
func (c *Call) unfused(q, k, v *Tensor) string {
	env, align := c.Env(), gemmAlignment(c.Env(), q.DType)
	switch {
	case q.Rank() != 4:
		return fmt.Sprintf("query, key and value have %d dimensions, not 4", q.Rank())
	case k.Dim(0) != q.Dim(0) || v.Dim(0) != q.Dim(0) || v.Dim(1) != k.Dim(1):
		return fmt.Sprintf("query %v, key %v and value %v are broadcast", q.Size, k.Size, v.Size)
	case q.Stride.At(-1) != 1 || k.Stride.At(-1) != 1 || v.Stride.At(-1) != 1:
		return "the numbers of a head do not lie side by side"
	case q.DType == tensor.BFloat16 && env.Arch < 80:
		return fmt.Sprintf("on sm_%d they do not take bfloat16", env.Arch)
	case !q.DType.IsHalf() && q.DType != tensor.Float32:
		return fmt.Sprintf("they do not take %v", q.DType)
	case k.Dim(1) != q.Dim(1):
		return fmt.Sprintf("%d heads of keys for %d of queries (enable_gqa) only flash attention takes: half precision on sm_80 or later, without a mask", k.Dim(1), q.Dim(1))
	}
	for _, d := range []int64{q.Dim(-1), v.Dim(-1)} {
		if d%align != 0 {
			return fmt.Sprintf("the head size of %d is no multiple of %d", d, align)
		}
	}
	return "its sizes are not those that they take"
}

// gemmAlignment is the number of elements to which head sizes must be aligned
// for the memory-efficient kernels (minimum_gemm_alignment).
func gemmAlignment(env *Env, d tensor.DType) int64 {
	align := int64(1)
	if env.Arch >= 80 {
		align = 4
	}
	if env.Arch >= 80 || (env.Arch >= 70 && d.IsHalf()) {
		align = max(align, 16/d.Size())
	}
	return align
}

// swapHeads returns views (batch, length, heads, head size) that live to the
// end of the row.
func (c *Call) swapHeads(ts ...*Tensor) []*Tensor {
	out := make([]*Tensor, len(ts))
	for i, t := range ts {
		out[i] = c.Local(c.Alias(t, t.Transpose(1, 2), t.DType))
	}
	return out
}

// swapBack hands a (batch, length, heads, head size) tensor on as (batch,
// heads, length, head size).
func (c *Call) swapBack(t *Tensor) *Tensor {
	defer c.Drop(t)
	return c.Alias(t, t.Transpose(1, 2), t.DType)
}

// flash pads head sizes to a multiple of 8 and slices the result.
func (c *Call) flash(q, k, v *Tensor, a *SDPAArgs) *Tensor {
	d := q.Dim(-1)
	ins := []*Tensor{q, k, v}
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
var FlashAttention = define(Op{
	Name: "_scaled_dot_product_flash_attention", Eval: evalAttention, Flops: attentionFlops, Args: &SDPAArgs{}, Run: func(c *Call) {
		t := c.swapHeads(c.In...)
		q, k := t[0], t[1]
		out := c.New(q.LikeDense(), q.DType)
		lse := c.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), q.Dim(1))
		var lseAcc, outAcc *Tensor
		dropout := c.Args.(*SDPAArgs).DropoutP
		if n := c.flashSplits(q, k, dropout); n > 1 && !c.Env().FakeTensors {
			lseAcc = c.NewShape(tensor.Float32, n, q.Dim(0), q.Dim(2), q.Dim(1))
			outAcc = c.NewShape(tensor.Float32, n, q.Dim(0), q.Dim(2), q.Dim(1), roundUp(q.Dim(3), 32))
		}
		c.Return(c.swapBack(out), lse)
		if c.Env().Torch.FlashStateOnDevice() {
			state, unused := c.NewShape(tensor.Int64, 2), c.NewShape(tensor.Int64)
			if dropout > 0 && !c.Env().FakeTensors { // made anew
				again := c.NewShape(tensor.Int64, 2)
				c.Drop(state)
				state = again
			}
			c.Return(state, unused)
		}
		c.Drop(outAcc, lseAcc)
	},
	Save:   []Save{In(1), In(0), In(2), Out(1), Out(0), Out(2), Out(3)},
	NoGrad: []int{1}, Node: "ScaledDotProductFlashAttentionBackward0",
	Grad: func(b *Back) {
		t := b.swapHeads(b.Grads[0], b.SavedOut(0), b.SavedIn(0), b.SavedIn(1), b.SavedIn(2))
		g, out, q, k, v := t[0], t[1], t[2], t[3], t[4]
		b.contiguous(g)
		b.contiguous(out)
		dq, dk, dv := b.NewLike(q), b.NewLike(k), b.NewLike(v)
		rows := roundUp(q.Dim(1), 128)
		b.Scratch(tensor.Bytes(q.Dim(0) * q.Dim(2) * rows * 4)) // softmax_d
		accs := int64(1)
		if b.Env().Deterministic {
			accs = divUp(int64(b.Env().SMs), q.Dim(0)*q.Dim(2))
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
		b.Set(0, b.swapBack(dq))
		b.Set(1, b.swapBack(dk))
		b.Set(2, b.swapBack(dv))
	},
	Source: "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp; recorded on sm_80, sm_86, sm_90",
})

// flashSplits is the number of parts into which the forward kernel cuts the
// keys when batch and heads alone do not fill the GPU (num_splits_heuristic).
func (c *Call) flashSplits(q, k *Tensor, dropout float64) int64 {
	if dropout != 0 {
		return 1
	}
	block := int64(64)
	switch d := q.Dim(3); {
	case d <= 64:
		block = 256
	case d <= 128:
		block = 128
	}
	keys := divUp(k.Dim(1), block)
	heads, rows := q.Dim(2), q.Dim(1)
	if rows == 1 && heads > k.Dim(2) { // the heads that share a key are seen as tokens (seqlenq_ngroups_swapped)
		heads, rows = k.Dim(2), heads/k.Dim(2)
	}
	work := q.Dim(0) * heads * divUp(rows, 64)
	sms := int64(c.Env().SMs) * 2
	if float32(work) >= 0.8*float32(sms) {
		return 1
	}
	limit := min(128, sms, keys)
	eligible := func(n int64) bool { return n == 1 || divUp(keys, n) != divUp(keys, n-1) }
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

// efficient pads a mask whose rows are not aligned and runs the
// memory-efficient kernel.
func (c *Call) efficient(q, k, v, mask *Tensor, a *SDPAArgs) *Tensor {
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
func alignedMask(mask *Tensor) bool {
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
var EfficientAttention = define(Op{
	Name: "_scaled_dot_product_efficient_attention", Eval: evalAttention, Flops: attentionFlops, Args: &efficientArgs{}, Run: func(c *Call) {
		t := c.swapHeads(c.In[0], c.In[1], c.In[2])
		q, v := t[0], t[2]
		out := c.NewShape(q.DType, q.Dim(0), q.Dim(1), q.Dim(2), v.Dim(3))
		rows := int64(0)
		if c.Args.(*efficientArgs).lse {
			rows = roundUp(q.Dim(1), 32)
		}
		lse := c.NewShape(tensor.Float32, q.Dim(0), q.Dim(2), rows)
		if q.DType.IsHalf() && v.Dim(3) > 128 && !c.Env().FakeTensors { // the output does not fit the registers
			c.Drop(c.NewShape(tensor.Float32, q.Dim(0), q.Dim(1), q.Dim(2), v.Dim(3)))
		}
		c.Return(c.swapBack(out), lse)
		if c.Env().FakeTensors { // seed and offset are numbers on the host, but fake tensors are where the operands are
			c.Return(c.NewShape(tensor.Int64), c.NewShape(tensor.Int64))
		}
	},
	Save:   []Save{In(3), In(1), In(0), In(2), Out(1), Out(0), Out(2), Out(3)},
	NoGrad: []int{1}, Node: "ScaledDotProductEfficientAttentionBackward0",
	Grad: func(b *Back) {
		t := b.swapHeads(b.Grads[0], b.SavedOut(0), b.SavedIn(0), b.SavedIn(1), b.SavedIn(2))
		g, out, q, k, v := t[0], t[1], t[2], t[3], t[4]
		b.contiguous(g)
		fresh := func(t *Tensor) *Tensor { return b.New(tensor.Contiguous(t.Size), t.DType) }
		dq, dk, dv := fresh(q), fresh(k), fresh(v)
		if b.Need(3) { // rows of a multiple of 16, of which a slice is the gradient
			last := k.Dim(1)
			rows := b.NewShape(b.InM[3].DType, q.Dim(0), q.Dim(2), q.Dim(1), roundUp(last, 16))
			b.Set(3, b.Alias(rows, rows.Narrow(3, 0, last, 1), rows.DType))
			b.Drop(rows)
		}
		b.Set(0, b.swapBack(dq))
		b.Set(1, b.swapBack(dk))
		b.Set(2, b.swapBack(dv))
		if b.Env().FakeTensors {
			return
		}
		kern := efficientKernelFor(b.Env(), q.DType, max(q.Dim(3), v.Dim(3)), b.Args.(*efficientArgs).DropoutP > 0)
		var delta *Tensor                                                               // sum over the head of grad_out * out, as (batch, heads, length)
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
		ws := b.NewShape(tensor.Uint8, q.Dim(0)*q.Dim(2)*kern.workspace(q.Dim(1), k.Dim(1), q.Dim(3), v.Dim(3)))
		b.Drop(delta, ws)
	},
	Source: "aten/src/ATen/native/transformers/cuda/attention_backward.cu",
})

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

func efficientKernelFor(env *Env, d tensor.DType, head int64, dropout bool) efficientKernel {
	for _, k := range efficientKernels {
		if k.half == d.IsHalf() && head <= k.maxHead && sharedMemory(env.Arch) >= k.shared && env.Arch >= k.tensor &&
			(k.below == 0 || env.Arch < k.below) && (k.dropout || !dropout) {
			return k.kernel
		}
	}
	return efficientKernels[0].kernel
}

// workspace is the bytes of scratch for one batch and head.
func (k efficientKernel) workspace(queries, keys, head, headV int64) int64 {
	const header = 16 // lock and counter of each tile
	n := divUp(queries, k.queries) * divUp(head, k.columns) * (header + k.queries*k.columns*4)
	if k.keys > 0 {
		rows := roundUp(keys, k.keys)
		n += 4 * rows * (roundUp(head, k.queries) + roundUp(headV, k.queries))
	}
	return n
}

// sdpaByMath is the implementation by matrix products, in float32 for the
// 16-bit types. It returns the attention weights as well.
var sdpaByMath = define(Op{
	Name: "_scaled_dot_product_attention_math", Args: &SDPAArgs{}, Composite: true, Run: runSDPAMath, Unfused: unfusedScores,
	Source: "aten/src/ATen/native/transformers/attention.cpp",
})

// unfusedScores tells of scores that are more than what they are computed from.
func unfusedScores(args any, in []*Tensor) string {
	q, k, v := in[0], in[1], in[2]
	if q.Numel() == 0 {
		return ""
	}
	scores, d := q.Numel()/q.Dim(-1)*k.Dim(-2), q.DType
	if scores <= q.Numel()+k.Numel()+v.Numel() {
		return ""
	}
	if d.IsHalf() {
		d = tensor.Float32
	}
	return fmt.Sprintf("scaled_dot_product_attention is computed in matrix products, with scores of %v in each call: no fused kernel takes it, since %s",
		tensor.Bytes(scores*d.Size()), args.(*SDPAArgs).unfused)
}

func runSDPAMath(c *Call) {
	q, k, v, mask, a := c.In[0], c.In[1], c.In[2], c.Opt(3), c.Args.(*SDPAArgs)
	origin := q.DType
	up := func(t *Tensor) *Tensor {
		if origin.IsHalf() {
			return c.Do1(To, &ToCopyArgs{DType: tensor.Float32}, t)
		}
		return c.Keep(t)
	}
	q, k, v = up(q), up(k), up(v)
	scale := 1 / math.Sqrt(float64(q.Dim(-1)))
	if a.Scale != nil {
		scale = *a.Scale
	}
	root := &BinaryArgs{Other: Number{Set: true, Float: true, Value: math.Sqrt(scale)}}
	scaled := c.Do1(Mul, root, q)
	if a.IsCausal {
		boolean := tensor.Bool
		lt := c.Do1(Ones, &FillArgs{Size: []int64{q.Dim(-2), k.Dim(-2)}, DType: &boolean})
		tri := c.Do1(Tril, &DiagonalArgs{}, lt)
		c.Drop(lt)
		mask = c.Do1(BoolMask, &ToCopyArgs{DType: q.DType}, tri)
		c.Drop(tri)
	} else if mask != nil {
		c.Keep(mask)
	}
	c.Youngest(scaled) // query is declared after attn_mask
	// pre_process_group_query_attention_input: keys and values for each head
	kx, vx := c.Keep(k), c.Keep(v)
	if a.EnableGQA && k.Dim(-3) != q.Dim(-3) {
		if k.Dim(-3) == 0 || q.Dim(-3)%k.Dim(-3) != 0 || v.Dim(-3) != k.Dim(-3) {
			c.Fail("%d heads of queries do not fit %d of keys and %d of values", q.Dim(-3), k.Dim(-3), v.Dim(-3))
		}
		dim := int64(-3)
		repeat := &RepeatInterleaveArgs{Repeats: q.Dim(-3) / k.Dim(-3), Dim: &dim}
		c.Drop(kx, vx)
		kx, vx = c.Do1(repeatInterleave, repeat, k), c.Do1(repeatInterleave, repeat, v)
	}
	kt := c.Do1(Transpose, &TransposeArgs{Dim0: -2, Dim1: -1}, kx)
	ks := c.Do1(Mul, root, kt)
	attn := c.Do1(Matmul, nil, scaled, ks)
	c.Drop(ks, kt)
	switch {
	case mask != nil && c.Env().TorchDispatch:
		masked := c.Do1(Add, &AddArgs{}, attn, mask)
		c.Drop(attn)
		attn = masked
	case mask != nil:
		c.Drop(c.Do1(AddInPlace, &AddArgs{}, attn, mask))
	}
	probs := c.Do1(SafeSoftmax, &SoftmaxArgs{Dim: -1}, attn)
	c.Drop(attn)
	if a.DropoutP > 0 {
		on := true
		dropped := c.Do1(Dropout, &DropoutArgs{P: a.DropoutP, Training: &on}, probs)
		c.Drop(probs)
		probs = dropped
	}
	// The returned pair is evaluated from its end.
	weights := c.Do1(To, &ToCopyArgs{DType: origin}, probs)
	y := c.Do1(Matmul, nil, probs, vx)
	out := c.Do1(To, &ToCopyArgs{DType: origin}, y)
	c.Return(out, weights)
	c.Drop(y, probs, kx, vx, scaled, mask, v, k, q) // locals, the youngest first
}

// SafeSoftmax is a softmax that gives zeros for rows that are masked whole.
var SafeSoftmax = define(Op{
	Name: "_safe_softmax", Eval: evalSafeSoftmax, Args: &SoftmaxArgs{}, Run: func(c *Call) {
		x := c.In[0]
		out := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Return(out)
		if c.Env().FakeTensors {
			return
		}
		masked := c.New(x.LikeDense(), tensor.Bool)
		rows := c.NewShape(tensor.Bool, x.Size.Set(x.Rank()-1, 1).Slice()...)
		zero := c.NewShape(x.DType)
		c.Drop(zero, rows, masked)
	},
	Save: []Save{Out(0)}, Node: "SafeSoftmaxBackward0", Grad: gradSoftmax,
})

// attentionFlops: the products of queries and keys, and of what comes of them and
// the values.
func attentionFlops(c *Call) float64 {
	q, k, v := c.In[0], c.In[1], c.In[2]
	rows := float64(q.Numel() / max(q.Dim(-1), 1))
	return 2 * rows * float64(k.Dim(-2)) * float64(q.Dim(-1)+v.Dim(-1))
}
