package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// FoldArgs are the arguments of unfold and fold, which see the windows of an
// image as columns and add them up again.
type FoldArgs struct {
	Output   []int64 `arg:"output_size"`
	Kernel   []int64 `arg:"kernel_size"`
	Dilation []int64 `arg:"dilation"`
	Padding  []int64 `arg:"padding"`
	Stride   []int64 `arg:"stride"`
}

// Unfold and fold; each is the other's derivative.
var (
	Im2col = define(op.Op{
		Name: "im2col", Eval: op.Linear(func(args any) array.Linear { return args.(*FoldArgs).arrayWindows().Unfold() }), Takes: op.Floats, Sig: "F.unfold(input, kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", Args: &FoldArgs{},
		Run: func(c *op.Call) {
			x := c.In[0]
			if x.Rank() != 3 && x.Rank() != 4 || x.Numel() == 0 {
				c.Fail("unfold needs images, of 3 or 4 dimensions, not shape %v", x.Size)
			}
			n := x.Rank()
			kernel, windows := windows(c, x.Dim(n-2), x.Dim(n-1))
			c.Return(resizedLike(c, x, append(x.Size.Slice()[:n-3], x.Dim(n-3)*kernel, windows)))
		},
		Node: "Im2ColBackward0", Grad: func(b *op.Back) { b.Set(0, resizedLike(&b.Call, b.Grads[0], b.InM[0].Size.Slice())) },
		Source: "aten/src/ATen/native/cuda/Im2Col.cu",
	})
	Col2im = define(op.Op{
		Name: "col2im", Eval: op.Linear(func(args any) array.Linear { return args.(*FoldArgs).arrayWindows().Fold() }), Sig: "F.fold(input, output_size: pair, kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", Args: &FoldArgs{},
		Run: func(c *op.Call) {
			x := c.In[0]
			if x.Rank() != 2 && x.Rank() != 3 || x.Numel() == 0 {
				c.Fail("fold needs columns, of 2 or 3 dimensions, not shape %v", x.Size)
			}
			n := x.Rank()
			out := spatialArg(c, "output_size", c.Args.(*FoldArgs).Output, 2, 1)
			kernel, windows := windows(c, out[0], out[1])
			if x.Dim(n-2)%kernel != 0 || x.Dim(n-1) != windows {
				c.Fail("columns of shape %v do not fit %d windows of %d elements", x.Size, windows, kernel)
			}
			c.Return(resizedLike(c, x, append(x.Size.Slice()[:n-2], x.Dim(n-2)/kernel, out[0], out[1])))
		},
		Node: "Col2ImBackward0", Grad: func(b *op.Back) { b.Set(0, resizedLike(&b.Call, b.Grads[0], b.InM[0].Size.Slice())) },
		Source: "aten/src/ATen/native/cuda/Col2Im.cu",
	})
)

// windows counts the elements of a window and the windows of an image.
func windows(c *op.Call, height, width int64) (kernel, windows int64) {
	a := c.Args.(*FoldArgs)
	k, s := spatialArg(c, "kernel_size", a.Kernel, 2, 1), spatialArg(c, "stride", a.Stride, 2, 1)
	d, p := spatialArg(c, "dilation", a.Dilation, 2, 1), spatialArg(c, "padding", a.Padding, 2, 0)
	kernel, windows = 1, 1
	for i, n := range []int64{height, width} {
		kernel *= k[i]
		windows *= max(poolSize(n, k[i], p[i], s[i], d[i], false), 0)
	}
	if windows < 1 || kernel > op.MaxGeometry {
		c.Fail("windows of size %s do not fit %d by %d elements", tensor.SizeString(k), height, width)
	}
	return kernel, windows
}

// resizedLike is a result that is made like x, before x is copied into rows if
// need be, and then given its own size: a larger one is allocated.
func resizedLike(c *op.Call, x *op.Tensor, size []int64) *op.Tensor {
	l := tensor.Contiguous(tensor.D(size...))
	like := c.NewLike(x)
	mark := c.Mark()
	c.Contiguous(x)
	var out *op.Tensor
	if l.Numel() <= x.Numel() {
		out = c.Alias(like, l, x.DType)
	} else {
		out = c.New(l, x.DType)
	}
	c.Drop(like)
	if l.Numel() > x.Numel() {
		c.Filled(x.DType)
	}
	c.DropTo(mark)
	return out
}

func (a *FoldArgs) arrayWindows() *array.Windows {
	return &array.Windows{Kernel: a.Kernel, Stride: a.Stride, Padding: a.Padding, Dilation: a.Dilation}
}
