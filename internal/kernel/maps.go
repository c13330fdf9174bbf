package kernel

// The kernels of kind Map. y is the result, a, b, c are what it is computed
// from, x is what a forward pass read, r what it gave, g the gradient of that.
func mapping(name string, floats []string, inputs ...string) *Kernel {
	return define(Kernel{Name: name, Tensors: append([]string{"y"}, inputs...), Floats: floats})
}

// Conversions and constants.
var (
	Fill   = mapping("fill", []string{"value"})                 // y of any type
	Copy   = mapping("copy", nil, "a")                          // of any two types, converted as C does; to bool: a != 0
	Affine = mapping("affine", []string{"scale", "shift"}, "a") // a*scale + shift; integers too
)

// Functions of one operand.
var (
	Neg         = mapping("neg", nil, "a")
	Abs         = mapping("abs", nil, "a") // integers too
	Exp         = mapping("exp", nil, "a")
	Log         = mapping("log", nil, "a")
	Sqrt        = mapping("sqrt", nil, "a")
	Rsqrt       = mapping("rsqrt", nil, "a")
	Sin         = mapping("sin", nil, "a")
	Cos         = mapping("cos", nil, "a")
	Tanh        = mapping("tanh", nil, "a")
	Sigmoid     = mapping("sigmoid", nil, "a")
	Floor       = mapping("floor", nil, "a")
	Relu        = mapping("relu", nil, "a")
	LeakyRelu   = mapping("leaky_relu", []string{"negative_slope"}, "a")
	Elu         = mapping("elu", []string{"alpha"}, "a")
	Gelu        = mapping("gelu", nil, "a")      // with erf
	GeluTanh    = mapping("gelu_tanh", nil, "a") // the approximation with tanh
	Silu        = mapping("silu", nil, "a")
	Softplus    = mapping("softplus", []string{"beta", "threshold"}, "a")
	Hardtanh    = mapping("hardtanh", []string{"min", "max"}, "a") // also clamp and relu6
	Hardswish   = mapping("hardswish", nil, "a")
	Hardsigm    = mapping("hardsigmoid", nil, "a")
	PowScalar   = mapping("pow_scalar", []string{"exponent"}, "a")
	LogSigmoid  = mapping("log_sigmoid", nil, "a")
	Expm1       = mapping("expm1", nil, "a")
	Log1p       = mapping("log1p", nil, "a")
	Reciprocal  = mapping("reciprocal", nil, "a")
	PowBase     = mapping("pow_base", []string{"base"}, "a")      // base**a
	FloorDivide = mapping("floor_divide", []string{"value"}, "a") // a/value, which is not 0, rounded down; integers too
)

// Their derivatives, of the gradient and what was saved.
var (
	ReluGrad       = mapping("relu_grad", nil, "g", "r")
	LeakyReluGrad  = mapping("leaky_relu_grad", []string{"negative_slope"}, "g", "x")
	EluGrad        = mapping("elu_grad", []string{"alpha"}, "g", "x")
	GeluGrad       = mapping("gelu_grad", nil, "g", "x")
	GeluTanhGrad   = mapping("gelu_tanh_grad", nil, "g", "x")
	SiluGrad       = mapping("silu_grad", nil, "g", "x")
	SoftplusGrad   = mapping("softplus_grad", []string{"beta", "threshold"}, "g", "x")
	HardtanhGrad   = mapping("hardtanh_grad", []string{"min", "max"}, "g", "x")
	HardswishGrad  = mapping("hardswish_grad", nil, "g", "x")
	HardsigmGrad   = mapping("hardsigmoid_grad", nil, "g", "x")
	TanhGrad       = mapping("tanh_grad", nil, "g", "r")
	SigmoidGrad    = mapping("sigmoid_grad", nil, "g", "r")
	SqrtGrad       = mapping("sqrt_grad", nil, "g", "r")
	RsqrtGrad      = mapping("rsqrt_grad", nil, "g", "r")
	SinGrad        = mapping("sin_grad", nil, "g", "x")
	CosGrad        = mapping("cos_grad", nil, "g", "x")
	AbsGrad        = mapping("abs_grad", nil, "g", "x")
	PowScalarGrad  = mapping("pow_scalar_grad", []string{"exponent"}, "g", "x")
	LogSigmoidGrad = mapping("log_sigmoid_grad", nil, "g", "x")
	Expm1Grad      = mapping("expm1_grad", nil, "g", "r")
	Log1pGrad      = mapping("log1p_grad", nil, "g", "x")
	ReciprocalGrad = mapping("reciprocal_grad", nil, "g", "r")
	ClampGrad      = mapping("clamp_grad", []string{"min", "max"}, "g", "x") // of Hardtanh, which passes the bounds themselves
	NormGrad       = mapping("norm_grad", nil, "g", "x", "r")                // g*x/r; 0 where r is
)

