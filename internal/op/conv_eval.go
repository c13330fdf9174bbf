package op

import (
	"slices"

	"github.com/memplan/memplan/internal/kernel"
)

// spatialDims is how many of them kernels take.
const spatialDims = 3

// volumes adds tensors with n spatial dimensions, and perhaps without one of batches, as
// [N, C, D, H, W].
func (l *launch) volumes(n int, ts ...*Tensor) {
	for _, t := range ts {
		if t == nil {
			l.seen(nil)
			continue
		}
		v := t.Layout
		if v.Rank() == n+1 {
			v = v.Unsqueeze(0)
		}
		for range spatialDims - n {
			v = v.Unsqueeze(2)
		}
		l.ts = append(l.ts, l.m.At(t, v))
	}
}

// spaces completes the numbers of some spatial dimensions to three; fill stands for
// those that are missing in front.
func spaces(fill int64, v []int64) []int64 {
	out := slices.Clone(v)
	for len(out) < spatialDims {
		out = slices.Insert(out, 0, fill)
	}
	return out
}

// ints are the arguments as kernels take them.
func (a *ConvArgs) ints() []int64 {
	return append(slices.Concat(spaces(1, a.Stride), spaces(0, a.Padding), spaces(1, a.Dilation)), a.Groups)
}

var evalConv = &Eval{
	Forward: func(m Machine, c *Call) error {
		a, k := c.Args.(*ConvArgs), kernel.Conv
		if a.Transposed {
			k = kernel.ConvInputGrad
		}
		l := launch{m: m}
		l.volumes(c.In[1].Rank()-2, c.Out[0], c.In[0], c.In[1])
		l.add(c.Opt(2))
		return l.run(k, a.ints())
	},
	Backward: func(m Machine, b *Back) error {
		a, in, w, g := b.Args.(*ConvArgs), b.SavedIn(0), b.SavedIn(1), b.Grads[0]
		n := w.Rank() - 2
		if y := m.Wanted(b, 0); y != nil {
			k := kernel.ConvInputGrad
			if a.Transposed {
				k = kernel.Conv
			}
			l := launch{m: m}
			l.volumes(n, y, g, w)
			l.seen(nil)
			if err := l.run(k, a.ints()); err != nil {
				return err
			}
		}
		if y := m.Wanted(b, 1); y != nil {
			large, small := in, g // of the convolution whose weight this is
			if a.Transposed {
				large, small = g, in
			}
			l := launch{m: m}
			l.volumes(n, y, small, large)
			if err := l.run(kernel.ConvWeightGrad, a.ints()); err != nil {
				return err
			}
		}
		y := m.Wanted(b, 2)
		if y == nil {
			return nil
		}
		dims := &ReduceArgs{}
		for i, sum := range biasDims(g) {
			if sum {
				dims.Dim = append(dims.Dim, int64(i))
			}
		}
		return m.Launch(kernel.Sum, []kernel.Tensor{m.At(y, dims.Spread(y, g.Size)), as(m, g)}, nil, 1)
	},
}
