package op

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
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
	LSTM    = define(Op{Name: "lstm", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
	GRU     = define(Op{Name: "gru", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
	RNNTanh = define(Op{Name: "rnn_tanh", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
	RNNRelu = define(Op{Name: "rnn_relu", Args: &RNNArgs{}, Composite: true, Run: runRNN, Source: "aten/src/ATen/native/RNN.cpp"})
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
var RNNZeros = define(Op{
	Name: "rnn_zeros", Eval: constant(0), Args: &RNNZerosArgs{}, Run: func(c *Call) {
		a, x := c.Args.(*RNNZerosArgs), c.In[0]
		batch := x.Dim(1)
		if a.BatchFirst {
			batch = x.Dim(0)
		}
		c.Return(c.NewShape(x.DType, a.Cells, batch, a.Width))
	},
	Source: "torch/nn/modules/rnn.py: torch.zeros(num_layers * num_directions, max_batch_size, hidden_size, dtype=input.dtype)",
})

func runRNN(c *Call) {
	c.checkRNN()
	d := c.In[0].DType
	if cudnn.TakesRNN(d) && c.In[0].Numel() > 0 {
		c.cudnnRNN()
		return
	}
	if d == tensor.BFloat16 && c.Env().Torch.CudnnTakesBFloat16RNN() {
		c.Do(RNNBFloat16, nil)
	}
	c.stepwiseRNN()
}

// RNNBFloat16 does nothing but say that newer versions may do something else.
var RNNBFloat16 = define(Op{
	Name: "rnn_bfloat16", Eval: nothing, Run: func(*Call) {},
	NotModelled: "where PyTorch comes with cuDNN 9.13 or later, it computes recurrent layers in bfloat16 by cuDNN, as those in float16; here they are computed step by step",
})

// checkRNN checks what RNNBase.check_forward_args does.
func (c *Call) checkRNN() {
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
func (a *RNNArgs) steps(x *Tensor) (steps, batch int64) {
	if a.BatchFirst {
		return x.Dim(1), x.Dim(0)
	}
	return x.Dim(0), x.Dim(1)
}
