package op

import "github.com/memplan/memplan/internal/cudnn"

// convBackend is the implementation that PyTorch chooses for a convolution.
type convBackend uint8

// The implementations on CUDA devices.
const (
	convCudnn convBackend = iota
	convDepthwise2d
	convDepthwise3d
	convSlow2d
	convSlowDilated
	convSlowTranspose
)

// convBackend selects the implementation for an input and a weight
// (_select_conv_backend in aten/src/ATen/native/Convolution.cpp).
func (c *Call) convBackend(x, w *Tensor, a *ConvArgs) convBackend {
	if limit := int64(1<<31 - 1); x.Numel() > 0 && x.Numel()/x.Dim(0) > limit {
		c.Fail("a convolution over images of more than %d elements is not modelled", limit)
	}
	v, twoD := a.described(x, w), x.Rank() <= 4
	switch {
	case v.Taken(c.Env().Arch, c.Env().Deterministic):
		return convCudnn
	case v.Depthwise() && twoD:
		return convDepthwise2d
	case v.Depthwise():
		return convDepthwise3d
	case a.Transposed:
		return convSlowTranspose
	case twoD && !v.Dilated():
		return convSlow2d
	}
	return convSlowDilated
}

// described is the convolution as cuDNN sees it.
func (a *ConvArgs) described(x, w *Tensor) *cudnn.Conv {
	return &cudnn.Conv{
		DType: x.DType, X: x.Layout, W: w.Layout, Stride: a.Stride, Padding: a.Padding, Dilation: a.Dilation, OutputPadding: a.OutputPadding,
		Groups: a.Groups, Transposed: a.Transposed,
	}
}
