package optim

import (
	"errors"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// nadamArgs are the arguments of NAdam and RAdam.
type nadamArgs struct {
	Common
	LR            float64   `arg:"lr"`
	Betas         []float64 `arg:"betas"`
	Eps           float64   `arg:"eps"`
	WeightDecay   float64   `arg:"weight_decay"`
	MomentumDecay float64   `arg:"momentum_decay"` // of NAdam
	Decoupled     bool      `arg:"decoupled_weight_decay"`
}

// coupled reports whether the parameters are added to the gradients.
func (a *nadamArgs) coupled() bool { return a.WeightDecay != 0 && !a.Decoupled }

// decay adds those of the weight decay, which scales the parameter by shrink where it
// is decoupled.
func (a *nadamArgs) decay(n numbers) numbers {
	n["decay"], n["shrink"] = a.WeightDecay, 1
	if a.Decoupled {
		n["decay"], n["shrink"] = 0, 1-a.LR*a.WeightDecay
	}
	return n
}

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
		c.moment(p, "m")
		c.moment(p, "v")
	},
	Update: formula[nadamArgs]{
		// now and next are the step sizes of the gradient and of the moment.
		kernel: kernel.Elementwise("nadam", "p m v", "sign decay shrink beta1 beta2 now next correction eps",
			"p = p*shrink",
			"d = sign*g + decay*p",
			"m = m + (1-beta1)*(d-m)",
			"v = beta2*v + (1-beta2)*d*d",
			"denom = sqrt(v/correction) + eps",
			"p = p - now*d/denom - next*m/denom"),
		own: func(a *nadamArgs, p *Param, step int64) numbers {
			momentum := func(step int64) float64 {
				return a.Betas[0] * (1 - 0.5*math.Pow(0.96, float64(step)*a.MomentumDecay))
			}
			now, next := momentum(step), momentum(step+1)
			product, is := p.Own.(float64) // mu_product
			if !is {
				product = 1
			}
			product *= now
			p.Own = product
			return a.decay(numbers{
				"now": a.LR * (1 - now) / (1 - product), "next": a.LR * next / (1 - product*next),
				"correction": 1 - math.Pow(a.Betas[1], float64(step)),
			})
		},
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
