package optim

import "github.com/memplan/memplan/internal/kernel"

// rmspropArgs are the arguments of RMSprop.
type rmspropArgs struct {
	Common
	LR          float64 `arg:"lr"`
	Alpha       float64 `arg:"alpha"`
	Eps         float64 `arg:"eps"`
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
		c.moment(p, "square")
		if a.Momentum > 0 {
			c.moment(p, "buf")
		}
		if a.Centered {
			c.moment(p, "mean")
		}
	},
	Update: formula[rmspropArgs]{kernel: kernel.Elementwise("rmsprop", "p square buf? mean?", "sign decay lr alpha eps momentum",
		"d = sign*g + decay*p",
		"square = alpha*square + (1-alpha)*d*d",
		"variance = square",
		"when mean: mean = mean + (1-alpha)*(d-mean)",
		"when mean: variance = square - mean*mean",
		"d = d/(sqrt(variance)+eps)",
		"when buf: buf = momentum*buf + d",
		"when buf: d = buf",
		"p = p - lr*d")},
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
