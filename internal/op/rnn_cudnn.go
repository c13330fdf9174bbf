package op

import "github.com/memplan/memplan/internal/tensor"

// cudnnRNN computes a recurrent layer by cuDNN (_cudnn_impl). Under autocast the
// weights are converted into a new buffer first, which autograd follows
// (_cudnn_rnn_cast_reflatten).
func (c *Call) cudnnRNN() {
	a, env := c.Args.(*RNNArgs), c.Env()
	if a.Dropout > 0 && env.Training {
		c.DropoutState()
	}
	in := append([]*Tensor(nil), c.In...)
	mark := c.Mark()
	if weights := in[3:]; env.Autocast && weights[0].DType != tensor.Float16 {
		buf := c.Local(c.NewShape(tensor.Float16, a.FlatWeights(c.In[0].Dim(-1))))
		at := int64(0)
		for i, w := range weights {
			weights[i] = c.Local(c.Do1(FlatCopy, &flatCopyArgs{at}, w, buf))
			at += w.Numel()
		}
	}
	outs := c.Do(CudnnRNNKernel, a, in...)
	c.DropTo(mark)
	c.Drop(outs[3:]...)
	c.Return(outs[0], outs[1])
	if a.LSTM() {
		c.Return(outs[2])
	} else {
		c.Drop(outs[2])
	}
}

type flatCopyArgs struct {
	offset int64 // in elements of the buffer
}

// FlatCopy copies a weight into its place of a buffer, input 1, in the buffer's
// type.
var FlatCopy = define(Op{
	Name: "_cudnn_rnn_cast_reflatten", Eval: evalFlatCopy, Args: &flatCopyArgs{}, Run: func(c *Call) {
		l := tensor.Contiguous(tensor.D(c.In[0].Numel(), 1))
		l.Offset = c.Args.(*flatCopyArgs).offset
		c.Return(c.Alias(c.In[1], l, c.In[1].DType))
	},
	Node: "CopyBackwards",
	Grad: func(b *Back) {
		w := b.InM[0]
		g := b.Do1(ToCopy, &ToCopyArgs{DType: w.DType}, b.Grads[0])
		b.Set(0, b.ViewOf(g, tensor.Contiguous(w.Size)))
		b.Drop(g)
	},
	Source: "aten/src/ATen/cudnn/AutocastRNN.cpp",
})

// cudnnRNN returns output, hidden state, cell state (empty but for an LSTM),
// reserve and the buffer of the weights.
var CudnnRNNKernel = define(Op{
	Name: "_cudnn_rnn", Eval: evalRNN, Flops: rnnFlops, Takes: (*Call).oneType, Args: &RNNArgs{}, Cast: CastHalf, Run: runCudnnRNN, Grad: gradCudnnRNN,
	Save:   []Save{In(2), {State: true}, In(1), In(0), {Index: 3, Rest: true}, Out(0), Out(3), Out(4)},
	NoGrad: []int{3, 4}, Last: []int{1, 2}, Node: "CudnnRnnBackward0",
	Source: "aten/src/ATen/native/cudnn/RNN.cpp: _cudnn_rnn",
})

// stepsFirst is the layout of a sequence with the steps in front, as cuDNN reads
// it.
func (a *RNNArgs) stepsFirst(l tensor.Layout) tensor.Layout {
	if a.BatchFirst {
		return l.Transpose(0, 1)
	}
	return l
}

// stepsInFront makes a copy of a sequence that lies otherwise, which lives to
// the end of the row.
func (c *Call) stepsInFront(t *Tensor) {
	if l := c.Args.(*RNNArgs).stepsFirst(t.Layout); !l.IsContiguous() {
		c.rearranged(t, tensor.Contiguous(l.Size))
	}
}

