package optim

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// sgdArgs are the arguments of SGD.
type sgdArgs struct {
	Common
	LR          float64 `arg:"lr"`
	Momentum    float64 `arg:"momentum"`
	Dampening   float64 `arg:"dampening"`
	WeightDecay float64 `arg:"weight_decay"`
	Nesterov    bool    `arg:"nesterov"`
}

// SGD keeps a momentum buffer, a copy of the first gradient. Weight decay is
// added to a copy of the gradients (torch/optim/sgd.py).
var SGD = define(Row{
	Name: "SGD", Args: &sgdArgs{}, Reads: []int{1},
	Sig: "torch.optim.SGD(lr: float = 0.001, momentum: float = 0, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False, *, " +
		"maximize: bool = False, foreach: bool? = None, differentiable: bool = False, fused: bool? = None)",
	Bounds: []bound{nonNegative("lr"), nonNegative("momentum"), nonNegative("weight_decay")},
	Refuse: func(args any) (string, error) {
		if a := args.(*sgdArgs); a.Nesterov && (a.Momentum <= 0 || a.Dampening != 0) {
			return "nesterov", errNesterov
		}
		return "", nil
	},
	RefuseSharded: func(args any) error {
		if IsFused(args) {
			return noStrategy("_fused_sgd_.default")
		}
		return nil
	},
	Update: launched[sgdArgs](func(m op.Machine, a *sgdArgs, p *Param) error {
		l := op.Launch{On: m}
		l.Add(p.T, p.state("buf"), p.Grad)
		return l.Run(kernel.SGD, []int64{p.Steps, op.Flag(a.Nesterov), op.Flag(a.Maximize)},
			a.LR, a.Momentum, a.Dampening, a.WeightDecay)
	}),
	Foreach: sgdForeach, ForLoop: sgdLoop, Fused: sgdFused,
})

func sgdForeach(c *Call, ps []*Param) {
	a := c.Args.(*sgdArgs)
	grads := c.local()
	grads.gradients(ps, a.Maximize, a.WeightDecay != 0)
	if a.Momentum == 0 {
		return
	}
	for _, p := range ps {
		c.buffer(p)
	}
	if !a.Nesterov { // device_grads = bufs
		grads.clear()
	}
}

// buffer makes the momentum buffer of a parameter if it has none.
func (c *Call) buffer(p *Param) {
	if len(p.State) == 0 {
		c.moment(p, "buf")
	}
}

func sgdLoop(c *Call, ps []*Param) {
	a := c.Args.(*sgdArgs)
	grad := c.local()
	for _, p := range ps {
		grad.gradientAtOnce(p, a.Maximize, a.WeightDecay != 0)
		if a.Momentum == 0 {
			continue
		}
		c.buffer(p)
		if a.Nesterov {
			grad.set(c.temp(p))
		} else {
			grad.clear()
		}
	}
}

// sgdFused fills its buffers in one kernel; they are made empty first.
func sgdFused(c *Call, ps []*Param) {
	if c.Args.(*sgdArgs).Momentum != 0 {
		for _, p := range ps {
			c.buffer(p)
		}
	}
}
