package op

import "github.com/memplan/memplan/internal/tensor"

// ShuffleArgs is the factor of pixel_shuffle and pixel_unshuffle.
type ShuffleArgs struct {
	Up   int64 `arg:"upscale_factor"`
	Down int64 `arg:"downscale_factor"`
}

// The two shuffles between channels and pixels: each is the other's
// derivative.
var (
	_ = define(Row{
		Name: "pixel_shuffle", Sig: "F.pixel_shuffle(input, upscale_factor: int)", Args: &ShuffleArgs{}, Run: func(c *Call) {
			c.Return(c.shuffle(c.In[0], c.Args.(*ShuffleArgs).Up))
		}, Node: "PixelShuffleBackward0",
		Grad:   func(b *Back) { b.Set(0, b.unshuffle(b.Grads[0], b.Args.(*ShuffleArgs).Up)) },
		Source: "aten/src/ATen/native/PixelShuffle.cpp: math_pixel_shuffle",
	})
	_ = define(Row{
		Name: "pixel_unshuffle", Sig: "F.pixel_unshuffle(input, downscale_factor: int)", Args: &ShuffleArgs{}, Run: func(c *Call) {
			c.Return(c.unshuffle(c.In[0], c.Args.(*ShuffleArgs).Down))
		}, Node: "PixelUnshuffleBackward0",
		Grad:   func(b *Back) { b.Set(0, b.shuffle(b.Grads[0], b.Args.(*ShuffleArgs).Down)) },
		Source: "aten/src/ATen/native/PixelShuffle.cpp: math_pixel_unshuffle",
	})
)

// shuffle moves channels into pixels: a row-major clone of a permuted view.
func (c *Call) shuffle(x *Tensor, r int64) *Tensor {
	n := x.Rank()
	if n < 3 || r < 1 || r > maxGeometry>>16 || x.Dim(n-3)%(r*r) != 0 {
		c.Fail("pixel_shuffle by %d does not fit shape %v", r, x.Size)
	}
	lead := x.Size.Slice()[:n-3]
	ch, h, w := x.Dim(n-3)/(r*r), x.Dim(n-2), x.Dim(n-1)
	c.reshaped(x, append(lead[:len(lead):len(lead)], ch, r, r, h, w))
	return c.NewShape(x.DType, append(lead, ch, h*r, w*r)...)
}

// unshuffle moves pixels into channels.
func (c *Call) unshuffle(x *Tensor, r int64) *Tensor {
	n := x.Rank()
	if n < 3 || r < 1 || r > maxGeometry>>16 || x.Dim(n-2)%r != 0 || x.Dim(n-1)%r != 0 {
		c.Fail("pixel_unshuffle by %d does not fit shape %v", r, x.Size)
	}
	lead := x.Size.Slice()[:n-3]
	ch, h, w := x.Dim(n-3), x.Dim(n-2)/r, x.Dim(n-1)/r
	c.reshaped(x, append(lead[:len(lead):len(lead)], ch, h, r, w, r))
	return c.NewShape(x.DType, append(lead, ch*r*r, h, w)...)
}

// reshaped allocates, to the end of the row, the copy that a reshape to shape
// needs, if it needs one.
func (c *Call) reshaped(x *Tensor, shape []int64) {
	if len(shape) > tensor.MaxRank {
		c.Fail("more than %d dimensions are not handled", tensor.MaxRank)
	}
	if _, ok := x.View(tensor.D(shape...)); !ok {
		c.Local(c.New(tensor.Contiguous(x.Size), x.DType))
	}
}
