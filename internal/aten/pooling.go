package aten

import (
	"fmt"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// The rows of poolings by number of dimensions.
var (
	MaxPools                    = [4]*op.Op{1: maxPool1d, 2: MaxPool, 3: maxPool3d}
	MaxPoolsWithIndices         = [4]*op.Op{1: maxPool1dIndices, 2: MaxPool2dIndices, 3: MaxPool3dIndices}
	AvgPools                    = [4]*op.Op{1: avgPool1d, 2: AvgPool, 3: AvgPool3d}
	AdaptiveAvgPools            = [4]*op.Op{1: adaptiveAvgPool1d, 2: AdaptiveAvgPool, 3: adaptiveAvgPool3d}
	AdaptiveMaxPools            = [4]*op.Op{1: adaptiveMaxPool1d, 2: adaptiveMaxPool, 3: adaptiveMaxPool}
	AdaptiveMaxPoolsWithIndices = [4]*op.Op{1: adaptiveMaxPool1dIndices, 2: AdaptiveMaxPool2d, 3: AdaptiveMaxPool3d}
)

// AdaptiveOptions are the arguments of F.adaptive_max_pool2d and its like.
type AdaptiveOptions struct {
	Size    []int64 `arg:"output_size"`
	Indices bool    `arg:"return_indices"`
}

// poolFunctions defines the poolings of torch.nn.functional over n dimensions.
func poolFunctions(n int) [4]*op.Op {
	name := func(s string) string { return fmt.Sprintf(s, n) }
	further := ""
	if n > 1 {
		further = ", divisor_override: int? = None"
	}
	return [4]*op.Op{
		define(op.Op{
			Name: name("max_pool%dd.any"), Args: &PoolOptions{}, Composite: true,
			Sig: name("F.max_pool%dd(input, kernel_size: pair, stride: pair? = None, padding: pair = 0, dilation: pair = 1, ceil_mode: bool = False, return_indices: bool = False)"),
			Run: func(c *op.Call) {
				o, row := c.Args.(*PoolOptions), MaxPools[n]
				if o.Indices {
					row = MaxPoolsWithIndices[n]
				}
				c.Return(c.Do(row, pool(c, o, n), c.In[0])...)
			},
			Source: "torch/nn/functional.py: max_pool2d",
		}),
		define(op.Op{
			Name: name("avg_pool%dd.any"), Args: &PoolOptions{}, Composite: true,
			Sig: name("F.avg_pool%dd(input, kernel_size: pair, stride: pair? = None, padding: pair = 0, ceil_mode: bool = False, count_include_pad: bool = True" + further + ")"),
			Run: func(c *op.Call) { c.Return(c.Do1(AvgPools[n], pool(c, c.Args.(*PoolOptions), n), c.In[0])) },
		}),
		define(op.Op{
			Name: name("adaptive_avg_pool%dd.any"), Args: &AdaptiveOptions{}, Composite: true,
			Sig: name("F.adaptive_avg_pool%dd(input, output_size: pair)"),
			Run: func(c *op.Call) {
				size := spatialArg(c, "output_size", c.Args.(*AdaptiveOptions).Size, n, 1)
				c.Return(c.Do1(AdaptiveAvgPools[n], &AdaptiveArgs{Size: size}, c.In[0]))
			},
		}),
		define(op.Op{
			Name: name("adaptive_max_pool%dd.any"), Args: &AdaptiveOptions{}, Composite: true,
			Sig: name("F.adaptive_max_pool%dd(input, output_size: pair, return_indices: bool = False)"),
			Run: func(c *op.Call) {
				o, row := c.Args.(*AdaptiveOptions), AdaptiveMaxPools[n]
				if o.Indices {
					row = AdaptiveMaxPoolsWithIndices[n]
				}
				c.Return(c.Do(row, &AdaptiveArgs{Size: spatialArg(c, "output_size", o.Size, n, 1)}, c.In[0])...)
			},
		}),
	}
}

// lpPool defines a mean of powers: (sign(out) * relu(abs(out))).mul(k).pow(1 / p).
func lpPool(n int) *op.Op {
	return define(op.Op{
		Name: fmt.Sprintf("lp_pool%dd", n), Args: &PoolOptions{}, Composite: true,
		Sig: fmt.Sprintf("F.lp_pool%dd(input, norm_type: float, kernel_size: pair, stride: pair? = None, ceil_mode: bool = False)", n),
		Run: func(c *op.Call) {
			o := c.Args.(*PoolOptions)
			if o.Norm == 0 {
				c.Fail("norm_type must not be 0")
			}
			power := c.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Float: true, Value: o.Norm}}, c.In[0])
			out := c.Local(c.Do1(AvgPools[n], pool(c, o, n), power))
			c.Drop(power)
			sign := c.Do1(Sign, nil, out)
			size := c.Do1(Abs, nil, out)
			up := c.Do1(Relu, nil, size)
			c.Drop(size)
			product := c.Do1(Mul, &BinaryArgs{}, sign, up)
			c.Drop(sign, up)
			window := 1.0
			for _, k := range pool(c, o, n).Kernel {
				window *= float64(k)
			}
			scaled := scaled(c, Mul, product, window)
			c.Drop(product)
			c.Return(c.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Float: true, Value: 1 / o.Norm}}, scaled))
			c.Drop(scaled)
		},
		Source: "torch/nn/functional.py: lp_pool2d",
	})
}

