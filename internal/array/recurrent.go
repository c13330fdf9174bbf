package array

import (
	"slices"

	"github.com/memplan/memplan/internal/gemm"
)

// Recurrent is a recurrent layer of several layers and directions.
type Recurrent struct {
	Cell                            *Cell
	Hidden, Out, Layers, Directions int
	Bias, Projected, BatchFirst     bool
	// Mask is what element i of the result of a direction of a layer, at a step of the
	// sequence, counts with in the next layer; nil: 1.
	Mask func(layer, direction, step, i int) float64
}

// perRun is how many of the weights each layer has in each direction: weight_ih,
// weight_hh, then perhaps biases and the projection.
func (l *Recurrent) perRun(weights [][]float64) int { return len(weights) / (l.Layers * l.Directions) }

// run is one of one layer in one direction.
type run struct {
	*Recurrent
	in, batch int
	w         [][]float64
	x, h, c   [][]float64 // by step, in the order of the run; h and c from the first state on
	inner     [][]float64 // the hidden state before the projection
	kept      [][][]float64
}

func (r *run) biases() (ih, hh []float64) {
	if r.Bias {
		return r.w[2], r.w[3]
	}
	return nil, nil
}

// old is the state that the cell reads: the cell's of an LSTM, else the hidden one.
func (r *run) old(t int) []float64 {
	if r.Cell == LSTM {
		return r.c[t]
	}
	return r.h[t]
}

func (r *run) forward() {
	bi, bh := r.biases()
	g := r.Cell.Gates * r.Hidden
	inputs := Affine(slices.Concat(r.x...), r.w[0], bi, r.in)
	weight := gemm.Pack(rowsOf(r.w[1], r.Out).Transposed())
	for t := range r.x {
		i, h := inputs[t*r.batch*g:], make([]float64, r.batch*g)
		for b := range r.batch {
			copy(h[b*g:], bh)
		}
		weight.Add(1, rowsOf(r.h[t], r.Out), rowsOf(h, g))
		hidden, state := make([]float64, r.batch*r.Hidden), make([]float64, r.batch*r.Hidden)
		kept := make([][]float64, r.batch)
		for b := range r.batch {
			n := r.Hidden
			kept[b] = r.Cell.Forward(i[b*g:b*g+g], h[b*g:b*g+g], r.old(t)[b*n:b*n+n], hidden[b*n:b*n+n], state[b*n:b*n+n])
		}
		r.kept, r.inner, r.c = append(r.kept, kept), append(r.inner, hidden), append(r.c, state)
		if r.Projected {
			hidden = Affine(hidden, r.w[len(r.w)-1], nil, r.Hidden)
		}
		r.h = append(r.h, hidden)
	}
}

// backward takes the gradients of the steps' results and of the last state, and
// gives those of the inputs, of the first state, and adds those of the weights.
func (r *run) backward(gy [][]float64, gh, gc []float64, gw [][]float64) (gx [][]float64, gh0, gc0 []float64) {
	gx = make([][]float64, len(r.x))
	n, g := r.Hidden, r.Cell.Gates*r.Hidden
	var gbi, gbh []float64
	if r.Bias {
		gbi, gbh = gw[2], gw[3]
	}
	each := r.batch * g // gradients of a step's products
	inputs, hidden := make([]float64, len(r.x)*each), make([]float64, len(r.x)*each)
	weight := gemm.Pack(rowsOf(r.w[1], r.Out))
	for t := len(r.x) - 1; t >= 0; t-- {
		out := make([]float64, len(gh))
		for k := range out {
			out[k] = gh[k] + gy[t][k]
		}
		if r.Projected {
			inner := make([]float64, r.batch*n)
			affineGrad(r.inner[t], r.w[len(r.w)-1], out, n, inner, gw[len(gw)-1], nil)
			out = inner
		}
		gi, ghh, gold := inputs[t*each:(t+1)*each], hidden[t*each:(t+1)*each], make([]float64, r.batch*n)
		for b := range r.batch {
			r.Cell.Backward(r.kept[t][b], r.old(t)[b*n:b*n+n], out[b*n:b*n+n], gc[b*n:b*n+n], gi[b*g:b*g+g], ghh[b*g:b*g+g], gold[b*n:b*n+n])
		}
		gh = make([]float64, r.batch*r.Out)
		weight.Add(1, rowsOf(ghh, g), rowsOf(gh, r.Out))
		if r.Cell == LSTM {
			gc = gold
		} else {
			for k, v := range gold {
				gh[k] += v
			}
		}
	}
	all := make([]float64, len(r.x)*r.batch*r.in)
	affineGrad(slices.Concat(r.x...), r.w[0], inputs, r.in, all, gw[0], gbi)
	affineGrad(slices.Concat(r.h[:len(r.x)]...), r.w[1], hidden, r.Out, nil, gw[1], gbh)
	for t := range gx {
		gx[t] = all[t*r.batch*r.in : (t+1)*r.batch*r.in]
	}
	return gx, gh, gc
}

// Recurred is what a recurrent layer has computed.
type Recurred struct {
	Y, H, C []float64 // the results of the last layer, and the last states

	layer               *Recurrent
	steps, batch, width int // of the input
	runs                []*run
	masks               [][]float64 // behind each layer but the last, by step
	weights             [][]float64
}

// sequence divides sequences into their steps.
func (s *Recurred) sequence(x []float64, width int) [][]float64 {
	out := make([][]float64, s.steps)
	for t := range out {
		out[t] = make([]float64, s.batch*width)
		for b := range s.batch {
			copy(out[t][b*width:(b+1)*width], x[s.at(t, b)*width:])
		}
	}
	return out
}

