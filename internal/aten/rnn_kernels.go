package aten

import (
	"errors"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// rnnPass computes a recurrent layer by kernels, in memory that cuDNN takes for one: the
// results, its reserve, and its workspace. Sequences are matrices with a row for each
// sequence of each step; steps are in front.
//
// The reserve has, of each layer and direction, the gates as the cells leave them (of a GRU
// both products) and the states of an LSTM's cells, then the hidden states of all layers but
// the last. Where there is none, the workspace has room for the gates of one layer, and the
// result for hidden states until the last layer's replace them.
type rnnPass struct {
	*RNNArgs
	m            op.Machine
	d            tensor.DType
	steps, batch int64
	x, out       kernel.Tensor
	hx, cx       *op.Tensor
	weights      []*op.Tensor
	reserve      uint64  // address; 0: there is none
	workspace    uint64  // address
	scratch      uint64  // of what of it is free
	seeds        []int64 // of what is dropped between layers
	err          error
}

// rnnMemory are the tensors in which a recurrent layer is computed. Sequences have the steps
// in front in memory.
type rnnMemory struct {
	x, inFront         *op.Tensor // inFront is x, or room for a copy that has the steps in front
	out, hx, cx        *op.Tensor
	reserve, workspace *op.Tensor
	weights            []*op.Tensor
}

func (a *RNNArgs) pass(m op.Machine, t *rnnMemory) *rnnPass {
	r := &rnnPass{RNNArgs: a, m: m, d: t.x.DType, hx: t.hx, cx: t.cx, weights: t.weights}
	r.steps, r.batch = a.steps(t.out)
	r.x, r.out = r.sequence(t.inFront), r.sequence(t.out)
	if t.inFront != t.x {
		r.launch(kernel.Copy, nil, nil, op.As(m, t.inFront), m.At(t.x, a.stepsFirst(t.x.Layout)))
	}
	if t.reserve.Numel() > 0 {
		r.reserve = op.As(m, t.reserve).At
	}
	r.workspace = op.As(m, t.workspace).At
	r.scratch = r.workspace
	if r.reserve == 0 {
		r.scratch += uint64(r.steps * r.batch * r.Directions() * r.Gates * r.Hidden * r.d.Size())
	}
	return r
}

// launch runs a kernel unless one has failed before.
func (r *rnnPass) launch(k *kernel.Kernel, ints []int64, floats []float64, ts ...kernel.Tensor) {
	if r.err == nil {
		r.err = r.m.Launch(k, ts, ints, floats...)
	}
}

// matrix is memory from an element on.
func (r *rnnPass) matrix(at uint64, from, rows, cols, line int64) kernel.Tensor {
	return kernel.Tensor{At: at + uint64(from*r.d.Size()), DType: r.d, Size: tensor.D(rows, cols), Stride: tensor.D(line, 1)}
}

// sequence is a tensor of three dimensions, which has the steps in front in memory.
func (r *rnnPass) sequence(t *op.Tensor) kernel.Tensor {
	width := t.Dim(2)
	return r.matrix(op.As(r.m, t).At, 0, r.steps*r.batch, width, width)
}

// take is a matrix in the workspace.
func (r *rnnPass) take(rows, cols int64) kernel.Tensor {
	t := r.matrix(r.scratch, 0, rows, cols, cols)
	r.scratch += uint64(rows * cols * r.d.Size())
	return t
}

// Parts of matrices.
func rowsOf(t kernel.Tensor, from, n int64) kernel.Tensor {
	t.At += uint64(from * t.Stride.At(0) * t.DType.Size())
	t.Size = t.Size.Set(0, n)
	return t
}

func columnsOf(t kernel.Tensor, from, n int64) kernel.Tensor {
	return turned(rowsOf(turned(t), from, n))
}

func turned(t kernel.Tensor) kernel.Tensor {
	t.Size, t.Stride = tensor.D(t.Size.At(1), t.Size.At(0)), tensor.D(t.Stride.At(1), t.Stride.At(0))
	return t
}

// step is that of a sequence.
func (r *rnnPass) step(t kernel.Tensor, i int64) kernel.Tensor {
	return rowsOf(t, i*r.batch, r.batch)
}

// product is c = a b, or with that added which add is, perhaps c itself.
func (r *rnnPass) product(c, a, b, add kernel.Tensor) {
	ts, beta := []kernel.Tensor{c, a, b, add}, 0.0
	for i := range ts {
		if t := &ts[i]; !t.Absent() {
			t.Size, t.Stride = tensor.D(1, t.Size.At(0), t.Size.At(1)), tensor.D(0, t.Stride.At(0), t.Stride.At(1))
		}
	}
	if !add.Absent() {
		beta = 1
	}
	r.launch(kernel.Gemm, nil, []float64{1, beta}, ts...)
}

// summed adds a product to c, unless it is the first.
func (r *rnnPass) summed(c, a, b kernel.Tensor, first bool) {
	if first {
		r.product(c, a, b, kernel.Tensor{})
	} else {
		r.product(c, a, b, c)
	}
}

// rnnCellWeights are those of a layer and direction; biases and the projection may be
// absent.
type rnnCellWeights struct{ ih, hh, bih, bhh, hr kernel.Tensor }

func (r *rnnPass) cellWeights(of []*op.Tensor, cell int64) (w rnnCellWeights) {
	if of == nil {
		return w
	}
	per := r.PerCell()
	ts := of[int(cell)*per : (int(cell)+1)*per]
	get := func(i int) kernel.Tensor { return op.As(r.m, ts[i]) }
	w.ih, w.hh = get(0), get(1)
	if r.Bias {
		w.bih, w.bhh = get(2), get(3)
	}
	if r.Proj > 0 {
		w.hr = get(per - 1)
	}
	return w
}

// lines is a vector as so many rows.
func lines(v kernel.Tensor, rows int64) kernel.Tensor {
	if !v.Absent() {
		v.Size, v.Stride = tensor.D(rows, v.Size.At(0)), tensor.D(0, v.Stride.At(0))
	}
	return v
}

// of is one cell's part of a state.
func (r *rnnPass) of(state *op.Tensor, cell int64) kernel.Tensor {
	t := op.As(r.m, state)
	t.At += uint64(cell * t.Stride.At(0) * r.d.Size())
	t.Size, t.Stride = t.Size.Remove(0), t.Stride.Remove(0)
	return t
}

// perStep is how many elements the reserve has of a cell for each sequence of each step.
func (r *rnnPass) perStep() int64 {
	n := r.Gates
	switch {
	case r.LSTM():
		n++
	case r.Gates == 3:
		n *= 2
	}
	return n * r.Hidden
}

// gates are those of a layer and direction, of all steps; hgates are what the hidden state
// adds to them in a GRU, without a reserve of one step, and otherwise the same.
func (r *rnnPass) gates(layer, direction int64) kernel.Tensor {
	width, rows := r.Gates*r.Hidden, r.steps*r.batch
	if r.reserve == 0 {
		return r.matrix(r.workspace, direction*rows*width, rows, width, width)
	}
	line := width
	if r.Gates == 3 {
		line *= 2
	}
	return r.matrix(r.reserve, (layer*r.Directions()+direction)*rows*r.perStep(), rows, width, line)
}

func (r *rnnPass) hgates(layer, direction int64) kernel.Tensor {
	g := r.gates(layer, direction)
	switch {
	case r.Gates != 3:
	case r.reserve == 0:
		return r.matrix(r.scratch, 0, r.batch, r.Gates*r.Hidden, r.Gates*r.Hidden)
	default:
		g.At += uint64(r.Gates * r.Hidden * r.d.Size())
	}
	return g
}

// cells are the states of an LSTM's cells in the reserve.
func (r *rnnPass) cells(layer, direction int64) kernel.Tensor {
	rows := r.steps * r.batch
	return r.matrix(r.reserve, (layer*r.Directions()+direction)*rows*r.perStep()+rows*r.Gates*r.Hidden, rows, r.Hidden, r.Hidden)
}

// hidden are the states of all steps and directions of a layer; of layer -1 they are its
// input.
func (r *rnnPass) hidden(layer int64) kernel.Tensor {
	switch {
	case layer < 0:
		return r.x
	case layer == r.Layers-1 || r.reserve == 0:
		return r.out
	}
	rows, width := r.steps*r.batch, r.Directions()*r.Out()
	return r.matrix(r.reserve, rows*(r.Layers*r.Directions()*r.perStep()+layer*width), rows, width, width)
}

// at is the step that a direction takes at its t-th.
func (r *rnnPass) at(direction, t int64) int64 {
	if direction == 1 {
		return r.steps - 1 - t
	}
	return t
}

// before is the hidden state before the t-th step of a direction.
func (r *rnnPass) before(layer, direction, t int64) kernel.Tensor {
	if t == 0 {
		return r.of(r.hx, layer*r.Directions()+direction)
	}
	return columnsOf(r.step(r.hidden(layer), r.at(direction, t-1)), direction*r.Out(), r.Out())
}

// cellBefore is the state of an LSTM's cell before it.
func (r *rnnPass) cellBefore(layer, direction, t int64) kernel.Tensor {
	if t == 0 {
		return r.of(r.cx, layer*r.Directions()+direction)
	}
	return r.step(r.cells(layer, direction), r.at(direction, t-1))
}

// gate is one of the gates side by side in a matrix or in rows of a bias, which may be
// absent.
func (r *rnnPass) gate(t kernel.Tensor, i int64) kernel.Tensor {
	if t.Absent() {
		return t
	}
	return columnsOf(t, i*r.Hidden, r.Hidden)
}

// split are all gates.
func (r *rnnPass) split(t kernel.Tensor) []kernel.Tensor {
	out := make([]kernel.Tensor, r.Gates)
	for i := range out {
		out[i] = r.gate(t, int64(i))
	}
	return out
}

// dropped drops elements of what a direction of a layer gives to the next one at a step; of
// is that or its gradient, which to may be, too.
func (r *rnnPass) dropped(layer, direction, step int64, to, mask, of kernel.Tensor) {
	r.launch(kernel.Dropout, []int64{r.seeds[(layer*r.Directions()+direction)*r.steps+step]}, []float64{r.Dropout}, to, mask, of)
}

// mask is room for one.
func (r *rnnPass) mask() kernel.Tensor {
	t := r.take(r.batch, r.Out())
	t.DType = tensor.Bool
	return t
}

// droppedInput is a step of what a layer takes, of which elements are dropped.
func (r *rnnPass) droppedInput(layer, step int64, to, mask kernel.Tensor) kernel.Tensor {
	for d := range r.Directions() {
		part := func(t kernel.Tensor) kernel.Tensor { return columnsOf(t, d*r.Out(), r.Out()) }
		r.dropped(layer-1, d, step, part(to), mask, part(r.step(r.hidden(layer-1), step)))
	}
	return to
}

// dropsBefore reports whether elements are dropped in front of a layer.
func (r *rnnPass) dropsBefore(layer int64) bool { return layer > 0 && len(r.seeds) > 0 }

// drops reports whether there is a dropout, between two layers.
func (a *RNNArgs) drops() bool { return a.Dropout > 0 && a.Layers > 1 }

// drawSeeds draws those of a dropout between layers, by layer, direction and step of the
// result; nil where nothing is dropped.
func drawSeeds(m op.Machine, c *op.Call, out *op.Tensor) []int64 {
	a := c.Args.(*RNNArgs)
	if !a.drops() || !c.Env().Training {
		return nil
	}
	steps, _ := a.steps(out)
	seeds := make([]int64, (a.Layers-1)*a.Directions()*steps)
	for i := range seeds {
		seeds[i] = m.Draw()
	}
	return seeds
}

// errReserve is that of a backward pass whose reserve is neither that of the forward pass nor
// a copy of it.
var errReserve = errors.New("what a recurrent layer keeps is not in the reserve that its backward pass has")

// forward computes all steps, and the last states.
func (r *rnnPass) forward(hy, cy *op.Tensor) error {
	for layer := range r.Layers {
		free := r.scratch
		r.inputs(layer) // of both directions, before their results perhaps replace them
		for d := range r.Directions() {
			r.forwards(layer, d, hy, cy)
		}
		r.scratch = free
	}
	return r.err
}

// inputs are the products of what a layer takes, of all steps, with their bias.
func (r *rnnPass) inputs(layer int64) {
	for d := range r.Directions() {
		w, to, from := r.cellWeights(r.weights, layer*r.Directions()+d), r.gates(layer, d), r.hidden(layer-1)
		if !r.dropsBefore(layer) {
			r.product(to, from, turned(w.ih), lines(w.bih, to.Size.At(0)))
			continue
		}
		free := r.scratch
		x, mask := r.take(r.batch, from.Size.At(1)), r.mask()
		for t := range r.steps {
			r.product(r.step(to, t), r.droppedInput(layer, t, x, mask), turned(w.ih), lines(w.bih, r.batch))
		}
		r.scratch = free
	}
}

// forwards runs the cell of a layer and direction over the steps.
func (r *rnnPass) forwards(layer, d int64, hy, cy *op.Tensor) {
	cell := layer*r.Directions() + d
	w, none := r.cellWeights(r.weights, cell), kernel.Tensor{}
	bias := lines(w.bhh, r.batch)
	var inner, state kernel.Tensor
	if r.Proj > 0 {
		inner = r.take(r.batch, r.Hidden)
	}
	if r.LSTM() && r.reserve == 0 { // the state stays where its last one is to be
		state = r.of(cy, cell)
		r.launch(kernel.Copy, nil, nil, state, r.of(r.cx, cell))
	}
	for t := range r.steps {
		at, before := r.at(d, t), r.before(layer, d, t)
		gates, y := r.step(r.gates(layer, d), at), columnsOf(r.step(r.hidden(layer), at), d*r.Out(), r.Out())
		switch {
		case r.LSTM():
			hidden, old := y, state
			if r.Proj > 0 {
				hidden = inner
			}
			if r.reserve != 0 {
				state, old = r.step(r.cells(layer, d), at), r.cellBefore(layer, d, t)
			}
			r.product(gates, before, turned(w.hh), gates)
			r.cell(kernel.LSTMCell, []kernel.Tensor{hidden, state}, r.split(gates), []kernel.Tensor{old}, r.split(gates), make([]kernel.Tensor, 8), r.split(bias))
			if r.Proj > 0 {
				r.product(y, inner, turned(w.hr), none)
			}
		case r.Gates == 3:
			hgates := r.hgates(layer, d)
			if r.reserve != 0 {
				hgates = r.step(hgates, at)
			}
			r.product(hgates, before, turned(w.hh), none)
			r.cell(kernel.GRUCell, []kernel.Tensor{y}, r.split(gates), []kernel.Tensor{r.gate(hgates, 2), before}, r.split(gates), r.split(hgates), make([]kernel.Tensor, 3), r.split(bias))
		default:
			r.product(gates, before, turned(w.hh), gates)
			r.cell(r.plain(kernel.TanhCell, kernel.ReluCell), []kernel.Tensor{y, gates, gates, bias})
		}
	}
	r.launch(kernel.Copy, nil, nil, r.of(hy, cell), r.before(layer, d, r.steps))
	if r.LSTM() && r.reserve != 0 {
		r.launch(kernel.Copy, nil, nil, r.of(cy, cell), r.cellBefore(layer, d, r.steps))
	}
}

// cell launches a cell or its derivative.
func (r *rnnPass) cell(k *kernel.Kernel, operands ...[]kernel.Tensor) {
	r.launch(k, nil, nil, slices.Concat(operands...)...)
}

// plain is the kernel of a plain RNN's nonlinearity.
func (r *rnnPass) plain(tanh, relu *kernel.Kernel) *kernel.Kernel {
	if r.ReLU {
		return relu
	}
	return tanh
}

// rnnGradients are those of a recurrent layer: incoming ones, and results. Those of the weights
// may be none.
type rnnGradients struct {
	out, hy, cy *op.Tensor
	x, hx, cx   *op.Tensor
	weights     []*op.Tensor
}

// backward computes the derivative of a recurrent layer.
func (t *rnnMemory) backward(b *op.Back, g *rnnGradients) {
	b.Compute(func(m op.Machine) error {
		r := b.Args.(*RNNArgs).pass(m, t)
		r.seeds = op.Noted[[]int64](m, t.reserve)
		if r.drops() && r.seeds == nil {
			return errReserve
		}
		return r.backward(g)
	})
}

// backward computes all gradients. It leaves those of the gates in the reserve, in the
// place of the gates.
func (r *rnnPass) backward(g *rnnGradients) error {
	for cell := range r.Layers * r.Directions() {
		// What all steps change begins as the gradient of the last state, and ends as that of
		// the first.
		r.launch(kernel.Copy, nil, nil, r.of(g.hx, cell), r.of(g.hy, cell))
		if r.LSTM() {
			r.launch(kernel.Copy, nil, nil, r.of(g.cx, cell), r.of(g.cy, cell))
		}
	}
	for layer := r.Layers - 1; layer >= 0; layer-- {
		for d := range r.Directions() {
			free := r.scratch
			r.backwards(layer, d, g)
			r.scratch = free
			if g.weights != nil {
				r.weightGradients(layer, d, g.weights)
				r.scratch = free
			}
		}
	}
	for d := range r.Directions() {
		r.summed(r.sequence(g.x), r.gates(0, d), r.cellWeights(r.weights, d).ih, d == 0)
	}
	return r.err
}

// fromAbove is the gradient of a hidden state by the results of the layer, at a step; to is
// room for it.
func (r *rnnPass) fromAbove(layer, d, at int64, g *rnnGradients, to, mask kernel.Tensor) kernel.Tensor {
	if layer == r.Layers-1 {
		t := r.m.At(g.out, r.stepsFirst(g.out.Layout))
		t.At += uint64(at * t.Stride.At(0) * r.d.Size())
		t.Size, t.Stride = t.Size.Remove(0), t.Stride.Remove(0)
		return columnsOf(t, d*r.Out(), r.Out())
	}
	for above := range r.Directions() {
		w := r.cellWeights(r.weights, (layer+1)*r.Directions()+above)
		r.summed(to, r.step(r.gates(layer+1, above), at), columnsOf(w.ih, d*r.Out(), r.Out()), above == 0)
	}
	if r.dropsBefore(layer + 1) {
		r.dropped(layer, d, at, to, mask, to)
	}
	return to
}

// backwards runs the derivative of a cell over the steps, from the last one.
func (r *rnnPass) backwards(layer, d int64, g *rnnGradients) {
	cell := layer*r.Directions() + d
	w, gw := r.cellWeights(r.weights, cell), r.cellWeights(g.weights, cell)
	var room, mask, sum, inner, ginner kernel.Tensor
	if layer < r.Layers-1 {
		room = r.take(r.batch, r.Out())
	}
	if r.dropsBefore(layer + 1) {
		mask = r.mask()
	}
	if r.Proj > 0 {
		sum, inner, ginner = r.take(r.batch, r.Proj), r.take(r.batch, r.Hidden), r.take(r.batch, r.Hidden)
	}
	ghidden, none := r.of(g.hx, cell), kernel.Tensor{} // of the state behind the step, then of that before it
	for t := r.steps - 1; t >= 0; t-- {
		at := r.at(d, t)
		gates, hgates, gy := r.step(r.gates(layer, d), at), r.step(r.hgates(layer, d), at), r.fromAbove(layer, d, at, g, room, mask)
		switch gstate, gh := none, ghidden; {
		case r.LSTM():
			gstate = r.of(g.cx, cell)
			if r.Proj > 0 {
				r.launch(kernel.Add, nil, []float64{1}, sum, ghidden, gy)
				r.product(ginner, sum, w.hr, none)
				gh, gy = ginner, none
			}
			r.cell(kernel.LSTMCellGrad, r.split(gates), []kernel.Tensor{gstate, inner, r.step(r.cells(layer, d), at), r.cellBefore(layer, d, t)}, r.split(gates), []kernel.Tensor{gh, gy, gstate})
			if !gw.hr.Absent() {
				r.summed(gw.hr, turned(sum), inner, t == r.steps-1)
			}
			r.product(ghidden, gates, w.hh, none)
		case r.Gates == 3:
			part := r.gate(hgates, 2)
			r.cell(kernel.GRUCellGrad, r.split(gates), r.split(hgates), []kernel.Tensor{ghidden, r.before(layer, d, t)}, r.split(gates), []kernel.Tensor{part, ghidden, gy})
			r.product(ghidden, hgates, w.hh, ghidden)
		default:
			r.cell(r.plain(kernel.TanhCellGrad, kernel.ReluCellGrad), []kernel.Tensor{gates, gates, ghidden, gy})
			r.product(ghidden, gates, w.hh, none)
		}
	}
}

// weightGradients are those of a layer and direction, but for that of the projection.
func (r *rnnPass) weightGradients(layer, d int64, weights []*op.Tensor) {
	gw := r.cellWeights(weights, layer*r.Directions()+d)
	gates, hgates, x := r.gates(layer, d), r.hgates(layer, d), r.hidden(layer-1)
	if r.dropsBefore(layer) {
		free := r.scratch
		room, mask := r.take(r.batch, x.Size.At(1)), r.mask()
		for t := range r.steps {
			r.summed(gw.ih, turned(r.step(gates, t)), r.droppedInput(layer, t, room, mask), t == 0)
		}
		r.scratch = free
	} else {
		r.summed(gw.ih, turned(gates), x, true)
	}
	r.summed(gw.hh, turned(r.step(hgates, r.at(d, 0))), r.before(layer, d, 0), true)
	if n := (r.steps - 1) * r.batch; n > 0 {
		from, before := r.batch*(1-d), r.batch*d // rows of the others, and of the states before them
		states := columnsOf(r.hidden(layer), d*r.Out(), r.Out())
		r.summed(gw.hh, turned(rowsOf(hgates, from, n)), rowsOf(states, before, n), false)
	}
	if r.Bias {
		r.launch(kernel.Sum, nil, []float64{1}, lines(gw.bih, gates.Size.At(0)), gates)
		r.launch(kernel.Sum, nil, []float64{1}, lines(gw.bhh, gates.Size.At(0)), hgates)
	}
}
