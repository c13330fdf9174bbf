package aten

import (
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// InterpolateArgs are the arguments of F.interpolate.
type InterpolateArgs struct {
	Size  []int64  `arg:"size"`
	Scale *float64 `arg:"scale_factor"`
	Mode  string   `arg:"mode"`
	Align bool     `arg:"align_corners"`
}

// Interpolate resizes the spatial dimensions.
var Interpolate = define(op.Op{
	Name: "interpolate", Takes: op.Floats, Args: &InterpolateArgs{}, Composite: true,
	Sig: "F.interpolate(input, size: pair? = None, scale_factor: float? = None, mode: str(nearest|linear|bilinear|bicubic|trilinear|area|nearest-exact) = 'nearest', align_corners: bool? = None)",
	Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*InterpolateArgs)
		n := x.Rank() - 2
		if n < 1 || n > 3 || spatialModes[a.Mode][n-1] == nil {
			c.Fail("mode %q does not fit shape %v", a.Mode, x.Size)
		}
		if (a.Scale == nil) == (a.Size == nil) {
			c.Fail("interpolate needs either size or scale_factor")
		}
		if a.Size != nil && len(a.Size) != 1 && len(a.Size) != n {
			c.Fail("size %s does not fit %d spatial dimensions", tensor.SizeString(a.Size), n)
		}
		size := x.Size
		for i := range n {
			var to int64
			switch {
			case a.Scale != nil:
				f := math.Floor(float64(x.Dim(i+2)) * *a.Scale)
				if !(f >= 1) || f > op.MaxGeometry {
					c.Fail("scale_factor %v does not fit shape %v", *a.Scale, x.Size)
				}
				to = int64(f)
			case len(a.Size) == 1:
				to = a.Size[0]
			default:
				to = a.Size[i]
			}
			if to < 1 || x.Numel() == 0 {
				c.Fail("shape %v cannot be resized to %d", x.Size, to)
			}
			size = size.Set(i+2, to)
		}
		if x.Rank() == 5 && !x.IsContiguous() && x.Stride.At(1) == 1 {
			c.Fail("interpolate of volumes in channels-last layout is not modelled")
		}
		row := spatialModes[a.Mode][n-1]
		if a.Mode == "area" {
			c.Return(c.Do1(row, &AdaptiveArgs{Size: size.Slice()[2:]}, x))
			return
		}
		c.Return(c.Do1(row, &ResampleArgs{ShapeArgs{size.Slice()}, a.Scale, a.Align}, x))
	},
	Source: "torch/nn/functional.py: interpolate; aten/src/ATen/native/UpSample.cpp: compute_output_size",
})

// The functions with fixed modes, of images.
var (
	UpsampleNearest  = upsampling("nearest")
	UpsampleBilinear = upsampling("bilinear")
)

func upsampling(mode string) *op.Op {
	return define(op.Op{
		Name: "upsample_" + mode, Sig: "F.upsample_" + mode + "(input, size: pair? = None, scale_factor: float? = None)", Args: &InterpolateArgs{},
		Composite: true, Run: func(c *op.Call) {
			a := *c.Args.(*InterpolateArgs)
			a.Mode, a.Align = mode, mode == "bilinear"
			c.Return(c.Do1(Interpolate, &a, c.In[0]))
		},
		Source: "torch/nn/functional.py: upsample_nearest, upsample_bilinear",
	})
}

// ResampleArgs are the arguments of the kernels of interpolate: the result's shape,
// the factor by which it was asked for, if it was, and whether corners stay where
// they are.
type ResampleArgs struct {
	ShapeArgs
	Scale *float64
	Align bool
}

// The kernels of interpolate; those of one mode by the number of dimensions.
var (
	UpsampleNearests      = [3]*op.Op{resampling("nearest1d", nearestMode, nearestTaps), resampling("nearest2d", nearestMode, nearestTaps), resampling("nearest3d", nearestMode, nearestTaps)}
	UpsampleNearestExacts = [3]*op.Op{resampling("nearest_exact1d", nearestMode, exactTaps), resampling("nearest_exact2d", nearestMode, exactTaps), resampling("nearest_exact3d", nearestMode, exactTaps)}
	UpsampleLinear1d      = resampling("linear1d", linearMode, array.LinearTaps)
	UpsampleBilinear2d    = resampling("bilinear2d", bilinearMode, array.LinearTaps)
	UpsampleBicubic2d     = resampling("bicubic2d", bicubicMode, array.CubicTaps)
	UpsampleTrilinear3d   = resampling("trilinear3d", trilinearMode, array.LinearTaps)

	nearestTaps, exactTaps = array.NearestTaps(0), array.NearestTaps(0.5)
)

