package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// cell is the one of a recurrent layer.
func (a *RNNArgs) cell() *array.Cell {
	switch {
	case a.LSTM():
		return array.LSTM
	case a.Gates == 3:
		return array.GRU
	case a.ReLU:
		return array.PlainRelu
	}
	return array.PlainTanh
}

// recurred computes a recurrent layer. Its inputs are the sequence, both states and the
// weights.
func (a *RNNArgs) recurred(arrays Arrays, in []*Tensor, seed int64, training bool) *array.Recurred {
	l := &array.Recurrent{
		Cell: a.cell(), Hidden: int(a.Hidden), Out: int(a.Out()), Layers: int(a.Layers), Directions: int(a.Directions()),
		Bias: a.Bias, Projected: a.Proj > 0, BatchFirst: a.BatchFirst,
	}
	if a.Dropout > 0 && training {
		l.Mask = func(layer, i int) float64 { return droppedOut(uint64(seed)+uint64(layer), int64(i), a.Dropout) }
	}
	var weights [][]float64
	for _, w := range in[3:] {
		weights = append(weights, arrays.Get(w))
	}
	return l.Run(arrays.Array(in[0]), arrays.Get(in[1]), arrays.Get(in[2]), weights)
}

// evalRNN is nn.LSTM, nn.GRU or nn.RNN as cuDNN computes it. What it drops is drawn again
// for the backward pass, by a seed that is noted of the reserve.
var evalRNN = &Eval{
	Forward: func(m Machine, c *Call) error {
		return m.Aside(func(a Arrays) {
			args, seed, training := c.Args.(*RNNArgs), int64(0), c.Env().Training
			if args.Dropout > 0 && training {
				seed = m.Draw()
			}
			m.Note(c.Out[3], seed)
			s := args.recurred(a, c.In, seed, training)
			a.Put(c.Out[0], s.Y)
			a.Put(c.Out[1], s.H)
			if args.LSTM() {
				a.Put(c.Out[2], s.C)
			}
		})
	},
	Backward: func(m Machine, b *Back) error {
		return m.Aside(func(a Arrays) {
			args := b.Args.(*RNNArgs)
			s := args.recurred(a, b.SavedIns(), noted[int64](m, b.SavedOut(3)), true)
			grad := func(i, n int) []float64 {
				if b.Grads[i] != nil {
					return a.Get(b.Grads[i])
				}
				return make([]float64, n)
			}
			var gc []float64
			if args.LSTM() {
				gc = grad(2, len(s.C))
			}
			gx, gh0, gc0, gw := s.Backward(grad(0, len(s.Y)), grad(1, len(s.H)), gc)
			a.Put(a.Wanted(b, 0), gx)
			a.Put(a.Wanted(b, 1), gh0)
			if args.LSTM() {
				a.Put(a.Wanted(b, 2), gc0)
			}
			for i, g := range gw {
				a.Put(a.Wanted(b, 3+i), g)
			}
		})
	},
}

// evalFlatCopy puts a weight into its place of a buffer of another type.
var evalFlatCopy = &Eval{InParts: true, Over: true, Forward: func(m Machine, c *Call) error {
	l := tensor.Contiguous(c.In[0].Size)
	l.Offset = c.Out[0].Offset
	return m.Launch(kernel.Copy, []kernel.Tensor{m.At(c.Out[0], l), as(m, c.In[0])}, nil)
}}

// evalCell is a cell of which both products exist: inputs are those, the old state and
// the biases of both.
func evalCell(cell *array.Cell) *Eval {
	// each calls f for each row with both products, their biases added, and the old state.
	each := func(a Arrays, in []*Tensor, f func(row int, i, h, old []float64)) {
		var products [2][]float64
		for k := range products {
			p, bias := a.Get(in[k]), a.Get(optional(in, 3+k))
			for j := range p {
				if bias != nil {
					p[j] += bias[j%len(bias)]
				}
			}
			products[k] = p
		}
		old := a.Array(in[2])
		n := old.Size[1]
		g := cell.Gates * n
		for r := range old.Size[0] {
			f(r, products[0][r*g:r*g+g], products[1][r*g:r*g+g], old.V[r*n:r*n+n])
		}
	}
	return aside(func(a Arrays, c *Call) {
		hidden, state := make([]float64, c.Out[0].Numel()), make([]float64, c.Out[0].Numel())
		each(a, c.In, func(r int, i, h, old []float64) {
			n := len(old)
			cell.Forward(i, h, old, hidden[r*n:r*n+n], state[r*n:r*n+n])
		})
		a.Put(c.Out[0], hidden)
		if cell == array.LSTM {
			a.Put(c.Out[1], state)
		}
	}, func(a Arrays, b *Back) {
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
			w, g := width, gates
			kept := cell.Forward(i, h, old, make([]float64, w), make([]float64, w))
			cell.Backward(kept, old, ghidden[r*w:r*w+w], gstate[r*w:r*w+w], gi[r*g:r*g+g], gh[r*g:r*g+g], gold[r*w:r*w+w])
		})
		for k, v := range [][]float64{gi, gh} {
			a.Put(a.Wanted(b, k), v)
			if bias := a.Wanted(b, 3+k); bias != nil {
				a.Put(bias, array.SumTo(v, []int{rows, gates}, []int{gates}))
			}
		}
		a.Put(a.Wanted(b, 2), gold)
	})
}
