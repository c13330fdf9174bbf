package op

import (
	"github.com/memplan/memplan/internal/array"
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
	Im2col = define(Op{
		Name: "im2col", Eval: linear(func(args any) array.Linear { return args.(*FoldArgs).arrayWindows().Unfold() }, nil), Takes: (*Call).floats, Sig: "F.unfold(input, kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", Args: &FoldArgs{},
		Run: func(c *Call) {
			x := c.In[0]
			if x.Rank() != 3 && x.Rank() != 4 || x.Numel() == 0 {
				c.Fail("unfold needs images, of 3 or 4 dimensions, not shape %v", x.Size)
			}
			n := x.Rank()
			kernel, windows := c.windows(x.Dim(n-2), x.Dim(n-1))
			c.Return(c.resizedLike(x, append(x.Size.Slice()[:n-3], x.Dim(n-3)*kernel, windows)))
		},
		Node: "Im2ColBackward0", Grad: func(b *Back) { b.Set(0, b.resizedLike(b.Grads[0], b.InM[0].Size.Slice())) },
		Source: "aten/src/ATen/native/cuda/Im2Col.cu",
	})
	Col2im = define(Op{
		Name: "col2im", Eval: linear(func(args any) array.Linear { return args.(*FoldArgs).arrayWindows().Fold() }, nil), Sig: "F.fold(input, output_size: pair, kernel_size: pair, dilation: pair = 1, padding: pair = 0, stride: pair = 1)", Args: &FoldArgs{},
		Run: func(c *Call) {
			x := c.In[0]
			if x.Rank() != 2 && x.Rank() != 3 || x.Numel() == 0 {
				c.Fail("fold needs columns, of 2 or 3 dimensions, not shape %v", x.Size)
			}
			n := x.Rank()
			out := c.spatial("output_size", c.Args.(*FoldArgs).Output, 2, 1)
			kernel, windows := c.windows(out[0], out[1])
			if x.Dim(n-2)%kernel != 0 || x.Dim(n-1) != windows {
				c.Fail("columns of shape %v do not fit %d windows of %d elements", x.Size, windows, kernel)
			}
			c.Return(c.resizedLike(x, append(x.Size.Slice()[:n-2], x.Dim(n-2)/kernel, out[0], out[1])))
		},
		Node: "Col2ImBackward0", Grad: func(b *Back) { b.Set(0, b.resizedLike(b.Grads[0], b.InM[0].Size.Slice())) },
		Source: "aten/src/ATen/native/cuda/Col2Im.cu",
	})
)

// windows counts the elements of a window and the windows of an image.
func (c *Call) windows(height, width int64) (kernel, windows int64) {
	a := c.Args.(*FoldArgs)
	k, s := c.spatial("kernel_size", a.Kernel, 2, 1), c.spatial("stride", a.Stride, 2, 1)
	d, p := c.spatial("dilation", a.Dilation, 2, 1), c.spatial("padding", a.Padding, 2, 0)
	kernel, windows = 1, 1
	for i, n := range []int64{height, width} {
		kernel *= k[i]
		windows *= max(poolSize(n, k[i], p[i], s[i], d[i], false), 0)
	}
	if windows < 1 || kernel > maxGeometry {
		c.Fail("windows of size %s do not fit %d by %d elements", tensor.SizeString(k), height, width)
	}
	return kernel, windows
}

// resizedLike is a result that is made like x, before x is copied into rows if
// need be, and then given its own size: memory is taken anew for a larger one.
func (c *Call) resizedLike(x *Tensor, size []int64) *Tensor {
	l := tensor.Contiguous(tensor.D(size...))
	like := c.NewLike(x)
	mark := c.Mark()
	c.contiguous(x)
	var out *Tensor
	if l.Numel() <= x.Numel() {
		out = c.Alias(like, l, x.DType)
	} else {
		out = c.New(l, x.DType)
	}
	c.Drop(like)
	if l.Numel() > x.Numel() {
		c.filled(x.DType)
	}
	c.DropTo(mark)
	return out
}

func (a *FoldArgs) arrayWindows() *array.Windows {
	return &array.Windows{Kernel: a.Kernel, Stride: a.Stride, Padding: a.Padding, Dilation: a.Dilation}
}
