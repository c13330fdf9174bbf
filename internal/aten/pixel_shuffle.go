package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
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
	PixelShuffle = define(op.Op{
		Name: "pixel_shuffle", Eval: op.Linear(func(args any) array.Linear { return array.PixelShuffle(int(args.(*ShuffleArgs).Up)) }), Sig: "F.pixel_shuffle(input, upscale_factor: int)", Args: &ShuffleArgs{}, Run: func(c *op.Call) {
			c.Return(shuffle(c, c.In[0], c.Args.(*ShuffleArgs).Up))
		}, Node: "PixelShuffleBackward0",
		Grad:   func(b *op.Back) { b.Set(0, unshuffle(&b.Call, b.Grads[0], b.Args.(*ShuffleArgs).Up)) },
		Source: "aten/src/ATen/native/PixelShuffle.cpp: math_pixel_shuffle",
	})
	PixelUnshuffle = define(op.Op{
		Name: "pixel_unshuffle", Eval: op.Linear(func(args any) array.Linear { return array.PixelUnshuffle(int(args.(*ShuffleArgs).Down)) }), Sig: "F.pixel_unshuffle(input, downscale_factor: int)", Args: &ShuffleArgs{}, Run: func(c *op.Call) {
			c.Return(unshuffle(c, c.In[0], c.Args.(*ShuffleArgs).Down))
		}, Node: "PixelUnshuffleBackward0",
		Grad:   func(b *op.Back) { b.Set(0, shuffle(&b.Call, b.Grads[0], b.Args.(*ShuffleArgs).Down)) },
		Source: "aten/src/ATen/native/PixelShuffle.cpp: math_pixel_unshuffle",
	})
)

// ChannelShuffle changes the order of channels. Its derivative shuffles by as many
// groups as a group has channels.
var ChannelShuffle = define(op.Op{
	Name: "channel_shuffle", Eval: op.Linear(func(args any) array.Linear { return array.ChannelShuffle(int(args.(*GroupsArgs).Groups)) }), Sig: "F.channel_shuffle(input, groups: int)", Args: &GroupsArgs{}, Run: func(c *op.Call) {
		x, g := c.In[0], c.Args.(*GroupsArgs).Groups
		if x.Rank() < 3 || g < 1 || x.Dim(1)%g != 0 || x.Numel() == 0 {
			c.Fail("%d groups do not fit the channels of shape %v", g, x.Size)
		}
		c.Return(shuffleChannels(c, x, g))
	},
	Node: "ChannelShuffleBackward0",
	Grad: func(b *op.Back) {
		b.Set(0, shuffleChannels(&b.Call, b.Grads[0], b.Grads[0].Dim(1)/b.Args.(*GroupsArgs).Groups))
	},
	Source: "aten/src/ATen/native/ChanelShuffle.cpp: math_channel_shuffle",
})

// shuffleChannels copies a permuted view into rows, unless it lies so.
func shuffleChannels(c *op.Call, x *op.Tensor, groups int64) *op.Tensor {
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
func shuffle(c *op.Call, x *op.Tensor, r int64) *op.Tensor {
	n := x.Rank()
	if n < 3 || r < 1 || r > op.MaxGeometry>>16 || x.Dim(n-3)%(r*r) != 0 {
		c.Fail("pixel_shuffle by %d does not fit shape %v", r, x.Size)
	}
	lead := x.Size.Slice()[:n-3]
	ch, h, w := x.Dim(n-3)/(r*r), x.Dim(n-2), x.Dim(n-1)
	reshaped(c, x, append(lead[:len(lead):len(lead)], ch, r, r, h, w))
	return c.NewShape(x.DType, append(lead, ch, h*r, w*r)...)
}

// unshuffle moves pixels into channels.
func unshuffle(c *op.Call, x *op.Tensor, r int64) *op.Tensor {
	n := x.Rank()
	if n < 3 || r < 1 || r > op.MaxGeometry>>16 || x.Dim(n-2)%r != 0 || x.Dim(n-1)%r != 0 {
		c.Fail("pixel_unshuffle by %d does not fit shape %v", r, x.Size)
	}
	lead := x.Size.Slice()[:n-3]
	ch, h, w := x.Dim(n-3), x.Dim(n-2)/r, x.Dim(n-1)/r
	reshaped(c, x, append(lead[:len(lead):len(lead)], ch, h, r, w, r))
	return c.NewShape(x.DType, append(lead, ch*r*r, h, w)...)
}

// reshaped allocates, to the end of the row, the copy that a reshape to shape
// needs, if it needs one.
func reshaped(c *op.Call, x *op.Tensor, shape []int64) {
	if len(shape) > tensor.MaxRank {
		c.Fail("more than %d dimensions are not handled", tensor.MaxRank)
	}
	if _, ok := x.View(tensor.D(shape...)); !ok {
		c.Local(c.New(tensor.Contiguous(x.Size), x.DType))
	}
}
