package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// PadArgs are the amounts before and after each dimension, from the last one.
type PadArgs struct {
	Pad   []int64 `arg:"pad"`
	Mode  string  `arg:"mode"`
	Value float64 `arg:"value"`
}

// Pad is F.pad, which chooses among its modes.
var Pad = define(op.Op{
	Name: "pad", Sig: "F.pad(input, pad: ints, mode: str(constant|reflect|replicate|circular) = 'constant', value: float? = None)", Args: &PadArgs{},
	Composite: true, Run: func(c *op.Call) {
		x, a := c.In[0], c.Args.(*PadArgs)
		n := len(a.Pad) / 2
		switch {
		case a.Mode == "" || a.Mode == "constant":
			c.Return(c.Do1(ConstantPad, a, x))
			return
		case len(a.Pad)%2 != 0 || n < 1 || n > 3 || x.Rank() != n+1 && x.Rank() != n+2 || x.Numel() == 0:
			c.Fail("padding %s of mode %s does not fit shape %v; it has two numbers for each of the last 1 to 3 dimensions, and one or two dimensions remain",
				tensor.SizeString(a.Pad), a.Mode, x.Size)
		case a.Mode == "circular" && x.Rank() != n+2:
			c.Fail("circular padding of %d dimensions needs two more, not shape %v", n, x.Size)
		case a.Mode == "circular":
			c.Return(padCircular(c, x, a))
			return
		}
		c.Return(c.Do1(borderPads[a.Mode][n], a, x))
	},
	Source: "aten/src/ATen/native/PadNd.cpp: _pad_enum",
})

// padded is the shape of a padded tensor.
func padded(c *op.Call, x *op.Tensor, p []int64) tensor.Dims {
	if len(p)%2 != 0 || len(p) > 2*x.Rank() {
		c.Fail("padding %s does not fit %d dimensions; it has two numbers for each, from the last one on", tensor.SizeString(p), x.Rank())
	}
	size := x.Size
	for i := 0; i < len(p); i += 2 {
		d := x.Rank() - 1 - i/2
		n := size.At(d) + p[i] + p[i+1]
		if n < 0 || size.At(d)+min(p[i], 0)+min(p[i+1], 0) < 0 {
			c.Fail("padding %s makes dimension %d negative", tensor.SizeString(p), d)
		}
		size = size.Set(d, n)
	}
	return size
}

// ConstantPad pads with a number; its derivative pads the gradient with the
// amounts negated. Where nothing is added it is a clone of the inner part.
var ConstantPad = define(op.Op{
	Name: "constant_pad_nd", Eval: evalConstantPad, Args: &PadArgs{}, Run: func(c *op.Call) {
		x, p := c.In[0], c.Args.(*PadArgs).Pad
		size := padded(c, x, p)
		inner, grows := x.Layout, false
		for i := 0; i < len(p); i += 2 {
			d := x.Rank() - 1 - i/2
			from := max(-p[i], 0)
			inner = inner.Narrow(d, from, x.Dim(d)-from-max(-p[i+1], 0), 1)
			grows = grows || p[i] > 0 || p[i+1] > 0
		}
		if !grows {
			c.Return(c.New(inner.LikeDense(), x.DType))
			return
		}
		c.Return(c.New(tensor.InFormat(size, x.IsChannelsLast()), x.DType))
	},
	Node:   "ConstantPadNdBackward0",
	Source: "aten/src/ATen/native/PadNd.cpp: constant_pad_nd",
})

var _ = ConstantPad.Derive(func(b *op.Back) {
	back := make([]int64, len(b.Args.(*PadArgs).Pad))
	for i, n := range b.Args.(*PadArgs).Pad {
		back[i] = -n
	}
	b.Set(0, b.Do1(ConstantPad, &PadArgs{Pad: back}, b.Grads[0]))
})

// The kernels that repeat what lies at the border, by number of dimensions.
var (
	ReflectionPads  = [4]*op.Op{1: borderPad("reflection", 1, array.Reflected), 2: borderPad("reflection", 2, array.Reflected), 3: borderPad("reflection", 3, array.Reflected)}
	ReplicationPads = [4]*op.Op{1: borderPad("replication", 1, array.Nearest), 2: borderPad("replication", 2, array.Nearest), 3: borderPad("replication", 3, array.Nearest)}
)

