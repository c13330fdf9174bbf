package op

import "github.com/memplan/memplan/internal/tensor"

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
	twoD := x.Rank() <= 4
	switch {
	case a.depthwise(x, w) && c.cudnnDepthwise(x, w, a), !a.depthwise(x, w) && c.cudnnConv(x, w, a):
		return convCudnn
	case a.depthwise(x, w) && twoD:
		return convDepthwise2d
	case a.depthwise(x, w):
		return convDepthwise3d
	case a.Transposed:
		return convSlowTranspose
	case twoD && !a.dilated():
		return convSlow2d
	}
	return convSlowDilated
}

// depthwise reports one group for each input channel (is_depthwise).
func (a *ConvArgs) depthwise(x, w *Tensor) bool {
	return !a.Transposed && x.Dim(1) == a.Groups && a.Groups > 1 && w.Dim(0)%x.Dim(1) == 0
}

func (a *ConvArgs) dilated() bool {
	for _, d := range a.Dilation {
		if d != 1 {
			return true
		}
	}
	return false
}

// cudnnConv reports whether cuDNN takes the convolution (use_cudnn): it has no
// bfloat16 before sm_80, no output padding as large as the stride, and is not
// trusted with dilation where algorithms must be deterministic.
func (c *Call) cudnnConv(x, w *Tensor, a *ConvArgs) bool {
	if x.DType == tensor.BFloat16 && c.Env().Arch < 80 {
		return false
	}
	if c.Env().Deterministic && a.dilated() && !channelsLastConv(x, w) {
		return false
	}
	for i, p := range a.OutputPadding {
		if p >= a.Stride[i] {
			return false
		}
	}
	return true
}

// cudnnDepthwise reports whether cuDNN takes a depthwise convolution
// (use_cudnn_depthwise and check_cudnn_depthwise_workload_with_filter): always
// in channels-last layout, else in float16 alone and for the shapes where it is
// fast. One spatial dimension counts as two, the first of size 1.
func (c *Call) cudnnDepthwise(x, w *Tensor, a *ConvArgs) bool {
	if !c.cudnnConv(x, w, a) {
		return false
	}
	if channelsLastConv(x, w) {
		return true
	}
	if x.DType != tensor.Float16 || x.Rank() > 4 || a.dilated() || x.Dim(1) < 32 {
		return false
	}
	stride, height, kernel := a.Stride[len(a.Stride)-1], int64(1), int64(1)
	if x.Rank() == 4 {
		height, kernel = x.Dim(2), w.Dim(2)
	}
	if height != 1 && a.Stride[0] != stride {
		return false
	}
	if height == 1 && stride == 1 {
		return true
	}
	batch, channels, width, filter := x.Dim(0), x.Dim(1), x.Dim(-1), w.Dim(-1)
	if kernel != filter || (filter != 1 && filter != 3 && filter != 5) || width < 7 || stride > 2 {
		return false
	}
	switch {
	case stride == 1:
		return true
	case batch == 1:
		return filter != 1 || width <= 28
	case filter == 1:
		return batch <= 16 && channels >= 128 && width <= 7
	}
	return channels >= 512 || (channels >= 256 && width >= 28)
}
