package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// RNNArgs is what the computation of nn.LSTM, nn.GRU or nn.RNN depends on,
// beside its tensors. The inputs of their rows are the sequence, the hidden
// state, the cell state (nil but for an LSTM), then the parameters in the order
// of RNNBase._flat_weights.
type RNNArgs struct {
	Gates         int64 // of a cell: 4 of an LSTM, 3 of a GRU, 1 of a plain RNN
	ReLU          bool  // a plain RNN with relu instead of tanh
	Hidden        int64
	Proj          int64 // width to which an LSTM projects its output; 0: none
	Layers        int64
	Bias          bool
	BatchFirst    bool
	Dropout       float64
	Bidirectional bool
}

// LSTM reports whether there is a cell state.
func (a *RNNArgs) LSTM() bool { return a.Gates == 4 }

// Directions is 2 of a bidirectional layer, else 1.
func (a *RNNArgs) Directions() int64 {
	if a.Bidirectional {
		return 2
	}
	return 1
}

// described is the layer as cuDNN's memory depends on it.
func (a *RNNArgs) described(stub bool) *cudnn.RNN {
	return &cudnn.RNN{Gates: a.Gates, Hidden: a.Hidden, Proj: a.Proj, Layers: a.Layers, Directions: a.Directions(), Stub: stub}
}

// Out is the width of the hidden state.
func (a *RNNArgs) Out() int64 { return a.described(false).Out() }

// InputSize is the width of what a layer takes, the first one's being given.
func (a *RNNArgs) InputSize(layer, first int64) int64 {
	return a.described(false).InputSize(layer, first)
}

// PerCell is the number of parameters of one layer and direction: two matrices,
// their biases, and the projection.
func (a *RNNArgs) PerCell() int {
	n := 2
	if a.Bias {
		n += 2
	}
	if a.Proj > 0 {
		n++
	}
	return n
}

// FlatWeights is the number of elements of the buffer that holds all parameters
// for cuDNN.
func (a *RNNArgs) FlatWeights(input int64) int64 { return a.described(false).Weights(input) }

