package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// gates computes both products of a recurrent cell. Inputs of the cells: input,
// hidden state, (cell state,) then weight_ih, weight_hh, bias_ih, bias_hh.
func gates(c *op.Call, x, h *op.Tensor, weights int) (igates, hgates *op.Tensor) {
	product := func(t, w *op.Tensor) *op.Tensor {
		if t.Rank() != 2 || t.DType != w.DType {
			c.Fail("a recurrent cell with weights of %v does not take shape %v of %v", w.DType, t.Size, t.DType)
		}
		return c.Local(timesTransposed(c, t, w))
	}
	igates = product(x, c.In[weights])
	return igates, product(h, c.In[weights+1])
}

// timesTransposed is matmul(t, w.t()).
func timesTransposed(c *op.Call, t, w *op.Tensor) *op.Tensor {
	wt := c.Do1(T, nil, w)
	defer c.Drop(wt)
	return c.Do1(Matmul, nil, t, wt)
}

// CellZerosArgs is the width of a cell's state.
type CellZerosArgs struct {
	Hidden int64
}

// The state of a cell that is given none: zeros in the type of its input.
var CellZeros = define(op.Op{
	Name: "cell_zeros", Eval: op.Constant(0), Args: &CellZerosArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		c.Return(c.NewShape(x.DType, x.Dim(0), c.Args.(*CellZerosArgs).Hidden))
	},
	Source: "torch/nn/modules/rnn.py: torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype)",
})

