package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// cudnnRNN computes a recurrent layer by cuDNN (_cudnn_impl). Under autocast the
// weights are converted into a new buffer first, which autograd follows
// (_cudnn_rnn_cast_reflatten).
func cudnnRNN(c *op.Call) {
	a, env := c.Args.(*RNNArgs), c.Env()
	if a.Dropout > 0 && env.Training {
		c.DropoutState()
	}
	in := append([]*op.Tensor(nil), c.In...)
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
var FlatCopy = define(op.Op{
	Name: "_cudnn_rnn_cast_reflatten", Eval: evalFlatCopy, Args: &flatCopyArgs{}, Run: func(c *op.Call) {
		l := tensor.Contiguous(tensor.D(c.In[0].Numel(), 1))
		l.Offset = c.Args.(*flatCopyArgs).offset
		c.Return(c.Alias(c.In[1], l, c.In[1].DType))
	},
	Node: "CopyBackwards",
	Grad: func(b *op.Back) {
		w := b.InM[0]
		g := b.Do1(ToCopy, &ToCopyArgs{DType: w.DType}, b.Grads[0])
		b.Set(0, b.ViewOf(g, tensor.Contiguous(w.Size)))
		b.Drop(g)
	},
	Source: "aten/src/ATen/cudnn/AutocastRNN.cpp",
})

// CudnnRNNKernel returns output, hidden state, cell state (empty but for an LSTM),
// reserve and the buffer of the weights.
var CudnnRNNKernel = define(op.Op{
	Name: "_cudnn_rnn", Eval: &op.Eval{Inside: true, InParts: true, ByFormula: rnnOnArrays, FormulaOnHost: true}, Flops: rnnFlops, Takes: op.OneType, Args: &RNNArgs{}, Cast: op.CastHalf, Run: runCudnnRNN, Grad: gradCudnnRNN,
	Save:   []op.Save{op.In(2), {State: true}, op.In(1), op.In(0), {Index: 3, Rest: true}, op.Out(0), op.Out(3), op.Out(4)},
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

// stepsInFront returns a sequence that has the steps in front in memory or, of one that has
// not, room for a copy that has, which lives to the end of the row.
func stepsInFront(c *op.Call, t *op.Tensor) *op.Tensor {
	if l := c.Args.(*RNNArgs).stepsFirst(t.Layout); !l.IsContiguous() {
		return c.Rearranged(t, tensor.Contiguous(l.Size))
	}
	return t
}

func runCudnnRNN(c *op.Call) {
	a := c.Args.(*RNNArgs)
	x, hx, cx := c.In[0], c.In[1], c.In[2]
	for _, h := range []*op.Tensor{hx, cx} {
		if h != nil && !h.IsContiguous() {
			c.Fail("cuDNN needs a contiguous state, not one of shape %v with strides %v; call contiguous", h.Size, h.Stride)
		}
	}
	steps, batch := a.steps(x)
	cells := a.Layers * a.Directions()
	inFront := stepsInFront(c, x)
	out := c.New(a.stepsFirst(tensor.Contiguous(tensor.D(steps, batch, a.Out()*a.Directions()))), x.DType)
	hy := c.NewShape(hx.DType, cells, batch, a.Out())
	cy := (*op.Tensor)(nil)
	if cx != nil {
		cy = c.NewShape(cx.DType, cells, batch, a.Hidden)
	} else {
		cy = c.NewShape(hx.DType, 0)
	}
	flat, buf := tensor.Contiguous(tensor.D(a.FlatWeights(x.Dim(-1)))), (*op.Tensor)(nil)
	if w := c.In[3]; c.Env().FakeTensors || c.Packed(flat.Numel(), c.In[3:]...) {
		buf = c.Alias(w, flat, w.DType)
	} else { // copies of all weights
		buf = c.New(flat, w.DType)
	}
	space := workspace(c, steps, batch, x.Dim(-1), x.DType, c.Env().Training)
	kept := reserve(c, steps, batch, x.DType)
	c.Compute(func(m op.Machine) error {
		r := a.pass(m, &rnnMemory{x: x, inFront: inFront, out: out, hx: hx, cx: cx, reserve: kept, workspace: space, weights: c.In[3:]})
		if r.seeds = drawSeeds(m, c, out); r.seeds != nil {
			m.Note(kept, r.seeds)
		}
		return r.forward(hy, cy)
	})
	c.Return(out, hy, cy, kept, buf)
}

// gradCudnnRNN is _cudnn_rnn_backward: the gradients of the sequence and the
// states always, since that changes the reserve, then those of the weights as
// views of one buffer.
func gradCudnnRNN(b *op.Back) {
	a := b.Args.(*RNNArgs)
	x, hx, cx, out, reserve, buf := b.SavedIn(0), b.SavedIn(1), b.SavedIn(2), b.SavedOut(0), b.SavedOut(3), b.SavedOut(4)
	if !b.Env().Training {
		b.Fail("the backward pass of cuDNN's RNN needs a forward pass in training mode")
	}
	t := &rnnMemory{x: x, out: out, hx: hx, cx: cx, reserve: reserve, weights: b.SavedIns()[3:]}
	if b.Retain {
		t.reserve = b.Local(b.NewLike(reserve))
		b.Compute(func(m op.Machine) error { return m.Apply(kernel.Copy, t.reserve, []*op.Tensor{reserve}) })
	}
	grad := func(i int, like *op.Tensor) *op.Tensor {
		if b.Grads[i] != nil {
			return b.Grads[i]
		}
		zeros := b.Local(b.NewShape(like.DType, like.Size.Slice()...))
		b.Compute(func(m op.Machine) error { return m.Apply(kernel.Fill, zeros, nil, 0) })
		return zeros
	}
	g := &rnnGradients{out: grad(0, out), hy: grad(1, hx)}
	if cx != nil {
		g.cy = grad(2, cx)
	}
	steps, batch := a.steps(x)
	mark := b.Mark()
	t.inFront = stepsInFront(&b.Call, x)
	stepsInFront(&b.Call, g.out)
	g.x = b.New(a.stepsFirst(tensor.Contiguous(tensor.D(steps, batch, x.Dim(-1)))), x.DType)
	b.Set(0, g.x)
	b.Contiguous(g.hy)
	b.Contiguous(g.cy)
	g.hx = b.NewShape(hx.DType, hx.Size.Slice()...)
	b.Set(1, g.hx)
	if cx != nil {
		g.cx = b.NewShape(cx.DType, cx.Size.Slice()...)
		b.Set(2, g.cx)
	}
	t.workspace = workspace(&b.Call, steps, batch, x.Dim(-1), x.DType, true)
	wanted := false
	for i := 3; i < len(b.InM); i++ {
		wanted = wanted || b.Need(i)
	}
	if !wanted {
		t.backward(b, g)
	}
	b.DropTo(mark)
	if wanted {
		gradRNNWeights(b, t, g, buf)
	}
}

// gradRNNWeights is _cudnn_rnn_backward_weight. Without biases the gradients are
// copied out of the buffer, which has room for those of biases. Where something executes
// it, it is here that all gradients are computed.
func gradRNNWeights(b *op.Back, t *rnnMemory, g *rnnGradients, buf *op.Tensor) {
	a := b.Args.(*RNNArgs)
	steps, batch := a.steps(t.x)
	mark := b.Mark()
	t.inFront = stepsInFront(&b.Call, t.x)
	dw := b.Local(b.NewShape(buf.DType, buf.Numel()))
	t.workspace = workspace(&b.Call, steps, batch, t.x.Dim(-1), t.x.DType, true)
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
	g.weights = b.Results[3:]
	t.backward(b, g)
	b.DropTo(mark)
}

// rnnFlops: each weight meets each step of each sample.
func rnnFlops(c *op.Call) float64 {
	steps, batch := c.Args.(*RNNArgs).steps(c.In[0])
	weights := int64(0)
	for _, w := range c.In[3:] {
		weights += w.Numel()
	}
	return 2 * float64(steps) * float64(batch) * float64(weights)
}

// The spaces of cuDNN's RNN are rows of their own, so that a trace tells them
// from the results.
var (
	RnnReserve = define(op.Op{
		Name: "_cudnn_rnn.reserve", Eval: op.Nothing, Args: &rnnSpaceArgs{}, Run: runRNNSpace,
		NotModelled: "cuDNN documents no size; this one is what it took on a Tesla P100 in float32, and was not measured on other GPUs, types and versions",
		Source:      "https://github.com/pytorch/pytorch/issues/2895",
	})
	RnnWorkspace = define(op.Op{
		Name: "_cudnn_rnn.workspace", Eval: op.Nothing, Args: &rnnSpaceArgs{}, Run: runRNNSpace,
		NotModelled: "cuDNN documents no size; this one is assumed after what it took on a Tesla P100 in float32",
		Source:      "https://github.com/pytorch/pytorch/issues/2895",
	})
)

// InitDropoutState makes the state of random numbers.
var InitDropoutState = define(op.Op{
	Name: "_cudnn_init_dropout_state", Eval: op.Nothing, Run: func(c *op.Call) {
		c.Return(c.NewShape(tensor.Uint8, cudnn.DropoutState(c.Env().SMs, c.Env().ThreadsPerSM, c.Env().StubCudnn)))
	},
	NotModelled: "cuDNN documents no size for its random numbers; 48 bytes for each thread that the GPU can hold are assumed",
	Source:      "aten/src/ATen/native/cudnn/RNN.cpp: _cudnn_init_dropout_state",
})

// RNNSpaces are the names of operators that stand for what cuDNN's RNN takes
// for itself, in sizes that are not known.
func RNNSpaces() []string {
	return []string{RnnReserve.Name, RnnWorkspace.Name, InitDropoutState.Name}
}

type rnnSpaceArgs struct {
	Bytes tensor.Bytes
}

func runRNNSpace(c *op.Call) {
	c.Return(c.NewShape(tensor.Uint8, int64(c.Args.(*rnnSpaceArgs).Bytes)))
}

// reserve allocates the reserve of a forward pass: nothing where no gradient
// will be asked for or no kernel runs.
func reserve(c *op.Call, steps, batch int64, d tensor.DType) *op.Tensor {
	if !c.Env().Training || c.Env().NoKernels() {
		return c.NewShape(tensor.Uint8, 0)
	}
	n, err := c.Args.(*RNNArgs).described(c.Env().StubCudnn).Reserve(steps, batch, d)
	if err != nil {
		c.Fail("what cuDNN keeps of %d steps of %d sequences: %v", steps, batch, err)
	}
	return c.Do1(RnnReserve, &rnnSpaceArgs{n})
}

// workspace allocates the workspace of a call, which is a local.
func workspace(c *op.Call, steps, batch, input int64, d tensor.DType, training bool) *op.Tensor {
	if c.Env().NoKernels() {
		return nil
	}
	n, err := c.Args.(*RNNArgs).described(c.Env().StubCudnn).Workspace(steps, batch, input, d, training)
	if err != nil {
		c.Fail("cuDNN's workspace for %d steps of %d sequences: %v", steps, batch, err)
	}
	return c.Local(c.Do1(RnnWorkspace, &rnnSpaceArgs{n}))
}

// rnnOnArrays is the same on arrays in host memory, in float64 if the tensors are, else in
// float32. What the forward pass keeps is noted of the reserve.
var rnnOnArrays = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		seeds := drawSeeds(m, c, c.Out[0])
		return m.OnHost(func(a op.Arrays) {
			if c.In[0].DType == tensor.Float64 {
				recur(m, c, seeds, a.Get, a.Put)
			} else {
				recur(m, c, seeds, a.Singles, a.PutSingles)
			}
		})
	},
	Backward: func(m op.Machine, b *op.Back) error {
		return m.OnHost(func(a op.Arrays) {
			if b.InM[0].DType == tensor.Float64 {
				recurBack(m, b, a, a.Get, a.Put)
			} else {
				recurBack(m, b, a, a.Singles, a.PutSingles)
			}
		})
	},
}

// readAll reads tensors.
func readAll[T array.Float](ts []*op.Tensor, get func(*op.Tensor) []T) [][]T {
	out := make([][]T, len(ts))
	for i, t := range ts {
		out[i] = get(t)
	}
	return out
}

// recur is the forward pass.
func recur[T array.Float](m op.Machine, c *op.Call, seeds []int64, get func(*op.Tensor) []T, put func(*op.Tensor, []T)) {
	a, x := c.Args.(*RNNArgs), c.In[0]
	steps, _ := a.steps(x)
	s := array.Recur(a.recurrent(steps, seeds), get(x), x.Size.Ints(), get(c.In[1]), get(c.In[2]), readAll(c.In[3:], get))
	put(c.Out[0], s.Y)
	put(c.Out[1], s.H)
	if c.In[2] != nil {
		put(c.Out[2], s.C)
	}
	if c.Env().Training {
		m.Note(c.Out[3], s)
	}
}

// recurBack is the backward pass.
func recurBack[T array.Float](m op.Machine, b *op.Back, a op.Arrays, get func(*op.Tensor) []T, put func(*op.Tensor, []T)) {
	args, in := b.Args.(*RNNArgs), b.SavedIns()
	s := op.Noted[*array.Recurred[T]](m, b.SavedOut(3))
	if s == nil {
		a.Fail(errReserve)
		return
	}
	grad := func(i int, like []T) []T {
		if b.Grads[i] != nil {
			return get(b.Grads[i])
		}
		return make([]T, len(like))
	}
	var gc []T
	if args.LSTM() {
		gc = grad(2, s.C)
	}
	gx, gh0, gc0, gw := s.Backward(grad(0, s.Y), grad(1, s.H), gc, readAll(in[3:], get))
	put(a.Wanted(b, 0), gx)
	put(a.Wanted(b, 1), gh0)
	if args.LSTM() {
		put(a.Wanted(b, 2), gc0)
	}
	for i, g := range gw {
		put(a.Wanted(b, 3+i), g)
	}
}

// evalFlatCopy puts a weight into its place of a buffer of another type.
var evalFlatCopy = &op.Eval{InParts: true, Over: true, Forward: func(m op.Machine, c *op.Call) error {
	l := tensor.Contiguous(c.In[0].Size)
	l.Offset = c.Out[0].Offset
	return m.Launch(kernel.Copy, []kernel.Tensor{m.At(c.Out[0], l), op.As(m, c.In[0])}, nil)
}}