// The recurrent layers, as torch.lstm and the like compute them.
var (
	LSTM    = define(op.Op{Name: "lstm", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
	GRU     = define(op.Op{Name: "gru", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
	RNNTanh = define(op.Op{Name: "rnn_tanh", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
	RNNRelu = define(op.Op{Name: "rnn_relu", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
)

// RNNZerosArgs is the shape of the state of a recurrent layer that is given
// none: layers and directions, the width, and which dimension of the input is the
// batch.
type RNNZerosArgs struct {
	Cells, Width int64
	BatchFirst   bool
}

// The state of a recurrent layer that is given none: zeros in the type of its
// input.
var RNNZeros = define(op.Op{
	Name: "rnn_zeros", Eval: op.Constant(0), Args: &RNNZerosArgs{}, Run: func(c *op.Call) {
		a, x := c.Args.(*RNNZerosArgs), c.In[0]
		batch := x.Dim(1)
		if a.BatchFirst {
			batch = x.Dim(0)
		}
		c.Return(c.NewShape(x.DType, a.Cells, batch, a.Width))
	},
	Source: "torch/nn/modules/rnn.py: torch.zeros(num_layers * num_directions, max_batch_size, hidden_size, dtype=input.dtype)",
})

func runRNN(c *op.Call) {
	checkRNN(c)
	d := c.In[0].DType
	if cudnn.TakesRNN(d) && c.In[0].Numel() > 0 {
		cudnnRNN(c)
		return
	}
	if d == tensor.BFloat16 && c.Env().Torch.Has(torchver.CudnnTakesBFloat16RNN) {
		c.Do(RNNBFloat16, nil)
	}
	stepwiseRNN(c)
}

// RNNBFloat16 does nothing but say that newer versions may do something else.
var RNNBFloat16 = define(op.Op{
	Name: "rnn_bfloat16", Eval: op.Nothing, Run: func(*op.Call) {},
	NotModelled: "where PyTorch comes with cuDNN 9.13 or later, it computes recurrent layers in bfloat16 by cuDNN, as those in float16; here they are computed step by step",
})

// checkRNN checks what RNNBase.check_forward_args does.
func checkRNN(c *op.Call) {
	a, x := c.Args.(*RNNArgs), c.In[0]
	if x.Rank() != 3 {
		c.Fail("expected a sequence with three dimensions, not shape %v", x.Size)
	}
	if w := c.In[3].DType; x.DType != w && !c.Env().Autocast {
		c.Fail("an input of %v does not fit weights of %v", x.DType, w)
	}
	steps, batch := a.steps(x)
	if steps == 0 {
		c.Fail("expected a sequence of one step or more, not shape %v", x.Size)
	}
	want := tensor.D(a.Layers*a.Directions(), batch, a.Out())
	if h := c.In[1]; h.Size != want {
		c.Fail("expected a hidden state of shape %v, not %v", want, h.Size)
	}
	if cx := c.In[2]; cx != nil && cx.Size != want.Set(2, a.Hidden) {
		c.Fail("expected a cell state of shape %v, not %v", want.Set(2, a.Hidden), cx.Size)
	}
}

// steps returns the length of the sequences in x and their number.
func (a *RNNArgs) steps(x *op.Tensor) (steps, batch int64) {
	if a.BatchFirst {
		return x.Dim(1), x.Dim(0)
	}
	return x.Dim(0), x.Dim(1)
}

// rnnState is the state of one layer and direction: hidden, and the cell's of an
// LSTM.
type rnnState struct{ h, c *op.Tensor }

// rnnRun is what came of one layer and direction, by step, and its last state.
type rnnRun struct {
	outs  []*op.Tensor
	final rnnState
}

func dropState(c *op.Call, s rnnState) { c.Drop(s.h, s.c) }

func keepState(c *op.Call, s rnnState) rnnState {
	c.Keep(s.h)
	if s.c != nil {
		c.Keep(s.c)
	}
	return s
}

// maxCells bounds how many cells a layer stands for that is computed step by
// step.
const maxCells = 1 << 16

// stepwiseRNN computes a recurrent layer step by step, as PyTorch does for types
// that it does not hand to cuDNN (_lstm_impl and _rnn_impl_with_concat). What
// is destroyed goes in the order of the C++ code: vectors from the front, members of
// a struct and locals from the last.
func stepwiseRNN(c *op.Call) {
	a, x := c.Args.(*RNNArgs), c.In[0]
	if steps, _ := a.steps(x); steps > maxPieces || steps*a.Layers*a.Directions() > maxCells {
		c.Fail("PyTorch computes %d steps in %v one by one; so many are not modelled", steps, x.DType)
	}
	if a.BatchFirst {
		x = c.Local(c.Do1(Transpose, &TransposeArgs{Dim0: 0, Dim1: 1}, x))
	}
	states := make([]rnnState, a.Layers*a.Directions())
	for i, h := range c.Do(Unbind, &DimArgs{}, c.In[1]) {
		states[i].h = c.Local(h)
	}
	if a.LSTM() {
		for i, cell := range c.Do(Unbind, &DimArgs{}, c.In[2]) {
			states[i].c = c.Local(cell)
		}
	}
	y, final := layerStack(c, x, states)
	hs, cs := make([]*op.Tensor, len(final)), make([]*op.Tensor, len(final))
	for i, s := range final {
		hs[i], cs[i] = s.h, s.c
	}
	var cy *op.Tensor // made before hy, as GCC evaluates the arguments of make_tuple
	if a.LSTM() {
		cy = c.Do1(Stack, &DimArgs{}, cs...)
	}
	hy := c.Do1(Stack, &DimArgs{}, hs...)
	c.Drop(cs...)
	c.Drop(hs...)
	if a.BatchFirst { // of an LSTM it is a view
		swap := TransposeInPlace
		if a.LSTM() {
			swap = Transpose
		}
		t := c.Do1(swap, &TransposeArgs{Dim0: 0, Dim1: 1}, y)
		c.Drop(y)
		y = t
	}
	c.Return(y, hy)
	if cy != nil {
		c.Return(cy)
	}
}

// layerStack is apply_layer_stack: the layers one after the other, with dropout
// between them. The caller owns the output and the last states.
func layerStack(c *op.Call, x *op.Tensor, states []rnnState) (*op.Tensor, []rnnState) {
	a := c.Args.(*RNNArgs)
	dirs, per := int(a.Directions()), a.PerCell()
	weights := c.In[3:]
	var final []rnnState
	x = c.Keep(x)
	for l := range int(a.Layers) {
		w := weights[l*dirs*per:]
		y, last := rnnLayer(c, x, states[l*dirs:], w, per)
		final = append(final, last...)
		c.Drop(x)
		x = y
		if a.Dropout > 0 && c.Env().Training && l < int(a.Layers)-1 {
			train := true
			x = c.Do1(Dropout, &DropoutArgs{P: a.Dropout, Training: &train}, y)
			c.Drop(y)
		}
		for i := len(final) - dirs; i >= 0; i -= dirs { // final_hiddens is declared after layer_input; a pair is destroyed from its end
			for _, s := range final[i : i+dirs] {
				youngestState(c, s)
			}
		}
	}
	return x, final
}

// youngestState and youngestRun say that what holds a state, or outputs and then
// a state, is declared last: a tuple and a vector are destroyed from their front.
func youngestState(c *op.Call, s rnnState) {
	c.Youngest(s.c)
	c.Youngest(s.h)
}

func youngestRun(c *op.Call, r rnnRun) {
	for i := len(r.outs) - 1; i >= 0; i-- {
		c.Youngest(r.outs[i])
	}
	youngestState(c, r.final)
}

// rnnLayer is FullLayer or FullBidirectionalLayer.
func rnnLayer(c *op.Call, x *op.Tensor, states []rnnState, w []*op.Tensor, per int) (*op.Tensor, []rnnState) {
	a := c.Args.(*RNNArgs)
	steps := c.Do(Unbind, &DimArgs{}, x)
	fw := rnnDirection(c, steps, states[0], w[:per])
	if !a.Bidirectional {
		c.Drop(steps...)
		y := c.Do1(Stack, &DimArgs{}, fw.outs...)
		c.Drop(fw.outs...)
		return y, []rnnState{fw.final}
	}
	youngestRun(c, fw)
	front := c.Do1(Stack, &DimArgs{}, fw.outs...)
	reverse(steps)
	rev := rnnDirection(c, steps, states[1], w[per:2*per])
	reverse(rev.outs)
	back := c.Do1(Stack, &DimArgs{}, rev.outs...)
	y := c.Do1(Cat, &DimArgs{Dim: 2}, front, back)
	c.Drop(back)
	c.Drop(rev.outs...)
	c.Drop(steps...)
	c.Drop(front)
	c.Drop(fw.outs...)
	return y, []rnnState{fw.final, rev.final}
}

func reverse(ts []*op.Tensor) {
	for i, j := 0, len(ts)-1; i < j; i, j = i+1, j-1 {
		ts[i], ts[j] = ts[j], ts[i]
	}
}

// rnnDirection runs the cell over the steps. The caller owns what comes of it.
func rnnDirection(c *op.Call, steps []*op.Tensor, s rnnState, w []*op.Tensor) rnnRun {
	r := rnnRun{final: keepState(c, s)}
	done := false
	defer func() { // where a recomputation ends in a cell, hidden is freed, then step_outputs from its front
		if !done {
			youngestRun(c, r)
		}
	}()
	for _, x := range steps {
		next := rnnCell(c, x, r.final, w)
		dropState(c, r.final)
		r.final = next
		r.outs = append(r.outs, c.Keep(next.h))
	}
	done = true
	return r
}

// rnnCell is one step of one layer and direction.
func rnnCell(c *op.Call, x *op.Tensor, s rnnState, w []*op.Tensor) rnnState {
	a := c.Args.(*RNNArgs)
	var bih, bhh *op.Tensor
	if a.Bias {
		bih, bhh = w[2], w[3]
	}
	if a.Gates == 1 {
		nonlinearity := Tanh
		if a.ReLU {
			nonlinearity = Relu
		}
		return rnnState{h: simpleStep(c, nonlinearity, x, s.h, w)}
	}
	igates := timesTransposed(c, x, w[0])
	hgates := timesTransposed(c, s.h, w[1])
	if !a.LSTM() {
		outs := c.Do(FusedGRU, nil, igates, hgates, s.h, bih, bhh)
		c.Drop(outs[1], hgates, igates)
		return rnnState{h: outs[0]}
	}
	outs := c.Do(FusedLSTM, nil, igates, hgates, s.c, bih, bhh)
	h := outs[0]
	if a.Proj > 0 {
		h = timesTransposed(c, h, w[len(w)-1])
		c.Drop(outs[0])
	}
	c.Drop(outs[2], hgates, igates)
	return rnnState{h: h, c: outs[1]}
}

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

// recurrent is the layer as its values are computed, of so many steps. seeds are of what it
// drops; none: nothing.
func (a *RNNArgs) recurrent(steps int64, seeds []int64) *array.Recurrent {
	l := &array.Recurrent{
		Cell: a.cell(), Hidden: int(a.Hidden), Out: int(a.Out()), Layers: int(a.Layers), Directions: int(a.Directions()),
		Bias: a.Bias, Projected: a.Proj > 0, BatchFirst: a.BatchFirst,
	}
	if len(seeds) > 0 {
		l.Mask = func(layer, direction, step, i int) float64 {
			return droppedOut(uint64(seeds[(layer*l.Directions+direction)*int(steps)+step]), int64(i), a.Dropout)
		}
	}
	return l
}
