package array

import "github.com/memplan/memplan/internal/gemm"

// Recurrent is a recurrent layer of several layers and directions.
type Recurrent struct {
	Cell                            *Cell
	Hidden, Out, Layers, Directions int
	Bias, Projected, BatchFirst     bool
	// Mask is what element i of the result of a direction of a layer, at a step of the
	// sequence, counts with in the next layer; nil: 1.
	Mask func(layer, direction, step, i int) float64
}

// perRun is how many weights each layer has in each direction: weight_ih, weight_hh,
// then perhaps biases and the projection.
func (l *Recurrent) perRun() int {
	n := 2
	if l.Bias {
		n += 2
	}
	if l.Projected {
		n++
	}
	return n
}

// run is one of one layer in one direction. All of it is by steps, in the order of the
// run, and of each step by rows of the batch.
type run[T Float] struct {
	*Recurrent
	cell             CellOf[T]
	in, steps, batch int
	x                []T
	h, c             []T // from the first state on; c is nil but for an LSTM
	inner            []T // the hidden state before the projection; nil: there is none
	kept             []T
}

// step is part t of what has so many numbers in each.
func step[T Float](v []T, t, each int) []T { return v[t*each : (t+1)*each : (t+1)*each] }

// old is the state that the cell reads at a step: the cell's of an LSTM, else the hidden
// one.
func (r *run[T]) old(t int) []T {
	if r.c != nil {
		return step(r.c, t, r.batch*r.Hidden)
	}
	return step(r.h, t, r.batch*r.Out)
}

// rows calls f for each row of a batch.
func (r *run[T]) rows(f func(b int)) {
	for b := range r.batch {
		f(b)
	}
}

// forward computes the run from the first states and the weights.
func (r *run[T]) forward(hx, cx []T, w [][]T) {
	n, g, size := r.Hidden, r.Cell.Gates*r.Hidden, r.steps*r.batch
	r.h, r.kept = make([]T, (r.steps+1)*r.batch*r.Out), make([]T, size*r.Cell.Kept*n)
	copy(r.h, hx)
	if cx != nil {
		r.c = make([]T, (r.steps+1)*r.batch*n)
		copy(r.c, cx)
	}
	if r.Projected {
		r.inner = make([]T, size*n)
	}
	var biasIn, biasHidden, apart []T
	if r.Bias {
		biasIn, biasHidden = w[2], w[3]
	}
	if r.Cell.Apart {
		apart = make([]T, r.batch*g)
	} else if r.Bias {
		biasIn = make([]T, g)
		for i := range biasIn {
			biasIn[i] = w[2][i] + w[3][i]
		}
	}
	products := Affine(r.x, w[0], biasIn, r.in)
	weight := gemm.Pack(rowsOf(w[1], r.Out).Transposed())
	state := make([]T, r.batch*n) // of cells that have none
	for t := range r.steps {
		i, h := step(products, t, r.batch*g), step(products, t, r.batch*g)
		if r.Cell.Apart {
			h = apart
			clear(h)
			for b := 0; b < len(h) && r.Bias; b += g {
				copy(h[b:], biasHidden)
			}
		}
		weight.Add(1, rowsOf(step(r.h, t, r.batch*r.Out), r.Out), rowsOf(h, g))
		next, old, kept := step(r.h, t+1, r.batch*r.Out), r.old(t), step(r.kept, t, r.batch*r.Cell.Kept*n)
		hidden := next
		if r.Projected {
			hidden = step(r.inner, t, r.batch*n)
		}
		if r.c != nil {
			state = step(r.c, t+1, r.batch*n)
		}
		r.rows(func(b int) {
			r.cell.Forward(step(i, b, g), step(h, b, g), step(old, b, n), step(hidden, b, n), step(state, b, n), step(kept, b, r.Cell.Kept*n))
		})
		if r.Projected {
			gemm.Add(1, rowsOf(hidden, n), rowsOf(w[len(w)-1], n).Transposed(), rowsOf(next, r.Out))
		}
	}
}

