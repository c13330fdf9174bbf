package op

import "fmt"

// ConvOptions are the arguments of F.conv2d and its like, as they are written.
type ConvOptions struct {
	Stride        []int64 `arg:"stride"`
	Padding       any     `arg:"padding"` // []int64, or "same" or "valid"
	OutputPadding []int64 `arg:"output_padding"`
	Dilation      []int64 `arg:"dilation"`
	Groups        int64   `arg:"groups"`
}

// The convolutions of torch.nn.functional, by number of dimensions.
var (
	Convs          = [4]*Op{1: convFunction(1), 2: convFunction(2), 3: convFunction(3)}
	ConvTransposes = [4]*Op{1: convTranspose(1), 2: convTranspose(2), 3: convTranspose(3)}
)

func convFunction(n int) *Op {
	return define(Op{
		Name: fmt.Sprintf("conv%dd", n), Args: &ConvOptions{}, Composite: true,
		Sig: fmt.Sprintf("F.conv%dd(input, weight, bias: tensor? = None, stride: pair = 1, padding: pair(same|valid) = 0, dilation: pair = 1, groups: int = 1)", n),
		Run: func(c *Call) {
			a, uneven := c.convOptions(n)
			x := c.In[0]
			if uneven != nil {
				x = c.Local(c.Do1(ConstantPad, &PadArgs{Pad: uneven}, x))
			}
			c.Return(c.Do1(Conv, a, x, c.In[1], c.Opt(2)))
		},
		Source: "aten/src/ATen/native/Convolution.cpp: conv2d, convolution_same",
	})
}

func convTranspose(n int) *Op {
	return define(Op{
		Name: fmt.Sprintf("conv_transpose%dd", n), Args: &ConvOptions{}, Composite: true,
		Sig: fmt.Sprintf("F.conv_transpose%dd(input, weight, bias: tensor? = None, stride: pair = 1, padding: pair = 0, output_padding: pair = 0, groups: int = 1, dilation: pair = 1)", n),
		Run: func(c *Call) {
			a, _ := c.convOptions(n)
			a.Transposed, a.OutputPadding = true, c.spatial("output_padding", c.Args.(*ConvOptions).OutputPadding, n, 0)
			for i, p := range a.OutputPadding {
				if p >= a.Stride[i] && p >= a.Dilation[i] {
					c.Fail("%s must be smaller than stride or dilation, not %d", Arg("output_padding"), p)
				}
			}
			c.Return(c.Do1(Conv, a, c.In[0], c.In[1], c.Opt(2)))
		},
		Source: "aten/src/ATen/native/Convolution.cpp: conv_transpose2d",
	})
}

// convOptions resolves the options for n dimensions. Padding that keeps the size
// and cannot be the same on both sides is uneven: that much the input is padded
// at its ends first.
func (c *Call) convOptions(n int) (a *ConvArgs, uneven []int64) {
	o, w := c.Args.(*ConvOptions), c.In[1]
	if w.Rank() != n+2 {
		c.Fail("weight must have %d dimensions, not shape %v", n+2, w.Size)
	}
	a = &ConvArgs{Stride: c.spatial("stride", o.Stride, n, 1), Dilation: c.spatial("dilation", o.Dilation, n, 1), Groups: o.Groups, Padding: make([]int64, n)}
	if o.Groups < 1 || w.Dim(0)%o.Groups != 0 || w.Dim(0) == 0 || w.Dim(1) == 0 {
		c.Fail("weight of shape %v does not divide into %d groups", w.Size, o.Groups)
	}
	for i := range n {
		if w.Dim(i+2) < 1 {
			c.Fail("weight of shape %v has no elements", w.Size)
		}
	}
	switch p := o.Padding.(type) {
	case []int64:
		a.Padding = c.spatial("padding", p, n, 0)
	case string:
		if p == "same" {
			uneven = c.paddingSame(a, w)
		}
	}
	return a, uneven
}

// paddingSame sets the padding that keeps the size (convolution_same).
func (c *Call) paddingSame(a *ConvArgs, w *Tensor) []int64 {
	n := len(a.Stride)
	uneven, needed := make([]int64, 2*n), false
	for i := range n {
		if a.Stride[i] != 1 {
			c.Fail("%s 'same' needs stride 1", Arg("padding"))
		}
		total := a.Dilation[i] * (w.Dim(i+2) - 1)
		a.Padding[i] = total / 2
		uneven[2*(n-1-i)+1] = total % 2
		needed = needed || total%2 != 0
	}
	if !needed {
		return nil
	}
	return uneven
}