// borderPads are the rows by the mode of F.pad.
var borderPads = map[string][4]*op.Op{"reflect": ReflectionPads, "replicate": ReplicationPads}

// borderPad defines reflection_pad1d and its like. The kernels of reflection want
// their input in rows, those of one and two dimensions the gradient, too;
// reflection_pad2d resizes its result. at says what stands beyond the border.
func borderPad(kind string, n int, at func(i, n int) int) *op.Op {
	digit := string(rune('0' + n))
	word := map[string]string{"reflection": "Reflection", "replication": "Replication"}[kind]
	return define(op.Op{
		Name: kind + "_pad" + digit + "d", Args: &PadArgs{},
		Eval: op.Linear(func(args any) array.Linear { return array.Bordered(args.(*PadArgs).Pad, at) }), Run: func(c *op.Call) {
			x, p := c.In[0], c.Args.(*PadArgs).Pad
			size := padded(c, x, p)
			for i, amount := range p {
				if in := x.Dim(-1 - i/2); kind == "reflection" && amount >= in {
					c.Fail("padding %d reflects more than a dimension of %d elements has", amount, in)
				}
			}
			for i := range p {
				if size.At(x.Rank()-1-i/2) < 1 {
					c.Fail("padding %s leaves nothing of shape %v", tensor.SizeString(p), x.Size)
				}
			}
			switch {
			case kind == "replication":
				c.Return(c.New(tensor.Contiguous(size), x.DType))
			case n == 2:
				c.Return(c.Grown(x.DType, size.Slice()...))
				c.Contiguous(x)
			default:
				c.Return(c.New(tensor.Contiguous(size), x.DType))
				c.Contiguous(x)
			}
		},
		Save: []op.Save{op.In(0)}, Node: word + "Pad" + digit + "DBackward0",
		Grad: func(b *op.Back) {
			if b.Env().Deterministic {
				b.Fail("%s_pad%sd has no deterministic backward pass in PyTorch; it would raise an error", kind, digit)
			}
			x := b.SavedIn(0)
			l := tensor.Contiguous(x.Size)
			b.Set(0, b.New(l, x.DType))
			if kind == "reflection" && n < 3 {
				b.Contiguous(b.Grads[0])
			}
		},
		Source: "aten/src/ATen/native/cuda/ReflectionPad.cu, ReplicationPadding.cu",
	})
}

// padCircular copies the input into the middle of a new tensor and then, one
// dimension after the other, its ends to the other side (_pad_circular).
func padCircular(c *op.Call, x *op.Tensor, a *PadArgs) *op.Tensor {
	p, rank := a.Pad, x.Rank()
	size := padded(c, x, p)
	for i := 0; i < len(p); i += 2 {
		if n := x.Dim(rank - 1 - i/2); p[i] > n || p[i+1] > n || size.At(rank-1-i/2) < 1 {
			c.Fail("padding %d, %d wraps around more than once a dimension of %d elements", p[i], p[i+1], n)
		}
	}
	out := c.NewShape(x.DType, size.Slice()...)
	slice := func(t *op.Tensor, d int, from, to int64) *op.Tensor {
		return c.Do1(Slice, &SliceArgs{Dim: d, Start: &from, End: &to, Step: 1}, t)
	}
	inner, source := c.Keep(out), c.Keep(x)
	rebind := func(t **op.Tensor, u *op.Tensor) {
		c.Drop(*t)
		*t = u
	}
	for i := 0; i < len(p); i += 2 {
		d, left, right := rank-1-i/2, p[i], p[i+1]
		rebind(&inner, slice(inner, d, max(left, 0), size.At(d)-max(right, 0)))
		rebind(&source, slice(source, d, max(-left, 0), x.Dim(d)-max(-right, 0)))
	}
	c.Drop(c.Do1(CopyInPlace, nil, inner, source))
	for i := 0; i < len(p); i += 2 {
		d, left, right := rank-1-i/2, p[i], p[i+1]
		end := size.At(d)
		wrap := func(to, from, length int64) {
			rebind(&inner, slice(out, d, to, to+length))
			rebind(&source, slice(out, d, from, from+length))
			c.Drop(c.Do1(CopyInPlace, nil, inner, source))
		}
		if left > 0 {
			wrap(0, end-left-max(right, 0), left)
		}
		if right > 0 {
			wrap(end-right, max(left, 0), right)
		}
	}
	c.Drop(source, inner)
	return out
}