// The poolings of torch.nn.functional.
var (
	_ = [3][4]*op.Op{poolFunctions(1), poolFunctions(2), poolFunctions(3)}

	LPPools = [4]*op.Op{1: lpPool(1), 2: lpPool(2), 3: lpPool(3)}

	maxPool1dIndices = flatBoth("max_pool1d_with_indices", &PoolArgs{}, func(c *op.Call, x *op.Tensor) []*op.Tensor {
		return c.Do(MaxPool2dIndices, c.Args.(*PoolArgs).wide(), x)
	})
	adaptiveMaxPool1dIndices = flatBoth("adaptive_max_pool1d_with_indices", &AdaptiveArgs{}, func(c *op.Call, x *op.Tensor) []*op.Tensor {
		return c.Do(AdaptiveMaxPool2d, &AdaptiveArgs{Size: []int64{1, c.Args.(*AdaptiveArgs).Size[0]}}, x)
	})
)

// flatBoth is flat for a pooling that gives its indices, too.
func flatBoth(name string, args any, run func(c *op.Call, x *op.Tensor) []*op.Tensor) *op.Op {
	return define(op.Op{
		Name: name, Args: args, Composite: true, Run: func(c *op.Call) {
			if r := c.In[0].Rank(); r != 2 && r != 3 {
				c.Fail("pooling over one dimension needs 2 or 3 dimensions, not shape %v", c.In[0].Size)
			}
			x := c.Local(c.Do1(Unsqueeze, &DimArgs{Dim: -2}, c.In[0]))
			outs := run(c, x)
			for _, t := range outs {
				c.Return(c.Do1(Squeeze, &SqueezeArgs{Dim: []int64{-2}}, t))
			}
			c.Drop(outs...)
		},
		Source: "aten/src/ATen/native/Pooling.cpp",
	})
}

// FractionalArgs are the arguments of fractional max pooling.
type FractionalArgs struct {
	Kernel  []int64   `arg:"kernel_size"`
	Size    []int64   `arg:"output_size"`
	Ratio   []float64 `arg:"output_ratio"`
	Indices bool      `arg:"return_indices"`
}

// FractionalMaxPools are the kernels of fractional max pooling, by number of
// dimensions: where the windows lie is drawn for each channel.
// FractionalMaxPoolFunctions are what specs call.
var (
	FractionalMaxPools         = [4]*op.Op{2: fractionalPool(2), 3: fractionalPool(3)}
	FractionalMaxPoolFunctions = [4]*op.Op{2: fractionalPoolFunction(2), 3: fractionalPoolFunction(3)}
)

func fractionalPool(n int) *op.Op {
	return define(op.Op{
		Name: fmt.Sprintf("fractional_max_pool%dd", n), Args: &FractionalArgs{}, Run: func(c *op.Call) {
			x, a := c.In[0], c.Args.(*FractionalArgs)
			size := x.Size
			for i := range n {
				size = size.Set(x.Rank()-n+i, a.Size[i])
			}
			l := tensor.Contiguous(size)
			c.Return(c.New(l, x.DType), c.New(l, tensor.Int64))
		},
		Save: []op.Save{op.In(0), op.Out(1)}, Node: fmt.Sprintf("FractionalMaxPool%dDBackward0", n),
		Grad: func(b *op.Back) {
			if n == 2 {
				b.Contiguous(b.Grads[0])
			}
			b.Set(0, b.New(tensor.Contiguous(b.InM[0].Size), b.Grads[0].DType))
		},
		Eval: peaks(func(any) int { return n }, func(a op.Arrays, c *op.Call, in, out []int) array.Bounds { // by the samples, input 1
			return array.Fractional(in, out, c.Args.(*FractionalArgs).Kernel, a.Get(c.In[1]))
		}),
		Source: "aten/src/ATen/native/cuda/FractionalMaxPool2d.cu, FractionalMaxPool3d.cu",
	})
}

