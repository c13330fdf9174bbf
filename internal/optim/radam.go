package optim

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// RAdam keeps two moments. Its foreach form deletes a copy of the gradients
// before the square roots are taken (torch/optim/radam.py). Its for-loop takes
// more from the step on at which the variance is tractable.
var RAdam = define(Row{
	Name: "RAdam", Args: &nadamArgs{}, Bounds: adamBounds,
	Sig: "torch.optim.RAdam(lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, " +
		"decoupled_weight_decay: bool = False, *, " +
		"foreach: bool? = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False)",
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.moment(p, "m")
		c.moment(p, "v")
	},
	Update: formula[nadamArgs]{
		// plain is the step size where the variance is intractable, else 0, and adaptive
		// the one where it is not.
		kernel: kernel.Elementwise("radam", "p m v", "sign decay shrink beta1 beta2 plain adaptive eps",
			"p = p*shrink",
			"d = sign*g + decay*p",
			"m = m + (1-beta1)*(d-m)",
			"v = beta2*v + (1-beta2)*d*d",
			"p = p - plain*m",
			"when adaptive: p = p - adaptive*m/(sqrt(v)+eps)"),
		own: func(a *nadamArgs, _ *Param, step int64) numbers {
			beta2 := a.Betas[1]
			power := math.Pow(beta2, float64(step))
			rate := a.LR / (1 - math.Pow(a.Betas[0], float64(step)))
			if !a.tractable(step) {
				return a.decay(numbers{"plain": rate, "adaptive": 0})
			}
			limit := 2/(1-beta2) - 1
			rho := limit - 2*float64(step)*power/(1-power)
			rect := math.Sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
			return a.decay(numbers{"plain": 0, "adaptive": rate * rect * math.Sqrt(1-power)})
		},
	},
	Foreach: radamForeach, ForLoop: radamLoop,
	Warm: func(args any) int64 {
		a := args.(*nadamArgs)
		for step := int64(1); step <= maxRho; step++ {
			if a.tractable(step) {
				return step
			}
		}
		return 0
	},
})

// maxRho bounds the search for the step at which the variance is tractable: at
// rho_t > 5, which a beta2 up to about 0.5 never reaches and any other one soon
// does.
const maxRho = 100

// tractable reports whether rho_t > 5 in a step.
func (a *nadamArgs) tractable(step int64) bool {
	beta2 := a.Betas[1]
	power := math.Pow(beta2, float64(step))
	return 2/(1-beta2)-1-2*float64(step)*power/(1-power) > 5
}

func radamForeach(c *Call, ps []*Param) {
	a := c.Args.(*nadamArgs)
	grads, correction1, correction2, num, sub := c.local(), c.local(), c.local(), c.local(), c.local()
	denom, rect, sizes, buffer := c.local(), c.local(), c.local(), c.local()
	grads.gradients(ps, a.Maximize, false)
	if a.Capturable {
		correction1.set(c.scalars(ps)...)
		correction2.set(c.scalars(ps)...) // which becomes rho_t
	}
	if a.coupled() && !a.Maximize {
		grads.set(c.list(ps)...)
	}
	grads.clear()
	if a.Capturable {
		num.set(c.scalars(ps)...)
		sub.set(c.scalars(ps)...)
		sub.clear()
		denom.set(c.scalars(ps)...)
		denom.clear()
		rect.set(each(ps, func(*Param) *op.Tensor { return c.choice(1) })...)
		num.clear()
		sizes.set(each(ps, func(*Param) *op.Tensor { return c.choice(2) })...)
		correction1.set(c.scalars(ps)...)
		correction2.set(c.scalars(ps)...)
		rect.clear()
		correction1.clear()
	}
	buffer.set(c.list(ps)...)
}

// choice is torch.where(t > number, x, y) over scalars, where some of x and y
// are numbers, which become tensors.
func (c *Call) choice(numbers int) *op.Tensor {
	flag := c.scalarOf(tensor.Bool)
	var made []*op.Tensor
	for range numbers {
		made = append(made, c.scalar())
	}
	out := c.scalar()
	c.dropList(made)
	c.Drop(flag)
	return out
}

// radamLoop's nested functions hold bias_correction2 and rho_t in cells, which
// go after the other variables.
func radamLoop(c *Call, ps []*Param) {
	a := c.Args.(*nadamArgs)
	grad, correction1, avg, update, correction2, rho := c.local(), c.local(), c.local(), c.local(), c.local(), c.local()
	for _, p := range ps {
		grad.gradientAtOnce(p, a.Maximize, a.coupled())
		if a.Capturable {
			correction1.set(c.correction())
			correction2.set(c.correction())
		}
		avg.set(c.temp(p))
		switch {
		case a.Capturable:
			// rho_inf - 2 * step * (beta2**step) / bias_correction2
			double := c.scalar()
			product := c.then(double, c.power())
			rho.set(c.then(c.then(product)))
			flag := c.scalarOf(tensor.Bool)
			length := c.rectification()
			root, power := c.temp(p), c.scalar()
			adaptive := c.temp(p) // bias_correction2**0.5 / root
			c.Drop(power, root)
			rate := c.temp(p)
			c.Drop(length, adaptive)
			one := c.scalarOf(p.T.DType)
			u := c.temp(p)
			c.Drop(one, flag, rate)
			update.set(u)
			scaled := c.temp(p)
			step := c.temp(p)
			c.Drop(scaled, step)
		case a.tractable(p.Steps):
			scaled, root := c.temp(p), c.temp(p)
			reciprocal := c.temp(p)
			rate := c.temp(p)
			c.Drop(reciprocal, root)
			product := c.temp(p)
			c.Drop(scaled, rate)
			step := c.temp(p)
			c.Drop(product, step)
		default:
			c.Drop(c.temp(p))
		}
	}
}

// rectification is ((rho_t - 4) * (rho_t - 2) * rho_inf / (number * rho_t)) ** 0.5.
func (c *Call) rectification() *op.Tensor {
	four, two := c.scalar(), c.scalar()
	above := c.then(c.then(four, two))
	below := c.scalar()
	return c.then(c.then(above, below))
}
