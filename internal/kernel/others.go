package kernel

// Reductions. The result has the operands' size and stride 0 in the dimensions
// that are reduced. scale multiplies the sum.
var (
	Sum = define(Kernel{Name: "sum", Kind: Reduce, Tensors: []string{"y", "a"}, Floats: []string{"scale"}}) // integers too
	Max = define(Kernel{Name: "amax", Kind: Reduce, Tensors: []string{"y", "a"}})                           // integers too
	Min = define(Kernel{Name: "amin", Kind: Reduce, Tensors: []string{"y", "a"}})                           // integers too
	// Norm is the root of the sum of squares. Its operand may have another floating
	// type than its result.
	Norm = define(Kernel{Name: "norm", Kind: Reduce, Tensors: []string{"y", "a"}})
	MSE  = define(Kernel{Name: "mse", Kind: Reduce, Tensors: []string{"y", "a", "b"}, Floats: []string{"scale"}}) // (a-b)²
	L1   = define(Kernel{Name: "l1", Kind: Reduce, Tensors: []string{"y", "a", "b"}, Floats: []string{"scale"}})  // |a-b|
	BCE  = define(Kernel{Name: "bce_logits", Kind: Reduce, Tensors: []string{"y", "a", "b"}, Floats: []string{"scale"}})
	// Entropy is -(b*log(a) + (1-b)*log(1-a)) of probabilities a, with logarithms of at least -100.
	Entropy = define(Kernel{Name: "bce", Kind: Reduce, Tensors: []string{"y", "a", "b"}, Floats: []string{"scale"}})
)

// Linear algebra.
var (
	// Gemm is batches of matrix products: c[n,i,j] = alpha*Σ_k a[n,i,k]*b[n,k,j] +
	// beta*bias[n,i,j]. Without a bias beta counts for nothing. All have three
	// dimensions; any strides, 0 among them for a, b and bias.
	Gemm = define(Kernel{Name: "gemm", Kind: Other, Tensors: []string{"c", "a", "b", "bias?"}, Floats: []string{"alpha", "beta"}})
	// GroupedGemm are products c [G, m, n] of a [G, m, k] and b [G, k, n], where what is not
	// of a group has one in the place of G: of parts of the rows (divided 0), of the columns
	// (1) or of k (2), which end where offs [groups], int32, says. What is in no part is not
	// written, of which k has none is zeros. Parts that do not follow each other are an
	// error of the call on the CPU.
	GroupedGemm = define(Kernel{Name: "grouped_gemm", Kind: Other, Tensors: []string{"c", "a", "b", "offs"}, Ints: []string{"divided"}})
)

// Softmaxes over the last dimension of operands of one size. SafeSoftmax gives zeros
// for rows of -inf, where Softmax gives NaN.
var (
	SafeSoftmax    = define(Kernel{Name: "safe_softmax", Kind: Other, Tensors: []string{"y", "a"}})
	Softmax        = define(Kernel{Name: "softmax", Kind: Other, Tensors: []string{"y", "a"}})
	SoftmaxGrad    = define(Kernel{Name: "softmax_grad", Kind: Other, Tensors: []string{"y", "g", "r"}})
	LogSoftmax     = define(Kernel{Name: "log_softmax", Kind: Other, Tensors: []string{"y", "a"}})
	LogSoftmaxGrad = define(Kernel{Name: "log_softmax_grad", Kind: Other, Tensors: []string{"y", "g", "r"}})
)