// backward takes the gradients of the steps' results and of the last states, and
// gives those of the inputs, of the first states, and adds those of the weights.
func (r *run[T]) backward(gy, gh, gc []T, w, gw [][]T) (gx, gh0, gc0 []T) {
	n, g, kept := r.Hidden, r.Cell.Gates*r.Hidden, r.Cell.Kept*r.Hidden
	inputs := make([]T, r.steps*r.batch*g) // gradients of products
	hidden := inputs
	if r.Cell.Apart {
		hidden = make([]T, len(inputs))
	}
	out, inner, gold := make([]T, r.batch*r.Out), []T(nil), make([]T, r.batch*n)
	if r.Projected {
		inner = make([]T, r.batch*n)
	}
	if gc == nil {
		gc = make([]T, r.batch*n)
	}
	gh, gc = append([]T(nil), gh...), append([]T(nil), gc...)
	weight := gemm.Pack(rowsOf(w[1], r.Out))
	for t := r.steps - 1; t >= 0; t-- {
		from := step(gy, t, r.batch*r.Out)
		for k := range out {
			out[k] = gh[k] + from[k]
		}
		ghidden := out
		if r.Projected {
			clear(inner)
			affineGrad(step(r.inner, t, r.batch*n), w[len(w)-1], out, n, inner, gw[len(gw)-1], nil)
			ghidden = inner
		}
		gi, ghh, old, of := step(inputs, t, r.batch*g), step(hidden, t, r.batch*g), r.old(t), step(r.kept, t, r.batch*kept)
		r.rows(func(b int) {
			r.cell.Backward(step(of, b, kept), step(old, b, n), step(ghidden, b, n), step(gc, b, n), step(gi, b, g), step(ghh, b, g), step(gold, b, n))
		})
		clear(gh)
		if r.c != nil {
			gc, gold = gold, gc
		} else {
			copy(gh, gold) // as wide: there is no projection
		}
		weight.Add(1, rowsOf(ghh, g), rowsOf(gh, r.Out))
	}
	var gbi, gbh []T
	if r.Bias {
		gbi, gbh = gw[2], gw[3]
	}
	gx = make([]T, len(r.x))
	affineGrad(r.x, w[0], inputs, r.in, gx, gw[0], gbi)
	affineGrad(r.h[:r.steps*r.batch*r.Out], w[1], hidden, r.Out, nil, gw[1], gbh)
	return gx, gh, gc
}

// Recurred is what a recurrent layer has computed.
type Recurred[T Float] struct {
	Y, H, C []T // the results of the last layer, and the last states

	layer        *Recurrent
	steps, batch int
	runs         []*run[T]
	masks        [][]T // behind each layer but the last
}

// turned is a sequence with its steps and the rows of its batch exchanged.
func turned[T Float](v []T, outer, inner int) []T {
	if outer == 0 || inner == 0 {
		return v
	}
	out, n := make([]T, len(v)), len(v)/(outer*inner)
	for i := range outer {
		for j := range inner {
			copy(step(out, j*outer+i, n), step(v, i*inner+j, n))
		}
	}
	return out
}

// reversed is what has so many parts, from the last to the first.
func reversed[T Float](v []T, parts int) []T {
	out, n := make([]T, len(v)), len(v)/max(parts, 1)
	for t := range parts {
		copy(step(out, parts-1-t, n), step(v, t, n))
	}
	return out
}

// inOrder is a sequence as a direction runs through it: the second goes back. It is its own
// inverse.
func (s *Recurred[T]) inOrder(direction int, v []T) []T {
	if direction == 1 {
		return reversed(v, s.steps)
	}
	return v
}

