package op

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
)

// Random numbers come from the machine: they cannot be PyTorch's.

// random is an operator without a derivative that computes with a stream of random
// numbers.
func random(f func(a Arrays, s *kernel.Stream, c *Call)) *Eval {
	return &Eval{Forward: func(m Machine, c *Call) error {
		return m.Aside(func(a Arrays) { f(a, kernel.NewStream(uint64(m.Draw())), c) })
	}}
}

// drawn fills the result with numbers of a stream.
func drawn(next func(s *kernel.Stream) float64) *Eval {
	return random(func(a Arrays, s *kernel.Stream, c *Call) {
		y := c.Target()
		a.Put(y, array.Each(int(y.Numel()), func(int) float64 { return next(s) }))
	})
}

var (
	evalExponential = drawn(func(s *kernel.Stream) float64 { return -math.Log(s.Uniform()) })
	evalRandint     = random(func(a Arrays, s *kernel.Stream, c *Call) {
		args, y := c.Args.(*RandintArgs), c.Out[0]
		a.Put(y, array.Each(int(y.Numel()), func(int) float64 { return float64(args.Low + s.Below(args.High-args.Low)) }))
	})
	evalRandperm = random(func(a Arrays, s *kernel.Stream, c *Call) {
		a.Put(c.Out[0], array.Permutation(int(c.Args.(*RandpermArgs).N), s.Uniform))
	})
	evalBernoulliNumber = random(func(a Arrays, s *kernel.Stream, c *Call) {
		p, y := c.Args.(*BernoulliArgs).P, c.Target()
		a.Put(y, array.Each(int(y.Numel()), func(int) float64 { return array.Truth(s.Uniform() < p) }))
	})
	evalBernoulli = random(func(a Arrays, s *kernel.Stream, c *Call) {
		p := a.Get(c.In[0])
		a.Put(c.Out[0], array.Each(len(p), func(i int) float64 { return array.Truth(s.Uniform() < p[i]) }))
	}).withBackward(func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			a.Put(r, make([]float64, r.Numel()))
		}
	})
	evalMultinomial = random(func(a Arrays, s *kernel.Stream, c *Call) {
		args, x := c.Args.(*MultinomialArgs), a.Array(c.In[0])
		var out []float64
		array.Blocks(x.V, x.Size[len(x.Size)-1], func(_ int, weights []float64) {
			picked, err := array.Multinomial(weights, int(args.N), args.Replacement, s.Uniform)
			if err != nil {
				a.Fail(&Refusal{What: err.Error()})
			}
			out = append(out, picked...)
		})
		a.Put(c.Out[0], out)
	})

	// rrelu: below 0 each element has a slope of its own, which the second input keeps;
	// without training one for all (aten/src/ATen/native/Activation.cpp).
	evalRrelu = (&Eval{Forward: func(m Machine, c *Call) error {
		return m.Aside(func(a Arrays) {
			args, x := c.Args.(*RReLUArgs), a.Get(c.In[0])
			noise := array.Each(len(x), func(int) float64 { return 1 })
			slope := func() float64 { return (args.Lower + args.Upper) / 2 }
			if c.draws() {
				s := kernel.NewStream(uint64(m.Draw()))
				slope = func() float64 { return args.Lower + (args.Upper-args.Lower)*s.Uniform() }
			}
			for i, v := range x {
				if !(v > 0) {
					noise[i] = slope()
				}
				x[i] = v * noise[i]
			}
			a.Put(c.In[1], noise)
			a.Put(c.Target(), x)
		})
	}}).withBackward(func(a Arrays, b *Back) {
		if r := a.Wanted(b, 0); r != nil {
			g, noise := a.Like(b.Grads[0], r.Size), a.Like(b.SavedIn(1), r.Size)
			a.Put(r, array.Each(len(g), func(i int) float64 { return g[i] * noise[i] }))
		}
	})
)
