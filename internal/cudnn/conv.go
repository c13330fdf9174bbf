package cudnn

import "github.com/memplan/memplan/internal/tensor"

// Conv is a convolution of images X with a filter W. The lists have one entry for each
// spatial dimension.
type Conv struct {
	DType                                    tensor.DType
	X, W                                     tensor.Layout
	Stride, Padding, Dilation, OutputPadding []int64
	Groups                                   int64
	Transposed                               bool
}

// ChannelsLast reports whether cuDNN works in channels-last layout: the strides of
// either operand suggest it (cudnn_conv_suggest_memory_format).
func (v *Conv) ChannelsLast() bool { return ChannelsLast(v.X, v.W) }

// ChannelsLast is that of two operands of a kernel.
func ChannelsLast(a, b tensor.Layout) bool { return a.IsChannelsLast() || b.IsChannelsLast() }

// Depthwise reports one group for each input channel (is_depthwise).
func (v *Conv) Depthwise() bool {
	return !v.Transposed && v.X.Dim(1) == v.Groups && v.Groups > 1 && v.W.Dim(0)%v.X.Dim(1) == 0
}

// Dilated reports whether a filter has gaps.
func (v *Conv) Dilated() bool {
	for _, d := range v.Dilation {
		if d != 1 {
			return true
		}
	}
	return false
}

// Taken reports whether cuDNN takes the convolution.
func (v *Conv) Taken(arch int, deterministic bool) bool {
	if v.Depthwise() {
		return v.takenDepthwise(arch, deterministic)
	}
	return v.taken(arch, deterministic)
}

// taken is use_cudnn: cuDNN has no bfloat16 before sm_80, no output padding as large as
// the stride, and is not trusted with dilation where algorithms must be deterministic.
func (v *Conv) taken(arch int, deterministic bool) bool {
	if v.DType == tensor.BFloat16 && arch < 80 {
		return false
	}
	if deterministic && v.Dilated() && !v.ChannelsLast() {
		return false
	}
	for i, p := range v.OutputPadding {
		if p >= v.Stride[i] {
			return false
		}
	}
	return true
}

// takenDepthwise is use_cudnn_depthwise and
// check_cudnn_depthwise_workload_with_filter: always in channels-last layout, else in
// float16 alone and for the shapes where it is fast. One spatial dimension counts as
// two, the first of size 1.
func (v *Conv) takenDepthwise(arch int, deterministic bool) bool {
	if !v.taken(arch, deterministic) {
		return false
	}
	if v.ChannelsLast() {
		return true
	}
	x, w := &v.X, &v.W
	if v.DType != tensor.Float16 || x.Rank() > 4 || v.Dilated() || x.Dim(1) < 32 {
		return false
	}
	stride, height, kernel := v.Stride[len(v.Stride)-1], int64(1), int64(1)
	if x.Rank() == 4 {
		height, kernel = x.Dim(2), w.Dim(2)
	}
	if height != 1 && v.Stride[0] != stride {
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

// ConvPlan is what PyTorch tells cuDNN's plans for convolutions apart by, beside
// what is the same throughout a job (CacheKey in aten/src/ATen/native/cudnn/Conv_v8.cpp).
type ConvPlan struct {
	Kernel                    ConvKernel
	DType                     tensor.DType
	X, W                      tensor.Dims // images and filter
	Last                      bool        // channels-last images
	Stride, Padding, Dilation tensor.Dims
	Groups                    int64
	Align                     [3]int64 // of images, results and filter
}

// Alignment is the greatest power of two, up to 32, that divides the address of a
// tensor (getAlignment); storages begin at multiples of 512.
func Alignment(l tensor.Layout, d tensor.DType) int64 {
	n := int64(32)
	for (l.Offset*d.Size())%n != 0 {
		n /= 2
	}
	return n
}
