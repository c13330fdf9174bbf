package op

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// featureDropout defines dropout1d to dropout3d, which drop whole channels: a
// product with noise of one element a channel.
func featureDropout(n int) *Op {
	name := fmt.Sprintf("dropout%dd", n)
	run := func(mul *Op) func(c *Call) {
		return func(c *Call) {
			a, x := c.Args.(*DropoutArgs), c.In[0]
			if x.Rank() != n+2 {
				c.Fail("%s needs an input with %d dimensions, not shape %v", name, n+2, x.Size)
			}
			if !c.drops(a) {
				c.ReturnSelf(0)
				return
			}
			c.Return(c.Do1(mul, &BinaryArgs{}, x, c.Local(c.noise(a, featureNoise(x)))))
		}
	}
	row := define(Op{
		Name: name, Takes: (*Call).floats, Sig: "F." + name + "(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
		Run: run(Mul), Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl, make_feature_noise",
	})
	define(Op{
		Name: name + "_", Of: row, Args: &DropoutArgs{}, Composite: true, Run: run(MulInPlace),
		Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<inplace>",
	})
	return row
}

// FeatureDropouts are dropout1d to dropout3d, by number of dimensions.
var FeatureDropouts = [4]*Op{1: featureDropout(1), 2: featureDropout(2), 3: featureDropout(3)}

// BernoulliArgs is a probability.
type BernoulliArgs struct {
	P float64
}

// BernoulliNumber is noise.bernoulli_(p).
var BernoulliNumber = define(Op{
	Name: "bernoulli_.float", Eval: evalBernoulliNumber, Args: &BernoulliArgs{}, Run: func(*Call) {}, InPlace: true, Source: "aten/src/ATen/native/Distributions.cpp: bernoulli_",
})

// noise is what a dropout multiplies with: 0 with probability p, else 1/(1-p), in
// the layout given; where everything is dropped a scalar of 0. The caller owns it.
func (c *Call) noise(a *DropoutArgs, l tensor.Layout) *Tensor {
	d := c.In[0].DType
	if a.P == 1 {
		return c.Do1(Zeros, &FillArgs{DType: &d})
	}
	n := c.New(l, d)
	c.Drop(c.Do1(BernoulliNumber, &BernoulliArgs{P: 1 - a.P}, n))
	c.Drop(c.Do1(DivInPlace, float(1-a.P), n))
	return n
}