// Recur computes the layer from an input of three dimensions, x of a size, and the first
// states, of which that of the cell is nil but for an LSTM.
func Recur[T Float](l *Recurrent, x []T, size []int, hx, cx []T, weights [][]T) *Recurred[T] {
	s := &Recurred[T]{layer: l, steps: size[0], batch: size[1]}
	y, in, dirs := x, size[2], l.Directions
	if l.BatchFirst {
		s.steps, s.batch = s.batch, s.steps
		y = turned(x, s.batch, s.steps)
	}
	for layer := range l.Layers {
		var both []T
		if dirs > 1 {
			both = make([]T, s.steps*s.batch*dirs*l.Out)
		}
		for d := range dirs {
			k := layer*dirs + d
			r := &run[T]{Recurrent: l, cell: Over[T](l.Cell), in: in, steps: s.steps, batch: s.batch, x: s.inOrder(d, y)}
			var c []T
			if cx != nil {
				c = step(cx, k, s.batch*l.Hidden)
			}
			r.forward(step(hx, k, s.batch*l.Out), c, weights[k*l.perRun():(k+1)*l.perRun()])
			rows := s.inOrder(d, r.h[s.batch*l.Out:])
			if dirs == 1 {
				both = rows
			}
			for i := 0; i < s.steps*s.batch && dirs > 1; i++ {
				copy(both[(i*dirs+d)*l.Out:], step(rows, i, l.Out))
			}
			s.runs = append(s.runs, r)
			s.H = append(s.H, r.h[s.steps*s.batch*l.Out:]...)
			if cx != nil {
				s.C = append(s.C, r.c[s.steps*s.batch*l.Hidden:]...)
			}
		}
		y, in = both, dirs*l.Out
		if l.Mask != nil && layer < l.Layers-1 {
			mask, masked := make([]T, len(y)), make([]T, len(y))
			for i := range mask {
				row, column := i/in, i%in
				mask[i] = T(l.Mask(layer, column/l.Out, row/s.batch, row%s.batch*l.Out+column%l.Out))
				masked[i] = y[i] * mask[i]
			}
			s.masks, y = append(s.masks, mask), masked
		}
	}
	s.Y = y
	if l.BatchFirst {
		s.Y = turned(y, s.steps, s.batch)
	}
	return s
}

// Backward gives the gradients of the input, the first states and the weights, from
// those of the results and of the last states; that of the cell is nil but for an LSTM.
func (s *Recurred[T]) Backward(gy, gh, gc []T, weights [][]T) (gx, gh0, gc0 []T, gw [][]T) {
	l, dirs := s.layer, s.layer.Directions
	gw = make([][]T, len(weights))
	for i := range gw {
		gw[i] = make([]T, len(weights[i]))
	}
	if l.BatchFirst {
		gy = turned(gy, s.batch, s.steps)
	}
	gh0, gc0 = make([]T, len(gh)), make([]T, len(gc))
	for layer := l.Layers - 1; layer >= 0; layer-- {
		if len(s.masks) > 0 && layer < l.Layers-1 {
			for i, m := range s.masks[layer] {
				gy[i] *= m
			}
		}
		var below []T
		for d := range dirs {
			k := layer*dirs + d
			g := make([]T, s.steps*s.batch*l.Out)
			for i := range s.steps * s.batch {
				copy(step(g, i, l.Out), gy[(i*dirs+d)*l.Out:])
			}
			var cell []T
			if gc != nil {
				cell = step(gc, k, s.batch*l.Hidden)
			}
			from, to := k*l.perRun(), (k+1)*l.perRun()
			x, h, c := s.runs[k].backward(s.inOrder(d, g), step(gh, k, s.batch*l.Out), cell, weights[from:to], gw[from:to])
			copy(gh0[k*s.batch*l.Out:], h)
			if gc != nil {
				copy(gc0[k*s.batch*l.Hidden:], c)
			}
			x = s.inOrder(d, x)
			if d == 0 {
				below = x
				continue
			}
			for i, v := range x {
				below[i] += v
			}
		}
		gy = below
	}
	if l.BatchFirst {
		gy = turned(gy, s.steps, s.batch)
	}
	return gy, gh0, gc0, gw
}
