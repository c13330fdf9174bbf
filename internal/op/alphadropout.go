package op

import (
	"math"

	"github.com/memplan/memplan/internal/tensor"
)

// alphaDropout defines alpha_dropout or, by channels, feature_alpha_dropout, and
// their in-place forms: a product with noise and a sum with a shift made of it.
func alphaDropout(name string, takes func(*Call), noise func(x *Tensor) tensor.Layout) *Op {
	run := func(mul, add *Op) func(c *Call) {
		return func(c *Call) {
			a, x := c.Args.(*DropoutArgs), c.In[0]
			if !c.drops(a) {
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
			shift := c.scaled(Add, n, -1)
			c.Drop(c.Do1(MulInPlace, float(alpha*scale), shift))
			c.Drop(c.Do1(AddInPlace, float(alpha*scale*a.P), shift))
			c.Drop(c.Do1(MulInPlace, float(scale), n))
			y := c.Do1(mul, &BinaryArgs{}, x, n)
			c.Return(c.Do1(add, &BinaryArgs{}, y, shift))
			c.Drop(y, n, shift)
		}
	}
	row := define(Op{
		Name: name, Takes: takes, Sig: "F." + name + "(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
		Run: run(Mul, AddInPlace), Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<alpha_dropout>",
	})
	define(Op{
		Name: name + "_", Of: row, Args: &DropoutArgs{}, Composite: true, Run: run(MulInPlace, AddInPlace),
		Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<alpha_dropout, inplace>",
	})
	return row
}

// The dropouts that keep mean and variance, of elements and of channels.
var (
	AlphaDropout        = alphaDropout("alpha_dropout", (*Call).floats, func(x *Tensor) tensor.Layout { return x.LikeDense() })
	FeatureAlphaDropout = alphaDropout("feature_alpha_dropout", nil, func(x *Tensor) tensor.Layout { return featureNoise(x) })
)

// featureNoise is the layout of noise of one element a channel
// (make_feature_noise).
func featureNoise(x *Tensor) tensor.Layout {
	size := x.Size
	for i := 2; i < x.Rank(); i++ {
		size = size.Set(i, 1)
	}
	return tensor.Contiguous(size)
}
