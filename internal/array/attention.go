package array

import "math"

// Attention is one of queries, keys and values of (batch, heads, length, width): heads
// of queries may share those of keys.
type Attention struct {
	Q, K, V *Array
	Mask    []float64 // that is added to the scores, of (batch, heads, queries, keys); nil: none
	Causal  bool
	Scale   float64
	Dropped func(i int) float64 // what probability i counts with after dropout; nil: 1
}

// attended is what a query attends to: places in q and out, the first key and value of
// its head, and its number.
type attended struct{ l, q, k, v, out, number int }

func (t *Attention) rows(f func(r attended)) {
	heads, length, width := t.Q.Size[1], t.Q.Size[2], t.Q.Size[3]
	keys, shared, out := t.K.Size[2], heads/t.K.Size[1], t.V.Size[3]
	for b := range t.Q.Size[0] {
		for h := range heads {
			for l := range length {
				n := (b*heads+h)*length + l
				head := b*t.K.Size[1] + h/shared
				f(attended{l, n * width, head * keys * width, head * keys * out, n * out, n})
			}
		}
	}
}

// weights are the probabilities of a row before dropout, and what they count with.
func (t *Attention) weights(r attended) (probs, kept []float64) {
	keys, width := t.K.Size[2], t.Q.Size[3]
	scores := make([]float64, keys)
	for s := range scores {
		for e := range width {
			scores[s] += t.Q.V[r.q+e] * t.K.V[r.k+s*width+e]
		}
		scores[s] *= t.Scale
		if t.Mask != nil {
			scores[s] += t.Mask[r.number*keys+s]
		}
		if t.Causal && s > r.l {
			scores[s] = math.Inf(-1)
		}
	}
	return SafeSoftmax(scores), Each(keys, func(s int) float64 {
		if t.Dropped == nil {
			return 1
		}
		return t.Dropped(r.number*keys + s)
	})
}

// Forward is the result, of (batch, heads, queries, width of values).
func (t *Attention) Forward() []float64 {
	width := t.V.Size[3]
	y := make([]float64, Numel(t.Q.Size[:3])*width)
	t.rows(func(r attended) {
		probs, kept := t.weights(r)
		for s, p := range probs {
			for e := range width {
				y[r.out+e] += p * kept[s] * t.V.V[r.v+s*width+e]
			}
		}
	})
	return y
}

// Backward gives the gradients of queries, keys, values and the mask.
func (t *Attention) Backward(g []float64) (gq, gk, gv, gm []float64) {
	keys, width, out := t.K.Size[2], t.Q.Size[3], t.V.Size[3]
	gq, gk, gv = make([]float64, len(t.Q.V)), make([]float64, len(t.K.V)), make([]float64, len(t.V.V))
	gm = make([]float64, len(t.Q.V)/width*keys)
	t.rows(func(r attended) {
		probs, kept := t.weights(r)
		d, dot := make([]float64, keys), 0.0
		for s, p := range probs {
			for e := range out {
				d[s] += g[r.out+e] * t.V.V[r.v+s*out+e] * kept[s]
				gv[r.v+s*out+e] += g[r.out+e] * p * kept[s]
			}
			dot += d[s] * p
		}
		for s, p := range probs {
			v := p * (d[s] - dot)
			gm[r.number*keys+s] = v
			for e := range width {
				gq[r.q+e] += v * t.Scale * t.K.V[r.k+s*width+e]
				gk[r.k+s*width+e] += v * t.Scale * t.Q.V[r.q+e]
			}
		}
	})
	return gq, gk, gv, gm
}

// SafeSoftmax gives zeros where everything is masked.
func SafeSoftmax(x []float64) []float64 {
	most, sum := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, v)
	}
	out := make([]float64, len(x))
	if math.IsInf(most, -1) {
		return out
	}
	for i, v := range x {
		out[i] = math.Exp(v - most)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// Projections are the weights and biases of an attention to itself: of queries, keys
// and values together, and of the result.
type Projections struct{ In, InBias, Out, OutBias []float64 }

// SelfAttention is the result for x of (batch, length, width), and the weights of each
// head; what is hidden counts as a key that is not there.
func SelfAttention(x *Array, heads int, p Projections, hidden func(b, h, t, s int) bool) (y, weights []float64) {
	batch, length, width := x.Size[0], x.Size[1], x.Size[2]
	qkv := Affine(x.V, p.In, p.InBias, width)
	head := width / heads
	at := func(b, t, part, h int) []float64 {
		i := ((b*length+t)*3+part)*width + h*head
		return qkv[i : i+head]
	}
	context := make([]float64, len(x.V))
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
				probs := SafeSoftmax(scores)
				copy(weights[((b*heads+h)*length+t)*length:], probs)
				for s, p := range probs {
					for e, v := range at(b, s, 2, h) {
						context[(b*length+t)*width+h*head+e] += p * v
					}
				}
			}
		}
	}
	return Affine(context, p.Out, p.OutBias, width), weights
}
