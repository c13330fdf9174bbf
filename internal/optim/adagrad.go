package optim

// adagradArgs are the arguments of Adagrad.
type adagradArgs struct {
	Common
	WeightDecay float64 `arg:"weight_decay"`
}

// Adagrad makes its sums of squares in the constructor, for all parameters.
// Its fused implementation is for CPUs only (torch/optim/adagrad.py:
// _device_dtype_check_for_fused with cuda_unsupported).
var _ = define(Row{
	Name: "Adagrad", Args: &adagradArgs{}, Eager: true,
	Sig: "torch.optim.Adagrad(lr: float = 0.01, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0, " +
		"eps: float = 1e-10, foreach: bool? = None, *, maximize: bool = False, differentiable: bool = False, fused: bool? = None)",
	Init: func(c *Call, p *Param) { c.moment(p) },
	Foreach: func(c *Call, ps []*Param) {
		a := c.Args.(*adagradArgs)
		numerator, std := &local{c: c}, &local{c: c}
		numerator.gradients(ps, a.Maximize, a.WeightDecay != 0) // device_grads, which it then is
		std.set(c.list(ps)...)
		if len(numerator.held) == 0 {
			numerator.set(c.list(ps)...)
		}
		clearAll(std, numerator)
	},
	ForLoop: func(c *Call, ps []*Param) {
		a := c.Args.(*adagradArgs)
		grad, std := &local{c: c}, &local{c: c}
		for _, p := range ps {
			grad.gradient(p, a.Maximize, a.WeightDecay != 0)
			std.set(c.temp(p))
		}
		clearAll(grad, std)
	},
})
