package optim

import "github.com/memplan/memplan/internal/tensor"

// adamaxArgs are the arguments of Adamax.
type adamaxArgs struct {
	Common
	WeightDecay float64 `arg:"weight_decay"`
}

// Adamax keeps a first moment and an infinity norm. The absolute gradients are
// a temporary, in foreach the copy of the gradients if there is one already
// (torch/optim/adamax.py).
var _ = define(Row{
	Name: "Adamax", Args: &adamaxArgs{},
	Sig: "torch.optim.Adamax(lr: float = 0.002, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, foreach: bool? = None, *, " +
		"maximize: bool = False, differentiable: bool = False, capturable: bool = False)",
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.moment(p)
		c.moment(p)
	},
	Foreach: func(c *Call, ps []*Param) {
		grads, corrections, denom := &local{c: c}, &local{c: c}, &local{c: c}
		grads.set(c.list(ps)...)
		if c.OnDevice() {
			corrections.set(c.scalars(ps)...)
			denom.set(c.list(ps)...)
		}
		clearAll(grads, corrections, denom)
	},
	ForLoop: func(c *Call, ps []*Param) {
		a := c.Args.(*adamaxArgs)
		grad, correction, denom := &local{c: c}, &local{c: c}, &local{c: c}
		for _, p := range ps {
			grad.gradient(p, a.Maximize, a.WeightDecay != 0)
			c.Drop(c.temp(p)) // grad.abs()
			if c.OnDevice() {
				power := c.scalar() // beta1**step, whose base goes to the GPU in float64 (Pow.cpp: pow_Scalar_out)
				c.Drop(c.New(tensor.Contiguous(tensor.D()), tensor.Float64))
				t := c.scalar() // power - 1
				c.Drop(power)
				correction.set(t)
				denom.set(c.temp(p))
			}
		}
		clearAll(grad, correction, denom)
	},
})
