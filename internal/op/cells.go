package op

import (
	"github.com/memplan/memplan/internal/array"
)

// gates computes both products of a recurrent cell. Inputs of the cells: input,
// hidden state, (cell state,) then weight_ih, weight_hh, bias_ih, bias_hh.
func (c *Call) gates(x, h *Tensor, weights int) (igates, hgates *Tensor) {
	product := func(t, w *Tensor) *Tensor {
		if t.Rank() != 2 || t.DType != w.DType {
			c.Fail("a recurrent cell with weights of %v does not take shape %v of %v", w.DType, t.Size, t.DType)
		}
		return c.Local(c.timesTransposed(t, w))
	}
	igates = product(x, c.In[weights])
	return igates, product(h, c.In[weights+1])
}

// timesTransposed is matmul(t, w.t()).
func (c *Call) timesTransposed(t, w *Tensor) *Tensor {
	wt := c.Do1(T, nil, w)
	defer c.Drop(wt)
	return c.Do1(Matmul, nil, t, wt)
}

// CellZerosArgs is the width of a cell's state.
type CellZerosArgs struct {
	Hidden int64
}

// The state of a cell that is given none: zeros in the type of its input.
var CellZeros = define(Op{
	Name: "cell_zeros", Eval: constant(0), Args: &CellZerosArgs{}, Run: func(c *Call) {
		x := c.In[0]
		c.Return(c.NewShape(x.DType, x.Dim(0), c.Args.(*CellZerosArgs).Hidden))
	},
	Source: "torch/nn/modules/rnn.py: torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype)",
})

// The recurrent cells: two products and one fused kernel, which keeps all its
// inputs and a workspace.
var (
	GRUCell = define(Op{
		Name: "gru_cell", Composite: true, Cast: CastLower, Run: func(c *Call) {
			i, h := c.gates(c.In[0], c.In[1], 2)
			outs := c.Do(FusedGRU, nil, i, h, c.In[1], c.Opt(4), c.Opt(5))
			c.Local(outs[1])
			c.Return(outs[0])
		},
		Source: "aten/src/ATen/native/RNN.cpp: GRUCell",
	})
	LSTMCell = define(Op{
		Name: "lstm_cell", Composite: true, Cast: CastLower, CastList: [2]int{1, 3}, Run: func(c *Call) {
			i, h := c.gates(c.In[0], c.In[1], 3)
			outs := c.Do(FusedLSTM, nil, i, h, c.In[2], c.Opt(5), c.Opt(6))
			c.Local(outs[2])
			c.Return(outs[0], outs[1])
		},
		Source: "aten/src/ATen/native/RNN.cpp: LSTMCell",
	})

	RNNTanhCell = define(Op{Name: "rnn_tanh_cell", Composite: true, Cast: CastLower, Run: simpleCell(Tanh), Source: "aten/src/ATen/native/RNN.cpp: SimpleCell"})
	RNNReluCell = define(Op{Name: "rnn_relu_cell", Composite: true, Cast: CastLower, Run: simpleCell(Relu), Source: "aten/src/ATen/native/RNN.cpp: SimpleCell"})

	FusedGRU = define(Op{
		Name: "_thnn_fused_gru_cell", Eval: evalCell(array.GRU), Cast: CastLower, Run: func(c *Call) {
			h := c.In[2]
			ws := c.NewShape(h.DType, h.Dim(0), 5*h.Dim(1))
			c.Return(c.NewShape(h.DType, h.Size.Slice()...), ws)
		},
		Save: []Save{In(4), In(1), In(2), In(3), In(0), Out(1)}, NoGrad: []int{1}, Node: "ThnnFusedGruCellBackward0",
		Grad: func(b *Back) { // both gates, the state, then sums for the biases
			h := b.InM[2]
			for i := range 2 {
				b.Set(i, b.NewShape(h.DType, h.Dim(0), 3*h.Dim(1)))
			}
			b.Set(2, b.NewShape(h.DType, h.Size.Slice()...))
			for i := range 2 {
				if b.SavedIn(3) != nil {
					b.Set(3+i, b.Do1(Sum, &ReduceArgs{Dim: []int64{0}}, b.Results[i]))
				}
			}
		},
		Source: "aten/src/ATen/native/cuda/RNN.cu: _thnn_fused_gru_cell_cuda",
	})
	FusedLSTM = define(Op{
		Name: "_thnn_fused_lstm_cell", Eval: evalCell(array.LSTM), Cast: CastLower, Run: func(c *Call) {
			gates, cx := c.In[0], c.In[2]
			ws := c.NewShape(gates.DType, gates.Size.Slice()...)
			c.Return(c.NewShape(cx.DType, cx.Size.Slice()...), c.NewShape(cx.DType, cx.Size.Slice()...), ws)
		},
		Save: []Save{In(2), In(4), In(1), In(3), In(0), Out(1), Out(2)}, NoGrad: []int{2}, Node: "ThnnFusedLstmCellBackward0",
		Grad: func(b *Back) { // the gates share one gradient, the biases another
			gates, cx := b.InM[0], b.InM[2]
			g := b.NewShape(gates.DType, gates.Size.Slice()...)
			b.Set(0, g)
			b.Set(1, b.Keep(g))
			b.Set(2, b.NewShape(cx.DType, cx.Size.Slice()...))
			if b.SavedIn(3) != nil {
				s := b.Do1(Sum, &ReduceArgs{Dim: []int64{0}}, g)
				b.Set(3, s)
				b.Set(4, b.Keep(s))
			}
		},
		Source: "aten/src/ATen/native/cuda/RNN.cu: _thnn_fused_lstm_cell_backward_impl_cuda",
	})
)

// simpleCell runs a cell of a plain RNN with that nonlinearity.
func simpleCell(nonlinearity *Op) func(c *Call) {
	return func(c *Call) {
		x, w := c.In[0], c.In[2]
		if x.Rank() != 2 || x.DType != w.DType {
			c.Fail("a recurrent cell with weights of %v does not take shape %v of %v", w.DType, x.Size, x.DType)
		}
		c.Return(c.simpleCell(nonlinearity, x, c.In[1], c.In[2:]))
	}
}

// simpleCell is one step of a plain RNN: the nonlinearity of both products,
// which are added in place. w holds weight_ih, weight_hh and, perhaps nil, their
// biases.
func (c *Call) simpleCell(nonlinearity *Op, x, h *Tensor, w []*Tensor) *Tensor {
	bias := func(i int) *Tensor {
		if i < len(w) {
			return w[i]
		}
		return nil
	}
	hgates := c.Do1(Linear, nil, h, w[1], bias(3))
	igates := c.Do1(Linear, nil, x, w[0], bias(2))
	c.Drop(c.Do1(AddInPlace, &BinaryArgs{}, hgates, igates))
	y := c.Do1(nonlinearity, nil, hgates)
	c.Drop(igates, hgates)
	return y
}
