package op

// ResponseNormArgs are the arguments of F.local_response_norm.
type ResponseNormArgs struct {
	Size  int64   `arg:"size"`
	Alpha float64 `arg:"alpha"`
	Beta  float64 `arg:"beta"`
	K     float64 `arg:"k"`
}

// LocalResponseNorm divides by a mean of squares over neighbouring channels.
var LocalResponseNorm = define(Op{
	Name: "local_response_norm", Sig: "F.local_response_norm(input, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0)",
	Args: &ResponseNormArgs{}, Composite: true, Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*ResponseNormArgs)
		if x.Rank() < 4 || a.Size < 1 || a.Size > maxGeometry || x.Numel() == 0 {
			c.Fail("local_response_norm of shape %v over %d channels is not modelled; it needs (N, C, H, W)", x.Size, a.Size)
		}
		div := c.Do1(Mul, &BinaryArgs{}, x, x)
		next := func(r *Op, args any) {
			y := c.Do1(r, args, div)
			c.Drop(div)
			div = y
		}
		next(View, &ShapeArgs{Shape: []int64{x.Dim(0), 1, x.Dim(1), x.Dim(2), -1}})
		next(ConstantPad, &PadArgs{Pad: []int64{0, 0, 0, 0, a.Size / 2, (a.Size - 1) / 2}})
		next(AvgPool3d, &PoolArgs{Kernel: []int64{a.Size, 1, 1}, Stride: []int64{1, 1, 1}, Padding: []int64{0, 0, 0}, Dilation: []int64{1, 1, 1}})
		next(Squeeze, &DimArgs{Dim: 1})
		next(View, &ShapeArgs{Shape: x.Size.Slice()})
		scaled := c.Do1(Mul, float(a.Alpha), div) // one expression: its temporaries die before the variable is rebound
		plus := c.Do1(Add, float(a.K), scaled)
		c.Drop(scaled)
		power := c.Do1(PowScalar, &PowArgs{Exponent: Number{Set: true, Float: true, Value: a.Beta}}, plus)
		c.Drop(plus, div)
		div = power
		c.Local(div)
		c.Return(c.Do1(Div, &BinaryArgs{}, x, div))
	},
	Source: "torch/nn/functional.py: local_response_norm",
})
