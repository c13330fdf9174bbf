package runtime

import (
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// affine is y = x wᵀ + bias for rows x of n elements; bias may be nil.
func affine(x, w, bias []float64, n int) []float64 {
	outs := len(w) / max(n, 1)
	rows := len(x) / max(n, 1)
	y := make([]float64, rows*outs)
	for r := range rows {
		for o := range outs {
			sum := 0.0
			if bias != nil {
				sum = bias[o]
			}
			for k, v := range x[r*n : r*n+n] {
				sum += v * w[o*n+k]
			}
			y[r*outs+o] = sum
		}
	}
	return y
}

// affineGrad adds the gradients of affine's operands to gx, gw and gbias.
func affineGrad(x, w, g []float64, n int, gx, gw, gbias []float64) {
	outs := len(w) / max(n, 1)
	for r := range len(x) / max(n, 1) {
		for o := range outs {
			v := g[r*outs+o]
			if gbias != nil {
				gbias[o] += v
			}
			for k := range n {
				gx[r*n+k] += v * w[o*n+k]
				gw[o*n+k] += v * x[r*n+k]
			}
		}
	}
}

// recurrent is the run of one layer in one direction.
type recurrent struct {
	cell                   *cell
	hidden, out, in, batch int
	w                      [][]float64 // weight_ih, weight_hh, then perhaps biases and the projection
	bias, proj             bool
	x, h, c                [][]float64 // by step, in the order of the run; h and c from the first state on
	inner                  [][]float64 // the hidden state before the projection
	kept                   [][][]float64
}

func (r *recurrent) biases() (ih, hh []float64) {
	if r.bias {
		return r.w[2], r.w[3]
	}
	return nil, nil
}

// old is the state that the cell reads: the cell's of an LSTM, else the hidden one.
func (r *recurrent) old(t int) []float64 {
	if r.cell == &lstm {
		return r.c[t]
	}
	return r.h[t]
}

func (r *recurrent) forward() {
	bi, bh := r.biases()
	g := r.cell.gates * r.hidden
	for t, x := range r.x {
		i, h := affine(x, r.w[0], bi, r.in), affine(r.h[t], r.w[1], bh, r.out)
		hidden, state := make([]float64, r.batch*r.hidden), make([]float64, r.batch*r.hidden)
		kept := make([][]float64, r.batch)
		for b := range r.batch {
			n := r.hidden
			kept[b] = r.cell.forward(i[b*g:b*g+g], h[b*g:b*g+g], r.old(t)[b*n:b*n+n], hidden[b*n:b*n+n], state[b*n:b*n+n])
		}
		r.kept, r.inner, r.c = append(r.kept, kept), append(r.inner, hidden), append(r.c, state)
		if r.proj {
			hidden = affine(hidden, r.w[len(r.w)-1], nil, r.hidden)
		}
		r.h = append(r.h, hidden)
	}
}

// backward takes the gradients of the steps' results and of the last state, and
// gives those of the inputs, of the first state, and adds those of the weights.
func (r *recurrent) backward(gy [][]float64, gh, gc []float64, gw [][]float64) (gx [][]float64, gh0, gc0 []float64) {
	gx = make([][]float64, len(r.x))
	n, g := r.hidden, r.cell.gates*r.hidden
	var gbi, gbh []float64
	if r.bias {
		gbi, gbh = gw[2], gw[3]
	}
	for t := len(r.x) - 1; t >= 0; t-- {
		out := make([]float64, len(gh))
		for k := range out {
			out[k] = gh[k] + gy[t][k]
		}
		if r.proj {
			inner := make([]float64, r.batch*n)
			affineGrad(r.inner[t], r.w[len(r.w)-1], out, n, inner, gw[len(gw)-1], nil)
			out = inner
		}
		gi, ghh, gold := make([]float64, r.batch*g), make([]float64, r.batch*g), make([]float64, r.batch*n)
		for b := range r.batch {
			r.cell.backward(r.kept[t][b], r.old(t)[b*n:b*n+n], out[b*n:b*n+n], gc[b*n:b*n+n], gi[b*g:b*g+g], ghh[b*g:b*g+g], gold[b*n:b*n+n])
		}
		gx[t] = make([]float64, len(r.x[t]))
		gh = make([]float64, r.batch*r.out)
		affineGrad(r.x[t], r.w[0], gi, r.in, gx[t], gw[0], gbi)
		affineGrad(r.h[t], r.w[1], ghh, r.out, gh, gw[1], gbh)
		if r.cell == &lstm {
			gc = gold
		} else {
			for k, v := range gold {
				gh[k] += v
			}
		}
	}
	return gx, gh, gc
}

// stack is a recurrent layer of several layers and directions over a sequence.
type stack struct {
	args         *op.RNNArgs
	steps, batch int
	runs         []*recurrent
	masks        [][]float64 // of the dropout behind each layer but the last
}

// sequence divides a tensor of sequences into its steps.
func (s *stack) sequence(x *array) [][]float64 {
	width := x.size[2]
	out := make([][]float64, s.steps)
	for t := range out {
		out[t] = make([]float64, s.batch*width)
		for b := range s.batch {
			copy(out[t][b*width:(b+1)*width], x.v[s.at(t, b)*width:])
		}
	}
	return out
}

// at is the number of step t of sequence b.
func (s *stack) at(t, b int) int {
	if s.args.BatchFirst {
		return b*s.steps + t
	}
	return t*s.batch + b
}

// joined is the sequence of steps of some width as one tensor.
func (s *stack) joined(steps [][]float64, width int) []float64 {
	out := make([]float64, s.steps*s.batch*width)
	for t, step := range steps {
		for b := range s.batch {
			copy(out[s.at(t, b)*width:], step[b*width:(b+1)*width])
		}
	}
	return out
}

// newStack computes a recurrent layer: the results of its last layer are in steps.
// Without training nothing is dropped.
func newStack(args *op.RNNArgs, x, hx, cx *array, weights [][]float64, seed uint64, training bool) (s *stack, y [][]float64) {
	s = &stack{args: args, steps: x.size[0], batch: x.size[1]}
	if args.BatchFirst {
		s.steps, s.batch = s.batch, s.steps
	}
	y = s.sequence(x)
	per, dirs, outs := args.PerCell(), int(args.Directions()), int(args.Out())
	in := x.size[2]
	for layer := range int(args.Layers) {
		both := make([][]float64, s.steps)
		for t := range both {
			both[t] = make([]float64, s.batch*dirs*outs)
		}
		for d := range dirs {
			k := layer*dirs + d
			r := &recurrent{cell: cellOf(args), hidden: int(args.Hidden), out: outs, in: in, batch: s.batch,
				w: weights[k*per : (k+1)*per], bias: args.Bias, proj: args.Proj > 0}
			r.h = [][]float64{hx.v[k*s.batch*outs : (k+1)*s.batch*outs]}
			if cx != nil {
				r.c = [][]float64{cx.v[k*s.batch*r.hidden : (k+1)*s.batch*r.hidden]}
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
		}
		y, in = both, dirs*outs
		if args.Dropout > 0 && training && layer < int(args.Layers)-1 {
			y = s.drop(y, seed+uint64(layer))
		}
	}
	return s, y
}

// order is the step that a run takes at its t-th: the second direction goes back.
func order(direction, t, steps int) int {
	if direction == 1 {
		return steps - 1 - t
	}
	return t
}

// drop applies a dropout to the steps between two layers.
func (s *stack) drop(y [][]float64, seed uint64) [][]float64 {
	p := s.args.Dropout
	out := make([][]float64, len(y))
	for t, step := range y {
		mask := make([]float64, len(step))
		out[t] = make([]float64, len(step))
		for i, v := range step {
			if float64(kernel.Uniform(seed, int64(t*len(step)+i))) >= p {
				mask[i] = 1 / (1 - p)
			}
			out[t][i] = v * mask[i]
		}
		s.masks = append(s.masks, mask)
	}
	return out
}

// backward gives the gradients of the input, the first states and the weights.
func (s *stack) backward(gy [][]float64, gh, gc []float64, weights [][]float64) (gx [][]float64, gh0, gc0 []float64, gw [][]float64) {
	a := s.args
	per, dirs, outs, hidden := a.PerCell(), int(a.Directions()), int(a.Out()), int(a.Hidden)
	gh0, gc0, gw = make([]float64, len(gh)), make([]float64, len(gc)), make([][]float64, len(weights))
	for i := range gw {
		gw[i] = make([]float64, len(weights[i]))
	}
	for layer := int(a.Layers) - 1; layer >= 0; layer-- {
		if len(s.masks) > 0 && layer < int(a.Layers)-1 {
			for t := range gy {
				for i, m := range s.masks[layer*s.steps+t] {
					gy[t][i] *= m
				}
			}
		}
		gx = make([][]float64, s.steps)
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
				if gx[to] == nil {
					gx[to] = make([]float64, len(step))
				}
				for i, v := range step {
					gx[to][i] += v
				}
			}
		}
		gy = gx
	}
	return gx, gh0, gc0, gw
}

