package cudnn

import "github.com/memplan/memplan/internal/tensor"

// RNN is a recurrent layer as its memory depends on it.
type RNN struct {
	Gates      int64 // of a cell: 4 of an LSTM, 3 of a GRU, 1 of a plain RNN
	Hidden     int64
	Proj       int64 // width to which an LSTM projects its output; 0: none
	Layers     int64
	Directions int64

	// Stub takes the sizes that the recordings in testdata have: there a stub stood
	// in for cuDNN and answered with round figures of its own.
	Stub bool
}

// TakesRNN reports whether PyTorch computes a recurrent layer on elements of type d by
// cuDNN (at::cudnn_is_acceptable), rather than step by step.
func TakesRNN(d tensor.DType) bool {
	return d == tensor.Float32 || d == tensor.Float16 || d == tensor.Float64
}

// Out is the width of the hidden state.
func (r *RNN) Out() int64 {
	if r.Proj > 0 {
		return r.Proj
	}
	return r.Hidden
}

// InputSize is the width of what a layer takes, the first one's being given.
func (r *RNN) InputSize(layer, first int64) int64 {
	if layer == 0 {
		return first
	}
	return r.Out() * r.Directions
}

// Weights is the number of elements of the buffer that holds all parameters, which has
// room for biases even where there are none (cudnnGetRNNWeightSpaceSize for
// CUDNN_RNN_DOUBLE_BIAS).
func (r *RNN) Weights(input int64) int64 {
	return r.matrices(input) + 2*r.Gates*r.Hidden*r.Layers*r.Directions
}

// matrices is the number of elements of all weights but the biases.
func (r *RNN) matrices(input int64) int64 {
	var n int64
	for l := range r.Layers {
		n += r.Directions * (r.Gates*r.Hidden*(r.InputSize(l, input)+r.Out()) + r.Proj*r.Hidden)
	}
	return n
}

// What cuDNN's RNN takes beside its operands is known to cuDNN alone
// (cudnnGetRNNTempSpaceSizes); NVIDIA documents no sizes. The figures below are
// made to agree with what it returned on a Tesla P100 in float32, as printed in
// issue 2895 of pytorch/pytorch: for 4 layers of width 320 on 123 inputs in one
// direction (which follow from the numbers of parameters there) a reserve of
// 736000000 bytes for an LSTM and of 864000000 for a GRU, a workspace of 17730560
// and of 13169920. Both reserves come out exactly for 25000 steps in all, both
// workspaces if these were 100 sequences, which is not said there. Newer versions
// of cuDNN, its persistent kernels and other types were never measured.

// kept is how many vectors as wide as the hidden state each step keeps in
// each layer, by the number of gates. An LSTM keeps its gates, the cell and the
// hidden state, a GRU both products of its gates and the hidden state. That of a
// plain RNN is assumed: its gate and the hidden state.
var kept = map[int64]int64{4: 6, 3: 7, 1: 2}

// Reserve is the size of what the forward pass keeps for the backward pass. The last
// layer's hidden state is the output itself.
func (r *RNN) Reserve(steps, batch int64, d tensor.DType) (tensor.Bytes, error) {
	if r.Stub {
		return tensor.MulBytes(steps, batch, r.Hidden, r.Directions, r.Layers, r.Gates+2, d.Size())
	}
	width := r.Layers*(kept[r.Gates]-1)*r.Hidden + (r.Layers-1)*r.Out()
	return tensor.MulBytes(steps, batch, r.Directions, width, d.Size())
}

// Workspace is the size of what a call needs for its time: another copy of the
// matrices, and for each sequence and layer three vectors of the hidden state for each
// gate, but one. Without a reserve to put them into, the products of one layer's gates
// and its output are assumed to lie in the workspace, too.
func (r *RNN) Workspace(steps, batch, input int64, d tensor.DType, training bool) (tensor.Bytes, error) {
	if r.Stub {
		return tensor.MulBytes(steps, batch, r.Hidden, r.Directions, r.Gates, d.Size())
	}
	n, err := tensor.MulBytes(batch, r.Layers, r.Directions, 3*r.Gates-1, r.Hidden)
	if err == nil && !training {
		var products tensor.Bytes
		products, err = tensor.MulBytes(steps, batch, r.Directions, r.Gates*r.Hidden+r.Out())
		n += products
	}
	if err != nil {
		return 0, err
	}
	return tensor.MulBytes(r.matrices(input)+int64(n), d.Size())
}

// DropoutState is the size of the state of the random numbers that cuDNN keeps for
// dropout between the layers of an RNN (cudnnDropoutGetStatesSize): the 48 bytes of
// cuRAND's XORWOW generator for each thread that a device holds. That is assumed;
// PyTorch's source says "slightly over 2MB", which fits the GPUs with 22 to 24
// multiprocessors of its time. With stub it is that of the recordings.
func DropoutState(sms, threadsPerSM int, stub bool) int64 {
	if stub {
		return 1 << 20
	}
	return int64(sms) * int64(threadsPerSM) * 48
}
