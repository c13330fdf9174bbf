package optim

import (
	"errors"

	"github.com/memplan/memplan/internal/kernel"
)

// rpropArgs are the arguments of Rprop.
type rpropArgs struct {
	Common
	LR    float64   `arg:"lr"`
	Etas  []float64 `arg:"etas"`
	Sizes []float64 `arg:"step_sizes"`
}

// Rprop keeps the last gradient and a step size for each number. Signs are
// changed where a mask says so: each mask is a temporary, and in the capturable
// forms what torch.where returns (torch/optim/rprop.py).
var Rprop = define(Row{
	Name: "Rprop", Args: &rpropArgs{},
	Sig: "torch.optim.Rprop(lr: float = 0.01, etas: floats = (0.5, 1.2), step_sizes: floats = (1e-06, 50), *, " +
		"capturable: bool = False, foreach: bool? = None, maximize: bool = False, differentiable: bool = False)",
	Bounds: []bound{nonNegative("lr"), {arg: "etas", n: 2, ok: func(x float64) bool { return x > 0 }, want: "above 0"}, {arg: "step_sizes", n: 2, ok: func(float64) bool { return true }}},
	Refuse: func(args any) (string, error) {
		if e := args.(*rpropArgs).Etas; e[0] >= 1 || e[1] <= 1 {
			return "etas", errors.New("etas are two factors: one below 1 and one above 1")
		}
		return "", nil
	},
	RefuseSharded: func(any) error { return noStrategy("_foreach_copy_.default") },
	Init: func(c *Call, p *Param) {
		c.counter(p)
		c.moment(p, "before")
		c.moment(p, "size").first = c.Args.(*rpropArgs).LR
	},
	Update: formula[rpropArgs]{
		kernel: kernel.Elementwise("rprop", "p before size", "sign less more least most",
			"d = sign*g",
			"change = d*before",
			"size = min(max(size*choose(change, more, less, 1), least), most)",
			"d = choose(change, d, 0, d)",
			"before = d",
			"p = p - choose(d, size, 0-size, 0)"),
		own: func(a *rpropArgs, _ *Param, _ int64) numbers {
			return numbers{"less": a.Etas[0], "more": a.Etas[1], "least": a.Sizes[0], "most": a.Sizes[1]}
		},
	},
	Foreach: rpropForeach, ForLoop: rpropLoop,
})

func rpropForeach(c *Call, ps []*Param) {
	a := c.Args.(*rpropArgs)
	signs, sign, gradSigns := c.local(), c.local(), c.local()
	signs.set(c.list(ps)...)
	for i, p := range ps {
		sign.set(c.Keep(signs.held[i])) // "for sign in signs" leaves the last one
		c.changeSigns(p, a.Capturable)
	}
	for _, p := range ps {
		c.chosen(p)
	}
	signs.clear()
	gradSigns.set(c.list(ps)...)
}

func rpropLoop(c *Call, ps []*Param) {
	a := c.Args.(*rpropArgs)
	grad, sign := c.local(), c.local()
	for _, p := range ps {
		grad.gradient(p, a.Maximize, false)
		product := c.temp(p)
		s := c.temp(p)
		c.Drop(product)
		sign.set(s)
		c.changeSigns(p, a.Capturable)
		grad.set(c.temp(p))
		if a.Capturable {
			c.chosen(p)
		} else {
			c.Drop(c.mask(p))
		}
		c.Drop(c.temp(p)) // grad.sign()
	}
}

// changeSigns puts numbers in the place of positive, negative and zero signs.
func (c *Call) changeSigns(p *Param, capturable bool) {
	for range 3 {
		if capturable {
			c.chosen(p)
		} else {
			c.Drop(c.mask(p))
		}
	}
}

// chosen is torch.where(mask, number, t), which is copied somewhere and gone.
func (c *Call) chosen(p *Param) {
	mask := c.mask(p)
	number := c.scalarOf(p.T.DType)
	result := c.temp(p)
	c.Drop(number, mask, result)
}
