package optim

import (
	"errors"

	"github.com/memplan/memplan/internal/op"
)

// nadamArgs are the arguments of NAdam and RAdam.
type nadamArgs struct {
	Common
	Betas       []float64 `arg:"betas"`
	WeightDecay float64   `arg:"weight_decay"`
	Decoupled   bool      `arg:"decoupled_weight_decay"`
}

// coupled reports whether the parameters are added to the gradients.
func (a *nadamArgs) coupled() bool { return a.WeightDecay != 0 && !a.Decoupled }

// NAdam keeps two moments and, with capturable, the counter and the product of
// the momenta. Its gradients live to the end (torch/optim/nadam.py).
var NAdam = define(Row{
	Name: "NAdam", Args: &nadamArgs{},
	RefuseSharded: func(args any) error {
		if args.(*nadamArgs).Capturable {
			return errors.New("capturable: true, which gathers scalars from all processes, is not modelled where parameters are divided among them")
		}
		return nil
	},
	Sig: "torch.optim.NAdam(lr: float = 0.002, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, " +
		"momentum_decay: float = 0.004, decoupled_weight_decay: bool = False, *, " +
		"foreach: bool? = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False)",
	Bounds: append(adamBounds[:len(adamBounds):len(adamBounds)], nonNegative("momentum_decay")),
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.counter(p) // mu_product
		c.moment(p)
		c.moment(p)
	},
	Foreach: nadamForeach, ForLoop: nadamLoop,
})

func nadamForeach(c *Call, ps []*Param) {
	a := c.Args.(*nadamArgs)
	grads, root, exponent, mus, muNexts := c.local(), c.local(), c.local(), c.local(), c.local()
	correction, denom, sizeGrads, sizeAvgs, numerator := c.local(), c.local(), c.local(), c.local(), c.local()
	grads.gradients(ps, a.Maximize, a.coupled())
	root.set(c.list(ps)...)
	if !a.Capturable {
		return
	}
	exponent.set(c.scalars(ps)...)
	mus.set(c.scalars(ps)...)
	muNexts.set(c.scalars(ps)...)
	exponent.clear()
	correction.set(c.scalars(ps)...)
	correction.clear()
	denom.set(c.scalars(ps)...)
	mus.moveTo(sizeGrads)
	denom.clear()
	denom.set(c.scalars(ps)...)
	muNexts.moveTo(sizeAvgs)
	denom.clear()
	numerator.set(c.list(ps)...)
}

func nadamLoop(c *Call, ps []*Param) {
	a := c.Args.(*nadamArgs)
	grad, avg, correction := c.local(), c.local(), c.local()
	mu, muNext, denom, productNext := c.local(), c.local(), c.local(), c.local()
	for _, p := range ps {
		grad.gradientAtOnce(p, a.Maximize, false)
		avg.clear()
		if a.Capturable {
			correction.set(c.correction())
		}
		if a.coupled() {
			grad.set(c.temp(p))
		}
		if a.Capturable {
			// beta1 * (1.0 - 0.5 * (0.96 ** (step * momentum_decay))), for step and step + 1
			mu.set(c.momentum(c.scalar()))
			muNext.set(c.momentum(c.then(c.scalar())))
		}
		quotient := c.temp(p)
		root := c.temp(p)
		c.Drop(quotient)
		denom.set(root)
		if !a.Capturable {
			continue
		}
		denom.set(c.temp(p))
		productNext.set(c.scalar())
		numerator := c.then(c.scalar()) // -lr * (1.0 - mu)
		size := c.then(numerator, c.scalar())
		g := c.temp(p)
		c.Drop(size)
		grad.set(g)
		numerator = c.scalar() // -lr * mu_next
		size = c.then(numerator, c.scalar())
		m := c.temp(p)
		c.Drop(size)
		avg.set(m)
	}
}

// momentum computes a momentum from the exponent of 0.96.
func (c *Call) momentum(exponent *op.Tensor) *op.Tensor {
	power := c.power()
	c.Drop(exponent)
	return c.then(c.then(c.then(power)))
}
