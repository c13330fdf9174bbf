package optim

import "github.com/memplan/memplan/internal/op"

// adamArgs are the arguments of Adam and AdamW.
type adamArgs struct {
	Common
	LR          float64 `arg:"lr"`
	WeightDecay float64 `arg:"weight_decay"`
	AMSGrad     bool    `arg:"amsgrad"`
}

const adamSig = "(lr: float = 0.001, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = %s, amsgrad: bool = False, *, " +
	"foreach: bool? = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False, fused: bool? = None)"

// Adam and AdamW keep two moments, three with amsgrad. They differ in weight
// decay: Adam adds it to the gradients, which are copied for it; AdamW scales
// the parameters in place (torch/optim/adam.py, adamw.py).
var (
	_ = define(Row{
		Name: "Adam", Sig: "torch.optim.Adam" + sprintf(adamSig, "0"), Args: &adamArgs{}, Init: adamInit,
		Foreach: func(c *Call, ps []*Param) { adamForeach(c, ps, true) },
		ForLoop: func(c *Call, ps []*Param) { adamLoop(c, ps, true) },
		Fused:   func(*Call, []*Param) {},
	})
	_ = define(Row{
		Name: "AdamW", Sig: "torch.optim.AdamW" + sprintf(adamSig, "0.01"), Args: &adamArgs{}, Init: adamInit,
		Foreach: func(c *Call, ps []*Param) { adamForeach(c, ps, false) },
		ForLoop: func(c *Call, ps []*Param) { adamLoop(c, ps, false) },
		Fused:   func(*Call, []*Param) {},
	})
)

func adamInit(c *Call, p *Param) {
	c.counter(p)
	c.moment(p)
	c.moment(p)
	if c.Args.(*adamArgs).AMSGrad {
		c.moment(p)
	}
}

// adamForeach takes one list of temporaries, the square roots of the second
// moments; a copy of the gradients is gone before that.
func adamForeach(c *Call, ps []*Param, coupled bool) {
	a := c.Args.(*adamArgs)
	var grads []*op.Tensor
	if a.Maximize || (coupled && a.WeightDecay != 0) {
		grads = c.list(ps)
	}
	c.dropList(grads)
	if a.Capturable { // bias corrections as lists of scalars
		c1 := c.scalars(ps)
		c2 := c.scalars(ps)
		root := c.list(ps)
		c.dropList(c1)
		c.dropList(c2)
		c.dropList(root)
		return
	}
	c.dropList(c.list(ps))
}

// scalars makes a list of scalars on the GPU.
func (c *Call) scalars(ps []*Param) []*op.Tensor {
	out := make([]*op.Tensor, len(ps))
	for i := range ps {
		out[i] = c.scalar()
	}
	return out
}

// adamLoop works parameter by parameter; the denominator of one lives until
// the next is computed.
func adamLoop(c *Call, ps []*Param, coupled bool) {
	a := c.Args.(*adamArgs)
	var grad, denom *op.Tensor
	for _, p := range ps {
		var g *op.Tensor
		if a.Maximize {
			g = c.temp(p)
		}
		c.Drop(grad)
		grad = g
		if coupled && a.WeightDecay != 0 {
			g = c.temp(p)
			c.Drop(grad)
			grad = g
		}
		root := c.temp(p)
		d := c.temp(p) // root / bias correction, then += eps
		c.Drop(root)
		c.Drop(denom)
		denom = d
	}
	c.Drop(grad, denom)
}
