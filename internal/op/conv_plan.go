package op

import (
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/tensor"
)

// convKernel is one kernel of cuDNN. With torch.backends.cudnn.benchmark the first
// of its kind tries the plans that there are, in a workspace that suits them all,
// and empties the cache before it runs the best one (run_single_conv,
// get_plans_from_find). The workspace of the search is taken to be that of the plan;
// channels-last convolutions have nothing to convert, and what they take all the
// same is not known.
func (c *Call) convKernel(k cudnn.ConvKernel, images, filter, results *Tensor, last bool) {
	if c.Env().FakeTensors {
		return
	}
	a := c.Args.(*ConvArgs)
	if a.Transposed { // the gradient of another convolution
		images, results = results, images
		k = [...]cudnn.ConvKernel{cudnn.Fprop: cudnn.Dgrad, cudnn.Dgrad: cudnn.Fprop, cudnn.Wgrad: cudnn.Wgrad}[k]
	}
	call := cudnn.ConvCall{Kind: a.described(images, filter).Kind(), Kernel: k, DType: images.DType, X: images.Bytes(), W: filter.Bytes(), Y: results.Bytes()}
	workspace := func() {
		if !last {
			c.ConvWorkspace(call)
		}
	}
	if c.Env().CudnnBenchmark && c.FirstPlan(cudnn.ConvPlan{
		Kernel: k, DType: images.DType, X: images.Size, W: filter.Size, Last: last,
		Stride: tensor.D(a.Stride...), Padding: tensor.D(a.Padding...), Dilation: tensor.D(a.Dilation...), Groups: a.Groups,
		Align: [3]int64{alignment(images), alignment(results), alignment(filter)},
	}) {
		workspace()
		c.EmptyCache()
	}
	workspace()
}

func alignment(t *Tensor) int64 { return cudnn.Alignment(t.Layout, t.DType) }