// weightsOf reads all tensors behind the states.
func weightsOf(a *aside, ts []*op.Tensor) (out [][]float64) {
	for _, t := range ts[3:] {
		out = append(out, a.get(t).v)
	}
	return out
}

// recurrentLayer is nn.LSTM, nn.GRU or nn.RNN as cuDNN computes it. What it drops is
// drawn again for the backward pass.
var recurrentLayer = asideRow(func(a *aside, c *op.Call) {
	args, x, hx, cx := c.Args.(*op.RNNArgs), a.get(c.In[0]), a.get(c.In[1]), a.get(c.In[2])
	seed, training := int64(0), c.Env().Training
	if args.Dropout > 0 && training {
		seed = a.x.draw()
	}
	a.x.seeds[engine.BlockOf(c.Out[3])] = seed
	s, y := newStack(args, x, hx, cx, weightsOf(a, c.In), uint64(seed), training)
	a.put(c.Out[0], s.joined(y, int(args.Directions()*args.Out())))
	var hy, cy []float64
	for _, r := range s.runs {
		hy, cy = append(hy, r.h[s.steps]...), append(cy, r.c[s.steps]...)
	}
	a.put(c.Out[1], hy)
	if cx != nil {
		a.put(c.Out[2], cy)
	}
}, func(a *aside, b *op.Back) {
	args, x, hx, cx := b.Args.(*op.RNNArgs), a.get(b.SavedIn[0]), a.get(b.SavedIn[1]), a.get(b.SavedIn[2])
	weights := weightsOf(a, b.SavedIn)
	s, _ := newStack(args, x, hx, cx, weights, uint64(a.x.seeds[engine.BlockOf(b.SavedOut[3])]), true)
	grad := func(i, n int) []float64 {
		if g := a.get(b.Grads[i]); g != nil {
			return g.v
		}
		return make([]float64, n)
	}
	width := int(args.Directions() * args.Out())
	gy := s.sequence(&array{[]int{0, 0, width}, grad(0, s.steps*s.batch*width)})
	var gc []float64
	if cx != nil {
		gc = grad(2, len(cx.v))
	}
	gx, gh0, gc0, gw := s.backward(gy, grad(1, len(hx.v)), gc, weights)
	a.put(wanted(b, 0), s.joined(gx, x.size[2]))
	a.put(wanted(b, 1), gh0)
	if cx != nil {
		a.put(wanted(b, 2), gc0)
	}
	for i := range weights {
		a.put(wanted(b, 3+i), gw[i])
	}
})

