package optim

// rmspropArgs are the arguments of RMSprop.
type rmspropArgs struct {
	Common
	WeightDecay float64 `arg:"weight_decay"`
	Momentum    float64 `arg:"momentum"`
	Centered    bool    `arg:"centered"`
}

// RMSprop keeps the mean square of the gradients, a momentum buffer with
// momentum, and their mean if centered; the square roots are temporaries
// (torch/optim/rmsprop.py).
var RMSprop = define(Row{
	Name: "RMSprop", Args: &rmspropArgs{},
	Sig: "torch.optim.RMSprop(lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-08, weight_decay: float = 0, momentum: float = 0, " +
		"centered: bool = False, capturable: bool = False, foreach: bool? = None, maximize: bool = False, differentiable: bool = False)",
	Bounds: []bound{nonNegative("lr"), nonNegative("eps"), nonNegative("momentum"), nonNegative("weight_decay"), nonNegative("alpha")},
	Init: func(c *Call, p *Param) {
		a := c.Args.(*rmspropArgs)
		c.counter(p)
		c.moment(p)
		if a.Momentum > 0 {
			c.moment(p)
		}
		if a.Centered {
			c.moment(p)
		}
	},
	Foreach: func(c *Call, ps []*Param) {
		a := c.Args.(*rmspropArgs)
		grads, avg := c.local(), c.local()
		grads.gradients(ps, a.Maximize, a.WeightDecay != 0)
		avg.set(c.list(ps)...)
	},
	ForLoop: func(c *Call, ps []*Param) {
		a := c.Args.(*rmspropArgs)
		grad, avg := c.local(), c.local()
		for _, p := range ps {
			grad.gradient(p, a.Maximize, a.WeightDecay != 0)
			avg.set(c.temp(p))
		}
	},
})
