package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
)

// What modules of attention and of transformers call in eval mode without gradients
// is one operator each, of which the operator table says what its parts allocate; they
// are computed as a whole (aten/src/ATen/native/transformers/attention.cpp,
// transformer.cpp).

// selfAttention is the result for x of shape (batch, length, width), and the weights
// of each head; a mask that is set hides a key.
func selfAttention(a *aside, x *array, heads int, inWeight, inBias, outWeight, outBias *op.Tensor, mask *op.Tensor) (y, weights []float64) {
	batch, length, width := x.size[0], x.size[1], x.size[2]
	qkv := affine(x.v, a.get(inWeight).v, a.get(inBias).v, width)
	hidden := hides(a, mask, batch, length)
	head := width / heads
	at := func(b, t, part, h int) []float64 {
		i := ((b*length+t)*3+part)*width + h*head
		return qkv[i : i+head]
	}
	context := make([]float64, len(x.v))
	weights = make([]float64, batch*heads*length*length)
	for b := range batch {
		for h := range heads {
			for t := range length {
				scores := make([]float64, length)
				for s := range scores {
					for e, q := range at(b, t, 0, h) {
						scores[s] += q * at(b, s, 1, h)[e] / math.Sqrt(float64(head))
					}
					if hidden(b, h, t, s) {
						scores[s] = math.Inf(-1)
					}
				}
				probs := softmaxOf(scores)
				copy(weights[((b*heads+h)*length+t)*length:], probs)
				for s, p := range probs {
					for e, v := range at(b, s, 2, h) {
						context[(b*length+t)*width+h*head+e] += p * v
					}
				}
			}
		}
	}
	return affine(context, a.get(outWeight).v, a.get(outBias).v, width), weights
}

// hides reads a mask: of queries and keys, of the keys of each sample, or of both and
// each head.
func hides(a *aside, mask *op.Tensor, batch, length int) func(b, h, t, s int) bool {
	m := a.get(mask)
	switch {
	case m == nil:
		return func(int, int, int, int) bool { return false }
	case len(m.size) == 4:
		return func(b, h, t, s int) bool { return m.v[((b*m.size[1]+h)*length+t)*length+s] != 0 }
	case m.size[0] == length && batch != length:
		return func(_, _, t, s int) bool { return m.v[t*length+s] != 0 }
	case m.size[0] == batch && batch != length:
		return func(b, _, _, s int) bool { return m.v[b*length+s] != 0 }
	}
	a.fail(unsupported("a mask of as many samples as queries in eval mode"))
	return func(int, int, int, int) bool { return false }
}

// layerNormed is a layer_norm over the last dimension.
func layerNormed(a *aside, x []float64, width int, eps float64, weight, bias *op.Tensor) []float64 {
	n := &normalizing{len(x) / width, width, func(i int) int { return i / width }, func(i int) int { return i % width }}
	mean, variance, _ := n.moments(x)
	return n.forward(x, mean, inverse(variance, eps), a.get(weight), a.get(bias))
}

// encoderRows are the operators.
var encoderRows = map[*op.Op]row{
	op.NativeMHA: asideRow(func(a *aside, c *op.Call) {
		args, x := c.Args.(*op.NativeMHAArgs), a.get(c.In[0])
		heads := int(args.Heads)
		y, weights := selfAttention(a, x, heads, c.In[1], c.In[2], c.In[3], c.In[4], optional(c.In, 5))
		a.put(c.Out[0], y)
		if !args.Weights {
			return
		}
		if args.Average {
			plane := x.size[1] * x.size[1]
			mean := make([]float64, x.size[0]*plane)
			for i, w := range weights {
				mean[i/(heads*plane)*plane+i%plane] += w / float64(heads)
			}
			weights = mean
		}
		a.put(c.Out[1], weights)
	}, nil),
	op.EncoderLayerForward: asideRow(func(a *aside, c *op.Call) {
		args, x := c.Args.(*op.EncoderLayerArgs), a.get(c.In[0])
		width := x.size[2]
		norm := func(v []float64, i int) []float64 { return layerNormed(a, v, width, args.Eps, c.In[i], c.In[i+1]) }
		add := func(v, w []float64) []float64 { return each(len(v), func(i int) float64 { return v[i] + w[i] }) }
		in := x.v
		if args.NormFirst {
			in = norm(in, 5)
		}
		y, _ := selfAttention(a, &array{x.size, in}, int(args.Heads), c.In[1], c.In[2], c.In[3], c.In[4], optional(c.In, 13))
		y = add(y, x.v)
		if !args.NormFirst {
			y = norm(y, 5)
		}
		in = y
		if args.NormFirst {
			in = norm(in, 7)
		}
		h := affine(in, a.get(c.In[9]).v, a.get(c.In[10]).v, width)
		for i, v := range h {
			if args.Activation == "gelu" {
				h[i] = 0.5 * v * math.Erfc(-v/math.Sqrt2)
			} else {
				h[i] = max(v, 0)
			}
		}
		y = add(affine(h, a.get(c.In[11]).v, a.get(c.In[12]).v, int(c.In[11].Dim(1))), y)
		if !args.NormFirst {
			y = norm(y, 7)
		}
		a.put(c.Out[0], y)
	}, nil),
	op.NestedFromMask: nothing, // in eval mode memplan refuses it
}
