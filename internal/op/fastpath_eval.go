package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
)

// What modules of attention and of transformers call in eval mode without gradients is
// one operator each, whose Run says what its parts allocate; they are computed as a whole
// (aten/src/ATen/native/transformers/attention.cpp, transformer.cpp).

// attendsItself is the self-attention for inputs 1 to 4, and the weights of each head; a
// mask that is set hides a key.
func attendsItself(a Arrays, c *Call, x *array.Array, heads int64, mask *Tensor) (y, weights []float64) {
	p := array.Projections{In: a.Get(c.In[1]), InBias: a.Get(c.In[2]), Out: a.Get(c.In[3]), OutBias: a.Get(c.In[4])}
	return array.SelfAttention(x, int(heads), p, hides(a, mask, x.Size[0], x.Size[1]))
}

// hides reads a mask: of queries and keys, of the keys of each sample, or of both and
// each head.
func hides(a Arrays, mask *Tensor, batch, length int) func(b, h, t, s int) bool {
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
	a.Fail(&Refusal{What: "a mask of as many samples as queries in eval mode"})
	return func(int, int, int, int) bool { return false }
}

var evalNativeMHA = aside(func(a Arrays, c *Call) {
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

var evalEncoderLayer = aside(func(a Arrays, c *Call) {
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