func fractionalPoolFunction(n int) *op.Op {
	name := fmt.Sprintf("fractional_max_pool%dd", n)
	return define(op.Op{
		Name: name + ".any", Args: &FractionalArgs{}, Composite: true,
		Sig: "F." + name + "(input, kernel_size: pair, output_size: pair? = None, output_ratio: floats? = None, return_indices: bool = False)",
		Run: func(c *op.Call) {
			x, a := c.In[0], *c.Args.(*FractionalArgs)
			if x.Rank() != n+1 && x.Rank() != n+2 || x.Numel() == 0 {
				c.Fail("pooling over %d dimensions needs %d or %d dimensions, not shape %v", n, n+1, n+2, x.Size)
			}
			if (len(a.Size) == 0) == (len(a.Ratio) == 0) {
				c.Fail("%s needs either output_size or output_ratio", name)
			}
			if len(a.Ratio) > 0 {
				if len(a.Ratio) != n {
					c.Fail("output_ratio must have %d numbers, not %d", n, len(a.Ratio))
				}
				for i, r := range a.Ratio {
					if !(r > 0 && r < 1) {
						c.Fail("output_ratio must be between 0 and 1, not %v", r)
					}
					a.Size = append(a.Size, int64(float64(x.Dim(x.Rank()-n+i))*r))
				}
			}
			a.Size, a.Kernel = spatialArg(c, "output_size", a.Size, n, 1), spatialArg(c, "kernel_size", a.Kernel, n, 1)
			for i, k := range a.Kernel {
				if in := x.Dim(x.Rank() - n + i); a.Size[i]+k-1 > in-int64(n-2) { // in three dimensions less than the input
					c.Fail("kernel of size %d and output of size %d do not fit %d elements", k, a.Size[i], in)
				}
			}
			batch := int64(1)
			if x.Rank() == n+2 {
				batch = x.Dim(0)
			}
			samples := c.Do1(Rand, &FillArgs{Size: []int64{batch, x.Dim(-n - 1), int64(n)}, DType: &x.DType})
			outs := c.Do(FractionalMaxPools[n], &a, x, samples)
			c.Drop(samples)
			c.Return(outs[0])
			if a.Indices {
				c.Return(outs[1])
			} else {
				c.Drop(outs[1])
			}
		},
		Source: "torch/nn/functional.py: fractional_max_pool2d",
	})
}

// spatialArg resolves an argument of a function to n numbers, one number standing
// for all.
func spatialArg(c *op.Call, name string, v []int64, n int, least int64) []int64 {
	if len(v) == 1 {
		for len(v) < n {
			v = append(v[:len(v):len(v)], v[0])
		}
	}
	if len(v) != n {
		c.Fail("%s must be one integer or %d, not %d of them", op.Arg(name), n, len(v))
	}
	for _, x := range v {
		if x < least {
			c.Fail("%s must be at least %d, not %d", op.Arg(name), least, x)
		}
	}
	return v
}

// PoolOptions are the arguments of F.max_pool2d and its like, as they are
// written.
type PoolOptions struct {
	Kernel   []int64 `arg:"kernel_size"`
	Stride   []int64 `arg:"stride"`
	Padding  []int64 `arg:"padding"`
	Dilation []int64 `arg:"dilation"`
	Ceil     bool    `arg:"ceil_mode"`
	Indices  bool    `arg:"return_indices"`
	Norm     float64 `arg:"norm_type"`
	Include  *bool   `arg:"count_include_pad"`
	Divisor  int64   `arg:"divisor_override"`
}

// pool resolves the options for n dimensions.
func pool(c *op.Call, o *PoolOptions, n int) *PoolArgs {
	a := &PoolArgs{Kernel: spatialArg(c, "kernel_size", o.Kernel, n, 1), CeilMode: o.Ceil, ExcludePadding: o.Include != nil && !*o.Include, Divisor: o.Divisor}
	a.Stride, a.Padding, a.Dilation = a.Kernel, make([]int64, n), []int64{1, 1, 1}[:n]
	if len(o.Stride) > 0 {
		a.Stride = spatialArg(c, "stride", o.Stride, n, 1)
	}
	if len(o.Padding) > 0 {
		a.Padding = spatialArg(c, "padding", o.Padding, n, 0)
	}
	if len(o.Dilation) > 0 {
		a.Dilation = spatialArg(c, "dilation", o.Dilation, n, 1)
	}
	for i := range a.Padding {
		if a.Padding[i] > a.Kernel[i]/2 {
			c.Fail("%s %d is more than half of kernel size %d", op.Arg("padding"), a.Padding[i], a.Kernel[i])
		}
	}
	return a
}
