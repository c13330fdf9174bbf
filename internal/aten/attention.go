package aten

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// SDPAArgs are the arguments of scaled_dot_product_attention. Dropout applies
// in training mode only.
type SDPAArgs struct {
	DropoutP  float64  `arg:"dropout_p"`
	IsCausal  bool     `arg:"is_causal"`
	Scale     *float64 `arg:"scale"`
	EnableGQA bool     `arg:"enable_gqa"`

	passed  string // why cuDNN, which is asked first, does not take the call
	unfused string // why no fused kernel runs, of what is computed in products
}

// Attention are the arguments as those of the function, of its kernels too.
func (a *SDPAArgs) Attention() *SDPAArgs { return a }

// SDPA is scaled dot product attention over query, key, value of shape
// (batch, heads, length, head size), and an optional mask. PyTorch chooses
// the first implementation whose conditions hold, of flash, memory-efficient,
// plain matrix products and cuDNN, which some releases ask first on some GPUs.
var SDPA = define(op.Op{
	Name: "scaled_dot_product_attention", Takes: func(c *op.Call) { op.SameType(c, c.In[:3]) }, Args: &SDPAArgs{}, Composite: true, Cast: op.CastLower,
	Sig: "F.scaled_dot_product_attention(query, key, value, attn_mask: tensor? = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float? = None, enable_gqa: bool = False)",
	Run: func(c *op.Call) {
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
		backend := selectSDPA(c, q, k, v, mask, &a)
		if mask != nil && mask.DType == tensor.Bool {
			mask = c.Local(c.Do1(BoolMask, &ToCopyArgs{DType: q.DType}, mask))
		}
		switch backend {
		case op.SDPACudnn:
			c.Return(byCudnn(c, q, k, v, mask, &a))
		case op.SDPAFlash:
			c.Return(flash(c, q, k, v, &a))
		case op.SDPAEfficient:
			c.Return(efficient(c, q, k, v, mask, &a))
		default:
			a.unfused = unfused(c, q, k, v)
			outs := c.Do(sdpaByMath, &a, q, k, v, mask)
			c.Return(outs[0])
			c.Drop(outs[1])
		}
	},
	Source: "aten/src/ATen/native/transformers/attention.cpp, cuda/sdp_utils.cpp",
})

// passedOn says why cuDNN does not take a call of attention that it is asked for.
func passedOn(args any) string {
	why := attentionArgs(args).passed
	if why != "" {
		why = "scaled_dot_product_attention asks cuDNN first on this GPU, and another kernel takes the call: " + why
	}
	return why
}

// BoolMask turns a bool mask into one that is added: 0 or -inf. The two
// numbers become tensors on the device first.
var BoolMask = define(op.Op{
	Name: "where.bool_mask", Eval: evalBoolMask, Args: &ToCopyArgs{}, Run: func(c *op.Call) {
		d := c.Args.(*ToCopyArgs).DType
		inf, zero := c.NewShape(d), c.NewShape(d)
		c.Return(c.New(c.Elementwise(c.In[0]), d))
		c.Drop(zero, inf)
	},
})

// unfused says why neither flash nor the memory-efficient kernels take a call.
func unfused(c *op.Call, q, k, v *op.Tensor) string {
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
	case k.Dim(1) != q.Dim(1) && !env.Torch.Has(torchver.EfficientSharesKeys):
		return fmt.Sprintf("%d heads of keys for %d of queries (enable_gqa) only flash attention takes: half precision on sm_80 or later, without a mask", k.Dim(1), q.Dim(1))
	}
	for _, d := range []int64{q.Dim(-1), v.Dim(-1)} {
		if d%align != 0 {
			return fmt.Sprintf("the head size of %d is no multiple of %d", d, align)
		}
	}
	if env.Arch >= 80 && env.Torch.Has(torchver.EfficientAligns) && (q.Offset%align != 0 || k.Offset%align != 0 || v.Offset%align != 0) {
		return "query, key or value does not begin at a multiple of 16 bytes of its storage"
	}
	return "its sizes are not those that they take"
}

