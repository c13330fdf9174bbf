package array

import "math"

// Cell is one step of a recurrent layer of one kind over one row of a batch: from
// the products of the input and of the hidden state with their weights, i and h, and
// the old state, of which width elements are hidden. What it returns is kept for the
// backward pass, which gives the gradients of both products and of the old state.
type Cell struct {
	Gates    int
	Forward  func(i, h, old, hidden, state []float64) (kept []float64)
	Backward func(kept, old, ghidden, gstate, gi, gh, gold []float64)
}

// The cells. The old state is the cell's of an LSTM, the hidden one of a GRU; of the
// others it does not matter (aten/src/ATen/native/RNN.cpp).
var (
	LSTM = &Cell{Gates: 4,
		Forward: func(i, h, old, hidden, state []float64) []float64 {
			n := len(hidden)
			kept := make([]float64, 5*n)
			for k := range n {
				gate := func(g int) float64 { return i[g*n+k] + h[g*n+k] }
				in, forget, cell, out := Logistic(gate(0)), Logistic(gate(1)), math.Tanh(gate(2)), Logistic(gate(3))
				state[k] = forget*old[k] + in*cell
				hidden[k] = out * math.Tanh(state[k])
				kept[k], kept[n+k], kept[2*n+k], kept[3*n+k], kept[4*n+k] = in, forget, cell, out, math.Tanh(state[k])
			}
			return kept
		},
		Backward: func(kept, old, ghidden, gstate, gi, gh, gold []float64) {
			n := len(ghidden)
			for k := range n {
				in, forget, cell, out, t := kept[k], kept[n+k], kept[2*n+k], kept[3*n+k], kept[4*n+k]
				gc := gstate[k] + ghidden[k]*out*(1-t*t)
				g := [4]float64{gc * cell * in * (1 - in), gc * old[k] * forget * (1 - forget), gc * in * (1 - cell*cell), ghidden[k] * t * out * (1 - out)}
				for j, v := range g {
					gi[j*n+k], gh[j*n+k] = v, v
				}
				gold[k] = gc * forget
			}
		}}
	GRU = &Cell{Gates: 3,
		Forward: func(i, h, old, hidden, _ []float64) []float64 {
			n := len(hidden)
			kept := make([]float64, 4*n)
			for k := range n {
				reset, update := Logistic(i[k]+h[k]), Logistic(i[n+k]+h[n+k])
				fresh := math.Tanh(i[2*n+k] + reset*h[2*n+k])
				hidden[k] = fresh + update*(old[k]-fresh)
				kept[k], kept[n+k], kept[2*n+k], kept[3*n+k] = reset, update, fresh, h[2*n+k]
			}
			return kept
		},
		Backward: func(kept, old, ghidden, _, gi, gh, gold []float64) {
			n := len(ghidden)
			for k := range n {
				reset, update, fresh, product := kept[k], kept[n+k], kept[2*n+k], kept[3*n+k]
				gfresh := ghidden[k] * (1 - update) * (1 - fresh*fresh)
				greset := gfresh * product * reset * (1 - reset)
				gupdate := ghidden[k] * (old[k] - fresh) * update * (1 - update)
				gi[k], gi[n+k], gi[2*n+k] = greset, gupdate, gfresh
				gh[k], gh[n+k], gh[2*n+k] = greset, gupdate, gfresh*reset
				gold[k] = ghidden[k] * update
			}
		}}
	PlainTanh = plainCell(math.Tanh, func(y float64) float64 { return 1 - y*y })
	PlainRelu = plainCell(func(x float64) float64 { return max(x, 0) }, func(y float64) float64 { return Truth(y > 0) })
)

func plainCell(of, slope func(float64) float64) *Cell {
	return &Cell{Gates: 1,
		Forward: func(i, h, _, hidden, _ []float64) []float64 {
			for k := range hidden {
				hidden[k] = of(i[k] + h[k])
			}
			return append([]float64(nil), hidden...)
		},
		Backward: func(kept, _, ghidden, _, gi, gh, gold []float64) {
			for k, g := range ghidden {
				gi[k] = g * slope(kept[k])
				gh[k], gold[k] = gi[k], 0
			}
		}}
}
