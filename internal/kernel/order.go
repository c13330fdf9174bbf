package kernel

// all are the kernels that no formula defines in the order of their numbers, which
// compiled code knows them by: a new one is the last.
var all = numbered(
	Fill, Copy, Affine,
	Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sin, Cos, Tanh, Sigmoid, Relu, LeakyRelu, Elu, Gelu, GeluTanh, Silu,
	Softplus, Hardtanh, Hardswish, Hardsigm, PowScalar, LogSigmoid,
	ReluGrad, LeakyReluGrad, EluGrad, GeluGrad, GeluTanhGrad, SiluGrad, SoftplusGrad, HardtanhGrad, HardswishGrad,
	HardsigmGrad, TanhGrad, SigmoidGrad, SqrtGrad, RsqrtGrad, SinGrad, CosGrad, AbsGrad, PowScalarGrad,
	LogSigmoidGrad,
	Add, Mul, Div, Maximum, Minimum, DivGrad, Eq, Ne, Lt, Le, Gt, Ge, EqScalar, NeScalar, LtScalar, LeScalar,
	GtScalar, GeScalar, MaskedFill, Where, MaskScale, MSEGrad, L1Grad, BCEGrad, Dropout, Tril, Triu,
	Sum, Max, Norm, MSE, L1, BCE,
	Gemm,
	Softmax, SoftmaxGrad, LogSoftmax, LogSoftmaxGrad,
	LayerNorm, LayerNormGrad, RMSNorm, RMSNormGrad, BatchNorm, BatchNormGrad, GroupNorm, GroupNormGrad,
	Conv, ConvInputGrad, ConvWeightGrad,
	MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad, AdaptiveAvgPool, AdaptiveAvgPoolGrad,
	Embedding, EmbeddingGrad, Arange,
	NLLLoss, NLLLossGrad,
	Attention, AttentionGrad,
	SGD, Adam,
	Floor, Xlogy, EntropyGrad, RandomUniform, RandomBernoulli, Entropy, SafeSoftmax, Resample, ResampleGrad,
	Index, IndexGrad, EmbeddingBag, EmbeddingBagGrad,
	Expm1, Expm1Grad, Log1p, Log1pGrad, Reciprocal, ReciprocalGrad, PowBase, Pow, FloorDivide, MinimumGrad, ClampGrad, NormGrad,
	Min, Gather, Scatter, ScatterAdd, Cumsum, Sort, Extreme, Histogram, IndexPairs, IndexPairsGrad, GroupedGemm, AttentionMaskGrad,
)

// numbered gives kernels their numbers.
func numbered(ks ...*Kernel) []*Kernel {
	for i, k := range ks {
		k.index = i
	}
	return ks
}
