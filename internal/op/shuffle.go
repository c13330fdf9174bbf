package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// ShuffleArgs is the factor of pixel_shuffle and pixel_unshuffle.
type ShuffleArgs struct {
	Up   int64 `arg:"upscale_factor"`
	Down int64 `arg:"downscale_factor"`
}

// The two shuffles between channels and pixels: each is the other's
// derivative.
var (
	PixelShuffle = define(Op{
		Name: "pixel_shuffle", Eval: linear(func(args any) array.Linear { return array.PixelShuffle(int(args.(*ShuffleArgs).Up)) }, nil), Sig: "F.pixel_shuffle(input, upscale_factor: int)", Args: &ShuffleArgs{}, Run: func(c *Call) {
			c.Return(c.shuffle(c.In[0], c.Args.(*ShuffleArgs).Up))
		}, Node: "PixelShuffleBackward0",
		Grad:   func(b *Back) { b.Set(0, b.unshuffle(b.Grads[0], b.Args.(*ShuffleArgs).Up)) },
		Source: "aten/src/ATen/native/PixelShuffle.cpp: math_pixel_shuffle",
	})
	PixelUnshuffle = define(Op{
		Name: "pixel_unshuffle", Eval: linear(func(args any) array.Linear { return array.PixelUnshuffle(int(args.(*ShuffleArgs).Down)) }, nil), Sig: "F.pixel_unshuffle(input, downscale_factor: int)", Args: &ShuffleArgs{}, Run: func(c *Call) {
			c.Return(c.unshuffle(c.In[0], c.Args.(*ShuffleArgs).Down))
		}, Node: "PixelUnshuffleBackward0",
		Grad:   func(b *Back) { b.Set(0, b.shuffle(b.Grads[0], b.Args.(*ShuffleArgs).Down)) },
		Source: "aten/src/ATen/native/PixelShuffle.cpp: math_pixel_unshuffle",
	})
)

// ChannelShuffle changes the order of channels. Its derivative shuffles by as many
// groups as a group has channels.
var ChannelShuffle = define(Op{
	Name: "channel_shuffle", Eval: linear(func(args any) array.Linear { return array.ChannelShuffle(int(args.(*GroupsArgs).Groups)) }, nil), Sig: "F.channel_shuffle(input, groups: int)", Args: &GroupsArgs{}, Run: func(c *Call) {
		x, g := c.In[0], c.Args.(*GroupsArgs).Groups
		if x.Rank() < 3 || g < 1 || x.Dim(1)%g != 0 || x.Numel() == 0 {
			c.Fail("%d groups do not fit the channels of shape %v", g, x.Size)
		}
		c.Return(c.shuffleChannels(x, g))
	},
	Node:   "ChannelShuffleBackward0",
	Grad:   func(b *Back) { b.Set(0, b.shuffleChannels(b.Grads[0], b.Grads[0].Dim(1)/b.Args.(*GroupsArgs).Groups)) },
	Source: "aten/src/ATen/native/ChanelShuffle.cpp: math_channel_shuffle",
})

// shuffleChannels copies a permuted view into rows, unless it lies so.
func (c *Call) shuffleChannels(x *Tensor, groups int64) *Tensor {
	l, ok := x.View(tensor.D(x.Dim(0), groups, x.Dim(1)/groups, x.Numel()/(x.Dim(0)*x.Dim(1))))
	if !ok {
		c.Fail("shape %v with strides %v cannot be viewed by groups of channels; call contiguous first", x.Size, x.Stride)
	}
	l = l.Permute([]int{0, 2, 1, 3})
	if l.IsContiguous() {
		return c.Alias(x, tensor.Contiguous(x.Size), x.DType)
	}
	return c.New(tensor.Contiguous(x.Size), x.DType)
}

// GroupsArgs is a number of groups.
type GroupsArgs struct {
	Groups int64 `arg:"groups"`
}

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
