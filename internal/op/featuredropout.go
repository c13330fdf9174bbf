package op

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// featureDropout defines dropout1d to dropout3d, which drop whole channels: a
// product with noise of one element a channel.
func featureDropout(n int) {
	name := fmt.Sprintf("dropout%dd", n)
	run := func(mul *Row) func(c *Call) {
		return func(c *Call) {
			a, x := c.Args.(*DropoutArgs), c.In[0]
			if x.Rank() != n+2 {
				c.Fail("%s needs an input with %d dimensions, not shape %v", name, n+2, x.Size)
			}
			if !c.drops(a) {
				c.ReturnSelf(0)
				return
			}
			l := featureNoise(x)
			if a.P == 1 { // the product with a scalar of 0
				l = tensor.Contiguous(tensor.D())
			}
			noise := c.Local(c.New(l, x.DType))
			c.Return(c.Do1(mul, &BinaryArgs{}, x, noise))
		}
	}
	define(Row{
		Name: name, Sig: "F." + name + "(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
		Run: run(Mul), Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl, make_feature_noise",
	})
	define(Row{
		Name: name + "_", Args: &DropoutArgs{}, Composite: true, Run: run(MulInPlace),
		Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl<inplace>",
	})
}

func init() {
	for n := 1; n <= 3; n++ {
		featureDropout(n)
	}
}