// Normalizations.
var (
	// LayerNorm: x and y are [..., n] with the statistics mean and rstd [...],
	// weight and bias [n]. The statistics are of the accumulation type.
	LayerNorm = define(Kernel{Name: "layer_norm", Kind: Other, Outputs: 3, Tensors: []string{"y", "mean", "rstd", "x", "weight?", "bias?"}, Floats: []string{"eps"}})
	// LayerNormGrad computes those gradients that are there.
	LayerNormGrad = define(Kernel{Name: "layer_norm_grad", Kind: Other, Outputs: 3,
		Tensors: []string{"gx?", "gweight?", "gbias?", "g", "x", "mean", "rstd", "weight?"}})
	// RMSNorm: y = x * rstd * weight, without a mean.
	RMSNorm     = define(Kernel{Name: "rms_norm", Kind: Other, Outputs: 2, Tensors: []string{"y", "rstd", "x", "weight?"}, Floats: []string{"eps"}})
	RMSNormGrad = define(Kernel{Name: "rms_norm_grad", Kind: Other, Outputs: 2, Tensors: []string{"gx?", "gweight?", "g", "x", "rstd", "weight?"}})
	// BatchNorm: x and y are [N, C, S]; all others [C]. With training set it
	// computes mean and rstd of the batch, and updates the running statistics by
	// momentum (the variance unbiased); else the running ones are used, and mean
	// and rstd may be absent.
	BatchNorm = define(Kernel{Name: "batch_norm", Kind: Other, Outputs: 3, Ints: []string{"training"}, Floats: []string{"momentum", "eps"},
		Tensors: []string{"y", "mean?", "rstd?", "x", "weight?", "bias?", "running_mean?", "running_var?"}})
	// BatchNormGrad: mean and rstd are those that the forward pass used; training
	// says that they are the batch's own.
	BatchNormGrad = define(Kernel{Name: "batch_norm_grad", Kind: Other, Outputs: 3, Ints: []string{"training"},
		Tensors: []string{"gx?", "gweight?", "gbias?", "g", "x", "mean", "rstd", "weight?"}})
	// GroupNorm: x and y are [N, G, C/G, S], mean and rstd [N, G], weight and bias
	// [G, C/G].
	GroupNorm     = define(Kernel{Name: "group_norm", Kind: Other, Outputs: 3, Tensors: []string{"y", "mean", "rstd", "x", "weight?", "bias?"}, Floats: []string{"eps"}})
	GroupNormGrad = define(Kernel{Name: "group_norm_grad", Kind: Other, Outputs: 3,
		Tensors: []string{"gx?", "gweight?", "gbias?", "g", "x", "mean", "rstd", "weight?"}})
)

// spatial names three numbers, of depth, height and width.
func spatial(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, n+"_d", n+"_h", n+"_w")
	}
	return out
}

// Convolutions over images [N, C, D, H, W] with weights [O, C/groups, KD, KH, KW];
// fewer spatial dimensions are ones of size 1 in front.
var (
	Conv = define(Kernel{Name: "conv", Kind: Other, Tensors: []string{"y", "x", "weight", "bias?"},
		Ints: append(spatial("stride", "padding", "dilation"), "groups")})
	// ConvInputGrad is the gradient of x; it is also the forward pass of a
	// transposed convolution, which has a bias over gx's channels.
	ConvInputGrad = define(Kernel{Name: "conv_input_grad", Kind: Other, Tensors: []string{"gx", "g", "weight", "bias?"},
		Ints: append(spatial("stride", "padding", "dilation"), "groups")})
	ConvWeightGrad = define(Kernel{Name: "conv_weight_grad", Kind: Other, Tensors: []string{"gweight", "g", "x"},
		Ints: append(spatial("stride", "padding", "dilation"), "groups")})
)

// Pooling over images [N, C, D, H, W].
var (
	// MaxPool: index is the place of the maximum, the first of equals, in its image
	// of D*H*W elements, row by row. A NaN counts as the largest, the last of
	// several.
	MaxPool = define(Kernel{Name: "max_pool", Kind: Other, Outputs: 2, Tensors: []string{"y", "index", "x"},
		Ints: spatial("kernel", "stride", "padding", "dilation")})
	MaxPoolGrad = define(Kernel{Name: "max_pool_grad", Kind: Other, Tensors: []string{"gx", "g", "index"},
		Ints: spatial("kernel", "stride", "padding", "dilation")})
	// AvgPool divides by divisor or, if that is 0, by the number of elements of the
	// window, with those of the padding if include_pad is set.
	AvgPool     = define(Kernel{Name: "avg_pool", Kind: Other, Tensors: []string{"y", "x"}, Ints: append(spatial("kernel", "stride", "padding"), "include_pad", "divisor")})
	AvgPoolGrad = define(Kernel{Name: "avg_pool_grad", Kind: Other, Tensors: []string{"gx", "g"}, Ints: append(spatial("kernel", "stride", "padding"), "include_pad", "divisor")})
	// AdaptiveAvgPool: window i of n over a dimension of m goes from floor(i*m/n)
	// to before ceil((i+1)*m/n).
	AdaptiveAvgPool     = define(Kernel{Name: "adaptive_avg_pool", Kind: Other, Tensors: []string{"y", "x"}})
	AdaptiveAvgPoolGrad = define(Kernel{Name: "adaptive_avg_pool_grad", Kind: Other, Tensors: []string{"gx", "g"}})
	// Resample weighs two neighbours in each dimension: element i of y lies at
	// step*i in x if align is set, else at step*(i+0.5)-0.5, but not before 0.
	Resample     = define(Kernel{Name: "resample", Kind: Other, Tensors: []string{"y", "x"}, Ints: []string{"align"}, Floats: spatial("step")})
	ResampleGrad = define(Kernel{Name: "resample_grad", Kind: Other, Tensors: []string{"gx", "g"}, Ints: []string{"align"}, Floats: spatial("step")})
)

