package op

import "github.com/memplan/memplan/internal/tensor"

// NativeMHAArgs are the arguments of _native_multi_head_attention.
type NativeMHAArgs struct {
	Heads   int64
	Weights bool // need_weights
	Average bool // average_attn_weights
}

// NativeMHA is self-attention in one operator, which eval mode without
// gradients takes. Inputs: query, in_proj weight and bias, out_proj weight and
// bias, and a mask. With need_weights it returns the weights as well.
var NativeMHA = define(Op{
	Name: "_native_multi_head_attention", Eval: evalNativeMHA, Args: &NativeMHAArgs{}, Composite: true, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*NativeMHAArgs)
		b, t, d := x.Dim(0), x.Dim(1), x.Dim(2)
		head := d / a.Heads
		probe := tensor.Contiguous(tensor.D(b, t, a.Heads, head))
		probe = probe.Transpose(1, 2)
		q := c.Local(c.Alias(x, probe, x.DType))
		if !a.Weights && head%8 == 0 && !c.Has(5) && c.sdpaBackend(q, q, q, nil, &SDPAArgs{}) != sdpaMath {
			c.Early(q)
			c.Return(c.nativeSDPA(a))
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
func (c *Call) nativeSDPA(a *NativeMHAArgs) *Tensor {
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
var EncoderLayerForward = define(Op{
	Name: "_transformer_encoder_layer_fwd", Eval: evalEncoderLayer, Args: &EncoderLayerArgs{}, Composite: true, Run: func(c *Call) {
		src, a := c.In[0], c.Args.(*EncoderLayerArgs)
		norm := func(x *Tensor, i int) *Tensor {
			return c.Do1(LayerNorm, &LayerNormArgs{Shape: []int64{src.Dim(-1)}, Eps: a.Eps}, x, c.In[i], c.In[i+1])
		}
		x := c.Keep(src)
		rebind := func(t *Tensor) {
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
		rebind(c.feedForward(x))
		if !a.NormFirst {
			rebind(norm(x, 7))
		}
		c.Return(x)
		c.Drop(residual)
	},
	Source: "aten/src/ATen/native/transformers/transformer.cpp",
})

// feedForward is two products over rows, the first with its activation fused.
func (c *Call) feedForward(x *Tensor) *Tensor {
	linear := func(in, w, bias *Tensor) *Tensor {
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

// UnflattenArgs split one dimension into several.
type UnflattenArgs struct {
	Dim   int     `arg:"dim"`
	Sizes []int64 `arg:"sizes"`
}

// Unflatten is a view.
var Unflatten = define(Op{
	Name: "unflatten", Sig: "Tensor.unflatten(self, dim: int, sizes: ints)", Args: &UnflattenArgs{}, Composite: true, Run: func(c *Call) {
		a, x := c.Args.(*UnflattenArgs), c.In[0]
		d := c.dim(a.Dim, x.Rank())
		var shape []int64
		for i := range x.Rank() {
			if i == d {
				sizes, err := tensor.ReshapeSizes(x.Dim(i), a.Sizes)
				if err != nil {
					c.Fail("%v", err)
				}
				shape = append(shape, sizes.Slice()...)
			} else {
				shape = append(shape, x.Dim(i))
			}
		}
		if len(shape) > tensor.MaxRank {
			c.Fail("more than %d dimensions", tensor.MaxRank)
		}
		c.Return(c.Do1(View, &ShapeArgs{Shape: shape}, x))
	},
})
