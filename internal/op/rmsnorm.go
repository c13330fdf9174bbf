package op

import "github.com/memplan/memplan/internal/tensor"

// RMSNormArgs are the arguments of rms_norm.
type RMSNormArgs struct {
	Shape []int64  `arg:"normalized_shape"`
	Eps   *float64 `arg:"eps"`
}

// eps is what is added to the mean of squares: unless it is given, the distance
// from 1 to the next number of the input's type.
func (a *RMSNormArgs) eps(d tensor.DType) float64 {
	if a.Eps != nil {
		return *a.Eps
	}
	return d.Epsilon()
}

// RMSNorm is F.rms_norm of PyTorch 2.6: a composition of operators, in
// float32 for 16-bit inputs.
var RMSNorm = define(Op{
	Name: "rms_norm", Args: &RMSNormArgs{}, Composite: true,
	Sig: "F.rms_norm(input, normalized_shape: ints, weight: tensor? = None, eps: float? = None)",
	Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*RMSNormArgs)
		if c.Env().Torch.FusedRMSNorm() {
			c.Fail("the fused rms_norm of PyTorch %v is not modelled", c.Env().Torch)
		}
		c.normRows(x, a.Shape)
		if !x.DType.IsFloating() {
			c.Fail("rms_norm needs a floating type, not %v", x.DType)
		}
		var dims []int64
		for i := range a.Shape {
			dims = append(dims, int64(x.Rank()-i-1))
		}
		up := c.Local(c.Do1(To, &ToCopyArgs{DType: x.DType.Accumulate()}, x))
		mark := c.Mark()
		sq := c.Local(c.Do1(PowScalar, &PowArgs{Exponent: Number{Set: true, Value: 2}}, up))
		mean := c.Local(c.Do1(Mean, &ReduceArgs{Dim: dims, KeepDim: true}, sq))
		c.Drop(c.Do1(AddInPlace, float(a.eps(x.DType)), mean))
		r := c.Do1(Rsqrt, nil, mean)
		c.DropTo(mark)
		c.Local(r)
		y := c.Do1(Mul, &BinaryArgs{}, up, r)
		out := c.Do1(To, &ToCopyArgs{DType: x.DType}, y)
		c.Drop(y)
		if w := c.Opt(1); w != nil {
			y = c.Do1(Mul, &BinaryArgs{}, out, w)
			c.Drop(out)
			out = y
		}
		c.Return(out)
	},
	Source: "aten/src/ATen/native/layer_norm.cpp: rms_norm",
})
