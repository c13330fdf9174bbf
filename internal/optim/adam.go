package optim

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// adamArgs are the arguments of Adam and AdamW.
type adamArgs struct {
	Common
	LR          float64   `arg:"lr"`
	Betas       []float64 `arg:"betas"`
	Eps         float64   `arg:"eps"`
	WeightDecay float64   `arg:"weight_decay"`
	AMSGrad     bool      `arg:"amsgrad"`
}

const adamSig = "(lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = %s, amsgrad: bool = False, *, " +
	"foreach: bool? = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False, fused: bool? = None)"

// adamBounds are those of all that are derived from Adam.
var adamBounds = []bound{nonNegative("lr"), nonNegative("eps"), betas, nonNegative("weight_decay")}

// Adam and AdamW keep two moments, three with amsgrad. They differ in weight
// decay: Adam adds it to the gradients, which are copied for it; AdamW scales
// the parameters in place (torch/optim/adam.py, adamw.py).
var (
	Adam = define(Row{
		Name: "Adam", Sig: "torch.optim.Adam" + fmt.Sprintf(adamSig, "0"), Args: &adamArgs{}, Init: adamInit, Bounds: adamBounds, Zero: true, Reads: []int{1, 2},
		Update:  adamUpdate(false),
		Foreach: func(c *Call, ps []*Param) { adamForeach(c, ps, true) },
		ForLoop: func(c *Call, ps []*Param) { adamLoop(c, ps, true) },
		Fused:   func(*Call, []*Param) {},
	})
	AdamW = define(Row{
		Name: "AdamW", Sig: "torch.optim.AdamW" + fmt.Sprintf(adamSig, "0.01"), Args: &adamArgs{}, Init: adamInit, Bounds: adamBounds, Zero: true, Reads: []int{1, 2},
		Update:  adamUpdate(true),
		Foreach: func(c *Call, ps []*Param) { adamForeach(c, ps, false) },
		ForLoop: func(c *Call, ps []*Param) { adamLoop(c, ps, false) },
		Fused:   func(*Call, []*Param) {},
	})
)

func adamInit(c *Call, p *Param) {
	c.counter(p)
	c.moment(p, "m")
	c.moment(p, "v")
	if c.Args.(*adamArgs).AMSGrad {
		c.moment(p, "vmax")
	}
}

// adamUpdate is the kernel of Adam, decoupled that of AdamW.
func adamUpdate(decoupled bool) launched[adamArgs] {
	return func(m op.Machine, a *adamArgs, p *Param) error {
		l := op.Launch{On: m}
		l.Add(p.T, p.state("m"), p.state("v"), p.state("vmax"), p.Grad)
		return l.Run(kernel.Adam, []int64{p.Steps, op.Flag(decoupled), op.Flag(a.Maximize)}, a.LR, a.Betas[0], a.Betas[1], a.Eps, a.WeightDecay)
	}
}

// adamForeach takes one list of temporaries, the square roots of the second
// moments; a copy of the gradients is gone before that. With capturable the
// bias corrections are lists of scalars.
func adamForeach(c *Call, ps []*Param, coupled bool) {
	a := c.Args.(*adamArgs)
	grads, correction1, correction2, root := c.local(), c.local(), c.local(), c.local()
	grads.gradients(ps, a.Maximize, coupled && a.WeightDecay != 0)
	grads.clear()
	if a.Capturable {
		first, second := c.scalars(ps), c.scalars(ps) // step_size and bias_correction2_sqrt hold those of the type before
		correction1.set(first...)
		correction2.set(second...)
	}
	root.set(c.list(ps)...)
}

// adamLoop works parameter by parameter; what one computes lives until the next
// computes the same.
func adamLoop(c *Call, ps []*Param, coupled bool) {
	a := c.Args.(*adamArgs)
	grad, correction1, correction2 := c.local(), c.local(), c.local()
	size, sizeNeg, correction2Sqrt, denom := c.local(), c.local(), c.local(), c.local()
	for _, p := range ps {
		grad.gradientAtOnce(p, a.Maximize, coupled && a.WeightDecay != 0)
		if !a.Capturable {
			root := c.temp(p)
			d := c.temp(p) // root / bias correction, then += eps
			c.Drop(root)
			denom.set(d)
			continue
		}
		correction1.set(c.correction())
		correction2.set(c.correction())
		size.set(c.quotient())
		sizeNeg.set(c.scalar())
		correction2Sqrt.set(c.scalar())
		if a.AMSGrad {
			c.Drop(c.temp(p)) // the maximum
		}
		root, product := c.temp(p), c.scalar()
		d := c.temp(p)
		c.Drop(root, product)
		c.Drop(c.quotient()) // eps / step_size_neg
		denom.set(d)
	}
}
