package op

// AlphaArgs is the scale of celu.
type AlphaArgs struct {
	Alpha float64 `arg:"alpha"`
}

// ThresholdArgs are the arguments of threshold.
type ThresholdArgs struct {
	Threshold float64 `arg:"threshold"`
	Value     float64 `arg:"value"`
}

// ShrinkArgs is the bound of hardshrink and softshrink.
type ShrinkArgs struct {
	Lambd float64 `arg:"lambd"`
}

// The rarer activations with a fused derivative.
var (
	Celu             = unary("celu", "F.celu(input, alpha: float = 1.0)", &AlphaArgs{}, In(0), celu.eval()).takes((*Call).floats)
	Selu             = unary("selu", "F.selu(input)", nil, In(0), selu.eval()).takes((*Call).floats)
	Threshold        = unarySaved("threshold", "F.threshold(input, threshold: float, value: float)", &ThresholdArgs{}, In(0), threshold.eval())
	Hardshrink       = unary("hardshrink", "F.hardshrink(input, lambd: float = 0.5)", &ShrinkArgs{}, In(0), hardshrink.eval()).takes((*Call).floats)
	Softshrink       = unary("softshrink", "F.softshrink(input, lambd: float = 0.5)", &ShrinkArgs{}, In(0), softshrink.eval()).takes((*Call).floats)
	CeluInPlace      = inPlace(Celu, gradMap)
	SeluInPlace      = inPlace(Selu, gradMap)
	ThresholdInPlace = inPlaceOriginal(Threshold, gradMapSaved)
)

// RReLUArgs are the arguments of rrelu.
type RReLUArgs struct {
	Lower    float64 `arg:"lower"`
	Upper    float64 `arg:"upper"`
	Training *bool   `arg:"training"` // nil: the module's mode
}

// Rrelu draws a slope for each element, in any mode; autograd keeps them.
var (
	RReLU = define(Op{
		Name: "rrelu", Takes: (*Call).floats, Sig: "F.rrelu(input, lower: float = 0.125, upper: float = 0.3333333333333333, training: bool? = None)", Args: &RReLUArgs{},
		Composite: true, Run: func(c *Call) {
			noise := c.Local(c.NewShape(c.In[0].DType, c.In[0].Size.Slice()...))
			c.Return(c.Do1(RreluNoise, c.Args, c.In[0], noise))
		},
		Source: "aten/src/ATen/native/Activation.cpp: rrelu",
	})
	_ = define(Op{
		Name: "rrelu_", Of: RReLU, Args: &RReLUArgs{}, Composite: true, Run: func(c *Call) {
			noise := c.Local(c.NewShape(c.In[0].DType, c.In[0].Size.Slice()...))
			c.Return(c.Do1(RreluNoiseInPlace, c.Args, c.In[0], noise))
		},
		Source: "aten/src/ATen/native/Activation.cpp: rrelu_",
	})
	RreluNoise = define(Op{
		Name: "rrelu_with_noise", Eval: evalRrelu, Args: &RReLUArgs{}, Run: func(c *Call) {
			if !c.draws() {
				c.Return(c.NewLike(c.In[0]))
				return
			}
			c.Return(c.NewShape(c.In[0].DType, c.In[0].Size.Slice()...))
			c.contiguous(c.In[0])
		},
		Save: []Save{In(1), In(0)}, Node: "RreluWithNoiseBackward0", Grad: gradRrelu,
		Source: "aten/src/ATen/native/cuda/RreluWithNoise.cu",
	})
	RreluNoiseInPlace = define(Op{
		Name: "rrelu_with_noise_", Eval: evalRrelu, Of: RreluNoise, Args: &RReLUArgs{}, Run: func(c *Call) {
			if c.draws() { // it reads from one copy and writes to another
				c.contiguous(c.In[0])
				c.contiguous(c.In[0])
			}
		}, InPlace: true, Save: []Save{In(1), Out(0)}, Node: "RreluWithNoiseBackward1", Grad: gradRrelu,
		Source: "aten/src/ATen/native/cuda/RreluWithNoise.cu",
	})
)

// draws reports whether slopes are drawn.
func (c *Call) draws() bool {
	a := c.Args.(*RReLUArgs)
	return a.Training == nil && c.Env().Training || a.Training != nil && *a.Training
}

// gradRrelu is the gradient times the noise.
func gradRrelu(b *Back) { b.Set(0, b.New(b.elementwise(b.SavedIn(1), b.Grads[0]), b.Grads[0].DType)) }

