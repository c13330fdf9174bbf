package optim

// nadamArgs are the arguments of NAdam and RAdam.
type nadamArgs struct {
	Common
	WeightDecay float64 `arg:"weight_decay"`
	Decoupled   bool    `arg:"decoupled_weight_decay"`
}

// coupled reports whether the parameters are added to the gradients.
func (a *nadamArgs) coupled() bool { return a.WeightDecay != 0 && !a.Decoupled }

// NAdam and RAdam keep two moments. NAdam's gradients live to the end, RAdam's
// are deleted before the square roots are taken (torch/optim/nadam.py,
// radam.py).
//
// The for-loop of RAdam allocates otherwise from the step on at which the
// variance is tractable (rho_t > 5), so that no early step stands for all.
var (
	_ = define(Row{
		Name: "NAdam", Args: &nadamArgs{}, Init: nadamInit, NotCapturable: true,
		Sig: "torch.optim.NAdam(lr: float = 0.002, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, " +
			"momentum_decay: float = 0.004, decoupled_weight_decay: bool = False, *, " +
			"foreach: bool? = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False)",
		Foreach: func(c *Call, ps []*Param) {
			a := c.Args.(*nadamArgs)
			grads, root := &local{c: c}, &local{c: c}
			grads.gradients(ps, a.Maximize, a.coupled())
			root.set(c.list(ps)...)
			clearAll(grads, root)
		},
		ForLoop: func(c *Call, ps []*Param) {
			a := c.Args.(*nadamArgs)
			grad, denom := &local{c: c}, &local{c: c}
			for _, p := range ps {
				grad.gradientAtOnce(p, a.Maximize, a.coupled())
				quotient := c.temp(p)
				root := c.temp(p)
				c.Drop(quotient)
				denom.set(root)
			}
			clearAll(grad, denom)
		},
	})
	_ = define(Row{
		Name: "RAdam", Args: &nadamArgs{}, Init: nadamInit, NotCapturable: true,
		Sig: "torch.optim.RAdam(lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, " +
			"decoupled_weight_decay: bool = False, *, " +
			"foreach: bool? = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False)",
		Foreach: func(c *Call, ps []*Param) {
			a := c.Args.(*nadamArgs)
			grads := &local{c: c}
			grads.gradients(ps, a.Maximize, a.coupled())
			grads.clear()
			c.dropList(c.list(ps))
		},
	})
)

func nadamInit(c *Call, p *Param) {
	c.moment(p)
	c.moment(p)
}
