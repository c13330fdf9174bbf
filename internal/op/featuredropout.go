package op

import "fmt"

// featureDropout defines dropout1d to dropout3d, which drop whole channels: a
// product with noise of one element a channel.
func featureDropout(n int) {
	name := fmt.Sprintf("dropout%dd", n)
	define(Row{
		Name: name, Sig: "F." + name + "(input, p: float = 0.5, training: bool? = None)", Args: &DropoutArgs{}, Composite: true,
		Run: func(c *Call) {
			a, x := c.Args.(*DropoutArgs), c.In[0]
			if a.P < 0 || a.P > 1 {
				c.Fail("dropout probability %v is outside of [0, 1]", a.P)
			}
			if x.Rank() != n+2 {
				c.Fail("%s needs an input with %d dimensions, not shape %v", name, n+2, x.Size)
			}
			training := c.Env().Training
			if a.Training != nil {
				training = *a.Training
			}
			if a.P == 0 || !training || x.Numel() == 0 {
				c.ReturnSelf(0)
				return
			}
			var shape []int64
			if a.P < 1 { // else the product with a scalar of 0
				shape = []int64{x.Dim(0), x.Dim(1), 1, 1, 1}[:n+2]
			}
			noise := c.Local(c.NewShape(x.DType, shape...))
			c.Return(c.Do1(Mul, &BinaryArgs{}, x, noise))
		},
		Source: "aten/src/ATen/native/Dropout.cpp: _dropout_impl, make_feature_noise",
	})
}

func init() {
	for n := 1; n <= 3; n++ {
		featureDropout(n)
	}
}