// Lookups.
var (
	// Embedding: y [m, n, d], weight [v, d], index [m, n]. An index outside of the table
	// is an error of the call on the CPU; on a GPU the row is filled with NaN.
	Embedding = define(Kernel{Name: "embedding", Kind: Other, Tensors: []string{"y", "weight", "index"}})
	// EmbeddingGrad: gweight [v, d] is written as a whole, of g [m, n, d] and index
	// [m, n]; the rows of padding_idx, if that is not negative, get nothing.
	EmbeddingGrad = define(Kernel{Name: "embedding_grad", Kind: Other, Tensors: []string{"gweight", "g", "index"}, Ints: []string{"padding_idx"}})
	// Index: y [o, n, d], x [o, v, d] of any type, index [n]. An index below 0 counts from
	// the end; one outside is an error of the call on the CPU, and all bits are set on a GPU.
	Index = define(Kernel{Name: "index", Kind: Other, Tensors: []string{"y", "x", "index"}})
	// IndexGrad writes the whole of gx [o, v, d], of g [o, n, d].
	IndexGrad = define(Kernel{Name: "index_grad", Kind: Other, Tensors: []string{"gx", "g", "index"}})
	// Gather: y of any type and index have one size, x as many dimensions, of which those
	// but dim are as large at least: each element is that of x at its place, with the
	// index in the place of dim. An index is as that of Index.
	Gather = define(Kernel{Name: "gather", Kind: Other, Tensors: []string{"y", "x", "index"}, Ints: []string{"dim"}})
	// Scatter copies x of any type, where y need not lie elsewhere, and puts the elements of
	// src, or a value, where an index of as many dimensions says along dim; of several in
	// one place the last. An index outside is an error of the call on the CPU, and does
	// nothing on a GPU. src may be larger than the index.
	Scatter = define(Kernel{Name: "scatter", Kind: Other, Tensors: []string{"y", "x", "index", "src?"}, Ints: []string{"dim"}, Floats: []string{"value"}})
	// ScatterAdd adds the elements of src to x, or to zeros, in their order.
	ScatterAdd = define(Kernel{Name: "scatter_add", Kind: Other, Tensors: []string{"y", "x?", "index", "src"}, Ints: []string{"dim"}})
	// IndexPairs: y [n, d] of any type are the rows first[i], second[i] of x [u, v, d];
	// indices are as those of Index. IndexPairsGrad writes the whole of gx.
	IndexPairs     = define(Kernel{Name: "index_pairs", Kind: Other, Tensors: []string{"y", "x", "first", "second"}})
	IndexPairsGrad = define(Kernel{Name: "index_pairs_grad", Kind: Other, Tensors: []string{"gx", "g", "first", "second"}})
	// EmbeddingBag: y [b, d] are sums of the rows of bags of a table weight [v, d], each
	// multiplied by its own scale [n], or their means: bag k are those of index [n]
	// from offsets[k] on, [b], but for padding_idx. bag [n] is the bag of each index, 0 of
	// those that do not count, and count [b] how many count. What is outside is an
	// error of the call on the CPU, and gives NaN on a GPU.
	EmbeddingBag = define(Kernel{Name: "embedding_bag", Kind: Other, Outputs: 3, Tensors: []string{"y", "bag", "count", "weight", "index", "offsets", "scale?"},
		Ints: []string{"mean", "padding_idx"}})
	// EmbeddingBagGrad writes the whole of gweight, of g [b, d].
	EmbeddingBagGrad = define(Kernel{Name: "embedding_bag_grad", Kind: Other, Tensors: []string{"gweight", "g", "index", "bag", "count", "scale?"},
		Ints: []string{"mean", "padding_idx"}})
	// Arange: y [n] of any type is start, start+step, ...
	Arange = define(Kernel{Name: "arange", Kind: Other, Tensors: []string{"y"}, Floats: []string{"start", "step"}})
)

