package op

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
)

// The spaces of cuDNN's RNN are rows of their own, so that a trace tells them
// from the results.
var (
	RnnReserve = define(Op{
		Name: "_cudnn_rnn.reserve", Eval: nothing, Args: &rnnSpaceArgs{}, Run: runRNNSpace,
		NotModelled: "cuDNN documents no size; this one is what it took on a Tesla P100 in float32, and was not measured on other GPUs, types and versions",
		Source:      "https://github.com/pytorch/pytorch/issues/2895",
	})
	RnnWorkspace = define(Op{
		Name: "_cudnn_rnn.workspace", Eval: nothing, Args: &rnnSpaceArgs{}, Run: runRNNSpace,
		NotModelled: "cuDNN documents no size; this one is assumed after what it took on a Tesla P100 in float32",
		Source:      "https://github.com/pytorch/pytorch/issues/2895",
	})
)

// InitDropoutState makes the state of random numbers.
var InitDropoutState = define(Op{
	Name: "_cudnn_init_dropout_state", Eval: nothing, Run: func(c *Call) {
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

func runRNNSpace(c *Call) {
	c.Return(c.NewShape(tensor.Uint8, int64(c.Args.(*rnnSpaceArgs).Bytes)))
}

// reserve allocates the reserve of a forward pass: nothing where no gradient
// will be asked for or no kernel runs.
func (c *Call) reserve(steps, batch int64, d tensor.DType) *Tensor {
	if !c.Env().Training || c.Env().FakeTensors {
		return c.NewShape(tensor.Uint8, 0)
	}
	n, err := c.Args.(*RNNArgs).described(c.Env().StubCudnn).Reserve(steps, batch, d)
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
	n, err := c.Args.(*RNNArgs).described(c.Env().StubCudnn).Workspace(steps, batch, input, d, training)
	if err != nil {
		c.Fail("cuDNN's workspace for %d steps of %d sequences: %v", steps, batch, err)
	}
	c.Local(c.Do1(RnnWorkspace, &rnnSpaceArgs{n}))
}
