package optim

import (
	"errors"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// muonArgs are the arguments of Muon.
type muonArgs struct {
	Common
	Nesterov bool  `arg:"nesterov"`
	Steps    int64 `arg:"ns_steps"`
}

// Muon orthogonalizes the momentum of matrices in bfloat16 by Newton-Schulz
// iterations, parameter by parameter (torch/optim/_muon.py). It is derived from
// its source: it is younger than the PyTorch of the recordings.
var Muon = define(Row{
	Name: "Muon", Args: &muonArgs{}, LoopByDefault: true, GPUOnly: true, RefuseSharded: wholeOnly, Feature: "Muon",
	Sig: "torch.optim.Muon(lr: float = 0.001, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True, " +
		"ns_coefficients: floats = (3.4445, -4.775, 2.0315), eps: float = 1e-07, ns_steps: int = 5, adjust_lr_fn: str(original|match_rms_adamw)? = None)",
	Bounds: []bound{
		nonNegative("lr"), nonNegative("momentum"), nonNegative("weight_decay"), {arg: "ns_coefficients", n: 3, ok: func(float64) bool { return true }},
		{arg: "ns_steps", ok: func(x float64) bool { return x >= 0 && x < 100 }, want: "from 0 to 99"},
	},
	RefuseParam: func(size []int64) error {
		if len(size) != 2 {
			return errors.New("only matrices can be trained by Muon")
		}
		return nil
	},
	Init:    func(c *Call, p *Param) { p.State = append(p.State, c.Persist(c.like(p.Grad))) },
	ForLoop: muonLoop,
	Note: func(any) string {
		return "Muon: its steps are derived from its source and were not compared with a recording of the PyTorch that has it"
	},
})

func muonLoop(c *Call, ps []*Param) {
	a := c.Args.(*muonArgs)
	update := c.local()
	for _, p := range ps {
		momentum := p.State[0]
		if a.Nesterov {
			update.set(c.like(p.Grad)) // grad.lerp(buf, momentum)
			momentum = update.one()
		} else {
			update.clear()
		}
		update.set(c.orthogonalized(momentum, a.Steps))
	}
}

// orthogonalized is _zeropower_via_newtonschulz.
func (c *Call) orthogonalized(g *op.Tensor, steps int64) *op.Tensor {
	x := c.Keep(g)
	then := func(t *op.Tensor) {
		c.Drop(x)
		x = t
	}
	if g.DType != tensor.BFloat16 {
		then(c.Do(op.ToCopy, &op.ToCopyArgs{DType: tensor.BFloat16}, g)[0])
	}
	tall := g.Dim(0) > g.Dim(1)
	if tall {
		then(c.transposed(x))
	}
	norm := c.norm(x)
	bound := c.like(norm) // norm.clamp(min=eps)
	c.Drop(norm, bound)
	var gram, update *op.Tensor
	for range steps {
		t := c.transposed(x)
		next := c.Do(op.Matmul, nil, x, t)[0]
		c.Drop(t, gram)
		gram = next
		next = c.Do(op.Addmm, nil, gram, gram, gram)[0]
		c.Drop(update)
		update = next
		then(c.Do(op.Addmm, nil, x, update, x)[0])
	}
	if tall {
		then(c.transposed(x))
	}
	c.Drop(gram, update)
	return x
}

// transposed is t.T.
func (c *Call) transposed(t *op.Tensor) *op.Tensor { return c.Alias(t, t.Transpose(0, 1), t.DType) }
