package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

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
	op.MSELoss: meanSquares,
}
