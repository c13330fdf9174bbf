package op

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// batched is an operand as a batch of one matrix.
func batched(t kernel.Tensor) kernel.Tensor {
	t.Size, t.Stride = t.Size.Insert(0, 1), t.Stride.Insert(0, 0)
	return t
}

// column is a vector as a matrix of one column.
func column(m Machine, t *Tensor) kernel.Tensor { return m.At(t, t.Unsqueeze(1)) }

// Products with vectors. The derivative of dot is made of products.
var (
	evalDot = &Eval{InParts: true, Forward: func(m Machine, c *Call) error {
		a, b := c.In[0], c.In[1]
		ts := []kernel.Tensor{as(m, c.Out[0]), as(m, a), as(m, b), {}}
		for i, stride := range []tensor.Dims{tensor.D(0, 0, 0), tensor.D(0, 0, a.Stride.At(0)), tensor.D(0, b.Stride.At(0), 0)} {
			ts[i].Stride = stride
		}
		ts[0].Size, ts[1].Size, ts[2].Size = tensor.D(1, 1, 1), tensor.D(1, 1, a.Numel()), tensor.D(1, b.Numel(), 1)
		return m.Launch(kernel.Gemm, ts, nil, 1, 0)
	}}
	evalMv = &Eval{
		Forward: func(m Machine, c *Call) error {
			return m.Launch(kernel.Gemm, []kernel.Tensor{batched(column(m, c.Out[0])), batched(as(m, c.In[0])), batched(column(m, c.In[1])), {}}, nil, 1, 0)
		},
		Backward: func(m Machine, b *Back) error {
			g := b.Grads[0]
			if y := m.Wanted(b, 0); y != nil { // grad.ger(vec)
				col := g.Unsqueeze(1)
				l, err := col.Expand(y.Size.Slice())
				if err != nil {
					return err
				}
				vec, err := broadcasted(m, b.SavedIn(1), y.Size.Slice()...)
				if err != nil {
					return err
				}
				if err := m.Launch(kernel.Mul, []kernel.Tensor{as(m, y), m.At(g, l), vec}, nil); err != nil {
					return err
				}
			}
			if y := m.Wanted(b, 1); y != nil {
				a := b.SavedIn(0)
				return m.Launch(kernel.Gemm, []kernel.Tensor{batched(column(m, y)), batched(m.At(a, a.Transpose(0, 1))), batched(column(m, g)), {}}, nil, 1, 0)
			}
			return nil
		},
	}
)
