package op

import "github.com/memplan/memplan/internal/tensor"

// What cuDNN's RNN takes beside its operands is known to cuDNN alone
// (cudnnGetRNNTempSpaceSizes); NVIDIA documents no sizes. The figures below are
// made to agree with what it returned on a Tesla P100 in float32, as printed in
// issue 2895 of pytorch/pytorch: for 4 layers of width 320 on 123 inputs in one
// direction (which follow from the numbers of parameters there) a reserve of
// 736000000 bytes for an LSTM and of 864000000 for a GRU, a workspace of 17730560
// and of 13169920. Both reserves come out exactly for 25000 steps in all, both
// workspaces if these were 100 sequences, which is not said there. Newer versions
// of cuDNN, its persistent kernels and other types were never measured.

// rnnKept is how many vectors as wide as the hidden state each step keeps in
// each layer, by the number of gates. An LSTM keeps its gates, the cell and the
// hidden state, a GRU both products of its gates and the hidden state. That of a
// plain RNN is assumed: its gate and the hidden state.
var rnnKept = map[int64]int64{4: 6, 3: 7, 1: 2}

// ReserveBytes is the size of what the forward pass of cuDNN's RNN keeps for
// the backward pass. The last layer's hidden state is the output itself.
func (a *RNNArgs) ReserveBytes(e *Env, steps, batch int64, d tensor.DType) (tensor.Bytes, error) {
	if e.StubCudnn {
		return tensor.MulBytes(steps, batch, a.Hidden, a.Directions(), a.Layers, a.Gates+2, d.Size())
	}
	width := a.Layers*(rnnKept[a.Gates]-1)*a.Hidden + (a.Layers-1)*a.Out()
	return tensor.MulBytes(steps, batch, a.Directions(), width, d.Size())
}

// WorkspaceBytes is the size of what cuDNN's RNN needs for the time of a call:
// another copy of the matrices, and for each sequence and layer three vectors of
// the hidden state for each gate, but one. Without a reserve to put them into, the
// products of one layer's gates and its output are assumed to lie in the
// workspace, too.
func (a *RNNArgs) WorkspaceBytes(e *Env, steps, batch, input int64, d tensor.DType, training bool) (tensor.Bytes, error) {
	if e.StubCudnn {
		return tensor.MulBytes(steps, batch, a.Hidden, a.Directions(), a.Gates, d.Size())
	}
	n, err := tensor.MulBytes(batch, a.Layers, a.Directions(), 3*a.Gates-1, a.Hidden)
	if err == nil && !training {
		var products tensor.Bytes
		products, err = tensor.MulBytes(steps, batch, a.Directions(), a.Gates*a.Hidden+a.Out())
		n += products
	}
	if err != nil {
		return 0, err
	}
	return tensor.MulBytes(a.matrices(input)+int64(n), d.Size())
}

// rnnDropoutState is the size in bytes of the random numbers' state that cuDNN
// keeps for dropout between the layers of an RNN (cudnnDropoutGetStatesSize):
// the 48 bytes of cuRAND's XORWOW generator for each thread that a device
// holds. That is assumed; PyTorch's source says "slightly over 2MB", which fits
// the GPUs with 22 to 24 multiprocessors of its time.
func (e *Env) rnnDropoutState() int64 {
	if e.StubCudnn {
		return 1 << 20
	}
	return int64(e.SMs) * int64(e.ThreadsPerSM) * 48
}

// The spaces of cuDNN's RNN are rows of their own, so that a trace tells them
// from the results.
var (
	RnnReserve = define(Op{
		Name: "_cudnn_rnn.reserve", Args: &rnnSpaceArgs{}, Run: runRNNSpace,
		NotModelled: "cuDNN documents no size; this one is what it took on a Tesla P100 in float32, and was not measured on other GPUs, types and versions",
		Source:      "https://github.com/pytorch/pytorch/issues/2895",
	})
	RnnWorkspace = define(Op{
		Name: "_cudnn_rnn.workspace", Args: &rnnSpaceArgs{}, Run: runRNNSpace,
		NotModelled: "cuDNN documents no size; this one is assumed after what it took on a Tesla P100 in float32",
		Source:      "https://github.com/pytorch/pytorch/issues/2895",
	})
)

// InitDropoutState makes the state of random numbers.
var InitDropoutState = define(Op{
	Name: "_cudnn_init_dropout_state", Run: func(c *Call) { c.Return(c.NewShape(tensor.Uint8, c.Env().rnnDropoutState())) },
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

func runRNNSpace(c *Call) {
	c.Return(c.NewShape(tensor.Uint8, int64(c.Args.(*rnnSpaceArgs).Bytes)))
}

// reserve allocates the reserve of a forward pass: nothing where no gradient
// will be asked for or no kernel runs.
func (c *Call) reserve(steps, batch int64, d tensor.DType) *Tensor {
	if !c.Env().Training || c.Env().FakeTensors {
		return c.NewShape(tensor.Uint8, 0)
	}
	n, err := c.Args.(*RNNArgs).ReserveBytes(c.Env(), steps, batch, d)
	if err != nil {
		c.Fail("what cuDNN keeps of %d steps of %d sequences: %v", steps, batch, err)
	}
	return c.Do1(RnnReserve, &rnnSpaceArgs{n})
}

// workspace allocates the workspace of a call, which is a local.
func (c *Call) workspace(steps, batch, input int64, d tensor.DType, training bool) {
	if c.Env().FakeTensors {
		return
	}
	n, err := c.Args.(*RNNArgs).WorkspaceBytes(c.Env(), steps, batch, input, d, training)
	if err != nil {
		c.Fail("cuDNN's workspace for %d steps of %d sequences: %v", steps, batch, err)
	}
	c.Local(c.Do1(RnnWorkspace, &rnnSpaceArgs{n}))
}
