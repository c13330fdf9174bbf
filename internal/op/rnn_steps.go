package op

// rnnState is the state of one layer and direction: hidden, and the cell's of an
// LSTM.
type rnnState struct{ h, c *Tensor }

// rnnRun is what came of one layer and direction, by step, and its last state.
type rnnRun struct {
	outs  []*Tensor
	final rnnState
}

func (c *Call) dropState(s rnnState) { c.Drop(s.h, s.c) }

func (c *Call) keepState(s rnnState) rnnState {
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
// dies does so in the order of the C++ code: vectors from the front, members of
// a struct and locals from the last.
func (c *Call) stepwiseRNN() {
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
	y, final := c.layerStack(x, states)
	hs, cs := make([]*Tensor, len(final)), make([]*Tensor, len(final))
	for i, s := range final {
		hs[i], cs[i] = s.h, s.c
	}
	var cy *Tensor // made before hy, as GCC evaluates the arguments of make_tuple
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
func (c *Call) layerStack(x *Tensor, states []rnnState) (*Tensor, []rnnState) {
	a := c.Args.(*RNNArgs)
	dirs, per := int(a.Directions()), a.PerCell()
	weights := c.In[3:]
	var final []rnnState
	x = c.Keep(x)
	for l := range int(a.Layers) {
		w := weights[l*dirs*per:]
		y, last := c.rnnLayer(x, states[l*dirs:], w, per)
		final = append(final, last...)
		c.Drop(x)
		x = y
		if a.Dropout > 0 && c.Env().Training && l < int(a.Layers)-1 {
			train := true
			x = c.Do1(Dropout, &DropoutArgs{P: a.Dropout, Training: &train}, y)
			c.Drop(y)
		}
		for i := len(final) - dirs; i >= 0; i -= dirs { // final_hiddens is declared after layer_input; a pair dies from its end
			for _, s := range final[i : i+dirs] {
				c.youngestState(s)
			}
		}
	}
	return x, final
}

// youngestState and youngestRun say that what holds a state, or outputs and then
// a state, is declared last: a tuple and a vector die from their front.
func (c *Call) youngestState(s rnnState) {
	c.Youngest(s.c)
	c.Youngest(s.h)
}

func (c *Call) youngestRun(r rnnRun) {
	for i := len(r.outs) - 1; i >= 0; i-- {
		c.Youngest(r.outs[i])
	}
	c.youngestState(r.final)
}

// rnnLayer is FullLayer or FullBidirectionalLayer.
func (c *Call) rnnLayer(x *Tensor, states []rnnState, w []*Tensor, per int) (*Tensor, []rnnState) {
	a := c.Args.(*RNNArgs)
	steps := c.Do(Unbind, &DimArgs{}, x)
	fw := c.rnnDirection(steps, states[0], w[:per])
	if !a.Bidirectional {
		c.Drop(steps...)
		y := c.Do1(Stack, &DimArgs{}, fw.outs...)
		c.Drop(fw.outs...)
		return y, []rnnState{fw.final}
	}
	c.youngestRun(fw)
	front := c.Do1(Stack, &DimArgs{}, fw.outs...)
	reverse(steps)
	rev := c.rnnDirection(steps, states[1], w[per:2*per])
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

func reverse(ts []*Tensor) {
	for i, j := 0, len(ts)-1; i < j; i, j = i+1, j-1 {
		ts[i], ts[j] = ts[j], ts[i]
	}
}

// rnnDirection runs the cell over the steps. The caller owns what comes of it.
func (c *Call) rnnDirection(steps []*Tensor, s rnnState, w []*Tensor) rnnRun {
	r := rnnRun{final: c.keepState(s)}
	done := false
	defer func() { // where a recomputation ends in a cell, hidden dies, then step_outputs from its front
		if !done {
			c.youngestRun(r)
		}
	}()
	for _, x := range steps {
		next := c.rnnCell(x, r.final, w)
		c.dropState(r.final)
		r.final = next
		r.outs = append(r.outs, c.Keep(next.h))
	}
	done = true
	return r
}

// rnnCell is one step of one layer and direction.
func (c *Call) rnnCell(x *Tensor, s rnnState, w []*Tensor) rnnState {
	a := c.Args.(*RNNArgs)
	var bih, bhh *Tensor
	if a.Bias {
		bih, bhh = w[2], w[3]
	}
	if a.Gates == 1 {
		nonlinearity := Tanh
		if a.ReLU {
			nonlinearity = Relu
		}
		return rnnState{h: c.simpleCell(nonlinearity, x, s.h, w)}
	}
	igates := c.timesTransposed(x, w[0])
	hgates := c.timesTransposed(s.h, w[1])
	if !a.LSTM() {
		outs := c.Do(FusedGRU, nil, igates, hgates, s.h, bih, bhh)
		c.Drop(outs[1], hgates, igates)
		return rnnState{h: outs[0]}
	}
	outs := c.Do(FusedLSTM, nil, igates, hgates, s.c, bih, bhh)
	h := outs[0]
	if a.Proj > 0 {
		h = c.timesTransposed(h, w[len(w)-1])
		c.Drop(outs[0])
	}
	c.Drop(outs[2], hgates, igates)
	return rnnState{h: h, c: outs[1]}
}

// TransposeInPlace swaps the dimensions of a tensor that nobody else holds, so
// that the result is no view.
var TransposeInPlace = define(Op{
	Name: "transpose_", Eval: &Eval{Forward: nothing.Forward, InParts: true}, Of: Transpose, Args: &TransposeArgs{}, Run: func(c *Call) {
		a, x := c.Args.(*TransposeArgs), c.In[0]
		c.Return(c.Alias(x, x.Transpose(a.Dim0, a.Dim1), x.DType))
	},
	Node: "TransposeBackward1",
	Grad: func(b *Back) {
		a, g := b.Args.(*TransposeArgs), b.Grads[0]
		b.Set(0, b.ViewOf(g, g.Transpose(a.Dim0, a.Dim1)))
	},
})
