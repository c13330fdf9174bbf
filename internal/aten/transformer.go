package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// NativeMHAArgs are the arguments of _native_multi_head_attention.
type NativeMHAArgs struct {
	Heads   int64
	Weights bool // need_weights
	Average bool // average_attn_weights
}

// NativeMHA is self-attention in one operator, which eval mode without
// gradients takes. Inputs: query, in_proj weight and bias, out_proj weight and
// bias, and a mask. With need_weights it returns the weights as well.
var NativeMHA = define(op.Op{
	Name: "_native_multi_head_attention", Eval: evalNativeMHA, Args: &NativeMHAArgs{}, Composite: true, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*NativeMHAArgs)
		b, t, d := x.Dim(0), x.Dim(1), x.Dim(2)
		head := d / a.Heads
		probe := tensor.Contiguous(tensor.D(b, t, a.Heads, head))
		probe = probe.Transpose(1, 2)
		q := c.Local(c.Alias(x, probe, x.DType))
		if !a.Weights && head%8 == 0 && !c.Has(5) && selectSDPA(c, q, q, q, nil, &SDPAArgs{}) != op.SDPAMath {
			c.Early(q)
			c.Return(nativeSDPA(c, a))
			return
		}
		c.Early(q)
		wt := c.Do1(T, nil, c.In[1])
		qkv := c.Do1(Matmul, nil, x, wt)
		c.Drop(wt)
		parts := c.NewShape(x.DType, 3, b, a.Heads, t, head) // _transform_bias_rescale_qkv
		c.Drop(qkv)
		qkt := c.NewShape(x.DType, b, a.Heads, t, t) // the product, then its softmax in place
		c.BlasHandle()
		if mask := c.Opt(5); mask != nil { // masked_softmax takes bools and is not in place
			flags := c.Do1(To, &ToCopyArgs{DType: tensor.Bool}, mask)
			probs := c.NewLike(qkt)
			c.Drop(qkt, flags)
			qkt = probs
		}
		if !a.Weights {
			c.Drop(qkt)
			qkt = nil
		}
		// The context takes the place of the queries; the projection needs it in
		// the order of probe.
		ctx := c.Keep(parts)
		if !probe.IsContiguous() {
			c.Drop(ctx)
			ctx = c.NewShape(x.DType, b, t, d)
		}
		rows := c.Alias(ctx, tensor.Contiguous(x.Size), x.DType)
		c.Drop(ctx)
		proj := c.Do1(Linear, nil, rows, c.In[3], c.In[4])
		c.Drop(rows)
		c.Return(proj)
		if a.Weights {
			if a.Average {
				mean := c.Do1(Sum, &ReduceArgs{Dim: []int64{1}}, qkt)
				c.Drop(qkt)
				qkt = mean
			}
			c.Return(qkt)
		}
		c.Drop(parts)
	},
	Source: "aten/src/ATen/native/transformers/cuda/attention.cu: native_multi_head_attention_cuda",
})

// nativeSDPA is nativeMHA by scaled dot product attention.
func nativeSDPA(c *op.Call, a *NativeMHAArgs) *op.Tensor {
	x := c.In[0]
	b, d := x.Dim(0), x.Dim(2)
	packed := c.Local(c.Do1(Linear, nil, x, c.In[1], c.In[2]))
	heads := c.Do(Chunk, &SplitArgs{Chunks: 3, Dim: -1}, packed)
	for i, h := range heads {
		v := c.Do1(View, &ShapeArgs{Shape: []int64{b, -1, a.Heads, d / a.Heads}}, h)
		heads[i] = c.Local(c.Do1(Transpose, &TransposeArgs{Dim0: 1, Dim1: 2}, v))
		c.Drop(h, v)
	}
	y := c.Local(c.Do1(SDPA, &SDPAArgs{}, heads...))
	yt := c.Do1(Transpose, &TransposeArgs{Dim0: 1, Dim1: 2}, y)
	flat := c.Local(c.Do1(Reshape, &ShapeArgs{Shape: []int64{b, -1, d}}, yt))
	c.Drop(yt)
	return c.Do1(Linear, nil, flat, c.In[3], c.In[4])
}

// EncoderLayerArgs are the arguments of _transformer_encoder_layer_fwd.
type EncoderLayerArgs struct {
	Heads      int64
	NormFirst  bool
	Activation string
	Eps        float64
}

