package optim

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// adamaxArgs are the arguments of Adamax.
type adamaxArgs struct {
	Common
	LR          float64   `arg:"lr"`
	Betas       []float64 `arg:"betas"`
	Eps         float64   `arg:"eps"`
	WeightDecay float64   `arg:"weight_decay"`
}

// Adamax keeps a first moment and an infinity norm. The absolute gradients are
// a temporary, in foreach the copy of the gradients if there is one already
// (torch/optim/adamax.py).
var Adamax = define(Row{
	Name: "Adamax", Args: &adamaxArgs{},
	Sig: "torch.optim.Adamax(lr: float = 0.002, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, foreach: bool? = None, *, " +
		"maximize: bool = False, differentiable: bool = False, capturable: bool = False)",
	Bounds: adamBounds,
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.moment(p, "m")
		c.moment(p, "norm")
	},
	Update: formula[adamaxArgs]{
		kernel: kernel.Elementwise("adamax", "p m norm", "sign decay rate beta1 beta2 eps",
			"d = sign*g + decay*p",
			"m = m + (1-beta1)*(d-m)",
			"norm = max(beta2*norm, abs(d)+eps)",
			"p = p - rate*m/norm"),
		own: func(a *adamaxArgs, _ *Param, step int64) numbers {
			return numbers{"rate": a.LR / (1 - math.Pow(a.Betas[0], float64(step)))}
		},
	},
	Foreach: func(c *Call, ps []*Param) {
		grads, corrections, denom := c.local(), c.local(), c.local()
		grads.gradients(ps, true, false)
		if c.onDevice() {
			corrections.set(c.scalars(ps)...)
			denom.set(c.list(ps)...)
		}
	},
	ForLoop: func(c *Call, ps []*Param) {
		a := c.Args.(*adamaxArgs)
		grad, correction, denom := c.local(), c.local(), c.local()
		for _, p := range ps {
			grad.gradient(p, a.Maximize, a.WeightDecay != 0)
			c.Drop(c.temp(p)) // grad.abs()
			if c.onDevice() {
				correction.set(c.correction()) // beta1**step - 1
				denom.set(c.temp(p))
			}
		}
	},
})