// spatialModes are the modes of F.interpolate for 1, 2 and 3 spatial dimensions.
var spatialModes = map[string][3]*op.Op{
	"nearest":       UpsampleNearests,
	"nearest-exact": UpsampleNearestExacts,
	"area":          [3]*op.Op(AdaptiveAvgPools[1:]),
	"linear":        {UpsampleLinear1d},
	"bilinear":      {1: UpsampleBilinear2d},
	"bicubic":       {1: UpsampleBicubic2d},
	"trilinear":     {2: UpsampleTrilinear3d},
}

// upsampleMode is what a kernel of interpolate is written for.
type upsampleMode uint8

// The modes.
const (
	nearestMode upsampleMode = iota
	linearMode
	bilinearMode
	bicubicMode
	trilinearMode
)

// resampling defines the kernel of a mode and a number of dimensions, of which taps say
// what it makes an element of.
func resampling(name string, mode upsampleMode, taps array.Taps) *op.Op {
	eval := resampled(taps)
	switch mode {
	case nearestMode:
		eval = evalNearest(taps)
	case linearMode, bilinearMode, trilinearMode:
		eval = evalLinear
	}
	return define(op.Op{
		Name: "upsample_" + name, Args: &ResampleArgs{}, Cast: op.CastFP32, Run: func(c *op.Call) { upsample(c, mode) },
		Node: op.NodeName("upsample_" + name), Grad: func(b *op.Back) { gradUpsample(b, mode) },
		Eval:   eval,
		Source: "aten/src/ATen/native/cuda/UpSampleNearest2d.cu, UpSampleBilinear2d.cu and their like",
	})
}

// evalLinear weighs two neighbours in each dimension.
var evalLinear = &op.Eval{
	Forward: func(m op.Machine, c *op.Call) error {
		return resample(m, kernel.Resample, c.Args.(*ResampleArgs), c.In[0].Size, c.Out[0], c.In[0])
	},
	Backward: func(m op.Machine, b *op.Back) error {
		if y := m.Wanted(b, 0); y != nil {
			return resample(m, kernel.ResampleGrad, b.Args.(*ResampleArgs), y.Size, y, b.Grads[0])
		}
		return nil
	},
}

// resample runs a kernel between an image of a size and the one that it is resampled to.
func resample(m op.Machine, k *kernel.Kernel, a *ResampleArgs, size tensor.Dims, to, from *op.Tensor) error {
	n := len(a.Shape) - 2
	steps := []float64{0, 0, 0}
	for d := range n {
		in, out := size.At(d+2), a.Shape[d+2]
		if steps[3-n+d] = array.Step(int(in), int(out), a.Scale, a.Align); in == out {
			steps[3-n+d] = 1 // each element is its own
		}
	}
	l := op.Launch{On: m}
	volumes(&l, n, to, from)
	return l.Run(k, []int64{op.Flag(a.Align)}, steps...)
}

func resampled(taps array.Taps) *op.Eval {
	return op.Linear(func(args any) array.Linear {
		a := args.(*ResampleArgs)
		return array.Resampled(len(a.Shape)-2, taps, a.Scale, a.Align)
	})

}

// upsample makes the result in the input's memory format. The kernels for
// nearest neighbours want their operands contiguous, those for few channels in
// row-major order; the others read any strides.
func upsample(c *op.Call, mode upsampleMode) {
	x, last := c.In[0], c.In[0].IsChannelsLast()
	out := c.New(tensor.InFormat(tensor.D(c.Args.(*ResampleArgs).Shape...), last), x.DType)
	switch {
	case mode == nearestMode && last && x.Dim(1) >= 4:
		c.InFormat(x, true)
	case mode == nearestMode:
		c.Contiguous(out)
		c.Contiguous(x)
	case mode == bilinearMode && last && x.Dim(1) >= 16:
		c.InFormat(x, true)
	}
	c.Return(out)
}

// gradUpsample makes the gradient in the incoming one's memory format; that of
// the bicubic kernel is row-major. Images that keep their size are copied by the
// backward kernels for nearest neighbours and bilinear ones, from any strides.
func gradUpsample(b *op.Back, mode upsampleMode) {
	g, size := b.Grads[0], b.InM[0].Size
	last := g.IsChannelsLast() && mode != bicubicMode
	out := b.New(tensor.InFormat(size, last), g.DType)
	b.Set(0, out)
	if size.Len() == 4 && mode != bicubicMode && g.Size == size {
		return
	}
	if last && size.At(1) >= 4 {
		b.InFormat(g, true)
		return
	}
	b.Contiguous(out)
	b.Contiguous(g)
}
