package optim

import (
	_ "embed"
	"errors"

	"github.com/memplan/memplan/internal/kernel"
)

//go:embed python/lion.py
var lionPython string

// lionArgs are the arguments of Lion.
type lionArgs struct {
	Common
	LR          float64   `arg:"lr"`
	Betas       []float64 `arg:"betas"`
	WeightDecay float64   `arg:"weight_decay"`
	Triton      bool      `arg:"use_triton"`
	Decoupled   bool      `arg:"decoupled_weight_decay"`
}

// Lion keeps one moment. Its update is a copy of that, changed in place but for
// one addition (lion_pytorch/lion_pytorch.py: update_fn).
var Lion = define(Row{
	Name: "Lion", Args: &lionArgs{}, LoopByDefault: true, Package: "lion_pytorch", Python: lionPython, GroupArgs: []string{"lr", "betas", "weight_decay"},
	Sig: "lion_pytorch.Lion(lr: float = 0.0001, betas: floats = (0.9, 0.99), weight_decay: float = 0.0, use_triton: bool = False, decoupled_weight_decay: bool = False)",
	Bounds: []bound{
		{arg: "lr", ok: func(x float64) bool { return x > 0 }, want: "above 0"},
		{arg: "betas", n: 2, ok: func(x float64) bool { return x >= 0 && x <= 1 }, want: "from 0 to 1"},
	},
	Refuse: func(args any) (string, error) {
		if args.(*lionArgs).Triton {
			return "use_triton", errors.New("use_triton: true of Lion is not modelled")
		}
		return "", nil
	},
	Note: func(any) string {
		return "Lion of lion_pytorch: follows the package's source, without a recording of it"
	},
	Update: formula[lionArgs]{
		kernel: kernel.Elementwise("lion", "p m", "lr shrink beta1 beta2",
			"p = p*shrink",
			"p = p - lr*sign(beta1*m + (1-beta1)*g)",
			"m = beta2*m + (1-beta2)*g"),
		own: func(a *lionArgs, _ *Param, _ int64) numbers {
			if a.Decoupled { // decay divided by the initial lr
				return numbers{"shrink": 1 - a.WeightDecay}
			}
			return numbers{"shrink": 1 - a.LR*a.WeightDecay}
		},
	},
	ForLoop: func(c *Call, ps []*Param) {
		for _, p := range ps {
			c.inTurn(p, func() { c.moment(p, "m") })
			copied := c.temp(p)
			update := c.temp(p)
			c.Drop(copied, update)
		}
	},
})

// inTurn makes the state of a parameter when it comes to be stepped.
func (c *Call) inTurn(p *Param, f func()) {
	if !p.Made {
		p.Made = true
		f()
	}
}