// swapHeads returns views (batch, length, heads, head size) that live to the
// end of the row.
func swapHeads(c *op.Call, ts ...*op.Tensor) []*op.Tensor {
	out := make([]*op.Tensor, len(ts))
	for i, t := range ts {
		out[i] = c.Local(c.Alias(t, t.Transpose(1, 2), t.DType))
	}
	return out
}

// swapBack hands a (batch, length, heads, head size) tensor on as (batch,
// heads, length, head size).
func swapBack(c *op.Call, t *op.Tensor) *op.Tensor {
	defer c.Drop(t)
	return c.Alias(t, t.Transpose(1, 2), t.DType)
}

// sdpaByMath is the implementation by matrix products, in float32 for the
// 16-bit types. It returns the attention weights as well.
var sdpaByMath = define(op.Op{
	Name: "_scaled_dot_product_attention_math", Args: &SDPAArgs{}, Composite: true, Run: runSDPAMath, Unfused: unfusedScores, Passed: passedOn,
	Source: "aten/src/ATen/native/transformers/attention.cpp",
})

// unfusedScores tells of scores that are more than what they are computed from.
func unfusedScores(args any, in []*op.Tensor) string {
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

func runSDPAMath(c *op.Call) {
	q, k, v, mask, a := c.In[0], c.In[1], c.In[2], c.Opt(3), c.Args.(*SDPAArgs)
	origin := q.DType
	up := func(t *op.Tensor) *op.Tensor {
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
	root := &BinaryArgs{Other: op.Number{Set: true, Float: true, Value: math.Sqrt(scale)}}
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
	c.Drop(y, probs, kx, vx, scaled, mask, v, k, q) // locals, the most recent first
}

// SafeSoftmax is a softmax that gives zeros for rows that are masked whole.
var SafeSoftmax = define(op.Op{
	Name: "_safe_softmax", Eval: evalSoftmax(kernel.SafeSoftmax, kernel.SoftmaxGrad), Args: &SoftmaxArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		out := c.New(tensor.Contiguous(x.Size), x.DType)
		c.Return(out)
		if c.Env().NoKernels() {
			return
		}
		masked := c.New(x.LikeDense(), tensor.Bool)
		rows := c.NewShape(tensor.Bool, x.Size.Set(x.Rank()-1, 1).Slice()...)
		zero := c.NewShape(x.DType)
		c.Drop(zero, rows, masked)
	},
	Save: []op.Save{op.Out(0)}, Node: "SafeSoftmaxBackward0", Grad: gradSoftmax,
})

// attentionFlops: the products of queries and keys, and of what comes of them and
// the values.
func attentionFlops(c *op.Call) float64 {
	q, k, v := c.In[0], c.In[1], c.In[2]
	rows := float64(q.Numel() / max(q.Dim(-1), 1))
	return 2 * rows * float64(k.Dim(-2)) * float64(q.Dim(-1)+v.Dim(-1))
}

// evalBoolMask is 0 where the mask is set, else -inf.
var evalBoolMask = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	if err := m.Apply(kernel.Fill, c.Out[0], nil, math.Inf(-1)); err != nil {
		return err
	}
	return m.Apply(kernel.MaskedFill, c.Out[0], []*op.Tensor{c.Out[0], c.In[0]}, 0)
}}

// attentionArgs are the arguments of a fused attention, whose rows differ in what they
// allocate.
func attentionArgs(args any) *SDPAArgs {
	return args.(interface{ Attention() *SDPAArgs }).Attention()
}

// scale is what scores of queries of some width are multiplied by.
func (a *SDPAArgs) scale(q *op.Tensor) float64 {
	if a.Scale != nil {
		return *a.Scale
	}
	return 1 / math.Sqrt(float64(q.Dim(3)))
}

// logSumExp adds those of so many queries, as [B, H, L]: rows may be padded.
func logSumExp(l *op.Launch, t *op.Tensor, length int64) {
	if t == nil || t.Numel() == 0 {
		l.Seen(nil)
		return
	}
	l.Operands = append(l.Operands, l.On.At(t, t.Narrow(2, 0, length, 1)))
}

