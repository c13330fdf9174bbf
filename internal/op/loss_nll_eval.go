package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// reductions are those of losses as kernels number them.
var reductions = map[string]int64{"none": kernel.ReduceNone, "mean": kernel.ReduceMean, "sum": kernel.ReduceSum}

// classes adds the input of nll_loss as [N, C, S].
func (l *launch) classes(t *Tensor) {
	switch t.Rank() {
	case 1:
		l.seen(t, 1, t.Dim(0), 1)
	case 2:
		l.seen(t, t.Dim(0), t.Dim(1), 1)
	default:
		l.images(t)
	}
}

// targets adds the target of nll_loss, or a loss of each, as [N, S].
func (l *launch) targets(t *Tensor) {
	if t.Rank() == 0 {
		l.seen(t, 1, 1)
		return
	}
	l.seen(t, t.Dim(0), t.Numel()/max(t.Dim(0), 1))
}

// losses adds the result of a loss, or its gradient.
func (l *launch) losses(t *Tensor, a *LossArgs) {
	if a.Reduction == "none" {
		l.targets(t)
		return
	}
	l.seen(t, 1, 1)
}

// evalNLL is nll_loss. Its kernels take indices of int64.
var evalNLL = (&Eval{
	Forward: func(m Machine, c *Call) error {
		if c.In[1].DType != tensor.Int64 {
			return errView
		}
		a := c.Args.(*LossArgs)
		l := launch{m: m}
		l.losses(c.Out[0], a)
		l.seen(c.Out[1], 1)
		l.classes(c.In[0])
		l.targets(c.In[1])
		l.add(c.Opt(2))
		return l.run(kernel.NLLLoss, []int64{reductions[a.Reduction], a.IgnoreIndex})
	},
	Backward: func(m Machine, b *Back) error {
		if b.SavedIn(1).DType != tensor.Int64 {
			return errView
		}
		a := b.Args.(*LossArgs)
		l := launch{m: m}
		l.classes(b.Results[0])
		l.losses(b.Grads[0], a)
		l.targets(b.SavedIn(1))
		l.add(b.SavedIn(2))
		l.seen(b.SavedOut(1), 1)
		return l.run(kernel.NLLLossGrad, []int64{reductions[a.Reduction], a.IgnoreIndex})
	},
}).otherwise(aside(func(a Arrays, c *Call) {
	args, x, target := c.Args.(*LossArgs), a.Get(c.In[0]), a.Get(c.In[1])
	losses, total := make([]float64, len(target)), 0.0
	err := array.Likelihood(c.In[0].Size.Ints(), target, a.Get(c.Opt(2)), args.IgnoreIndex, func(i, at int, w float64) {
		losses[i] = -w * x[at]
		total += w
	})
	if err != nil {
		a.Fail(err)
	}
	if args.Reduction != "none" {
		sum := 0.0
		for _, v := range losses {
			sum += v
		}
		if args.Reduction == "mean" {
			sum /= total
		}
		losses = []float64{sum}
	}
	a.Put(c.Out[0], losses)
	a.Put(c.Out[1], []float64{total})
}, func(a Arrays, b *Back) {
	r := a.Wanted(b, 0)
	if r == nil {
		return
	}
	args, g := b.Args.(*LossArgs), a.Get(b.Grads[0])
	out, scale := make([]float64, r.Numel()), 1.0
	if args.Reduction == "mean" {
		scale = 1 / a.Get(b.SavedOut(1))[0]
	}
	err := array.Likelihood(r.Size.Ints(), a.Get(b.SavedIn(1)), a.Get(b.SavedIn(2)), args.IgnoreIndex, func(i, at int, w float64) {
		out[at] = -w * scale * g[i%len(g)]
	})
	if err != nil {
		a.Fail(err)
	}
	a.Put(r, out)
}))
