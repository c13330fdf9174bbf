package optim

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
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
var _ = define(Row{
	Name: "SGD", Args: &sgdArgs{},
	Sig: "torch.optim.SGD(lr: float = 0.001, momentum: float = 0, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False, *, " +
		"maximize: bool = False, foreach: bool? = None, differentiable: bool = False, fused: bool? = None)",
	Foreach: sgdForeach, ForLoop: sgdLoop, Fused: sgdFused,
})

func sgdForeach(c *Call, ps []*Param) {
	a := c.Args.(*sgdArgs)
	var grads []*op.Tensor
	if a.Maximize || a.WeightDecay != 0 {
		grads = c.list(ps)
	}
	if a.Momentum != 0 {
		for _, p := range ps {
			c.buffer(p)
		}
		if !a.Nesterov { // device_grads = bufs
			c.dropList(grads)
			grads = nil
		}
	}
	c.dropList(grads)
}

// buffer makes the momentum buffer of a parameter if it has none.
func (c *Call) buffer(p *Param) {
	if len(p.State) == 0 {
		c.moment(p)
	}
}

func sgdLoop(c *Call, ps []*Param) {
	a := c.Args.(*sgdArgs)
	var grad *op.Tensor
	rebind := func(t *op.Tensor) {
		c.Drop(grad)
		grad = t
	}
	for _, p := range ps {
		var g *op.Tensor
		if a.Maximize {
			g = c.temp(p)
		}
		rebind(g)
		if a.WeightDecay != 0 {
			rebind(c.temp(p))
		}
		if a.Momentum != 0 {
			c.buffer(p)
			if a.Nesterov {
				rebind(c.temp(p))
			} else {
				rebind(nil)
			}
		}
	}
	c.Drop(grad)
}

// sgdFused fills its buffers in one kernel; they are made empty first.
func sgdFused(c *Call, ps []*Param) {
	if c.Args.(*sgdArgs).Momentum != 0 {
		for _, p := range ps {
			c.buffer(p)
		}
	}
}

// scalar makes a 0-dimensional float32 temporary.
func (c *Call) scalar() *op.Tensor { return c.New(tensor.Contiguous(tensor.D()), tensor.Float32) }

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }
