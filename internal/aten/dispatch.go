package aten

import (
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Dispatch says how a call of PyTorch's dispatcher, below autograd, reaches a row: where
// it passes what. Calls whose tensors stand as the row's inputs do, and whose other
// arguments have the names of the row's, need none.
type Dispatch struct {
	Row *op.Op

	// In, Grads and Out name the arguments of the call that are the row's inputs and, of
	// a call of its derivative, the incoming gradients and the results of the forward
	// pass; "-" is one that the call does not have, and the last may be a list.
	In, Grads, Out string

	Back   bool   // the call is of the row's derivative
	Mask   string // the argument that says which gradients are wanted; none: the first
	Wanted []int  // the inputs whose gradients the call returns; nil: all, in order
	OnHost []int  // results that are in host memory in some releases

	// Sizes says that what the results take is a library's to say: the row knows it, and a
	// recording does not.
	Sizes bool

	// Args makes the row's arguments; nil: by their names.
	Args func(v Values) any
}

// ResultSize is the name under which the sizes of the first result stand among Values:
// those of some results are the data's.
const ResultSize = "result size"

func first(list []int64) int64 {
	if len(list) == 0 {
		return 0
	}
	return list[0]
}

// Values are the arguments of a call that are no tensors, by name.
type Values map[string]any

// Int is an integer, 0 where there is none.
func (v Values) Int(name string) int64 {
	switch n := v[name].(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// Float is a number.
func (v Values) Float(name string) float64 {
	switch n := v[name].(type) {
	case float64:
		return n
	case int64:
		return float64(n)
	}
	return 0
}

// Bool is a truth value.
func (v Values) Bool(name string) bool { b, _ := v[name].(bool); return b }

// Ints is a list of integers; one integer is a list of one.
func (v Values) Ints(name string) []int64 {
	switch n := v[name].(type) {
	case []int64:
		return n
	case int64:
		return []int64{n}
	}
	return nil
}

// reduction is the argument of losses, which the dispatcher passes as a number.
func (v Values) reduction() string {
	return []string{"none", "mean", "sum"}[max(0, min(v.Int("reduction"), 2))]
}

// DispatchOf says how a call reaches a row, by the operator's name without and with its
// overload; nil: no row is of that name.
func DispatchOf(name, overload string) *Dispatch {
	if d := dispatched[name+"."+overload]; d != nil {
		return d
	}
	if d := dispatched[name]; d != nil {
		return d
	}
	r := Named(name + "." + overload)
	if r == nil {
		r = Named(name)
	}
	if r == nil || r.Composite || r.View != nil || r.Refused {
		return nil
	}
	return &Dispatch{Row: r}
}

// rowsDispatched are the rows, and those of them whose derivative is one operator.
var rowsDispatched = sync.OnceValue(func() map[bool]map[*op.Op]bool {
	out := map[bool]map[*op.Op]bool{false: {}, true: {}}
	for _, d := range dispatched {
		out[d.Back][d.Row] = true
	}
	return out
})

// One reports whether PyTorch's dispatcher knows what a row does as one operator.
func One(r *op.Op) bool {
	return !r.Composite && !r.Steps && r != BoolMask && r != IsFinite || rowsDispatched()[false][r]
}

// OneDerivative reports the same of the derivative of a row.
// That of cuDNN's batch norm is one, after the copy of a gradient that does not lie in order.
func OneDerivative(r *op.Op) bool { return rowsDispatched()[true][r] && r != CudnnBatchNorm }

// Plain reports whether an operator is known to allocate its results and nothing else:
// one of single elements, which fills, or which reads and writes lists of tensors in one kernel.
func Plain(name string) bool {
	base := strings.TrimSuffix(name, "_")
	if r := Named(base); r != nil && !r.Composite {
		return true
	}
	for _, prefix := range []string{"_foreach_", "_fused_", "_amp_", "new_", "upsample_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return plain[base]
}

// plain are names without the underscore of what is done in place.
var plain = names(`
alias as_strided detach view expand permute t transpose select slice split split_with_sizes unbind unsqueeze squeeze unfold diagonal view_as_real view_as_complex
lift_fresh _reshape_alias _unsafe_view _local_scalar_dense is_same_size real imag movedim
empty empty_like empty_strided empty_permuted zeros zeros_like ones ones_like full full_like fill zero eye scalar_tensor linspace
uniform normal random bernoulli exponential geometric log_normal cauchy
select_backward slice_backward as_strided_scatter select_scatter slice_scatter diagonal_backward
threshold_backward gelu_backward silu_backward elu_backward leaky_relu_backward hardtanh hardtanh_backward hardswish_backward hardsigmoid_backward softplus_backward mish_backward
sigmoid_backward tanh_backward logit logit_backward log_sigmoid_forward log_sigmoid_backward softshrink_backward hardshrink_backward rrelu_with_noise_backward
bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift logical_and logical_or logical_xor logical_not isnan isinf isfinite heaviside fmod floor_divide true_divide
lerp maximum minimum fmax fmin addcmul addcdiv sgn exp2 expm1 log10 log1p log2 erf erfc erfinv frac trunc fix hypot copysign nextafter
max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices
grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward
tril_indices triu_indices resize set record_stream
_cudnn_rnn_flatten_weight flatten_dense_tensors
`)

func names(text string) map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(text) {
		out[n] = true
	}
	return out
}

func convArgs(v Values) any {
	return &ConvArgs{
		Stride: v.Ints("stride"), Padding: v.Ints("padding"), Dilation: v.Ints("dilation"), OutputPadding: v.Ints("output_padding"),
		Groups: v.Int("groups"), Transposed: v.Bool("transposed"),
	}
}

func groupArgs(v Values) any { return &GroupNormArgs{Groups: v.Int("group")} }

func batchArgs(training string) func(Values) any {
	return func(v Values) any {
		t := training == "" || v.Bool(training)
		return &BatchNormArgs{Batch: t, Running: !t}
	}
}

func softmaxArgs(v Values) any {
	a := &SoftmaxArgs{Dim: int(v.Int("dim"))}
	if v.Bool("half_to_float") {
		d := tensor.Float32
		a.DType = &d
	}
	return a
}

func lossArgs(v Values) any {
	return &LossArgs{Reduction: v.reduction(), IgnoreIndex: v.Int("ignore_index"), Beta: v.Float("beta"), Delta: v.Float("delta"), Margin: v.Float("margin")}
}

func sdpaArgs(v Values) SDPAArgs {
	return SDPAArgs{DropoutP: v.Float("dropout_p"), IsCausal: v.Bool("is_causal")}
}

func flashArgs(v Values) any {
	a := sdpaArgs(v)
	return &a
}

func memEffArgs(v Values) any {
	return &efficientArgs{SDPAArgs: sdpaArgs(v), lse: v.Bool("compute_log_sumexp")}
}

func cudnnAttentionArgs(v Values) any {
	return &cudnnArgs{SDPAArgs: sdpaArgs(v), lse: v.Bool("compute_log_sumexp")}
}

func cloneArgs(v Values) any {
	f, _ := v["memory_format"].(string)
	return &CloneArgs{Format: tensor.MemoryFormat(f)}
}

// rnnArgs reads the numbers of cuDNN's recurrent layers; the stride of the weights is how
// many there are of a layer.
func rnnArgs(v Values) any {
	stride, proj := v.Int("weight_stride0"), v.Int("proj_size")
	mode := max(0, min(v.Int("mode"), 3))
	return &RNNArgs{
		Gates: []int64{1, 1, 4, 3}[mode], ReLU: mode == 0, Hidden: v.Int("hidden_size"), Proj: proj, Layers: v.Int("num_layers"),
		Bias: stride >= 4, BatchFirst: v.Bool("batch_first"), Dropout: v.Float("dropout"), Bidirectional: v.Bool("bidirectional"),
	}
}

func normArgs(v Values) any {
	a := &NormArgs{ReduceArgs: ReduceArgs{Dim: v.Ints("dim"), KeepDim: v.Bool("keepdim")}}
	p := 2.0
	for _, name := range []string{"ord", "p"} {
		if v[name] != nil {
			p = v.Float(name)
		}
	}
	a.P = &p
	if d, ok := v["dtype"].(tensor.DType); ok {
		a.DType = &d
	}
	return a
}

// dispatched are the calls that do not reach their row by names alone.
var dispatched = map[string]*Dispatch{
	"convolution":          {Row: Conv, In: "input weight bias", Args: convArgs},
	"convolution_backward": {Row: Conv, Back: true, Grads: "grad_output", In: "input weight -", Mask: "output_mask", Args: convArgs},

	"native_layer_norm_backward": {Row: NativeLayerNorm, Back: true, Grads: "grad_out", In: "input weight bias", Out: "- mean rstd", Mask: "output_mask"},
	"native_group_norm":          {Row: NativeGroupNorm, In: "input weight bias", Args: groupArgs},
	"native_group_norm_backward": {Row: NativeGroupNorm, Back: true, Grads: "grad_out", In: "input weight -", Out: "- mean rstd", Mask: "output_mask", Args: groupArgs},
	"native_batch_norm":          {Row: NativeBatchNorm, In: "input weight bias running_mean running_var", Args: batchArgs("training")},
	"native_batch_norm_backward": {Row: NativeBatchNorm, Back: true, Grads: "grad_out", In: "input weight - running_mean running_var", Out: "- save_mean save_invstd", Mask: "output_mask", Args: batchArgs("train")},
	"cudnn_batch_norm":           {Row: CudnnBatchNorm, In: "input weight bias running_mean running_var", Args: batchArgs("training")},
	"cudnn_batch_norm_backward":  {Row: CudnnBatchNorm, Back: true, Grads: "grad_output", In: "input weight - running_mean running_var", Out: "- save_mean save_var", Args: batchArgs("")},

	"_softmax":                   {Row: InnerSoftmax, In: "self", Args: softmaxArgs},
	"_log_softmax":               {Row: InnerLogSoftmax, In: "self", Args: softmaxArgs},
	"_softmax_backward_data":     {Row: InnerSoftmax, Back: true, Grads: "grad_output", In: "-", Out: "output", Args: softmaxArgs},
	"_log_softmax_backward_data": {Row: InnerLogSoftmax, Back: true, Grads: "grad_output", In: "-", Out: "output", Args: softmaxArgs},
	"native_dropout_backward":    {Row: NativeDropout, Back: true, Grads: "grad_output", In: "-", Out: "- mask"},

	"nll_loss_forward":                 {Row: NLLLossForward, In: "self target weight", Args: lossArgs},
	"nll_loss2d_forward":               {Row: NLLLoss2dForward, In: "self target weight", Args: lossArgs},
	"nll_loss_backward":                {Row: NLLLossForward, Back: true, Grads: "grad_output", In: "self target weight", Out: "- total_weight", Args: lossArgs},
	"nll_loss2d_backward":              {Row: NLLLoss2dForward, Back: true, Grads: "grad_output", In: "self target weight", Out: "- total_weight", Args: lossArgs},
	"mse_loss":                         {Row: MSELoss, In: "self target", Args: lossArgs},
	"mse_loss_backward":                {Row: MSELoss, Back: true, Grads: "grad_output", In: "self target", Args: lossArgs},
	"smooth_l1_loss":                   {Row: SmoothL1, In: "self target", Args: lossArgs},
	"smooth_l1_loss_backward":          {Row: SmoothL1, Back: true, Grads: "grad_output", In: "self target", Args: lossArgs},
	"binary_cross_entropy":             {Row: BinaryCrossEntropy, In: "self target weight", Args: lossArgs},
	"binary_cross_entropy_backward":    {Row: BinaryCrossEntropy, Back: true, Grads: "grad_output", In: "self target weight", Args: lossArgs},
	"binary_cross_entropy_with_logits": {Row: BinaryCrossEntropyWithLogits, In: "self target weight pos_weight", Args: lossArgs},

	"embedding":                {Row: Embedding, In: "indices weight", Args: func(Values) any { return &EmbeddingArgs{} }},
	"embedding_dense_backward": {Row: Embedding, Back: true, Grads: "grad_output", In: "indices -", Wanted: []int{1}, Args: func(Values) any { return &EmbeddingArgs{} }},

	"_scaled_dot_product_flash_attention": {Row: FlashAttention, In: "query key value", OnHost: []int{6, 7}, Args: flashArgs},
	"_scaled_dot_product_flash_attention_backward": {
		Row: FlashAttention, Back: true, Grads: "grad_out", In: "query key value", Out: "out logsumexp philox_seed philox_offset", Wanted: []int{0, 1, 2}, Args: flashArgs,
	},
	"_scaled_dot_product_efficient_attention": {Row: EfficientAttention, In: "query key value attn_bias", OnHost: []int{2, 3}, Args: memEffArgs},
	"_scaled_dot_product_efficient_attention_backward": {
		Row: EfficientAttention, Back: true, Grads: "grad_out_", In: "query key value attn_bias", Out: "out logsumexp philox_seed philox_offset", Mask: "grad_input_mask", Args: memEffArgs,
	},

	"_scaled_dot_product_cudnn_attention": {Row: CudnnAttention, In: "query key value attn_bias", Args: cudnnAttentionArgs},
	"_scaled_dot_product_cudnn_attention_backward": {
		Row: CudnnAttention, Back: true, Grads: "grad_out", In: "query key value attn_bias", Out: "out logsumexp philox_seed philox_offset", Wanted: []int{0, 1, 2}, Args: cudnnAttentionArgs,
	},

	"_thnn_fused_lstm_cell_backward_impl": {Row: FusedLSTM, Back: true, Grads: "grad_hy grad_cy", In: "- - cx - -", Out: "- cy workspace", Wanted: []int{0, 2, 3}},
	"_native_multi_head_attention": {Row: NativeMHA, In: "query qkv_weight qkv_bias proj_weight proj_bias mask", Args: func(v Values) any {
		return &NativeMHAArgs{Heads: v.Int("num_head"), Weights: v["need_weights"] != false, Average: v["average_attn_weights"] != false}
	}},
	"_transformer_encoder_layer_fwd": {
		Row: EncoderLayerForward, In: "src qkv_weight qkv_bias proj_weight proj_bias norm_weight_1 norm_bias_1 norm_weight_2 norm_bias_2 ffn_weight_1 ffn_bias_1 ffn_weight_2 ffn_bias_2 mask",
		Args: func(v Values) any {
			return &EncoderLayerArgs{Heads: v.Int("num_heads"), NormFirst: v.Bool("norm_first"), Eps: v.Float("eps")}
		},
	},

	"max.": {Row: Max.All, In: "self"},
	"min.": {Row: Min.All, In: "self"},

	"_index_put_impl_": {Row: IndexPutInPlace, In: "self values indices"},
	"index_put_":       {Row: IndexPutInPlace, In: "self values indices"},
	"equal":            {Row: Same, In: "self other", Args: func(Values) any { return nil }},
	"index.one":        {Row: IndexTensor, In: "self indices"},
	"index.mask":       {Row: IndexMask, In: "self indices", Args: func(v Values) any { return &MaskIndexArgs{Count: first(v.Ints(ResultSize))} }},
	"index.pair":       {Row: IndexPair, In: "self indices", Args: func(Values) any { return nil }},
	"nonzero":          {Row: NonzeroCount, In: "self", Args: func(v Values) any { return &MaskIndexArgs{Count: first(v.Ints(ResultSize))} }},

	"clone":                     {Row: Clone, In: "self", Args: cloneArgs},
	"linalg_vector_norm":        {Row: VectorNorm, In: "self", Args: normArgs},
	"norm":                      {Row: Norm, In: "self", Args: normArgs},
	"_cudnn_init_dropout_state": {Row: InitDropoutState, Sizes: true, Args: func(Values) any { return nil }},
	"_cudnn_rnn":                {Row: CudnnRNNKernel, Sizes: true, In: "input hx cx weight", Args: rnnArgs},
	"_cudnn_rnn_backward": {
		Row: CudnnRNNKernel, Back: true, Grads: "grad_output grad_hy grad_cy", In: "input hx cx weight", Out: "output - - reserve weight_buf", Mask: "output_mask", Args: rnnArgs,
	},
}
