package op

import "github.com/memplan/memplan/internal/tensor"

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

// convKernel is one kernel of cuDNN. With torch.backends.cudnn.benchmark the first
// of its kind tries the plans that there are, in a workspace that suits them all,
// and empties the cache before it runs the best one (run_single_conv,
// get_plans_from_find). The workspace of the search is taken to be that of the plan;
// channels-last convolutions have nothing to convert, and what they take all the
// same is not known.
func (c *Call) convKernel(k ConvKernel, images, filter, results *Tensor, last bool) {
	if c.Env().FakeTensors {
		return
	}
	a := c.Args.(*ConvArgs)
	if a.Transposed { // the gradient of another convolution
		images, results = results, images
		k = [...]ConvKernel{Fprop: Dgrad, Dgrad: Fprop, Wgrad: Wgrad}[k]
	}
	call := ConvCall{Kind: a.kind(filter), Kernel: k, DType: images.DType, X: images.Bytes(), W: filter.Bytes(), Y: results.Bytes()}
	workspace := func() {
		if !last {
			c.ConvWorkspace(call)
		}
	}
	if c.Env().CudnnBenchmark && c.FirstPlan(ConvPlan{
		Kernel: k, DType: images.DType, X: images.Size, W: filter.Size, Last: last,
		Stride: tensor.D(a.Stride...), Padding: tensor.D(a.Padding...), Dilation: tensor.D(a.Dilation...), Groups: a.Groups,
		Align: [3]int64{images.alignment(), results.alignment(), filter.alignment()},
	}) {
		workspace()
		c.EmptyCache()
	}
	workspace()
}

// alignment is the greatest power of two, up to 32, that divides the address of t
// (getAlignment); storages begin at multiples of 512.
func (t *Tensor) alignment() int64 {
	n := int64(32)
	for (t.Offset*t.DType.Size())%n != 0 {
		n /= 2
	}
	return n
}
