package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Operators that move elements and compute nothing are copies of parts: a part of one
// tensor, as a layout, into a part of another.

// copied copies a part of x into a part of y; parts without elements are nothing.
func copied(m op.Machine, y *op.Tensor, to tensor.Layout, x *op.Tensor, from tensor.Layout) error {
	if to.Numel() == 0 {
		return nil
	}
	return m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, to), m.At(x, from)}, nil)
}

// evalRoll copies the parts that stay together; flat tensors are rolled as rows, if they lie in order.
var evalRoll = (&op.Eval{
	Forward: func(m op.Machine, c *op.Call) error { return rolled(m, c.Out[0], c.In[0], c.Args.(*RollArgs), 1) },
	Backward: func(m op.Machine, b *op.Back) error {
		y := m.Wanted(b, 0)
		if y == nil {
			return nil
		}
		return rolled(m, y, b.Grads[0], b.Args.(*RollArgs), -1)
	},
}).Otherwise(op.Linear(func(args any) array.Linear { return array.Roll(args.(*RollArgs).Shifts, args.(*RollArgs).Dims) }))

func rolled(m op.Machine, y, x *op.Tensor, a *RollArgs, sign int64) error {
	to, from, dims := y.Layout, x.Layout, a.Dims
	if len(dims) == 0 {
		n := tensor.D(x.Numel())
		l, ok := x.View(n)
		k, okay := y.View(n)
		if !ok || !okay {
			return op.ErrView
		}
		to, from, dims = k, l, []int64{0}
	}
	if x.Numel() == 0 {
		return nil
	}
	shifts := map[int]int64{} // of one dimension they add up
	for i, d := range dims {
		d := array.Dim(int(d), from.Rank())
		n := from.Size.At(d)
		shifts[d] = ((shifts[d]+sign*a.Shifts[i])%n + n) % n
	}
	var part func(d int, to, from tensor.Layout) error
	part = func(d int, to, from tensor.Layout) error {
		if d == from.Rank() {
			return copied(m, y, to, x, from)
		}
		n, shift := from.Size.At(d), shifts[d]
		if err := part(d+1, to.Narrow(d, shift, n-shift, 1), from.Narrow(d, 0, n-shift, 1)); err != nil || shift == 0 {
			return err
		}
		return part(d+1, to.Narrow(d, 0, shift, 1), from.Narrow(d, n-shift, shift, 1))
	}
	return part(0, to, from)
}

// evalConstantPad fills and copies what is kept; its derivative is a padding by less.
var evalConstantPad = (&op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	x, y, a := c.In[0], c.Out[0], c.Args.(*PadArgs)
	if y.Numel() == 0 {
		return nil
	}
	to, from := y.Layout, x.Layout
	for i, n := range a.Pad {
		d := x.Rank() - 1 - i/2
		before := i%2 == 0
		narrow := func(l *tensor.Layout, n int64) {
			start := int64(0)
			if before {
				start = n
			}
			*l = l.Narrow(d, start, l.Size.At(d)-n, 1)
		}
		narrow(&to, max(n, 0))
		narrow(&from, max(-n, 0))
	}
	if to.Numel() < y.Numel() {
		if err := m.Apply(kernel.Fill, y, nil, a.Value); err != nil {
			return err
		}
	}
	return copied(m, y, to, x, from)
}}).DerivedInParts()

// evalNearest repeats each element, and sums the gradients of its copies, where the size is a whole multiple; other sizes
// go by taps.
func evalNearest(taps array.Taps) *op.Eval {
	return (&op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			copies, ok := c.Out[0].Layout, false
			from := c.In[0].Layout
			if copies, from, ok = repeated(copies, from, c.Args.(*ResampleArgs)); !ok {
				return op.ErrView
			}
			return copied(m, c.Out[0], copies, c.In[0], from)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			y := m.Wanted(b, 0)
			if y == nil {
				return nil
			}
			copies, to, ok := repeated(b.Grads[0].Layout, y.Layout, b.Args.(*ResampleArgs))
			if !ok || y.Numel() == 0 {
				return op.ErrView
			}
			return m.Launch(kernel.Sum, []kernel.Tensor{m.At(y, to), m.At(b.Grads[0], copies)}, nil, 1)
		},
	}).Otherwise(resampled(taps))
}

// repeated splits the dimensions of images in two: the pixels, and the copies of each; of a pixel's own tensor all
// copies lie in one place.
func repeated(large, small tensor.Layout, a *ResampleArgs) (copies, pixels tensor.Layout, ok bool) {
	for d := 2; d < large.Rank(); d += 2 {
		n, of := large.Size.At(d), small.Size.At(d)
		if of == 0 || n%of != 0 || a.Scale != nil && *a.Scale != float64(n/of) {
			return large, small, false
		}
		each, stride := n/of, large.Stride.At(d)
		large.Size, large.Stride = large.Size.Set(d, of).Insert(d+1, each), large.Stride.Set(d, stride*each).Insert(d+1, stride)
		small.Size, small.Stride = small.Size.Insert(d+1, each), small.Stride.Insert(d+1, 0)
	}
	return large, small, true
}