// mask adds one that is broadcast to all scores; nil is absent.
func mask(l *op.Launch, t, q, k *op.Tensor) {
	v, err := op.Broadcasted(l.On, t, q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2))
	if l.Err == nil {
		l.Err = err
	}
	l.Operands = append(l.Operands, v)
}

// evalAttention is a fused attention.  The seed of the dropout is that of the forward pass: it is
// noted of the log-sum-exp, which both have.
var evalAttention = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		q, k, lse := c.In[0], c.In[1], c.Out[1]
		a, seed := attentionArgs(c.Args), int64(0)
		if a.DropoutP > 0 {
			seed = m.Draw()
			m.Note(lse, seed)
		}
		l := op.Launch{On: m}
		l.Add(c.Out[0])
		logSumExp(&l, lse, q.Dim(2))
		l.Add(c.In[:3]...)
		mask(&l, c.Opt(3), q, k)
		return l.Run(kernel.Attention, []int64{op.Flag(a.IsCausal), seed}, a.scale(q), a.DropoutP)
	},
	Backward: func(m op.Machine, b *op.Back) error {
		q, k, lse, a := b.SavedIn(0), b.SavedIn(1), b.SavedOut(1), attentionArgs(b.Args)
		gradient := func(kern *kernel.Kernel, of ...*op.Tensor) error {
			l := op.Launch{On: m}
			l.Add(of...)
			l.Add(b.Grads[0], b.SavedOut(0))
			logSumExp(&l, lse, q.Dim(2))
			l.Add(q, k, b.SavedIn(2))
			mask(&l, b.SavedIn(3), q, k)
			return l.Run(kern, []int64{op.Flag(a.IsCausal), op.Noted[int64](m, lse)}, a.scale(q), a.DropoutP)
		}
		switch masked := m.Wanted(b, 3); {
		case masked == nil:
		case masked.Size != tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)) && a.DropoutP > 0: // the kernel dropped out by numbers of its own
			return &op.Refusal{What: "the gradient of a broadcast mask of an attention with dropout"}
		case masked.Size != tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)):
			return attentionOnHost.Backward(m, b)
		default:
			if err := gradient(kernel.AttentionMaskGrad, masked); err != nil {
				return err
			}
		}
		return gradient(kernel.AttentionGrad, b.Results[:3]...)
	},
}

// attentionOf are operands as arrays, whose dropout has a seed.
func attentionOf(a op.Arrays, args *SDPAArgs, in []*op.Tensor, seed int64) *array.Attention {
	q, k := in[0], in[1]
	t := &array.Attention{Q: a.Array(q), K: a.Array(k), V: a.Array(in[2]), Causal: args.IsCausal, Scale: args.scale(q)}
	t.Mask = a.Like(op.Optional(in, 3), tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)))
	if args.DropoutP > 0 {
		t.Dropped = func(i int) float64 { return droppedOut(uint64(seed), int64(i), args.DropoutP) }
	}
	return t
}

var attentionOnHost = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		return m.OnHost(func(a op.Arrays) {
			seed := m.Draw()
			m.Note(c.Out[1], seed)
			a.Put(c.Out[0], attentionOf(a, attentionArgs(c.Args), c.In, seed).Forward())
		})
	},
	Backward: func(m op.Machine, b *op.Back) error {
		return m.OnHost(func(a op.Arrays) {
			t := attentionOf(a, attentionArgs(b.Args), b.SavedIns(), op.Noted[int64](m, b.SavedOut(1)))
			gq, gk, gv, gm := t.Backward(a.Get(b.Grads[0]))
			for i, g := range [][]float64{gq, gk, gv} {
				a.Put(a.Wanted(b, i), g)
			}
			if mask := a.Wanted(b, 3); mask != nil {
				q := b.SavedIn(0)
				a.PutSummed(mask, gm, tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), b.SavedIn(1).Dim(2)))
			}
		})
	},
}
