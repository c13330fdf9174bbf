package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// batch is a matrix, or a batch of them, as a batch.
func (x *Executor) batch3(t *op.Tensor) kernel.Tensor {
	if t.Rank() == 2 {
		return x.at(t, t.Unsqueeze(0))
	}
	return x.operand(t)
}

// multiply is y = a @ b + bias, of matrices or of batches of matrices.
func (x *Executor) multiply(y, a, b, bias *op.Tensor) error {
	c := x.batch3(y)
	ts := []kernel.Tensor{c, x.batch3(a), x.batch3(b), {}}
	beta := 0.0
	if bias != nil {
		l, err := bias.Expand(c.Size.Slice())
		if err != nil {
			return err
		}
		ts[3], beta = x.at(bias, l), 1
	}
	return x.launch(kernel.Gemm, ts, nil, 1, beta)
}

// productRows are products of matrices. Their derivatives are further products.
var productRows = map[*op.Row]row{
	op.Mm:    {forward: func(x *Executor, c *op.Call) error { return x.multiply(c.Out[0], c.In[0], c.In[1], nil) }, composed: true},
	op.Bmm:   {forward: func(x *Executor, c *op.Call) error { return x.multiply(c.Out[0], c.In[0], c.In[1], nil) }, composed: true},
	op.Addmm: {forward: func(x *Executor, c *op.Call) error { return x.multiply(c.Out[0], c.In[1], c.In[2], c.In[0]) }, composed: true},
}
