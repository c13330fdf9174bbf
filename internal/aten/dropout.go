package aten

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// The in-place form multiplies its input by noise of the same type, which autograd
// keeps.
var _ = define(op.Op{
	Name: "dropout_", Of: Dropout, Args: &DropoutArgs{}, Composite: true,
	Run: func(c *op.Call) {
		a, x := c.Args.(*DropoutArgs), c.In[0]
		if !drops(c, a) {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(MulInPlace, &BinaryArgs{}, x, c.Local(noise(c, a, x.LikeDense()))))
	},
	Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<inplace>",
})

// DropoutArgs are the arguments of dropout.
type DropoutArgs struct {
	P        float64 `arg:"p"`
	Training *bool   `arg:"training"` // nil: the module's mode
}

// drops checks the arguments of a dropout and reports whether it does anything.
func drops(c *op.Call, a *DropoutArgs) bool {
	if a.P < 0 || a.P > 1 {
		c.Fail("dropout probability %v is outside of [0, 1]", a.P)
	}
	training := c.Env().Training
	if a.Training != nil {
		training = *a.Training
	}
	return a.P > 0 && training && c.In[0].Numel() > 0
}

// Dropout keeps one byte an element for the backward pass; outside of training
// it is its input.
var Dropout = define(op.Op{
	Name: "dropout", Sig: "F.dropout(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
	Run: func(c *op.Call) {
		a, x := c.Args.(*DropoutArgs), c.In[0]
		if !drops(c, a) {
			c.ReturnSelf(0)
			return
		}
		if a.P == 1 { // input * zeros
			z := c.Local(noise(c, a, tensor.Layout{}))
			c.Return(c.Do1(Mul, &BinaryArgs{}, x, z))
			return
		}
		outs := c.Do(NativeDropout, a, x)
		c.Return(outs[0])
		c.Drop(outs[1])
	},
	Source: "aten/src/ATen/native/Dropout.cpp",
})

// NativeDropout is the kernel of dropout, which keeps its mask.
var NativeDropout = define(op.Op{
	Name: "native_dropout", Takes: op.Floats, Args: &DropoutArgs{}, Run: func(c *op.Call) {
		x := c.In[0]
		mask := c.New(x.LikeDense(), tensor.Bool)
		c.Return(c.NewLike(x), mask)
	},
	Save: []op.Save{op.Out(1)}, Node: "NativeDropoutBackward0",
	Grad: func(b *op.Back) {
		g := b.Grads[0]
		b.Set(0, b.New(tensor.InFormat(g.Size, g.IsChannelsLast()), g.DType))
	},
	Eval: &op.Eval{
		Forward: func(m op.Machine, c *op.Call) error {
			ts := []kernel.Tensor{op.As(m, c.Out[0]), op.As(m, c.Out[1]), op.As(m, c.In[0])}
			return m.Launch(kernel.Dropout, ts, []int64{m.Draw()}, c.Args.(*DropoutArgs).P)
		},
		Backward: func(m op.Machine, b *op.Back) error {
			return m.Apply(kernel.MaskScale, b.Results[0], []*op.Tensor{b.Grads[0], b.SavedOut(1)}, 1/(1-b.Args.(*DropoutArgs).P))
		},
	},
	Source: "aten/src/ATen/native/cuda/Dropout.cu",
})

// featureDropout defines dropout1d to dropout3d, which drop whole channels: a
// product with noise of one element a channel. An input of another rank than n+2
// is a sample without a batch, but for dropout2d, whose first two dimensions are
// always batch and channels.
func featureDropout(n int) *op.Op {
	name := fmt.Sprintf("dropout%dd", n)
	run := func(mul *op.Op) func(c *op.Call) {
		return func(c *op.Call) {
			a, x := c.Args.(*DropoutArgs), c.In[0]
			switch rank := x.Rank(); {
			case n == 1 && rank != 2 && rank != 3:
				c.Fail("dropout1d needs an input with 2 or 3 dimensions, not shape %v", x.Size)
			case n == 2 && rank < 2, rank == 0:
				c.Fail("%s needs an input with at least %d dimensions, not shape %v", name, min(n, 2), x.Size)
			}
			if !drops(c, a) {
				c.ReturnSelf(0)
				return
			}
			channels := 1
			if n != 2 && x.Rank() != n+2 {
				channels = 0
			}
			c.Return(c.Do1(mul, &BinaryArgs{}, x, c.Local(noise(c, a, featureNoise(x, channels)))))
		}
	}
	row := define(op.Op{
		Name: name, Takes: op.Floats, Sig: "F." + name + "(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
		Run: run(Mul), Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl, make_feature_noise",
	})
	define(op.Op{
		Name: name + "_", Of: row, Args: &DropoutArgs{}, Composite: true, Run: run(MulInPlace),
		Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<inplace>",
	})
	return row
}