func runCudnnRNN(c *Call) {
	a := c.Args.(*RNNArgs)
	x, hx, cx := c.In[0], c.In[1], c.In[2]
	for _, h := range []*Tensor{hx, cx} {
		if h != nil && !h.IsContiguous() {
			c.Fail("cuDNN needs a contiguous state, not one of shape %v with strides %v; call contiguous", h.Size, h.Stride)
		}
	}
	steps, batch := a.steps(x)
	cells := a.Layers * a.Directions()
	c.stepsInFront(x)
	out := c.New(a.stepsFirst(tensor.Contiguous(tensor.D(steps, batch, a.Out()*a.Directions()))), x.DType)
	hy := c.NewShape(hx.DType, cells, batch, a.Out())
	cy := (*Tensor)(nil)
	if cx != nil {
		cy = c.NewShape(cx.DType, cells, batch, a.Hidden)
	} else {
		cy = c.NewShape(hx.DType, 0)
	}
	flat, buf := tensor.Contiguous(tensor.D(a.FlatWeights(x.Dim(-1)))), (*Tensor)(nil)
	if w := c.In[3]; c.Env().FakeTensors || c.Packed(flat.Numel(), c.In[3:]...) {
		buf = c.Alias(w, flat, w.DType)
	} else { // copies of all weights
		buf = c.New(flat, w.DType)
	}
	c.workspace(steps, batch, x.Dim(-1), x.DType, c.Env().Training)
	c.Return(out, hy, cy, c.reserve(steps, batch, x.DType), buf)
}

// gradCudnnRNN is _cudnn_rnn_backward: the gradients of the sequence and the
// states always, since that changes the reserve, then those of the weights as
// views of one buffer.
func gradCudnnRNN(b *Back) {
	a := b.Args.(*RNNArgs)
	x, hx, cx, out, reserve, buf := b.SavedIn(0), b.SavedIn(1), b.SavedIn(2), b.SavedOut(0), b.SavedOut(3), b.SavedOut(4)
	if !b.Env().Training {
		b.Fail("the backward pass of cuDNN's RNN needs a forward pass in training mode")
	}
	if b.Retain {
		b.Local(b.NewLike(reserve))
	}
	grad := func(i int, like *Tensor) *Tensor {
		if b.Grads[i] != nil {
			return b.Grads[i]
		}
		return b.Local(b.NewShape(like.DType, like.Size.Slice()...)) // zeros
	}
	dout, dhy, dcy := grad(0, out), grad(1, hx), (*Tensor)(nil)
	if cx != nil {
		dcy = grad(2, cx)
	}
	steps, batch := a.steps(x)
	mark := b.Mark()
	b.stepsInFront(x)
	b.stepsInFront(dout)
	b.Set(0, b.New(a.stepsFirst(tensor.Contiguous(tensor.D(steps, batch, x.Dim(-1)))), x.DType))
	b.contiguous(dhy)
	b.contiguous(dcy)
	b.Set(1, b.NewShape(hx.DType, hx.Size.Slice()...))
	if cx != nil {
		b.Set(2, b.NewShape(cx.DType, cx.Size.Slice()...))
	}
	b.workspace(steps, batch, x.Dim(-1), x.DType, true)
	b.DropTo(mark)
	b.gradRNNWeights(x, buf)
}

// gradRNNWeights is _cudnn_rnn_backward_weight. Without biases the gradients are
// copied out of the buffer, which has room for those of biases.
func (b *Back) gradRNNWeights(x, buf *Tensor) {
	a, wanted := b.Args.(*RNNArgs), false
	for i := 3; i < len(b.InM); i++ {
		wanted = wanted || b.Need(i)
	}
	if !wanted {
		return
	}
	steps, batch := a.steps(x)
	mark := b.Mark()
	b.stepsInFront(x)
	dw := b.Local(b.NewShape(buf.DType, buf.Numel()))
	b.workspace(steps, batch, x.Dim(-1), x.DType, true)
	at := int64(0)
	b.Listed = 3
	for i := 3; i < len(b.InM); i++ {
		l := tensor.Contiguous(b.InM[i].Size)
		if !a.Bias {
			b.Set(i, b.New(l, dw.DType))
			continue
		}
		n := l.Numel()
		l.Offset = at
		b.Set(i, b.Alias(dw, l, dw.DType))
		at += n
	}
	b.DropTo(mark)
}

// rnnFlops: each weight meets each step of each sample.
func rnnFlops(c *Call) float64 {
	steps, batch := c.Args.(*RNNArgs).steps(c.In[0])
	weights := int64(0)
	for _, w := range c.In[3:] {
		weights += w.Numel()
	}
	return 2 * float64(steps) * float64(batch) * float64(weights)
}