// at is the number of step t of sequence b.
func (s *Recurred) at(t, b int) int {
	if s.layer.BatchFirst {
		return b*s.steps + t
	}
	return t*s.batch + b
}

// joined is the sequence of steps of some width.
func (s *Recurred) joined(steps [][]float64, width int) []float64 {
	out := make([]float64, s.steps*s.batch*width)
	for t, step := range steps {
		for b := range s.batch {
			copy(out[s.at(t, b)*width:], step[b*width:(b+1)*width])
		}
	}
	return out
}

// order is the step that a run takes at its t-th: the second direction goes back.
func order(direction, t, steps int) int {
	if direction == 1 {
		return steps - 1 - t
	}
	return t
}

// Run computes the layer from an input of three dimensions and the first states, of
// which that of the cell is nil but for an LSTM.
func (l *Recurrent) Run(x *Array, hx, cx []float64, weights [][]float64) *Recurred {
	s := &Recurred{layer: l, steps: x.Size[0], batch: x.Size[1], width: x.Size[2], weights: weights}
	if l.BatchFirst {
		s.steps, s.batch = s.batch, s.steps
	}
	y, in := s.sequence(x.V, s.width), s.width
	per, dirs, outs := l.perRun(weights), l.Directions, l.Out
	for layer := range l.Layers {
		both := make([][]float64, s.steps)
		for t := range both {
			both[t] = make([]float64, s.batch*dirs*outs)
		}
		for d := range dirs {
			k := layer*dirs + d
			r := &run{Recurrent: l, in: in, batch: s.batch, w: weights[k*per : (k+1)*per]}
			r.h = [][]float64{hx[k*s.batch*outs : (k+1)*s.batch*outs]}
			if cx != nil {
				r.c = [][]float64{cx[k*s.batch*l.Hidden : (k+1)*s.batch*l.Hidden]}
			} else {
				r.c = [][]float64{nil}
			}
			for t := range s.steps {
				r.x = append(r.x, y[order(d, t, s.steps)])
			}
			r.forward()
			for t := range s.steps {
				for b := range s.batch {
					copy(both[order(d, t, s.steps)][(b*dirs+d)*outs:], r.h[t+1][b*outs:(b+1)*outs])
				}
			}
			s.runs = append(s.runs, r)
			s.H, s.C = append(s.H, r.h[s.steps]...), append(s.C, r.c[s.steps]...)
		}
		y, in = both, dirs*outs
		if l.Mask != nil && layer < l.Layers-1 {
			y = s.masked(y, layer)
		}
	}
	s.Y = s.joined(y, in)
	return s
}

// masked applies a dropout to the steps between two layers.
func (s *Recurred) masked(y [][]float64, layer int) [][]float64 {
	out := make([][]float64, len(y))
	for t, step := range y {
		width, outs := s.layer.Directions*s.layer.Out, s.layer.Out
		mask := Each(len(step), func(i int) float64 {
			row, column := i/width, i%width
			return s.layer.Mask(layer, column/outs, t, row*outs+column%outs)
		})
		out[t] = Each(len(step), func(i int) float64 { return step[i] * mask[i] })
		s.masks = append(s.masks, mask)
	}
	return out
}

// Backward gives the gradients of the input, the first states and the weights, from
// those of the results and of the last states; that of the cell is nil but for an LSTM.
func (s *Recurred) Backward(grad, gh, gc []float64) (gx, gh0, gc0 []float64, gw [][]float64) {
	l := s.layer
	per, dirs, outs, hidden := l.perRun(s.weights), l.Directions, l.Out, l.Hidden
	gh0, gc0, gw = make([]float64, len(gh)), make([]float64, len(gc)), make([][]float64, len(s.weights))
	for i := range gw {
		gw[i] = make([]float64, len(s.weights[i]))
	}
	gy := s.sequence(grad, dirs*outs)
	for layer := l.Layers - 1; layer >= 0; layer-- {
		if len(s.masks) > 0 && layer < l.Layers-1 {
			for t := range gy {
				for i, m := range s.masks[layer*s.steps+t] {
					gy[t][i] *= m
				}
			}
		}
		below := make([][]float64, s.steps)
		for d := range dirs {
			k := layer*dirs + d
			r := s.runs[k]
			g := make([][]float64, s.steps)
			for t := range g {
				g[t] = make([]float64, s.batch*outs)
				for b := range s.batch {
					copy(g[t][b*outs:(b+1)*outs], gy[order(d, t, s.steps)][(b*dirs+d)*outs:])
				}
			}
			gcell := make([]float64, s.batch*hidden)
			if gc != nil {
				gcell = gc[k*s.batch*hidden : (k+1)*s.batch*hidden]
			}
			steps, gh1, gc1 := r.backward(g, gh[k*s.batch*outs:(k+1)*s.batch*outs], gcell, gw[k*per:(k+1)*per])
			copy(gh0[k*s.batch*outs:], gh1)
			if gc != nil {
				copy(gc0[k*s.batch*hidden:], gc1)
			}
			for t, step := range steps {
				to := order(d, t, s.steps)
				if below[to] == nil {
					below[to] = make([]float64, len(step))
				}
				for i, v := range step {
					below[to][i] += v
				}
			}
		}
		gy = below
	}
	return s.joined(gy, s.width), gh0, gc0, gw
}