// The encoder layer in one operator. Inputs: src; in_proj and out_proj weight
// and bias; norm1 and norm2 weight and bias; linear1 and linear2 weight and
// bias.
var EncoderLayerForward = define(op.Op{
	Name: "_transformer_encoder_layer_fwd", Eval: evalEncoderLayer, Args: &EncoderLayerArgs{}, Composite: true, Run: func(c *op.Call) {
		src, a := c.In[0], c.Args.(*EncoderLayerArgs)
		norm := func(x *op.Tensor, i int) *op.Tensor {
			return c.Do1(LayerNorm, &LayerNormArgs{Shape: []int64{src.Dim(-1)}, Eps: a.Eps}, x, c.In[i], c.In[i+1])
		}
		x := c.Keep(src)
		rebind := func(t *op.Tensor) {
			c.Drop(x)
			x = t
		}
		if a.NormFirst {
			rebind(norm(x, 5))
		}
		rebind(c.Do1(NativeMHA, &NativeMHAArgs{Heads: a.Heads}, x, c.In[1], c.In[2], c.In[3], c.In[4], c.Opt(13)))
		if !a.NormFirst {
			rebind(norm(x, 5))
		}
		residual := c.Keep(x)
		if a.NormFirst {
			rebind(norm(x, 7))
		}
		rebind(feedForward(c, x))
		if !a.NormFirst {
			rebind(norm(x, 7))
		}
		c.Return(x)
		c.Drop(residual)
	},
	Source: "aten/src/ATen/native/transformers/transformer.cpp",
})

// feedForward is two products over rows, the first with its activation fused.
func feedForward(c *op.Call, x *op.Tensor) *op.Tensor {
	linear := func(in, w, bias *op.Tensor) *op.Tensor {
		rows := c.Do1(View, &ShapeArgs{Shape: []int64{in.Dim(0) * in.Dim(1), in.Dim(2)}}, in)
		wt := c.Do1(T, nil, w)
		y := c.Do1(Addmm, nil, bias, rows, wt)
		c.Drop(wt, rows)
		out := c.Do1(View, &ShapeArgs{Shape: []int64{in.Dim(0), -1, w.Dim(0)}}, y)
		c.Drop(y)
		return out
	}
	h := linear(x, c.In[9], c.In[10])
	defer c.Drop(h)
	return linear(h, c.In[11], c.In[12])
}

// SquareMaskArgs are the arguments of generate_square_subsequent_mask.
type SquareMaskArgs struct {
	Size  int64         `arg:"sz"`
	DType *tensor.DType `arg:"dtype"`
}

// CausalMask is the row of generate_square_subsequent_mask: -inf above the
// diagonal, else 0.
var CausalMask = define(op.Op{
	Name: "generate_square_subsequent_mask", Sig: "nn.Transformer.generate_square_subsequent_mask(sz: int, *, dtype: dtype? = None)", Args: &SquareMaskArgs{},
	Composite: true, Run: func(c *op.Call) {
		a := c.Args.(*SquareMaskArgs)
		d := tensor.Float32
		if a.DType != nil {
			d = *a.DType
		}
		if a.Size < 0 {
			c.Fail("negative size %d", a.Size)
		}
		c.Return(squareMask(c, a.Size, d))
	},
	Source: "torch/nn/modules/transformer.py: _generate_square_subsequent_mask",
})

// squareMask is torch.triu(torch.full((n, n), -inf), diagonal=1).
func squareMask(c *op.Call, n int64, d tensor.DType) *op.Tensor {
	full := c.Do1(Full, &FullArgs{FillArgs: FillArgs{Size: []int64{n, n}, DType: &d}, Value: math.Inf(-1)})
	defer c.Drop(full)
	return c.Do1(Triu, &DiagonalArgs{Diagonal: 1}, full)
}

// CausalMaskArgs is the length of the sequence that a mask is for.
type CausalMaskArgs struct {
	Size int64
}

// Without a hint the stacks of transformer layers compare their mask with the
// causal one, and wait for the GPU to know.
var (
	DetectCausalMaskKnown = define(op.Op{
		Name: "_detect_is_causal_mask.known", Args: &CausalMaskArgs{}, Composite: true, Run: detectCausalMask,
		Source: "torch/nn/modules/transformer.py: _detect_is_causal_mask",
	})
	DetectCausalMask = define(op.Op{
		Name: "_detect_is_causal_mask", Args: &CausalMaskArgs{}, Composite: true, Run: detectCausalMask,
		NotModelled: "whether the mask of a transformer is causal, which depends on its values: one that generate_square_subsequent_mask made is, others " +
			"are taken not to be (is_causal says so)",
		Source: "torch/nn/modules/transformer.py: _detect_is_causal_mask",
	})
)

func detectCausalMask(c *op.Call) {
	mask := c.In[0]
	causal := squareMask(c, c.Args.(*CausalMaskArgs).Size, mask.DType)
	if mask.Size == causal.Size {
		same := c.Do1(Equal, &BinaryArgs{}, mask, causal)
		all := c.Do1(All, &ReduceArgs{}, same)
		c.Drop(same, all)
	}
	c.Drop(causal)
}

