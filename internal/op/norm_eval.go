package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
)

// Kernels of normalizations see some dimensions joined; where strides do not allow it
// they are computed with arrays.

// over adds a tensor whose dimensions from k on are joined.
func (l *launch) over(k int, ts ...*Tensor) {
	for _, t := range ts {
		if t == nil {
			l.seen(nil)
			continue
		}
		lead, n := t.Size.Slice(), int64(1)
		for _, s := range lead[k:] {
			n *= s
		}
		l.seen(t, append(lead[:k:k], n)...)
	}
}

// layerNormSizes are the dimensions before those that are normalized, and how many
// elements these have.
func layerNormSizes(x *Tensor, a *LayerNormArgs) (lead []int64, n int64) {
	size := x.Size.Slice()
	k, n := len(size)-len(a.Shape), 1
	for _, s := range size[k:] {
		n *= s
	}
	return size[:k], n
}

var evalLayerNorm = (&Eval{
	Forward: func(m Machine, c *Call) error {
		a, x := c.Args.(*LayerNormArgs), c.In[0]
		lead, n := layerNormSizes(x, a)
		l := launch{m: m}
		l.over(len(lead), c.Out[0])
		l.seen(c.Out[1], lead...)
		l.seen(c.Out[2], lead...)
		l.over(len(lead), x)
		l.seen(c.Opt(1), n)
		l.seen(c.Opt(2), n)
		return l.run(kernel.LayerNorm, nil, a.Eps)
	},
	Backward: func(m Machine, b *Back) error {
		x := b.SavedIn(0)
		lead, n := layerNormSizes(x, b.Args.(*LayerNormArgs))
		l := launch{m: m}
		l.over(len(lead), m.Wanted(b, 0))
		l.seen(m.Wanted(b, 1), n)
		l.seen(m.Wanted(b, 2), n)
		l.over(len(lead), b.Grads[0], x)
		l.seen(b.SavedOut(1), lead...)
		l.seen(b.SavedOut(2), lead...)
		l.seen(b.SavedIn(1), n)
		return l.run(kernel.LayerNormGrad, nil)
	},
}).otherwise(normalized(func(args any, size []int) (*array.Normalization, float64) {
	a := args.(*LayerNormArgs)
	return array.OverLast(array.Numel(size[len(size)-len(a.Shape):]), array.Numel(size)), a.Eps
}))

// grouped adds a tensor of images as [N, G, C/G, S].
func (l *launch) grouped(t *Tensor, g int64) {
	if t == nil {
		l.seen(nil)
		return
	}
	l.seen(t, t.Dim(0), g, t.Dim(1)/g, pixels(t))
}

// images adds a tensor of images as [N, C, S].
func (l *launch) images(t *Tensor) {
	if t == nil {
		l.seen(nil)
		return
	}
	l.seen(t, t.Dim(0), t.Dim(1), pixels(t))
}

// pixels is how many each channel of images has.
func pixels(t *Tensor) int64 {
	n := int64(1)
	for i := 2; i < t.Rank(); i++ {
		n *= t.Dim(i)
	}
	return n
}

var evalGroupNorm = (&Eval{
	Forward: func(m Machine, c *Call) error {
		a, x := c.Args.(*GroupNormArgs), c.In[0]
		l := launch{m: m}
		l.grouped(c.Out[0], a.Groups)
		l.add(c.Out[1], c.Out[2])
		l.grouped(x, a.Groups)
		l.seen(c.Opt(1), a.Groups, x.Dim(1)/a.Groups)
		l.seen(c.Opt(2), a.Groups, x.Dim(1)/a.Groups)
		return l.run(kernel.GroupNorm, nil, a.Eps)
	},
	Backward: func(m Machine, b *Back) error {
		x, g := b.SavedIn(0), b.Args.(*GroupNormArgs).Groups
		l := launch{m: m}
		l.grouped(m.Wanted(b, 0), g)
		l.seen(m.Wanted(b, 1), g, x.Dim(1)/g)
		l.seen(m.Wanted(b, 2), g, x.Dim(1)/g)
		l.grouped(b.Grads[0], g)
		l.grouped(x, g)
		l.add(b.SavedOut(1), b.SavedOut(2))
		l.seen(b.SavedIn(1), g, x.Dim(1)/g)
		return l.run(kernel.GroupNormGrad, nil)
	},
}).otherwise(normalized(func(args any, size []int) (*array.Normalization, float64) {
	a := args.(*GroupNormArgs)
	return array.OverGroups(size, int(a.Groups)), a.Eps
}))

