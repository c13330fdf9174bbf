package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Leaf allocates a tensor that no operator made: an input or a parameter.
func (p *Player) Leaf(c trace.Category, d tensor.DType, requiresGrad bool, size ...int64) *op.Tensor {
	t := p.New(tensor.Contiguous(tensor.D(size...)), d)
	o := obj(t)
	o.requires = requiresGrad
	p.mark(o, c)
	return t
}
