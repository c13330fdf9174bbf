package op

import "github.com/memplan/memplan/internal/tensor"

// PadArgs are the amounts before and after each dimension, from the last one.
type PadArgs struct {
	Pad   []int64 `arg:"pad"`
	Value float64 `arg:"value"`
}

// ConstantPad is F.pad with a constant; its gradient is a copy of the inner
// part.
var ConstantPad = define(Row{
	Name: "constant_pad_nd", Sig: "F.pad(input, pad: ints, *, value: float = 0.0)", Args: &PadArgs{}, Run: func(c *Call) {
		x, p := c.In[0], c.Args.(*PadArgs).Pad
		if len(p)%2 != 0 || len(p) > 2*x.Rank() {
			c.Fail("padding %s does not fit %d dimensions; it has two numbers for each, from the last one on", tensor.SizeString(p), x.Rank())
		}
		size := x.Size
		for i := 0; i < len(p); i += 2 {
			d := x.Rank() - 1 - i/2
			size = size.Set(d, size.At(d)+p[i]+p[i+1])
			if size.At(d) < 0 {
				c.Fail("padding %s makes dimension %d negative", tensor.SizeString(p), d)
			}
		}
		c.Return(c.New(tensor.InFormat(size, x.IsChannelsLast()), x.DType))
	},
	Node: "ConstantPadNdBackward0",
	Grad: func(b *Back) {
		l := tensor.Contiguous(b.InM[0].Size)
		b.Set(0, b.New(l, b.InM[0].DType))
	},
})
