package optim

import "github.com/memplan/memplan/internal/kernel"

// adagradArgs are the arguments of Adagrad.
type adagradArgs struct {
	Common
	LR          float64 `arg:"lr"`
	LRDecay     float64 `arg:"lr_decay"`
	Start       float64 `arg:"initial_accumulator_value"`
	Eps         float64 `arg:"eps"`
	WeightDecay float64 `arg:"weight_decay"`
}

// Adagrad makes its sums of squares in the constructor, for all parameters.
// Its fused implementation was for CPUs only (torch/optim/adagrad.py:
// _device_dtype_check_for_fused with cuda_unsupported); torchver says until
// when.
var Adagrad = define(Row{
	Name: "Adagrad", Args: &adagradArgs{}, Eager: true,
	Sig: "torch.optim.Adagrad(lr: float = 0.01, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0, " +
		"eps: float = 1e-10, foreach: bool? = None, *, maximize: bool = False, differentiable: bool = False, fused: bool? = None)",
	Bounds: []bound{nonNegative("lr"), nonNegative("lr_decay"), nonNegative("weight_decay"), nonNegative("initial_accumulator_value"), nonNegative("eps")},
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.moment(p, "sum").first = c.Args.(*adagradArgs).Start
	},
	Update: formula[adagradArgs]{
		kernel: kernel.Elementwise("adagrad", "p sum", "sign decay rate eps",
			"d = sign*g + decay*p",
			"sum = sum + d*d",
			"p = p - rate*d/(sqrt(sum)+eps)"),
		own: func(a *adagradArgs, _ *Param, step int64) numbers {
			return numbers{"rate": a.LR / (1 + float64(step-1)*a.LRDecay)}
		},
	},
	Fused: func(*Call, []*Param) {},
	Foreach: func(c *Call, ps []*Param) {
		a := c.Args.(*adagradArgs)
		grads, std, numerator := c.local(), c.local(), c.local()
		grads.gradients(ps, a.Maximize, a.WeightDecay != 0)
		std.set(c.list(ps)...)
		if len(grads.held) == 0 {
			numerator.set(c.list(ps)...)
			return
		}
		for _, t := range grads.held { // numerator = device_grads
			c.Keep(t)
		}
		numerator.set(grads.held...)
	},
	ForLoop: func(c *Call, ps []*Param) {
		a := c.Args.(*adagradArgs)
		grad, std := c.local(), c.local()
		for _, p := range ps {
			grad.gradient(p, a.Maximize, a.WeightDecay != 0)
			std.set(c.temp(p))
		}
	},
})
