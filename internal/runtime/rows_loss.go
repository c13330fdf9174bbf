package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// reductions are the names of reductions as kernels number them.
var reductions = map[string]int64{"none": kernel.ReduceNone, "mean": kernel.ReduceMean, "sum": kernel.ReduceSum}

// classes is the input of nll_loss as [N, C, S], rows the target as [N, S].
func (x *Executor) classes(t *op.Tensor) (kernel.Tensor, error) {
	switch t.Rank() {
	case 1:
		return x.viewed(t, 1, t.Dim(0), 1)
	case 2:
		return x.viewed(t, t.Dim(0), t.Dim(1), 1)
	}
	return x.pixels(t)
}

func (x *Executor) rowsOf(t *op.Tensor) (kernel.Tensor, error) {
	if t.Rank() == 0 {
		return x.viewed(t, 1, 1)
	}
	return x.viewed(t, t.Dim(0), t.Numel()/max(t.Dim(0), 1))
}

func nllInts(a any) []int64 {
	l := a.(*op.LossArgs)
	return []int64{reductions[l.Reduction], l.IgnoreIndex}
}

func nllLoss(x *Executor, c *op.Call) error {
	if c.In[1].DType != tensor.Int64 {
		return errView
	}
	var o collector
	if c.Args.(*op.LossArgs).Reduction == "none" {
		o.add(x.rowsOf(c.Out[0]))
	} else {
		o.add(x.viewed(c.Out[0], 1, 1))
	}
	o.add(x.viewed(c.Out[1], 1))
	o.add(x.classes(c.In[0]))
	o.add(x.rowsOf(c.In[1]))
	o.add(x.operand(optional(c.In, 2)), nil)
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.NLLLoss, o.ts, nllInts(c.Args))
}

func nllLossGrad(x *Executor, b *op.Back) error {
	if b.SavedIn[1].DType != tensor.Int64 {
		return errView
	}
	var o collector
	o.add(x.classes(b.Results[0]))
	if b.Args.(*op.LossArgs).Reduction == "none" {
		o.add(x.rowsOf(b.Grads[0]))
	} else {
		o.add(x.viewed(b.Grads[0], 1, 1))
	}
	o.add(x.rowsOf(b.SavedIn[1]))
	o.add(x.operand(optional(b.SavedIn, 2)), nil)
	o.add(x.viewed(b.SavedOut[1], 1))
	if o.err != nil {
		return o.err
	}
	return x.launch(kernel.NLLLossGrad, o.ts, nllInts(b.Args))
}

// meanSquares is mse_loss: its mean or sum, and the gradient of the input, have
// kernels.
var meanSquares = row{
	forward: func(x *Executor, c *op.Call) error {
		s, is := reduce(c.Args, int(c.In[0].Numel()))
		if !is {
			return squared.forward(x, c)
		}
		y := c.Out[0]
		return x.launch(kernel.MSE, []kernel.Tensor{x.at(y, (&op.ReduceArgs{}).Spread(y, c.In[0].Size)), x.operand(c.In[0]), x.operand(c.In[1])}, nil, s)
	},
	backward: func(x *Executor, b *op.Back) error {
		s, is := reduce(b.Args, int(b.SavedIn[0].Numel()))
		y := wanted(b, 0)
		if !is || y == nil || wanted(b, 1) != nil {
			return squared.backward(x, b)
		}
		return x.apply(kernel.MSEGrad, y, []*op.Tensor{b.Grads[0], b.SavedIn[0], b.SavedIn[1]}, s)
	},
}

// lossRows are losses.
var lossRows = map[*op.Op]row{
	op.NLLLossForward:   row{forward: nllLoss, backward: nllLossGrad}.otherwise(nllAside),
	op.NLLLoss2dForward: row{forward: nllLoss, backward: nllLossGrad}.otherwise(nllAside),
	op.MSELoss:          meanSquares,
}