// What a TransformerEncoder does with padded sequences in eval mode: it looks
// whether they can be nested tensors.
var NestedFromMask = define(op.Op{
	Name: "_nested_tensor_from_mask_left_aligned", Eval: op.Nothing, Run: func(c *op.Call) {
		if !c.Env().Training {
			c.Fail("TransformerEncoder in eval mode makes nested tensors of padded sequences, whose sizes depend on the data; they are not modelled (enable_nested_tensor: false)")
		}
	},
	Source: "torch/nn/modules/transformer.py: TransformerEncoder.forward",
})

// What modules of attention and of transformers call in eval mode without gradients is
// one operator each, whose Run says what its parts allocate; they are computed as a whole
// (aten/src/ATen/native/transformers/attention.cpp, transformer.cpp).

// attendsItself is the self-attention for inputs 1 to 4, and the weights of each head; a
// mask that is set hides a key.
func attendsItself(a op.Arrays, c *op.Call, x *array.Array, heads int64, mask *op.Tensor) (y, weights []float64) {
	p := array.Projections{In: a.Get(c.In[1]), InBias: a.Get(c.In[2]), Out: a.Get(c.In[3]), OutBias: a.Get(c.In[4])}
	return array.SelfAttention(x, int(heads), p, hides(a, mask, x.Size[0], x.Size[1]))
}

// hides reads a mask: of queries and keys, of the keys of each sample, or of both and
// each head.
func hides(a op.Arrays, mask *op.Tensor, batch, length int) func(b, h, t, s int) bool {
	m := a.Array(mask)
	switch {
	case m == nil:
		return func(int, int, int, int) bool { return false }
	case len(m.Size) == 4:
		return func(b, h, t, s int) bool { return m.V[((b*m.Size[1]+h)*length+t)*length+s] != 0 }
	case m.Size[0] == length && batch != length:
		return func(_, _, t, s int) bool { return m.V[t*length+s] != 0 }
	case m.Size[0] == batch && batch != length:
		return func(b, _, _, s int) bool { return m.V[b*length+s] != 0 }
	}
	a.Fail(&op.Refusal{What: "a mask of as many samples as queries in eval mode"})
	return func(int, int, int, int) bool { return false }
}

var evalNativeMHA = op.OnHost(func(a op.Arrays, c *op.Call) {
	args, x := c.Args.(*NativeMHAArgs), a.Array(c.In[0])
	y, weights := attendsItself(a, c, x, args.Heads, c.Opt(5))
	a.Put(c.Out[0], y)
	if !args.Weights {
		return
	}
	if args.Average {
		heads, plane := int(args.Heads), x.Size[1]*x.Size[1]
		mean := make([]float64, x.Size[0]*plane)
		for i, w := range weights {
			mean[i/(heads*plane)*plane+i%plane] += w / float64(heads)
		}
		weights = mean
	}
	a.Put(c.Out[1], weights)
}, nil)

var evalEncoderLayer = op.OnHost(func(a op.Arrays, c *op.Call) {
	args, x := c.Args.(*EncoderLayerArgs), a.Array(c.In[0])
	width := x.Size[2]
	norm := func(v []float64, i int) []float64 {
		n := array.OverLast(width, len(v))
		mean, variance, _ := n.Moments(v)
		return n.Forward(v, mean, array.Rstd(variance, args.Eps), a.Get(c.In[i]), a.Get(c.In[i+1]))
	}
	add := func(v, w []float64) []float64 { return array.Each(len(v), func(i int) float64 { return v[i] + w[i] }) }
	in := x.V
	if args.NormFirst {
		in = norm(in, 5)
	}
	y, _ := attendsItself(a, c, &array.Array{Size: x.Size, V: in}, args.Heads, c.Opt(13))
	y = add(y, x.V)
	if !args.NormFirst {
		y = norm(y, 5)
	}
	in = y
	if args.NormFirst {
		in = norm(in, 7)
	}
	h := array.Affine(in, a.Get(c.In[9]), a.Get(c.In[10]), width)
	for i, v := range h {
		if args.Activation == "gelu" {
			h[i] = 0.5 * v * math.Erfc(-v/math.Sqrt2)
		} else {
			h[i] = max(v, 0)
		}
	}
	y = add(array.Affine(h, a.Get(c.In[11]), a.Get(c.In[12]), int(c.In[11].Dim(1))), y)
	if !args.NormFirst {
		y = norm(y, 7)
	}
	a.Put(c.Out[0], y)
}, nil)
