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
	Name: "_cudnn_rnn", Eval: evalRNN, Flops: rnnFlops, Takes: op.OneType, Args: &RNNArgs{}, Cast: op.CastHalf, Run: runCudnnRNN, Grad: gradCudnnRNN,
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

// stepsInFront makes a copy of a sequence that lies otherwise, which lives to
// the end of the row.
func stepsInFront(c *op.Call, t *op.Tensor) {
	if l := c.Args.(*RNNArgs).stepsFirst(t.Layout); !l.IsContiguous() {
		c.Rearranged(t, tensor.Contiguous(l.Size))
	}
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
	stepsInFront(c, x)
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
	workspace(c, steps, batch, x.Dim(-1), x.DType, c.Env().Training)
	c.Return(out, hy, cy, reserve(c, steps, batch, x.DType), buf)
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
	if b.Retain {
		b.Local(b.NewLike(reserve))
	}
	grad := func(i int, like *op.Tensor) *op.Tensor {
		if b.Grads[i] != nil {
			return b.Grads[i]
		}
		return b.Local(b.NewShape(like.DType, like.Size.Slice()...)) // zeros
	}
	dout, dhy, dcy := grad(0, out), grad(1, hx), (*op.Tensor)(nil)
	if cx != nil {
		dcy = grad(2, cx)
	}
	steps, batch := a.steps(x)
	mark := b.Mark()
	stepsInFront(&b.Call, x)
	stepsInFront(&b.Call, dout)
	b.Set(0, b.New(a.stepsFirst(tensor.Contiguous(tensor.D(steps, batch, x.Dim(-1)))), x.DType))
	b.Contiguous(dhy)
	b.Contiguous(dcy)
	b.Set(1, b.NewShape(hx.DType, hx.Size.Slice()...))
	if cx != nil {
		b.Set(2, b.NewShape(cx.DType, cx.Size.Slice()...))
	}
	workspace(&b.Call, steps, batch, x.Dim(-1), x.DType, true)
	b.DropTo(mark)
	gradRNNWeights(b, x, buf)
}

// gradRNNWeights is _cudnn_rnn_backward_weight. Without biases the gradients are
// copied out of the buffer, which has room for those of biases.
func gradRNNWeights(b *op.Back, x, buf *op.Tensor) {
	a, wanted := b.Args.(*RNNArgs), false
	for i := 3; i < len(b.InM); i++ {
		wanted = wanted || b.Need(i)
	}
	if !wanted {
		return
	}
	steps, batch := a.steps(x)
	mark := b.Mark()
	stepsInFront(&b.Call, x)
	dw := b.Local(b.NewShape(buf.DType, buf.Numel()))
	workspace(&b.Call, steps, batch, x.Dim(-1), x.DType, true)
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
func workspace(c *op.Call, steps, batch, input int64, d tensor.DType, training bool) {
	if c.Env().NoKernels() {
		return
	}
	n, err := c.Args.(*RNNArgs).described(c.Env().StubCudnn).Workspace(steps, batch, input, d, training)
	if err != nil {
		c.Fail("cuDNN's workspace for %d steps of %d sequences: %v", steps, batch, err)
	}
	c.Local(c.Do1(RnnWorkspace, &rnnSpaceArgs{n}))
}

// evalRNN is nn.LSTM, nn.GRU or nn.RNN as cuDNN computes it: in float64 if its tensors
// are, else in float32. What the forward pass keeps is noted of the reserve, of which
// cuDNN alone knows what is in it.
var evalRNN = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		return m.OnHost(func(a op.Arrays) {
			seed := int64(0)
			if c.Args.(*RNNArgs).drops() && c.Env().Training {
				seed = m.Draw() & (1<<(8*seedBytes) - 1)
				if err := writeSeed(m, c.Out[3], seed); err != nil {
					a.Fail(err)
					return
				}
			}
			if c.In[0].DType == tensor.Float64 {
				recur(m, c, seed, a.Get, a.Put)
			} else {
				recur(m, c, seed, a.Singles, a.PutSingles)
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

// drops reports whether there is a dropout, between two layers.
func (a *RNNArgs) drops() bool { return a.Dropout > 0 && a.Layers > 1 }

// seedBytes is how many bytes a seed has: no reserve of two layers is smaller.
const seedBytes = 6

// writeSeed puts the seed of a dropout into the first bytes of the reserve, so that copies
// have it.
func writeSeed(m op.Machine, reserve *op.Tensor, seed int64) error {
	for i := range int64(seedBytes) {
		l := tensor.Contiguous(tensor.D(1))
		l.Offset = reserve.Offset + i
		if err := m.Launch(kernel.Fill, []kernel.Tensor{m.At(reserve, l)}, nil, float64(seed>>(8*i)&0xff)); err != nil {
			return err
		}
	}
	return nil
}

// seedOf reads it.
func seedOf(reserve []float64) (seed int64) {
	for i := range seedBytes {
		seed |= int64(reserve[i]) << (8 * i)
	}
	return seed
}

// recurWith computes a recurrent layer of a sequence, both states and the weights.
func recurWith[T array.Float](l *array.Recurrent, in []*op.Tensor, get func(*op.Tensor) []T) *array.Recurred[T] {
	return array.Recur(l, get(in[0]), in[0].Size.Ints(), get(in[1]), get(in[2]), readAll(in[3:], get))
}

func readAll[T array.Float](ts []*op.Tensor, get func(*op.Tensor) []T) [][]T {
	out := make([][]T, len(ts))
	for i, t := range ts {
		out[i] = get(t)
	}
	return out
}

// recur is the forward pass.
func recur[T array.Float](m op.Machine, c *op.Call, seed int64, get func(*op.Tensor) []T, put func(*op.Tensor, []T)) {
	s := recurWith(c.Args.(*RNNArgs).recurrent(seed, c.Env().Training), c.In, get)
	put(c.Out[0], s.Y)
	put(c.Out[1], s.H)
	if c.In[2] != nil {
		put(c.Out[2], s.C)
	}
	if c.Env().Training {
		m.Note(c.Out[3], s)
	}
}

// recurBack is the backward pass. A reserve that was copied, as hooks of saved tensors do,
// has no note: then the forward pass is computed again.
func recurBack[T array.Float](m op.Machine, b *op.Back, a op.Arrays, get func(*op.Tensor) []T, put func(*op.Tensor, []T)) {
	args, in := b.Args.(*RNNArgs), b.SavedIns()
	s := op.Noted[*array.Recurred[T]](m, b.SavedOut(3))
	if s == nil {
		seed := int64(0)
		if args.drops() {
			seed = seedOf(a.Get(b.SavedOut(3)))
		}
		s = recurWith(args.recurrent(seed, true), in, get)
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
