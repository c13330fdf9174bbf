package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Tensors that are made of others, or of nothing, and their reductions and products.
var (
	evalFull   = &Eval{Forward: func(m Machine, c *Call) error { return m.Apply(kernel.Fill, c.Out[0], nil, c.Args.(*FullArgs).Value) }}
	evalArange = &Eval{Forward: func(m Machine, c *Call) error {
		start, step, _ := c.Args.(*ArangeArgs).Range()
		return m.Launch(kernel.Arange, []kernel.Tensor{as(m, c.Out[0])}, nil, start, step)
	}}
	evalCat = &Eval{InParts: true, Forward: func(m Machine, c *Call) error { // each into its place
		y, at := c.Out[0], int64(0)
		d := c.dim(c.Args.(*DimArgs).Dim, y.Rank())
		for _, t := range c.In {
			if t.Rank() == 1 && t.Numel() == 0 { // as torch.tensor([]), which joins anything
				continue
			}
			n := t.Dim(d)
			if err := m.Launch(kernel.Copy, []kernel.Tensor{m.At(y, y.Narrow(d, at, n, 1)), as(m, t)}, nil); err != nil {
				return err
			}
			at += n
		}
		return nil
	}}

	// The derivatives of products are further products.
	evalMm    = &Eval{InParts: true, Forward: func(m Machine, c *Call) error { return gemm(m, c.Out[0], c.In[0], c.In[1], nil) }}
	evalAddmm = &Eval{InParts: true, Forward: func(m Machine, c *Call) error { return gemm(m, c.Out[0], c.In[1], c.In[2], c.In[0]) }}

	evalSum  = &Eval{InParts: true, Forward: func(m Machine, c *Call) error { return reduced(m, c, 1) }}
	evalMean = &Eval{
		Forward: func(m Machine, c *Call) error {
			return reduced(m, c, float64(c.Out[0].Numel())/float64(c.In[0].Numel()))
		},
		Backward: func(m Machine, b *Back) error {
			in, g := b.InM[0], b.Grads[0]
			ts := []kernel.Tensor{as(m, b.Results[0]), m.At(g, b.Args.(*ReduceArgs).Spread(g, in.Size))}
			return m.Launch(kernel.Affine, ts, nil, float64(g.Numel())/float64(in.Numel()), 0)
		},
	}
)

// evalTriangle keeps a triangle, as its derivative does.
func evalTriangle(k *kernel.Kernel) *Eval {
	return &Eval{
		Forward: func(m Machine, c *Call) error {
			return m.Launch(k, []kernel.Tensor{as(m, c.Target()), as(m, c.In[0])}, []int64{c.Args.(*DiagonalArgs).Diagonal})
		},
		Backward: func(m Machine, b *Back) error {
			return m.Launch(k, []kernel.Tensor{as(m, b.Results[0]), as(m, b.Grads[0])}, []int64{b.Args.(*DiagonalArgs).Diagonal})
		},
	}
}

// gemm is y = a @ b + bias, of matrices or of batches of matrices.
func gemm(m Machine, y, a, b, bias *Tensor) error {
	batch := func(t *Tensor) kernel.Tensor {
		if t.Rank() == 2 {
			return m.At(t, t.Unsqueeze(0))
		}
		return as(m, t)
	}
	ts := []kernel.Tensor{batch(y), batch(a), batch(b), {}}
	beta := 0.0
	if bias != nil {
		l, err := bias.Expand(ts[0].Size.Slice())
		if err != nil {
			return err
		}
		ts[3], beta = m.At(bias, l), 1
	}
	return m.Launch(kernel.Gemm, ts, nil, 1, beta)
}

// reduced is a sum times a number.
func reduced(m Machine, c *Call, scale float64) error {
	in, y := c.In[0], c.Out[0]
	return m.Launch(kernel.Sum, []kernel.Tensor{m.At(y, c.Args.(*ReduceArgs).Spread(y, in.Size)), as(m, in)}, nil, scale)
}

// Spread is the result of a reduction under the sizes of what was reduced: its
// strides are 0 along the reduced dimensions.
func (a *ReduceArgs) Spread(y *Tensor, in tensor.Dims) tensor.Layout {
	reduced := make([]bool, in.Len())
	for _, d := range a.Dim {
		if in.Len() > 0 {
			reduced[array.Dim(int(d), in.Len())] = true
		}
	}
	l := tensor.Layout{Size: in, Stride: in, Offset: y.Offset}
	k := 0
	for i := range in.Len() {
		all := reduced[i] || len(a.Dim) == 0
		stride := int64(0)
		if !all && k < y.Rank() {
			stride = y.Stride.At(k)
		}
		if !all || a.KeepDim {
			k++
		}
		l.Stride = l.Stride.Set(i, stride)
	}
	return l
}
