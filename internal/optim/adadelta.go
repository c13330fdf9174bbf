package optim

import "github.com/memplan/memplan/internal/kernel"

// adadeltaArgs are the arguments of Adadelta.
type adadeltaArgs struct {
	Common
	LR          float64 `arg:"lr"`
	Rho         float64 `arg:"rho"`
	Eps         float64 `arg:"eps"`
	WeightDecay float64 `arg:"weight_decay"`
}

// Adadelta keeps mean squares of the gradients and of the updates; both get a
// temporary for their square roots (torch/optim/adadelta.py).
var Adadelta = define(Row{
	Name: "Adadelta", Args: &adadeltaArgs{},
	Sig: "torch.optim.Adadelta(lr: float = 1.0, rho: float = 0.9, eps: float = 1e-06, weight_decay: float = 0, foreach: bool? = None, *, " +
		"capturable: bool = False, maximize: bool = False, differentiable: bool = False)",
	Bounds: []bound{nonNegative("lr"), unit("rho"), nonNegative("eps"), nonNegative("weight_decay")},
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.moment(p, "square")
		c.moment(p, "acc")
	},
	Update: formula[adadeltaArgs]{kernel: kernel.Elementwise("adadelta", "p square acc", "sign decay lr rho eps",
		"d = sign*g + decay*p",
		"square = rho*square + (1-rho)*d*d",
		"delta = sqrt(acc+eps) / sqrt(square+eps) * d",
		"acc = rho*acc + (1-rho)*delta*delta",
		"p = p - lr*delta")},
	Foreach: func(c *Call, ps []*Param) {
		a := c.Args.(*adadeltaArgs)
		grads, std, deltas := c.local(), c.local(), c.local()
		grads.gradients(ps, a.Maximize, a.WeightDecay != 0)
		std.set(c.list(ps)...)
		deltas.set(c.list(ps)...)
	},
	ForLoop: func(c *Call, ps []*Param) {
		a := c.Args.(*adadeltaArgs)
		grad, std, delta := c.local(), c.local(), c.local()
		for _, p := range ps {
			grad.gradient(p, a.Maximize, a.WeightDecay != 0)
			std.set(c.temp(p))
			delta.set(c.temp(p))
		}
	},
})