// What torch/nn/functional.py composes of other operators.
var (
	Softmin = define(Op{
		Name: "softmin", Sig: "F.softmin(input, dim: int)", Args: &SoftmaxArgs{}, Composite: true, Run: func(c *Call) {
			minus := c.Local(c.Do1(Neg, nil, c.In[0]))
			c.Return(c.Do1(Softmax, c.Args, minus))
		},
		Source: "torch/nn/functional.py: softmin",
	})
	Softsign = define(Op{
		Name: "softsign", Sig: "F.softsign(input)", Composite: true, Run: func(c *Call) { // input / (input.abs() + 1)
			size := c.Do1(Abs, nil, c.In[0])
			sum := c.Local(c.Do1(Add, &BinaryArgs{Other: Number{Set: true, Value: 1}}, size))
			c.Drop(size)
			c.Return(c.Do1(Div, &BinaryArgs{}, c.In[0], sum))
		},
		Source: "torch/nn/functional.py: softsign",
	})
	Tanhshrink = define(Op{
		Name: "tanhshrink", Sig: "F.tanhshrink(input)", Composite: true, Run: func(c *Call) { // input - input.tanh()
			tanh := c.Local(c.Do1(Tanh, nil, c.In[0]))
			c.Return(c.Do1(Sub, &BinaryArgs{}, c.In[0], tanh))
		},
		Source: "torch/nn/functional.py: tanhshrink",
	})
)

// GumbelArgs are the arguments of gumbel_softmax.
type GumbelArgs struct {
	Tau  float64 `arg:"tau"`
	Hard bool    `arg:"hard"`
	Dim  int     `arg:"dim"`
}

// What gumbel_softmax does in place to tensors that it made: random numbers of the
// exponential distribution, and a number at the places of an index.
var (
	Exponential   = define(Op{Name: "exponential_", Eval: evalExponential, Run: func(*Call) {}, InPlace: true, Source: "aten/src/ATen/native/Distributions.cpp: exponential_"})
	ScatterNumber = define(Op{
		Name: "scatter_.value", Eval: scattering(false), Args: &ScatterArgs{}, Run: func(*Call) {}, InPlace: true,
		Source: "aten/src/ATen/native/TensorAdvancedIndexing.cpp: scatter_",
	})
)

// GumbelSoftmax samples from a distribution over classes; hard ones keep the
// gradient of the soft.
var _ = define(Op{
	Name: "gumbel_softmax", Takes: (*Call).floats, Sig: "F.gumbel_softmax(logits, tau: float = 1, hard: bool = False, *, dim: int = -1)", Args: &GumbelArgs{}, Composite: true,
	Run: func(c *Call) {
		x, a := c.In[0], c.Args.(*GumbelArgs)
		dim := int64(c.dim(a.Dim, x.Rank()))
		next := func(t, old *Tensor) *Tensor {
			c.Drop(old)
			return t
		}
		noise := c.NewShape(x.DType, x.Size.Slice()...)
		c.Drop(c.Do1(Exponential, nil, noise))
		noise = next(c.Do1(Log, nil, noise), noise)
		noise = next(c.Do1(Neg, nil, noise), noise)
		sum := c.Do1(Add, &BinaryArgs{}, x, noise)
		scaled := c.scaled(Div, sum, a.Tau)
		c.Drop(sum)
		noise = next(scaled, noise)
		soft := c.Do1(Softmax, &SoftmaxArgs{Dim: int(dim)}, noise)
		if !a.Hard {
			c.Return(soft)
			c.Drop(noise)
			return
		}
		best := c.Do(Max.Along, &ExtremeArgs{Dim: &dim, KeepDim: true}, soft)
		c.Drop(best[0])
		hard := c.Do1(Zeros, &FillArgs{Size: x.Size.Slice(), DType: &x.DType})
		c.Drop(c.Do1(ScatterNumber, &ScatterArgs{Dim: int(dim), Src: Number{Set: true, Float: true, Value: 1}}, hard, best[1]))
		plain := c.Do1(Detach, nil, soft)
		diff := c.Do1(Sub, &BinaryArgs{}, hard, plain)
		c.Drop(plain)
		c.Return(c.Do1(Add, &BinaryArgs{}, diff, soft))
		c.Drop(diff, noise, soft, best[1], hard)
	},
	Source: "torch/nn/functional.py: gumbel_softmax",
})