// Along a dimension of operands of any type.
var (
	// Cumsum: y is the running sum of a along dim, from its end if reverse is set, in its own type.
	Cumsum = define(Kernel{Name: "cumsum", Kind: Other, Tensors: []string{"y", "a"}, Ints: []string{"dim", "reverse"}})
	// Sort: y are the first elements of a in order, as many as there are along dim, and index
	// where they are. Equal ones stay in their order, and a NaN is larger than all others.
	Sort = define(Kernel{Name: "sort", Kind: Other, Outputs: 2, Tensors: []string{"y", "index", "a"}, Ints: []string{"dim", "descending"}})
	// Extreme: y is the largest element of a along dim, or the smallest, the first of equals,
	// and index where it is; both have one element there. A NaN counts as either.
	Extreme = define(Kernel{Name: "extreme", Kind: Other, Outputs: 2, Tensors: []string{"y?", "index", "a"}, Ints: []string{"dim", "largest"}})
	// Histogram: y [bins] is how many elements of a [n] are in each of as many parts of the
	// numbers from min to max, of which that is in the last.
	Histogram = define(Kernel{Name: "histogram", Kind: Other, Tensors: []string{"y", "a"}, Floats: []string{"min", "max"}})
)

// The values of reduction.
const (
	ReduceNone = iota
	ReduceMean
	ReduceSum
)

// Losses.
var (
	// NLLLoss: x [N, C, S], target [N, S], weight [C]; y [N, S] without a
	// reduction, else one element; total, one element, is the sum of the weights
	// of the targets that are not ignored, by which a mean divides.
	NLLLoss = define(Kernel{Name: "nll_loss", Kind: Other, Outputs: 2, Tensors: []string{"y", "total", "x", "target", "weight?"},
		Ints: []string{"reduction", "ignore_index"}})
	// NLLLossGrad writes the whole of gx [N, C, S].
	NLLLossGrad = define(Kernel{Name: "nll_loss_grad", Kind: Other, Tensors: []string{"gx", "g", "target", "weight?", "total"},
		Ints: []string{"reduction", "ignore_index"}})
)

// Attention: q, y [B, H, L, E], k [B, K, S, E], v [B, K, S, Ev], where H/K heads in a row
// share one of keys and values, lse [B, H, L] of the accumulation type, mask [B, H, L, S]
// added to the scores, or bool: false forbids. With causal set, query i sees keys up to i.
// The weights drop out with probability p: that of (b, h, i, j) by
// Uniform(seed, ((b*H+h)*L+i)*S+j). No kernel stores the L×S scores. A row that sees
// nothing gives zeros, and +Inf in lse, from which the derivative makes zeros again.
var (
	Attention = define(Kernel{Name: "attention", Kind: Other, Outputs: 2, Tensors: []string{"y", "lse?", "q", "k", "v", "mask?"},
		Ints: []string{"causal", "seed"}, Floats: []string{"scale", "p"}})
	AttentionGrad = define(Kernel{Name: "attention_grad", Kind: Other, Outputs: 3, Tensors: []string{"gq", "gk", "gv", "g", "y", "lse", "q", "k", "v", "mask?"},
		Ints: []string{"causal", "seed"}, Floats: []string{"scale", "p"}})
	// AttentionMaskGrad is the gradient of a mask that is added, of the size of the scores.
	AttentionMaskGrad = define(Kernel{Name: "attention_mask_grad", Kind: Other, Tensors: []string{"gmask", "g", "y", "lse", "q", "k", "v", "mask?"},
		Ints: []string{"causal", "seed"}, Floats: []string{"scale", "p"}})
)

// Optimizers, element by element. step counts from 1; states are of the
// parameter's type, and written without being read in step 1.
var (
	// SGD as torch.optim.SGD: buf is the momentum buffer.
	SGD = define(Kernel{Name: "sgd", Tensors: []string{"p", "buf?", "g"}, Outputs: 2, Ints: []string{"step", "nesterov", "maximize"},
		Floats: []string{"lr", "momentum", "dampening", "weight_decay"}})
	// Adam as torch.optim.Adam; decoupled: AdamW. vmax is there with amsgrad.
	Adam = define(Kernel{Name: "adam", Tensors: []string{"p", "m", "v", "vmax?", "g"}, Outputs: 4, Ints: []string{"step", "decoupled", "maximize"},
		Floats: []string{"lr", "beta1", "beta2", "eps", "weight_decay"}})
)