// products are both products of a fused cell with their biases, input and hidden.
func (a *aside) products(ts []*op.Tensor) (i, h *array) {
	i, h = a.get(ts[0]), a.get(ts[1])
	for k, p := range []*array{i, h} {
		if bias := a.get(optional(ts, 3+k)); bias != nil {
			for j := range p.v {
				p.v[j] += bias.v[j%len(bias.v)]
			}
		}
	}
	return i, h
}

// fusedCell is a cell of which the products exist: inputs are both products, the old
// state and both biases.
func fusedCell(cell *cell) row {
	run := func(a *aside, ts []*op.Tensor, f func(b int, i, h, old []float64)) (rows, n int) {
		i, h := a.products(ts)
		old := a.get(ts[2])
		rows, n = old.size[0], old.size[1]
		g := cell.gates * n
		for b := range rows {
			f(b, i.v[b*g:b*g+g], h.v[b*g:b*g+g], old.v[b*n:b*n+n])
		}
		return rows, n
	}
	return asideRow(func(a *aside, c *op.Call) {
		hidden, state := make([]float64, c.Out[0].Numel()), make([]float64, c.Out[0].Numel())
		run(a, c.In, func(b int, i, h, old []float64) {
			n := len(old)
			cell.forward(i, h, old, hidden[b*n:b*n+n], state[b*n:b*n+n])
		})
		a.put(c.Out[0], hidden)
		if cell == &lstm {
			a.put(c.Out[1], state)
		}
	}, func(a *aside, b *op.Back) {
		n := int(b.InM[2].Dim(0) * b.InM[2].Dim(1))
		grad := func(i int) []float64 {
			if i < len(b.Grads) && b.Grads[i] != nil && (i == 0 || cell == &lstm) {
				return a.get(b.Grads[i]).v
			}
			return make([]float64, n)
		}
		ghidden, gstate, gold := grad(0), grad(1), make([]float64, n)
		gi, gh := make([]float64, cell.gates*n), make([]float64, cell.gates*n)
		rows, width := run(a, b.SavedIn, func(r int, i, h, old []float64) {
			w := len(old)
			g := cell.gates * w
			kept := cell.forward(i, h, old, make([]float64, w), make([]float64, w))
			cell.backward(kept, old, ghidden[r*w:r*w+w], gstate[r*w:r*w+w], gi[r*g:r*g+g], gh[r*g:r*g+g], gold[r*w:r*w+w])
		})
		for k, v := range [][]float64{gi, gh} {
			a.put(wanted(b, k), v)
			if bias := wanted(b, 3+k); bias != nil {
				g := cell.gates * width
				sum := make([]float64, g)
				for r := range rows {
					for j := range g {
						sum[j] += v[r*g+j]
					}
				}
				a.put(bias, sum)
			}
		}
		a.put(wanted(b, 2), gold)
	})
}

// nothing is an operator that only allocates.
var nothing = row{forward: func(*Executor, *op.Call) error { return nil }}

// recurrentRows are recurrent layers and cells.
var recurrentRows = map[*op.Op]row{
	op.CudnnRNNKernel: recurrentLayer,
	op.FusedLSTM:      fusedCell(&lstm),
	op.FusedGRU:       fusedCell(&gru),
	op.RNNBFloat16:    nothing, op.RnnReserve: nothing, op.RnnWorkspace: nothing, op.InitDropoutState: nothing,
	// A weight in its place of a buffer of another type.
	op.FlatCopy: {composed: true, aliased: true, forward: func(x *Executor, c *op.Call) error {
		l := tensor.Contiguous(c.In[0].Size)
		l.Offset = c.Out[0].Offset
		return x.launch(kernel.Copy, []kernel.Tensor{x.at(c.Out[0], l), x.operand(c.In[0])}, nil)
	}},
	op.TransposeInPlace: nothing.inParts(), // its result lies where its input does
}
