package cudnn

import "github.com/memplan/memplan/internal/tensor"

// Workspace says what a convolution of cuDNN takes from the caching
// allocator while it runs. The zero value is nothing.
//
// PyTorch runs the first plan of cuDNN's heuristics that works. It allocates the
// plan's workspace when results and copies of operands are there, and frees it
// when the kernel is launched; a plan whose workspace does not fit is passed over,
// and no other limit is set (aten/src/ATen/native/cudnn/Conv_v8.cpp: run_conv_plan,
// try_configs). With torch.backends.cudnn.benchmark it times the plans in one
// workspace that suits them all, takes the fastest and empties the cache.
//
// Which plan the heuristics name first depends on shape, GPU and version of cuDNN
// and is documented nowhere. What is documented is what kinds of kernels need
// (NVIDIA's cuDNN API reference, cudnnConvolutionFwdAlgo_t): implicit matrix
// products none, or indices computed in advance; explicit ones the matrix of the
// images' patches; Fourier and unfused Winograd transforms "significant"
// intermediate results. And kernels for tensor cores want images in channels-last
// layout and convert others inside the workspace ("Convolutional Layers User's
// Guide", tensor layouts in memory).
type Workspace struct {
	Converts bool         // what converting all operands takes, where tensor cores compute
	Bytes    tensor.Bytes // otherwise: this many for each convolution
}

// ConvKernel is one of the three computations of a convolution.
type ConvKernel uint8

// The kernels.
const (
	Fprop ConvKernel = iota // images, filter → results
	Dgrad                   // results' gradient, filter → images' gradient
	Wgrad                   // images, results' gradient → filter's gradient
)

// ConvCall is one kernel of cuDNN with the bytes of its operands: images, filter
// and results of the convolution, whichever of them the kernel reads.
type ConvCall struct {
	Kernel  ConvKernel
	Last    bool // the operands lie in channels-last layout
	DType   tensor.DType
	X, W, Y tensor.Bytes
}

// Most is a workspace in which all operands are converted.
func (c ConvCall) Most() tensor.Bytes { return c.X + c.W + c.Y }

// Counted is what a call is counted with on an architecture.
func (w *Workspace) Counted(c ConvCall, arch int) tensor.Bytes {
	switch {
	case !w.Converts:
		return w.Bytes
	case c.Last || !tensorCores(c.DType, arch):
		return 0
	}
	return c.Most()
}

// tensorCores reports whether PyTorch lets tensor cores compute convolutions of a
// type: those of float32 in TF32, by default.
func tensorCores(d tensor.DType, arch int) bool {
	switch d {
	case tensor.Float32, tensor.BFloat16:
		return arch >= 80
	case tensor.Float16:
		return arch >= 70
	}
	return false
}
