package optim

// adadeltaArgs are the arguments of Adadelta.
type adadeltaArgs struct {
	Common
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
		c.moment(p)
		c.moment(p)
	},
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
