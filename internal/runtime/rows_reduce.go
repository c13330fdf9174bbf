package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// spread is the result of a reduction under the sizes of what was reduced: its
// strides are 0 along the reduced dimensions.
func spread(y *op.Tensor, in tensor.Dims, a *op.ReduceArgs) tensor.Layout {
	reduced := make([]bool, in.Len())
	for _, d := range a.Dim {
		if in.Len() > 0 {
			reduced[dim(int(d), in.Len())] = true
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

// reduction is a reduction by a kernel; mean divides by how many there were.
func reduction(k *kernel.Kernel, mean bool) func(x *Executor, c *op.Call) error {
	return func(x *Executor, c *op.Call) error {
		in, y := c.In[0], c.Out[0]
		scale := 1.0
		if mean {
			scale = float64(y.Numel()) / float64(in.Numel())
		}
		ts := []kernel.Tensor{x.at(y, spread(y, in.Size, c.Args.(*op.ReduceArgs))), x.operand(in)}
		return x.launch(k, ts, nil, scale)
	}
}

// reduceRows reduce dimensions.
var reduceRows = map[*op.Row]row{
	op.Sum: {forward: reduction(kernel.Sum, false), composed: true},
	op.Mean: {
		forward: reduction(kernel.Sum, true),
		backward: func(x *Executor, b *op.Back) error {
			in, g := b.InM[0], b.Grads[0]
			ts := []kernel.Tensor{x.operand(b.Results[0]), x.at(g, spread(g, in.Size, b.Args.(*op.ReduceArgs)))}
			return x.launch(kernel.Affine, ts, nil, float64(g.Numel())/float64(in.Numel()), 0)
		},
	},
}
