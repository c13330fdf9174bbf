package array

import (
	"math"

	"github.com/memplan/memplan/internal/approx"
)

// Cell is one step of a recurrent layer of one kind. It is computed in float64 from
// numbers of either type and rounded; see [CellOf].
type Cell struct {
	Gates int
	// Kept is how many numbers of each hidden element the backward pass needs.
	Kept int
	// Apart says that the hidden state's product counts otherwise than the input's.
	Apart bool

	single CellOf[float32]
	double CellOf[float64]
}

// CellOf is a cell over one row of a batch: from the products of the input and of the
// hidden state with their weights, i and h, and the old state it computes the hidden
// state, that of the cell, and what is kept for the backward pass, which gives the
// gradients of both products and of the old state. Where the products are not apart, i
// is their sum, gi its gradient, and h and gh do not matter.
type CellOf[T Float] struct {
	Forward  func(i, h, old, hidden, state, kept []T)
	Backward func(kept, old, ghidden, gstate, gi, gh, gold []T)
}

// Over is a cell over numbers of a type.
func Over[T Float](c *Cell) CellOf[T] {
	if single, ok := any(c.single).(CellOf[T]); ok {
		return single
	}
	return any(c.double).(CellOf[T])
}

// The cells. The old state is the cell's of an LSTM, the hidden one of a GRU; of the
// others it does not matter (aten/src/ATen/native/RNN.cpp).
var (
	LSTM      = &Cell{Gates: 4, Kept: 5, single: lstm[float32](), double: lstm[float64]()}
	GRU       = &Cell{Gates: 3, Kept: 4, Apart: true, single: gru[float32](), double: gru[float64]()}
	PlainTanh = plainCell(approx.TanhFor[float32](), math.Tanh, func(y float64) float64 { return 1 - y*y })
	PlainRelu = plainCell(relu, relu, func(y float64) float64 { return Truth(y > 0) })
)

func relu(x float64) float64 { return max(x, 0) }

func lstm[T Float]() CellOf[T] {
	exp, tanh := approx.ExpFor[T](), approx.TanhFor[T]()
	return CellOf[T]{
		Forward: func(i, _, old, hidden, state, kept []T) {
			n := len(hidden)
			for k := range n {
				in, forget := 1/(1+exp(-float64(i[k]))), 1/(1+exp(-float64(i[n+k])))
				cell, out := tanh(float64(i[2*n+k])), 1/(1+exp(-float64(i[3*n+k])))
				s := forget*float64(old[k]) + in*cell
				t := tanh(s)
				state[k], hidden[k] = T(s), T(out*t)
				kept[k], kept[n+k], kept[2*n+k], kept[3*n+k], kept[4*n+k] = T(in), T(forget), T(cell), T(out), T(t)
			}
		},
		Backward: func(kept, old, ghidden, gstate, gi, _, gold []T) {
			n := len(ghidden)
			for k := range n {
				in, forget, cell, out, t := float64(kept[k]), float64(kept[n+k]), float64(kept[2*n+k]), float64(kept[3*n+k]), float64(kept[4*n+k])
				g := float64(ghidden[k])
				gc := float64(gstate[k]) + g*out*(1-t*t)
				gi[k], gi[n+k] = T(gc*cell*in*(1-in)), T(gc*float64(old[k])*forget*(1-forget))
				gi[2*n+k], gi[3*n+k] = T(gc*in*(1-cell*cell)), T(g*t*out*(1-out))
				gold[k] = T(gc * forget)
			}
		},
	}
}

func gru[T Float]() CellOf[T] {
	exp, tanh := approx.ExpFor[T](), approx.TanhFor[T]()
	return CellOf[T]{
		Forward: func(i, h, old, hidden, _, kept []T) {
			n := len(hidden)
			gate := func(g, k int) float64 { return float64(i[g*n+k]) + float64(h[g*n+k]) }
			for k := range n {
				reset, update := 1/(1+exp(-gate(0, k))), 1/(1+exp(-gate(1, k)))
				fresh := tanh(float64(i[2*n+k]) + reset*float64(h[2*n+k]))
				hidden[k] = T(fresh + update*(float64(old[k])-fresh))
				kept[k], kept[n+k], kept[2*n+k], kept[3*n+k] = T(reset), T(update), T(fresh), h[2*n+k]
			}
		},
		Backward: func(kept, old, ghidden, _, gi, gh, gold []T) {
			n := len(ghidden)
			for k := range n {
				reset, update, fresh, product := float64(kept[k]), float64(kept[n+k]), float64(kept[2*n+k]), float64(kept[3*n+k])
				g := float64(ghidden[k])
				gfresh := g * (1 - update) * (1 - fresh*fresh)
				greset := T(gfresh * product * reset * (1 - reset))
				gupdate := T(g * (float64(old[k]) - fresh) * update * (1 - update))
				gi[k], gi[n+k], gi[2*n+k] = greset, gupdate, T(gfresh)
				gh[k], gh[n+k], gh[2*n+k] = greset, gupdate, T(gfresh*reset)
				gold[k] = T(g * update)
			}
		},
	}
}

func plainCell(single, double, slope func(float64) float64) *Cell {
	return &Cell{Gates: 1, Kept: 1, single: plain[float32](single, slope), double: plain[float64](double, slope)}
}

func plain[T Float](of, slope func(float64) float64) CellOf[T] {
	return CellOf[T]{
		Forward: func(i, _, _, hidden, _, kept []T) {
			for k := range hidden {
				hidden[k] = T(of(float64(i[k])))
			}
			copy(kept, hidden)
		},
		Backward: func(kept, _, ghidden, _, gi, _, gold []T) {
			for k, g := range ghidden {
				gi[k], gold[k] = T(float64(g)*slope(float64(kept[k]))), 0
			}
		},
	}
}
