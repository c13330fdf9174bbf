package optim

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// adafactorArgs are the arguments of Adafactor.
type adafactorArgs struct {
	Common
	WeightDecay float64 `arg:"weight_decay"`
}

// Adafactor keeps the variance of a matrix, or of a batch of them, as a column
// and a row, that of a vector whole. It is the one optimizer that loops over
// the parameters unless foreach is asked for (torch/optim/_adafactor.py).
// PyTorch's default of eps is (None, 0.001): of the type for the first.
var Adafactor = define(Row{
	Name: "Adafactor", Args: &adafactorArgs{}, LoopByDefault: true, RefuseSharded: wholeOnly,
	Sig: "torch.optim.Adafactor(lr: float = 0.01, beta2_decay: float = -0.8, eps: floats? = None, d: float = 1.0, weight_decay: float = 0.0, *, " +
		"foreach: bool? = None, maximize: bool = False)",
	Bounds: []bound{
		nonNegative("lr"), nonNegative("weight_decay"), {arg: "eps", n: 2, ok: func(x float64) bool { return x >= 0 }, want: "at least 0"},
		{arg: "beta2_decay", ok: func(x float64) bool { return x <= 0 }, want: "at most 0"},
		{arg: "d", ok: func(x float64) bool { return x >= 1 }, want: "at least 1"},
	},
	Init: adafactorInit, Foreach: adafactorForeach, ForLoop: adafactorLoop,
})

func adafactorInit(c *Call, p *Param) {
	g := p.Grad
	if g.Rank() < 2 {
		p.State = append(p.State, c.Persist(c.New(g.LikeDense(), g.DType)))
		return
	}
	for _, d := range []int{g.Rank() - 1, g.Rank() - 2} { // row_var, col_var
		size := g.Size.Set(d, 1)
		p.State = append(p.State, c.Persist(c.New(tensor.Contiguous(size), g.DType)))
	}
}

func adafactorLoop(c *Call, ps []*Param) {
	a := c.Args.(*adafactorArgs)
	grad, rowMean, colMean, squared, update := c.local(), c.local(), c.local(), c.local(), c.local()
	for _, p := range ps {
		grad.gradientAtOnce(p, a.Maximize, false)
		c.Drop(c.norm(p.T))
		g := grad.of(p)
		var estimate *op.Tensor
		if g.Rank() > 1 {
			rowMean.set(c.norm(g, -1))
			colMean.set(c.norm(g, -2))
			estimate = c.product(p)
			c.Drop(c.columnMean(p))
		} else {
			squared.set(c.like(g))
			estimate = c.like(p.State[0])
		}
		update.set(estimate) // var_estimate, which holds the same tensor, was bound anew just before
		c.Drop(c.norm(update.held[0]))
	}
}

// adafactorForeach takes matrices and vectors apart, in the order of first
// appearance.
func adafactorForeach(c *Call, ps []*Param) {
	a := c.Args.(*adafactorArgs)
	var kinds [2][]*Param
	for _, p := range ps {
		k := 0
		if (p.Grad.Rank() > 1) != (ps[0].Grad.Rank() > 1) {
			k = 1
		}
		kinds[k] = append(kinds[k], p)
	}
	grads, updates := c.local(), c.local()
	for _, ps := range kinds {
		if len(ps) == 0 {
			continue
		}
		grads.gradients(ps, a.Maximize, false)
		of := make([]*op.Tensor, len(ps))
		for i, p := range ps {
			of[i] = p.Grad
			if a.Maximize {
				of[i] = grads.held[i]
			}
			c.Drop(c.norm(p.T))
		}
		each := func(f func(i int) *op.Tensor) []*op.Tensor {
			out := make([]*op.Tensor, len(ps))
			for i := range ps {
				out[i] = f(i)
			}
			return out
		}
		var estimates []*op.Tensor
		if of[0].Rank() > 1 {
			c.dropList(each(func(i int) *op.Tensor { return c.norm(of[i], -1) }))
			c.dropList(each(func(i int) *op.Tensor { return c.norm(of[i], -2) }))
			estimates = each(func(i int) *op.Tensor { return c.product(ps[i]) })
			c.dropList(each(func(i int) *op.Tensor { return c.columnMean(ps[i]) }))
		} else {
			c.dropList(each(func(i int) *op.Tensor { return c.like(of[i]) }))
			estimates = each(func(i int) *op.Tensor { return c.like(ps[i].State[0]) })
		}
		updates.set(estimates...)
		for _, u := range updates.held {
			c.Drop(c.norm(u))
		}
	}
}

// norm is t.norm(2), or along a dimension that is kept torch.norm.
func (c *Call) norm(t *op.Tensor, dim ...int64) *op.Tensor {
	two := 2.0
	return c.Do(op.VectorNorm, &op.NormArgs{P: &two, ReduceArgs: op.ReduceArgs{Dim: dim, KeepDim: len(dim) > 0}}, t)[0]
}

// product is row_var @ col_var.
func (c *Call) product(p *Param) *op.Tensor {
	return c.Do(op.Matmul, nil, p.State[0], p.State[1])[0]
}

// columnMean is row_var.mean(dim=-2, keepdim=True).
func (c *Call) columnMean(p *Param) *op.Tensor {
	return c.Do(op.Mean, &op.ReduceArgs{Dim: []int64{-2}, KeepDim: true}, p.State[0])[0]
}