// normalized is a layer_norm or group_norm of any strides.
func normalized(of func(args any, size []int) (*array.Normalization, float64)) *Eval {
	return aside(func(a Arrays, c *Call) {
		x := a.Get(c.In[0])
		n, eps := of(c.Args, c.In[0].Size.Ints())
		mean, variance, _ := n.Moments(x)
		rstd := array.Rstd(variance, eps)
		a.Put(c.Out[0], n.Forward(x, mean, rstd, a.Get(c.Opt(1)), a.Get(c.Opt(2))))
		a.Put(c.Out[1], mean)
		a.Put(c.Out[2], rstd)
	}, func(a Arrays, b *Back) {
		x := b.SavedIn(0)
		n, _ := of(b.Args, x.Size.Ints())
		normGrads(a, b, n, a.Get(b.SavedOut(1)), a.Get(b.SavedOut(2)), true)
	})
}

// normGrads computes the gradients of input, weight and bias.
func normGrads(a Arrays, b *Back, n *array.Normalization, mean, rstd []float64, own bool) {
	gx, gw, gb := n.Backward(a.Get(b.SavedIn(0)), a.Get(b.Grads[0]), mean, rstd, a.Get(b.SavedIn(1)), own)
	for i, g := range [][]float64{gx, gw, gb} {
		a.Put(a.Wanted(b, i), g)
	}
}

// momentum is the part of this batch in running statistics; without one they are means
// over all batches so far.
func (a *BatchNormArgs) momentum(m Machine, mean *Tensor) float64 {
	if !a.Cumulative || mean == nil {
		return a.Momentum
	}
	batches := noted[int](m, mean) + 1
	m.Note(mean, batches)
	return 1 / float64(batches)
}

// evalBatchNorm is batch_norm. Its kernel does not know the derivative with statistics
// that are not the batch's own.
var evalBatchNorm = (&Eval{
	Forward: func(m Machine, c *Call) error {
		a := c.Args.(*BatchNormArgs)
		training := a.training(c)
		l := launch{m: m}
		l.images(c.Out[0])
		for _, t := range c.Out[1:3] {
			if t.Numel() == 0 {
				t = nil
			}
			l.add(t)
		}
		l.images(c.In[0])
		l.add(c.Opt(1), c.Opt(2), c.Opt(3), c.Opt(4))
		if l.err != nil {
			return l.err
		}
		momentum := a.Momentum
		if training {
			momentum = a.momentum(m, c.Opt(3))
		}
		return l.run(kernel.BatchNorm, []int64{flag(training)}, momentum, a.Eps)
	},
	Backward: func(m Machine, b *Back) error {
		if !b.Args.(*BatchNormArgs).training(&b.Call) {
			return errView
		}
		l := launch{m: m}
		l.images(m.Wanted(b, 0))
		l.add(m.Wanted(b, 1), m.Wanted(b, 2))
		l.images(b.Grads[0])
		l.images(b.SavedIn(0))
		l.add(b.SavedOut(1), b.SavedOut(2), b.SavedIn(1))
		return l.run(kernel.BatchNormGrad, []int64{1})
	},
}).otherwise(batchNormAside)

var batchNormAside = &Eval{
	Forward: func(m Machine, c *Call) error {
		return m.Aside(func(a Arrays) {
			args, x := c.Args.(*BatchNormArgs), a.Get(c.In[0])
			n := array.OverChannels(c.In[0].Size.Ints())
			running, spread := a.Get(c.Opt(3)), a.Get(c.Opt(4))
			var mean, rstd []float64
			if args.training(c) {
				var variance []float64
				var count float64
				mean, variance, count = n.Moments(x)
				rstd = array.Rstd(variance, args.Eps)
				if running != nil {
					momentum := args.momentum(m, c.In[3])
					for k := range mean {
						running[k] += momentum * (mean[k] - running[k])
						spread[k] += momentum * (variance[k]*count/(count-1) - spread[k])
					}
					a.Put(c.In[3], running)
					a.Put(c.In[4], spread)
				}
			} else {
				mean, rstd = running, array.Rstd(spread, args.Eps)
			}
			a.Put(c.Out[0], n.Forward(x, mean, rstd, a.Get(c.Opt(1)), a.Get(c.Opt(2))))
			for i, v := range [][]float64{mean, rstd} {
				if t := c.Out[i+1]; t.Numel() > 0 {
					a.Put(t, v)
				}
			}
		})
	},
	Backward: func(m Machine, b *Back) error {
		return m.Aside(func(a Arrays) {
			args, n := b.Args.(*BatchNormArgs), array.OverChannels(b.SavedIn(0).Size.Ints())
			if args.training(&b.Call) {
				normGrads(a, b, n, a.Get(b.SavedOut(1)), a.Get(b.SavedOut(2)), true)
				return
			}
			normGrads(a, b, n, a.Get(b.SavedIn(3)), array.Rstd(a.Get(b.SavedIn(4)), args.Eps), false)
		})
	},
}