// Functions of two and three operands.
var (
	Add     = mapping("add", []string{"alpha"}, "a", "b") // a + alpha*b; integers too
	Mul     = mapping("mul", nil, "a", "b")               // integers too
	Div     = mapping("div", nil, "a", "b")
	Maximum = mapping("maximum", nil, "a", "b") // integers too
	Minimum = mapping("minimum", nil, "a", "b") // integers too
	// MinimumGrad is of x: g where x is below b, half of it where both are equal, else 0.
	MinimumGrad = mapping("minimum_grad", nil, "g", "x", "b")
	Pow         = mapping("pow", nil, "a", "b")           // a**b
	DivGrad     = mapping("div_grad", nil, "g", "x", "b") // of b in x/b: -g*x/(b*b)
	Xlogy       = mapping("xlogy", nil, "a", "b")         // a*log(b); 0 where a is, unless b is no number

	// Comparisons of any types: y is bool.
	Eq = mapping("eq", nil, "a", "b")
	Ne = mapping("ne", nil, "a", "b")
	Lt = mapping("lt", nil, "a", "b")
	Le = mapping("le", nil, "a", "b")
	Gt = mapping("gt", nil, "a", "b")
	Ge = mapping("ge", nil, "a", "b")
	// With a number.
	EqScalar = mapping("eq_scalar", []string{"value"}, "a")
	NeScalar = mapping("ne_scalar", []string{"value"}, "a")
	LtScalar = mapping("lt_scalar", []string{"value"}, "a")
	LeScalar = mapping("le_scalar", []string{"value"}, "a")
	GtScalar = mapping("gt_scalar", []string{"value"}, "a")
	GeScalar = mapping("ge_scalar", []string{"value"}, "a")

	MaskedFill = mapping("masked_fill", []string{"value"}, "a", "mask") // value where the mask is set
	Where      = mapping("where", nil, "mask", "a", "b")
	MaskScale  = mapping("mask_scale", []string{"scale"}, "a", "mask") // a*scale where the mask is set, else 0

	// Gradients of losses of two operands, element by element: c is the gradient
	// of the loss, broadcast, scale what the reduction divides by.
	MSEGrad = mapping("mse_grad", []string{"scale"}, "c", "a", "b") // c*scale*2(a-b)
	L1Grad  = mapping("l1_grad", []string{"scale"}, "c", "a", "b")
	BCEGrad = mapping("bce_logits_grad", []string{"scale"}, "c", "a", "b") // c*scale*(sigmoid(a)-b)
	// EntropyGrad is c*scale*(a-b)/max(a*(1-a), 1e-12).
	EntropyGrad = mapping("bce_grad", []string{"scale"}, "c", "a", "b")

	// Dropout draws for the element with row-major index i the number
	// Uniform(seed, i): mask = number >= p, compared as float32, and y = a/(1-p)
	// where it is set, else 0.
	Dropout = define(Kernel{Name: "dropout", Tensors: []string{"y", "mask", "a"}, Outputs: 2, Ints: []string{"seed"}, Floats: []string{"p"}})

	// RandomUniform is, of the element with row-major index i, from + (to-from)*Uniform(seed, i),
	// computed in float64 with one rounding for product and sum; RandomBernoulli is 1 where
	// Uniform(seed, i) < p, else 0. y may be of any type.
	RandomUniform   = define(Kernel{Name: "uniform", Tensors: []string{"y"}, Ints: []string{"seed"}, Floats: []string{"from", "to"}})
	RandomBernoulli = define(Kernel{Name: "bernoulli", Tensors: []string{"y"}, Ints: []string{"seed"}, Floats: []string{"p"}})

	// Lower and upper triangle over the last two dimensions.
	Tril = define(Kernel{Name: "tril", Tensors: []string{"y", "a"}, Ints: []string{"diagonal"}})
	Triu = define(Kernel{Name: "triu", Tensors: []string{"y", "a"}, Ints: []string{"diagonal"}})
)
