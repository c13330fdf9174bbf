package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// GridArgs are the arguments of grid_sample.
type GridArgs struct {
	Mode         string `arg:"mode"`
	PaddingMode  string `arg:"padding_mode"`
	AlignCorners bool   `arg:"align_corners"`
}

// GridSampler reads images at the places of a grid. CudnnGridSampler is the bilinear
// one with zeros around images whose corners are aligned.
var (
	_ = define(op.Op{
		Name: "grid_sampler", Args: &GridArgs{}, Cast: op.CastPromote, Composite: true,
		Sig: "F.grid_sample(input, grid, mode: str(bilinear|nearest|bicubic) = 'bilinear', padding_mode: str(zeros|border|reflection) = 'zeros', align_corners: bool? = None)",
		Run: func(c *op.Call) {
			x, g, a := c.In[0], c.In[1], c.Args.(*GridArgs)
			n := x.Rank() - 2
			if n != 2 && n != 3 || g.Rank() != n+2 || g.Dim(0) != x.Dim(0) || g.Dim(-1) != int64(n) || x.Numel() == 0 {
				c.Fail("a grid of shape %v does not fit an input of shape %v; it is (batch, ..., dimensions of space)", g.Size, x.Size)
			}
			if g.DType != x.DType {
				c.Fail("the input has type %v, the grid %v", x.DType, g.DType)
			}
			if n == 3 && a.Mode == "bicubic" {
				c.Fail("mode bicubic needs two dimensions of space")
			}
			row := GridSampler
			if n == 2 && x.DType != tensor.BFloat16 && x.Dim(1) <= 1024 && a.AlignCorners && a.Mode == "bilinear" && a.PaddingMode == "zeros" {
				row = CudnnGridSampler
			}
			c.Return(c.Do1(row, a, x, g))
		},
		Source: "aten/src/ATen/native/GridSampler.cpp: grid_sampler; GridSamplerUtils.h: cond_cudnn_grid_sampler",
	})
	GridSampler = define(op.Op{
		Name: "grid_sampler_nd", Eval: evalGridSampler, Args: &GridArgs{}, Run: func(c *op.Call) { c.Return(gridResult(c)) },
		Save: []op.Save{op.In(1), op.In(0)}, Node: "GridSampler2DBackward0",
		Grad: func(b *op.Back) { // the grid's gradient is always computed
			if b.Need(0) {
				b.Set(0, b.NewShape(b.InM[0].DType, b.InM[0].Size.Slice()...))
			}
			b.Set(1, b.NewShape(b.InM[1].DType, b.InM[1].Size.Slice()...))
		},
		Source: "aten/src/ATen/native/cuda/GridSampler.cpp, GridSampler.cu",
	})
	CudnnGridSampler = define(op.Op{
		Name: "cudnn_grid_sampler", Eval: evalGridSampler, Args: &GridArgs{}, Run: func(c *op.Call) {
			withoutZeroStrides(c, c.In[0])
			c.Contiguous(c.In[1])
			c.Return(gridResult(c))
		},
		Save: []op.Save{op.In(1), op.In(0)}, Node: "CudnnGridSamplerBackward0",
		Grad: func(b *op.Back) {
			withoutZeroStrides(&b.Call, b.SavedIn(0))
			b.Contiguous(b.SavedIn(1))
			withoutZeroStrides(&b.Call, b.Grads[0])
			for i := range 2 {
				b.Set(i, b.NewShape(b.InM[i].DType, b.InM[i].Size.Slice()...))
			}
		},
		Source: "aten/src/ATen/native/cudnn/GridSampler.cpp",
	})
)

// evalGridSampler reads the images at the places of the grid.
var evalGridSampler = op.OnHost(func(a op.Arrays, c *op.Call) {
	a.Put(c.Out[0], c.Args.(*GridArgs).grid().Sample(a.Array(c.In[0]), a.Array(c.In[1])))
}, func(a op.Arrays, b *op.Back) {
	gx, gp := b.Args.(*GridArgs).grid().SampleGrad(a.Array(b.SavedIn(0)), a.Array(b.SavedIn(1)), a.Get(b.Grads[0]))
	a.Put(a.Wanted(b, 0), gx)
	a.Put(a.Wanted(b, 1), gp)
})

