package optim

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// asgdArgs are the arguments of ASGD.
type asgdArgs struct {
	Common
	LR          float64 `arg:"lr"`
	Lambd       float64 `arg:"lambd"`
	Alpha       float64 `arg:"alpha"`
	T0          float64 `arg:"t0"`
	WeightDecay float64 `arg:"weight_decay"`
}

// ASGD keeps the average of each parameter and three scalars, which lie on the
// GPU in all implementations (torch/optim/asgd.py). Its for-loop begins to
// average, which takes a temporary, after t0 steps.
var ASGD = define(Row{
	Name: "ASGD", Args: &asgdArgs{},
	Sig: "torch.optim.ASGD(lr: float = 0.01, lambd: float = 0.0001, alpha: float = 0.75, t0: float = 1000000.0, weight_decay: float = 0, " +
		"foreach: bool? = None, maximize: bool = False, differentiable: bool = False, capturable: bool = False)",
	Bounds: []bound{nonNegative("lr"), nonNegative("weight_decay")},
	Init: func(c *Call, p *Param) {
		c.scalarState(p) // step
		lr := c.scalar()
		c.scalarState(p) // eta, a copy of lr
		c.Drop(lr)
		c.scalarState(p) // mu
		c.moment(p, "ax")
	},
	Update: formula[asgdArgs]{
		kernel: kernel.Elementwise("asgd", "p ax", "sign decay lambd eta mu",
			"d = sign*g + decay*p",
			"p = p*(1-lambd*eta) - eta*d",
			"ax = ax + mu*(p-ax)"),
		own: func(a *asgdArgs, _ *Param, step int64) numbers { // eta and mu are those that the step before has left
			eta, mu := a.LR, 1.0
			if before := float64(step - 1); before > 0 {
				eta /= math.Pow(1+a.Lambd*a.LR*before, a.Alpha)
				mu = 1 / max(1, before-a.T0)
			}
			return numbers{"eta": eta, "mu": mu}
		},
	},
	Foreach: asgdForeach, ForLoop: asgdLoop,
	Warm: func(args any) int64 { return args.(*asgdArgs).waits() },
	Note: func(args any) string {
		if a := args.(*asgdArgs); a.waits() > 0 {
			return fmt.Sprintf("ASGD: its for-loop averages from step %d on, with a temporary of the size of a parameter; steps before it are without", a.waits())
		}
		return ""
	},
})

// waits is the first step that averages if others do not; 0 if all steps do, or
// none of them in a way that allocates otherwise.
func (a *asgdArgs) waits() int64 {
	if !a.loops() || a.Capturable {
		return 0
	}
	return int64(max(min(a.T0, 1e15), 0)) + 3
}

// averages reports whether a step of the for-loop averages: mu, which the step
// before has set to 1 / max(1, step - t0), is not 1.
func (a *asgdArgs) averages(step int64) bool { return a.Capturable || float64(step-1)-a.T0 > 1 }

func asgdForeach(c *Call, ps []*Param) {
	a := c.Args.(*asgdArgs)
	grads, intermediate, mus, etas := c.local(), c.local(), c.local(), c.local()
	grads.gradients(ps, a.Maximize, false)
	if a.WeightDecay == 0 || !a.Maximize {
		intermediate.set(c.list(ps)...) // otherwise the gradients themselves
	}
	intermediate.clear()
	intermediate.set(c.list(ps)...)
	intermediate.clear()
	if a.Capturable {
		mus.set(c.scalars(ps)...)
		mus.clear()
		etas.set(c.scalars(ps)...)
		return
	}
	etas.set(each(ps, func(*Param) *op.Tensor { return c.eta() })...)
	mus.set(c.scalars(ps)...)
}

// eta is lr / ((1 + lambd * lr * step) ** alpha).
func (c *Call) eta() *op.Tensor {
	below := c.then(c.then(c.scalar()))
	eta := c.quotient()
	c.Drop(below)
	return eta
}

func asgdLoop(c *Call, ps []*Param) {
	a := c.Args.(*asgdArgs)
	grad := c.local()
	for _, p := range ps {
		grad.gradient(p, a.Maximize, a.WeightDecay != 0)
		if a.Capturable {
			c.Drop(c.then(c.scalar())) // 1 - lambd * eta
		}
		if a.averages(p.Steps) {
			c.Drop(c.temp(p)) // param.sub(ax)
		}
		if a.Capturable {
			c.Drop(c.eta())
			difference, one := c.scalar(), c.scalar() // 1 / torch.maximum(step_t - t0, torch.ones_like(step_t))
			greater := c.then(difference, one)
			mu := c.quotient()
			c.Drop(greater, mu)
		}
	}
}