// The recurrent cells: two products and one fused kernel, which keeps all its
// inputs and a workspace.
var (
	GRUCell = define(op.Op{
		Name: "gru_cell", Composite: true, Cast: op.CastLower, Run: func(c *op.Call) {
			i, h := gates(c, c.In[0], c.In[1], 2)
			outs := c.Do(FusedGRU, nil, i, h, c.In[1], c.Opt(4), c.Opt(5))
			c.Local(outs[1])
			c.Return(outs[0])
		},
		Source: "aten/src/ATen/native/RNN.cpp: GRUCell",
	})
	LSTMCell = define(op.Op{
		Name: "lstm_cell", Composite: true, Cast: op.CastLower, CastList: [2]int{1, 3}, Run: func(c *op.Call) {
			i, h := gates(c, c.In[0], c.In[1], 3)
			outs := c.Do(FusedLSTM, nil, i, h, c.In[2], c.Opt(5), c.Opt(6))
			c.Local(outs[2])
			c.Return(outs[0], outs[1])
		},
		Source: "aten/src/ATen/native/RNN.cpp: LSTMCell",
	})

	RNNTanhCell = define(op.Op{Name: "rnn_tanh_cell", Composite: true, Cast: op.CastLower, Run: simpleCell(Tanh), Source: "aten/src/ATen/native/RNN.cpp: SimpleCell"})
	RNNReluCell = define(op.Op{Name: "rnn_relu_cell", Composite: true, Cast: op.CastLower, Run: simpleCell(Relu), Source: "aten/src/ATen/native/RNN.cpp: SimpleCell"})

	FusedGRU = define(op.Op{
		Name: "_thnn_fused_gru_cell", Eval: evalGRUCell, Cast: op.CastLower, Run: func(c *op.Call) {
			h := c.In[2]
			ws := c.NewShape(h.DType, h.Dim(0), 5*h.Dim(1))
			c.Return(c.NewShape(h.DType, h.Size.Slice()...), ws)
		},
		Save: []op.Save{op.In(4), op.In(1), op.In(2), op.In(3), op.In(0), op.Out(1)}, NoGrad: []int{1}, Node: "ThnnFusedGruCellBackward0",
		Grad: func(b *op.Back) { // both gates, the state, then sums for the biases
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
	FusedLSTM = define(op.Op{
		Name: "_thnn_fused_lstm_cell", Eval: evalLSTMCell, Cast: op.CastLower, Run: func(c *op.Call) {
			gates, cx := c.In[0], c.In[2]
			ws := c.NewShape(gates.DType, gates.Size.Slice()...)
			c.Return(c.NewShape(cx.DType, cx.Size.Slice()...), c.NewShape(cx.DType, cx.Size.Slice()...), ws)
		},
		Save: []op.Save{op.In(2), op.In(4), op.In(1), op.In(3), op.In(0), op.Out(1), op.Out(2)}, NoGrad: []int{2}, Node: "ThnnFusedLstmCellBackward0",
		Grad: func(b *op.Back) { // the gates share one gradient, the biases another
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
func simpleCell(nonlinearity *op.Op) func(c *op.Call) {
	return func(c *op.Call) {
		x, w := c.In[0], c.In[2]
		if x.Rank() != 2 || x.DType != w.DType {
			c.Fail("a recurrent cell with weights of %v does not take shape %v of %v", w.DType, x.Size, x.DType)
		}
		c.Return(simpleStep(c, nonlinearity, x, c.In[1], c.In[2:]))
	}
}

// simpleStep is one step of a plain RNN: the nonlinearity of both products,
// which are added in place. w holds weight_ih, weight_hh and, perhaps nil, their
// biases.
func simpleStep(c *op.Call, nonlinearity *op.Op, x, h *op.Tensor, w []*op.Tensor) *op.Tensor {
	bias := func(i int) *op.Tensor {
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

// gatesOf are so many gates of a width, side by side in a matrix or in a bias; absent ones of
// nil.
func gatesOf(m op.Machine, t *op.Tensor, n int, rows, width int64) []kernel.Tensor {
	out := make([]kernel.Tensor, n)
	if t == nil {
		return out
	}
	all := op.As(m, t)
	if t.Rank() == 1 {
		all = lines(all, rows)
	}
	for i := range out {
		out[i] = columnsOf(all, int64(i)*width, width)
	}
	return out
}

// sumGates are the gradients of a bias; none if it is absent.
func sumGates(m op.Machine, bias, gates *op.Tensor) error {
	if bias == nil {
		return nil
	}
	return m.Launch(kernel.Sum, []kernel.Tensor{lines(op.As(m, bias), gates.Dim(0)), op.As(m, gates)}, nil, 1)
}

// Cells of which both products exist: inputs are those, the old state and the biases of
// both. A GRU's workspace has room for the old state, which is read where it is.
var (
	evalLSTMCell = &op.Eval{ByFormula: cellOnArrays(array.LSTM),
		Forward: func(m op.Machine, c *op.Call) error {
			rows, width := c.In[2].Dim(0), c.In[2].Dim(1)
			gates := func(t *op.Tensor) []kernel.Tensor { return gatesOf(m, t, 4, rows, width) }
			return m.Launch(kernel.LSTMCell, slices.Concat([]kernel.Tensor{op.As(m, c.Out[0]), op.As(m, c.Out[1])}, gates(c.Out[2]), []kernel.Tensor{op.As(m, c.In[2])},
				gates(c.In[0]), gates(c.In[1]), gates(c.Opt(3)), gates(c.Opt(4))), nil)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			rows, width := b.InM[2].Dim(0), b.InM[2].Dim(1)
			gates := func(t *op.Tensor) []kernel.Tensor { return gatesOf(m, t, 4, rows, width) }
			err := m.Launch(kernel.LSTMCellGrad, slices.Concat(gates(b.Results[0]), []kernel.Tensor{op.As(m, b.Results[2]), {}, op.As(m, b.SavedOut(1)), op.As(m, b.SavedIn(2))},
				gates(b.SavedOut(2)), []kernel.Tensor{op.As(m, b.Grads[0]), {}, op.As(m, b.Grads[1])}), nil)
			if err != nil {
				return err
			}
			return sumGates(m, b.Results[3], b.Results[0])
		}}
	evalGRUCell = &op.Eval{ByFormula: cellOnArrays(array.GRU),
		Forward: func(m op.Machine, c *op.Call) error {
			rows, width := c.In[2].Dim(0), c.In[2].Dim(1)
			gates := func(t *op.Tensor) []kernel.Tensor { return gatesOf(m, t, 3, rows, width) }
			kept := gatesOf(m, c.Out[1], 5, rows, width)
			return m.Launch(kernel.GRUCell, slices.Concat([]kernel.Tensor{op.As(m, c.Out[0])}, kept[:3], []kernel.Tensor{kept[4], op.As(m, c.In[2])},
				gates(c.In[0]), gates(c.In[1]), gates(c.Opt(3)), gates(c.Opt(4))), nil)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			rows, width := b.InM[2].Dim(0), b.InM[2].Dim(1)
			gates := func(t *op.Tensor) []kernel.Tensor { return gatesOf(m, t, 3, rows, width) }
			kept := gatesOf(m, b.SavedOut(1), 5, rows, width)
			err := m.Launch(kernel.GRUCellGrad, slices.Concat(gates(b.Results[0]), gates(b.Results[1]), []kernel.Tensor{op.As(m, b.Results[2]), op.As(m, b.SavedIn(2))},
				kept[:3], []kernel.Tensor{kept[4], op.As(m, b.Grads[0]), {}}), nil)
			for i := range 2 {
				if err == nil {
					err = sumGates(m, b.Results[3+i], b.Results[i])
				}
			}
			return err
		}}
)

// cellOnArrays is such a cell as mathematics.
func cellOnArrays(cell *array.Cell) *op.Eval {
	of := array.Over[float64](cell)
	// each calls f for each row with both products, their biases added, or with their sum,
	// and the old state.
	each := func(a op.Arrays, in []*op.Tensor, f func(row int, i, h, old []float64)) {
		var products [2][]float64
		for k := range products {
			p, bias := a.Get(in[k]), a.Get(op.Optional(in, 3+k))
			for j := range p {
				if bias != nil {
					p[j] += bias[j%len(bias)]
				}
			}
			products[k] = p
		}
		if !cell.Apart {
			for j, v := range products[1] {
				products[0][j] += v
			}
		}
		old := a.Array(in[2])
		n := old.Size[1]
		g := cell.Gates * n
		for r := range old.Size[0] {
			f(r, products[0][r*g:r*g+g], products[1][r*g:r*g+g], old.V[r*n:r*n+n])
		}
	}
	return op.OnHost(func(a op.Arrays, c *op.Call) {
		hidden, state := make([]float64, c.Out[0].Numel()), make([]float64, c.Out[0].Numel())
		each(a, c.In, func(r int, i, h, old []float64) {
			n := len(old)
			of.Forward(i, h, old, hidden[r*n:r*n+n], state[r*n:r*n+n], make([]float64, cell.Kept*n))
		})
		a.Put(c.Out[0], hidden)
		if cell == array.LSTM {
			a.Put(c.Out[1], state)
		}
	}, func(a op.Arrays, b *op.Back) {
		rows, width := int(b.InM[2].Dim(0)), int(b.InM[2].Dim(1))
		n, gates := rows*width, cell.Gates*width
		grad := func(i int) []float64 {
			if i < len(b.Grads) && b.Grads[i] != nil && (i == 0 || cell == array.LSTM) {
				return a.Get(b.Grads[i])
			}
			return make([]float64, n)
		}
		ghidden, gstate, gold := grad(0), grad(1), make([]float64, n)
		gi, gh := make([]float64, rows*gates), make([]float64, rows*gates)
		each(a, b.SavedIns(), func(r int, i, h, old []float64) {
			w, g, kept := width, gates, make([]float64, cell.Kept*width)
			of.Forward(i, h, old, make([]float64, w), make([]float64, w), kept)
			of.Backward(kept, old, ghidden[r*w:r*w+w], gstate[r*w:r*w+w], gi[r*g:r*g+g], gh[r*g:r*g+g], gold[r*w:r*w+w])
		})
		if !cell.Apart {
			gh = gi
		}
		for k, v := range [][]float64{gi, gh} {
			a.Put(a.Wanted(b, k), v)
			if bias := a.Wanted(b, 3+k); bias != nil {
				a.Put(bias, array.SumTo(v, []int{rows, gates}, []int{gates}))
			}
		}
		a.Put(a.Wanted(b, 2), gold)
	})
}
