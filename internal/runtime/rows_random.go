package runtime

import (
	"cmp"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/op"
)

// drawnBy fills a tensor with numbers of a stream, which come from the machine.
func drawnBy(next func(c *op.Call, s *stream) func(i int) float64) row {
	return asideRow(func(a *aside, c *op.Call) {
		y := target(c)
		f := next(c, newStream(uint64(a.x.draw())))
		v := make([]float64, y.Numel())
		for i := range v {
			v[i] = f(i)
		}
		a.put(y, v)
	}, nil)
}

// always is a stream that does not depend on the call.
func always(next func(s *stream) float64) func(*op.Call, *stream) func(int) float64 {
	return func(_ *op.Call, s *stream) func(int) float64 { return func(int) float64 { return next(s) } }
}

// noisy is rrelu: below 0 each element has a slope of its own, which the second
// input keeps; without training one for all (aten/src/ATen/native/Activation.cpp).
var noisy = asideRow(func(a *aside, c *op.Call) {
	args, x := c.Args.(*op.RReLUArgs), a.get(c.In[0])
	training := c.Env().Training
	if args.Training != nil {
		training = *args.Training
	}
	s, noise := (*stream)(nil), make([]float64, len(x.v))
	if training {
		s = newStream(uint64(a.x.draw()))
	}
	for i, v := range x.v {
		switch {
		case !training && v > 0 || training && v > 0:
			noise[i] = 1
		case training:
			noise[i] = args.Lower + (args.Upper-args.Lower)*s.uniform()
		default:
			noise[i] = (args.Lower + args.Upper) / 2
		}
		x.v[i] = v * noise[i]
	}
	a.put(c.In[1], noise)
	a.put(target(c), x.v)
}, func(a *aside, b *op.Back) {
	if r := wanted(b, 0); r != nil {
		g, noise := a.like(b.Grads[0], r.Size), a.like(b.SavedIn[1], r.Size)
		for i := range g {
			g[i] *= noise[i]
		}
		a.put(r, g)
	}
})

// multinomial draws indices by weights, with replacement or without.
func multinomial(a *aside, c *op.Call) {
	args, x := c.Args.(*op.MultinomialArgs), a.get(c.In[0])
	s, n := newStream(uint64(a.x.draw())), x.size[len(x.size)-1]
	var out []float64
	for at := 0; at < len(x.v); at += n {
		weights := slices.Clone(x.v[at : at+n])
		for range args.N {
			total := 0.0
			for _, w := range weights {
				if w < 0 || math.IsNaN(w) || math.IsInf(w, 0) {
					a.fail(unsupported("multinomial with a weight of %v", w))
					return
				}
				total += w
			}
			pick, left := -1, s.uniform()*total
			for i, w := range weights {
				if w > 0 {
					pick = i
					if left -= w; left < 0 {
						break
					}
				}
			}
			if pick < 0 {
				a.fail(unsupported("multinomial with fewer weights than samples"))
				return
			}
			if !args.Replacement {
				weights[pick] = 0
			}
			out = append(out, float64(pick))
		}
	}
	a.put(c.Out[0], out)
}

// randomRows draw random numbers, which cannot be PyTorch's.
var randomRows = map[*op.Op]row{
	op.RandLike:    drawnBy(always((*stream).uniform)),
	op.RandnLike:   drawnBy(always((*stream).normal)),
	op.Exponential: drawnBy(always(func(s *stream) float64 { return -math.Log(s.uniform()) })),
	op.Randint: drawnBy(func(c *op.Call, s *stream) func(int) float64 {
		a := c.Args.(*op.RandintArgs)
		return func(int) float64 { return float64(a.Low + s.below(a.High-a.Low)) }
	}),
	op.Randperm: drawnBy(func(c *op.Call, s *stream) func(int) float64 {
		keys, order := make([]float64, c.Args.(*op.RandpermArgs).N), make([]int, c.Args.(*op.RandpermArgs).N)
		for i := range keys {
			keys[i], order[i] = s.uniform(), i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(keys[i], keys[j]) })
		return func(i int) float64 { return float64(order[i]) }
	}),
	op.BernoulliNumber: drawnBy(func(c *op.Call, s *stream) func(int) float64 {
		return func(int) float64 { return truth(s.uniform() < c.Args.(*op.BernoulliArgs).P) }
	}),
	op.Bernoulli: asideRow(func(a *aside, c *op.Call) {
		p, s := a.get(c.In[0]), newStream(uint64(a.x.draw()))
		for i, v := range p.v {
			p.v[i] = truth(s.uniform() < v)
		}
		a.put(c.Out[0], p.v)
	}, func(a *aside, b *op.Back) {
		if r := wanted(b, 0); r != nil {
			a.put(r, make([]float64, r.Numel()))
		}
	}),
	op.Multinomial: asideRow(multinomial, nil),
	op.RreluNoise:  noisy, op.RreluNoiseInPlace: noisy,
}
