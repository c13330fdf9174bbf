package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// attended is one attention aside: heads of queries may share those of keys, and the
// mask may have a gradient.
type attended struct {
	q, k, v  *array
	mask     []float64
	causal   bool
	scale, p float64
	seed     int64
}

// row is what a query attends to: places in q and out, the first key and value of its
// head, and its number.
type attendedRow struct{ b, h, l, q, k, v, out, number int }

func (t *attended) rows(f func(r attendedRow)) {
	heads, length, width := t.q.size[1], t.q.size[2], t.q.size[3]
	keys, shared, out := t.k.size[2], heads/t.k.size[1], t.v.size[3]
	for b := range t.q.size[0] {
		for h := range heads {
			for l := range length {
				n := (b*heads+h)*length + l
				head := b*t.k.size[1] + h/shared
				f(attendedRow{b, h, l, n * width, head * keys * width, head * keys * out, n * out, n})
			}
		}
	}
}

// weights are the probabilities of a row before dropout, and what they count with.
func (t *attended) weights(r attendedRow) (probs, kept []float64) {
	keys, width := t.k.size[2], t.q.size[3]
	scores := make([]float64, keys)
	for s := range scores {
		for e := range width {
			scores[s] += t.q.v[r.q+e] * t.k.v[r.k+s*width+e]
		}
		scores[s] *= t.scale
		if t.mask != nil {
			scores[s] += t.mask[r.number*keys+s]
		}
		if t.causal && s > r.l {
			scores[s] = math.Inf(-1)
		}
	}
	probs, kept = softmaxOf(scores), make([]float64, keys)
	for s := range kept {
		if t.p == 0 || float64(kernel.Uniform(uint64(t.seed), int64(r.number*keys+s))) >= t.p {
			kept[s] = 1 / (1 - t.p)
		}
	}
	return probs, kept
}

// softmaxOf gives zeros where everything is masked.
func softmaxOf(x []float64) []float64 {
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

func newAttended(a *aside, args any, in []*op.Tensor, seed int64) *attended {
	q, k := in[0], in[1]
	causal, scale, p := attentionNumbers(args, q.Dim(3))
	t := &attended{q: a.get(q), k: a.get(k), v: a.get(in[2]), causal: causal != 0, scale: scale, p: p, seed: seed}
	t.mask = a.like(optional(in, 3), tensor.D(q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)))
	return t
}

var attentionAside = asideRow(func(a *aside, c *op.Call) {
	seed := a.x.draw()
	a.x.seeds[engine.BlockOf(c.Out[1])] = seed
	t := newAttended(a, c.Args, c.In, seed)
	y, width := make([]float64, c.Out[0].Numel()), t.v.size[3]
	t.rows(func(r attendedRow) {
		probs, kept := t.weights(r)
		for s, p := range probs {
			for e := range width {
				y[r.out+e] += p * kept[s] * t.v.v[r.v+s*width+e]
			}
		}
	})
	a.put(c.Out[0], y)
}, func(a *aside, b *op.Back) {
	t := newAttended(a, b.Args, b.SavedIn, a.x.seeds[engine.BlockOf(b.SavedOut[1])])
	g := a.get(b.Grads[0])
	keys, width, out := t.k.size[2], t.q.size[3], t.v.size[3]
	gq, gk, gv := make([]float64, len(t.q.v)), make([]float64, len(t.k.v)), make([]float64, len(t.v.v))
	gm := make([]float64, len(t.q.v)/width*keys)
	t.rows(func(r attendedRow) {
		probs, kept := t.weights(r)
		d, dot := make([]float64, keys), 0.0
		for s, p := range probs {
			for e := range out {
				d[s] += g.v[r.out+e] * t.v.v[r.v+s*out+e] * kept[s]
				gv[r.v+s*out+e] += g.v[r.out+e] * p * kept[s]
			}
			dot += d[s] * p
		}
		for s, p := range probs {
			v := p * (d[s] - dot)
			gm[r.number*keys+s] = v
			for e := range width {
				gq[r.q+e] += v * t.scale * t.k.v[r.k+s*width+e]
				gk[r.k+s*width+e] += v * t.scale * t.q.v[r.q+e]
			}
		}
	})
	for i, v := range [][]float64{gq, gk, gv} {
		a.put(wanted(b, i), v)
	}
	if m := wanted(b, 3); m != nil {
		a.putSummed(m, gm, tensor.D(int64(t.q.size[0]), int64(t.q.size[1]), int64(t.q.size[2]), int64(keys)))
	}
})

// safeSoftmax is a softmax that gives zeros for rows that are masked whole.
func safeSoftmax(a *aside, c *op.Call) {
	x := a.get(c.In[0])
	lanes(x.size, dim(c.Args.(*op.SoftmaxArgs).Dim, len(x.size)), func(_, at, step, n int) {
		row := make([]float64, n)
		for i := range row {
			row[i] = x.v[at+i*step]
		}
		for i, v := range softmaxOf(row) {
			x.v[at+i*step] = v
		}
	})
	a.put(c.Out[0], x.v)
}