func (a *GridArgs) grid() *array.Grid {
	return &array.Grid{Mode: a.Mode, Padding: a.PaddingMode, Align: a.AlignCorners}
}

// withoutZeroStrides copies t for the row's duration if it is expanded
// (contiguousIfZeroInStrides).
func withoutZeroStrides(c *op.Call, t *op.Tensor) {
	for i := range t.Rank() {
		if t.Stride.At(i) == 0 {
			c.Contiguous(t)
			return
		}
	}
}

// gridResult has the grid's positions and the input's channels.
func gridResult(c *op.Call) *op.Tensor {
	x, g := c.In[0], c.In[1]
	return c.NewShape(x.DType, append([]int64{x.Dim(0), x.Dim(1)}, g.Size.Slice()[1:g.Rank()-1]...)...)
}

// AffineArgs are the arguments of affine_grid.
type AffineArgs struct {
	Size         []int64 `arg:"size"`
	AlignCorners bool    `arg:"align_corners"`
}

// AffineGridGenerator multiplies a base grid by matrices; the base is made again for the
// derivative.
var AffineGridGenerator = define(op.Op{
	Name: "affine_grid_generator", Eval: op.Linear(func(args any) array.Linear { return array.AffineGrid(args.(*AffineArgs).AlignCorners) }), Sig: "F.affine_grid(theta, size: ints, align_corners: bool? = None)", Args: &AffineArgs{}, Run: func(c *op.Call) {
		theta, size := c.In[0], c.Args.(*AffineArgs).Size
		n := int64(len(size)) - 2
		if n != 2 && n != 3 || theta.Size != tensor.D(size[0], n, n+1) || slices.Min(size) < 1 {
			c.Fail("matrices of shape %v do not fit a size of %s; they have (batch, dimensions of space, those and one)", theta.Size, tensor.SizeString(size))
		}
		base := baseGrid(c, theta.DType, size)
		rows := c.Alias(base, tensor.Contiguous(tensor.D(size[0], spatial(tensor.D(size...)), n+1)), base.DType)
		y := c.Do1(Bmm, nil, rows, c.Local(c.Alias(theta, theta.Transpose(1, 2), theta.DType)))
		c.Return(c.Alias(y, tensor.Contiguous(tensor.D(append(append([]int64{size[0]}, size[2:]...), n)...)), y.DType))
		c.Drop(y, rows, base)
	},
	Node: "AffineGridGeneratorBackward0",
	Grad: func(b *op.Back) {
		size, g := b.Args.(*AffineArgs).Size, b.Grads[0]
		n := int64(len(size)) - 2
		base := baseGrid(&b.Call, g.DType, size)
		l := tensor.Contiguous(tensor.D(size[0], spatial(tensor.D(size...)), n+1))
		cols := b.Alias(base, l.Transpose(1, 2), base.DType)
		flat := b.Do1(Reshape, &ShapeArgs{Shape: []int64{size[0], spatial(tensor.D(size...)), n}}, g)
		y := b.Do1(Bmm, nil, cols, flat)
		b.Set(0, b.Alias(y, y.Transpose(1, 2), y.DType))
		b.Drop(y, flat, cols, base)
	},
	Source: "aten/src/ATen/native/AffineGridGenerator.cpp",
})

// baseGrid holds the coordinates of each position and a one; each coordinate
// comes from a linspace, which is scaled if corners are not aligned.
func baseGrid(c *op.Call, d tensor.DType, size []int64) *op.Tensor {
	n := len(size) - 2
	grid := c.NewShape(d, append(append([]int64{size[0]}, size[2:]...), int64(n+1))...)
	for i := len(size) - 1; i >= 2; i-- {
		line := c.NewShape(d, size[i])
		if size[i] > 1 && !c.Args.(*AffineArgs).AlignCorners { // range * (steps - 1) / steps
			scaled := c.Do1(MulScalar, nil, line)
			shrunk := c.Do1(MulScalar, nil, scaled)
			c.Drop(line, scaled, shrunk)
			continue
		}
		c.Drop(line)
	}
	return grid
}