// FeatureDropouts are dropout1d to dropout3d, by number of dimensions.
var FeatureDropouts = [4]*op.Op{1: featureDropout(1), 2: featureDropout(2), 3: featureDropout(3)}

// noise is what a dropout multiplies with: 0 with probability p, else 1/(1-p), in
// the layout given; where everything is dropped a scalar of 0. The caller owns it.
func noise(c *op.Call, a *DropoutArgs, l tensor.Layout) *op.Tensor {
	d := c.In[0].DType
	if a.P == 1 {
		return c.Do1(Zeros, &FillArgs{DType: &d})
	}
	n := c.New(l, d)
	c.Drop(c.Do1(BernoulliNumber, &BernoulliArgs{P: 1 - a.P}, n))
	c.Drop(c.Do1(DivInPlace, float(1-a.P), n))
	return n
}

// alphaDropout defines alpha_dropout or, by channels, feature_alpha_dropout, and
// their in-place forms: a product with noise and a sum with a shift made of it.
func alphaDropout(name string, takes func(*op.Call), noise func(x *op.Tensor) tensor.Layout) *op.Op {
	run := func(mul, add *op.Op) func(c *op.Call) {
		return func(c *op.Call) {
			a, x := c.Args.(*DropoutArgs), c.In[0]
			if !drops(c, a) {
				c.ReturnSelf(0)
				return
			}
			if a.P == 1 {
				c.Return(c.Do1(mul, &BinaryArgs{}, x, c.Local(c.Do1(Zeros, &FillArgs{DType: &x.DType}))))
				return
			}
			const alpha = 1.7580993408473766
			scale := 1 / math.Sqrt((alpha*alpha*a.P+1)*(1-a.P))
			n := c.New(noise(x), x.DType)
			c.Drop(c.Do1(BernoulliNumber, &BernoulliArgs{P: 1 - a.P}, n))
			shift := scaled(c, Add, n, -1)
			c.Drop(c.Do1(MulInPlace, float(alpha*scale), shift))
			c.Drop(c.Do1(AddInPlace, float(alpha*scale*a.P), shift))
			c.Drop(c.Do1(MulInPlace, float(scale), n))
			y := c.Do1(mul, &BinaryArgs{}, x, n)
			c.Return(c.Do1(add, &BinaryArgs{}, y, shift))
			c.Drop(y, n, shift)
		}
	}
	row := define(op.Op{
		Name: name, Takes: takes, Sig: "F." + name + "(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
		Run: run(Mul, AddInPlace), Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<alpha_dropout>",
	})
	define(op.Op{
		Name: name + "_", Of: row, Args: &DropoutArgs{}, Composite: true, Run: run(MulInPlace, AddInPlace),
		Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<alpha_dropout, inplace>",
	})
	return row
}

// The dropouts that keep mean and variance, of elements and of channels.
var (
	AlphaDropout        = alphaDropout("alpha_dropout", op.Floats, func(x *op.Tensor) tensor.Layout { return x.LikeDense() })
	FeatureAlphaDropout = alphaDropout("feature_alpha_dropout", nil, func(x *op.Tensor) tensor.Layout { return featureNoise(x, 1) })
)

// featureNoise is the layout of noise of one element a channel, where dimension
// channels is theirs (make_feature_noise).
func featureNoise(x *op.Tensor, channels int) tensor.Layout {
	size := x.Size
	for i := channels + 1; i < x.Rank(); i++ {
		size = size.Set(i, 1)
	}
	return tensor.Contiguous(size)
}

// droppedOut is what number i counts with after a dropout: 0 with probability p.
func droppedOut(seed uint64, i int64, p float64) float64 {
	if float64(kernel.Uniform(seed, i)) >= p {
		return 1 / (1 - p)
	}
	return 0
}
