package main

import (
	"fmt"
	"strings"
)

// operatorCase is a small job around one operator: entry is what makes the result,
// of $x and $y, which require gradients. Inputs are further ones of the model.
type operatorCase struct {
	name   string
	shape  []int64 // of $x and $y, behind the batch
	entry  string
	inputs string
}

// rareOperators are those that the other recordings do not reach.
var rareOperators = []operatorCase{
	{name: "adaptive_avg_pool1d", shape: []int64{6, 17}, entry: "{adaptive_avg_pool1d: 5, inputs: $x}"},
	{name: "adaptive_avg_pool3d", shape: []int64{3, 7, 6, 9}, entry: "{adaptive_avg_pool3d: {output_size: [2, 3, 4]}, inputs: $x}"},
	{name: "adaptive_max_pool1d", shape: []int64{6, 17}, entry: "{adaptive_max_pool1d: 5, inputs: $x}"},
	{name: "adaptive_max_pool1d_indices", shape: []int64{6, 17}, entry: "{adaptive_max_pool1d: {output_size: 5, return_indices: true}, inputs: $x, pick: 0}"},
	{name: "adaptive_max_pool2d", shape: []int64{3, 8, 9}, entry: "{adaptive_max_pool2d: {output_size: [2, 3]}, inputs: $x}"},
	{name: "adaptive_max_pool2d_indices", shape: []int64{3, 8, 9}, entry: "{adaptive_max_pool2d: {output_size: [2, 3], return_indices: true}, inputs: $x, pick: 0}"},
	{name: "adaptive_max_pool3d", shape: []int64{3, 7, 6, 9}, entry: "{adaptive_max_pool3d: {output_size: [2, 3, 4]}, inputs: $x}"},
	{name: "affine_grid", shape: []int64{2, 3}, entry: "{affine_grid: {theta: $x, size: [$B, 3, 5, 7], align_corners: false}}"},
	{name: "affine_grid_aligned", shape: []int64{2, 3}, entry: "{affine_grid: {theta: $x, size: [$B, 3, 5, 7], align_corners: true}}"},
	{name: "affine_grid_3d", shape: []int64{3, 4}, entry: "{affine_grid: {theta: $x, size: [$B, 2, 4, 5, 6], align_corners: false}}"},
	{name: "alpha_dropout_inplace", shape: []int64{6, 14}, entry: "{AlphaDropout: {p: 0.2, inplace: true}, inputs: $x}"},
	{name: "avg_pool1d", shape: []int64{6, 17}, entry: "{avg_pool1d: {kernel_size: 3, stride: 2, padding: 1}, inputs: $x}"},
	{name: "avg_pool3d", shape: []int64{3, 7, 6, 9}, entry: "{avg_pool3d: {kernel_size: 3, stride: 2, padding: 1}, inputs: $x}"},
	{name: "batch_norm", shape: []int64{6, 14}, entry: "{batch_norm: {input: $x, running_mean: {zeros: [6]}, running_var: {ones: [6]}, training: true}}"},
	{name: "batch_norm_eval", shape: []int64{6, 14}, entry: "{batch_norm: {input: $x, running_mean: {zeros: [6]}, running_var: {ones: [6]}}}"},
	{name: "bernoulli", shape: []int64{6, 14}, entry: "{bernoulli: , inputs: $x}"},
	{name: "bfloat16", shape: []int64{6, 14}, entry: "{bfloat16: , inputs: $x}"},
	{name: "double", shape: []int64{6, 14}, entry: "{double: , inputs: $x}"},
	{name: "half", shape: []int64{6, 14}, entry: "{half: , inputs: $x}"},
	{name: "bitwise_and", shape: []int64{6, 14}, entry: "{where: [{bitwise_and: [{gt: [$x, 0.1]}, {lt: [$y, 0.4]}]}, $x, $y]}"},
	{name: "bitwise_or", shape: []int64{6, 14}, entry: "{where: [{bitwise_or: [{gt: [$x, 0.1]}, {lt: [$y, 0.4]}]}, $x, $y]}"},
	{name: "bitwise_xor", shape: []int64{6, 14}, entry: "{where: [{bitwise_xor: [{gt: [$x, 0.1]}, {lt: [$y, 0.4]}]}, $x, $y]}"},
	{name: "logical_or", shape: []int64{6, 14}, entry: "{where: [{logical_or: [{gt: [$x, 0.1]}, {lt: [$y, 0.4]}]}, $x, $y]}"},
	{name: "logical_xor", shape: []int64{6, 14}, entry: "{where: [{logical_xor: [$x, {lt: [$y, 0.4]}]}, $x, $y]}"},
	{name: "isinf", shape: []int64{6, 14}, entry: "{where: [{isinf: , inputs: $x}, $x, $y]}"},
	{name: "isnan", shape: []int64{6, 14}, entry: "{where: [{isnan: , inputs: $x}, $x, $y]}"},
	{name: "clamp_max_inplace", shape: []int64{6, 14}, entry: "{clamp_max: 0.3, inputs: $x, inplace: true}"},
	{name: "fold", shape: []int64{12, 20}, entry: "{fold: {output_size: [5, 6], kernel_size: 2}, inputs: $x}"},
	{name: "fold_dilated", shape: []int64{18, 12}, entry: "{fold: {output_size: [8, 6], kernel_size: [3, 2], dilation: [1, 2], padding: 1, stride: 2}, inputs: $x}"},
	{name: "grid_sample", shape: []int64{3, 8, 9}, inputs: "g: [5, 4, 2]", entry: "{grid_sample: {input: $x, grid: {tanh: , inputs: {Linear: 2, inputs: g}}, align_corners: false}}"},
	{name: "grid_sample_cudnn", shape: []int64{3, 8, 9}, inputs: "g: [5, 4, 2]", entry: "{grid_sample: {input: $x, grid: {tanh: , inputs: {Linear: 2, inputs: g}}, align_corners: true}}"},
	{name: "grid_sample_cudnn_data", shape: []int64{3, 8, 9}, inputs: "g: [5, 4, 2]", entry: "{grid_sample: {input: $x, grid: g, align_corners: true}}"},
	{name: "grid_sample_data", shape: []int64{3, 8, 9}, inputs: "g: [5, 4, 2]", entry: "{grid_sample: {input: $x, grid: g, mode: bicubic, padding_mode: reflection, align_corners: true}}"},
	{name: "grid_sample_grid", shape: []int64{5, 4, 2}, inputs: "g: [3, 8, 9]", entry: "{grid_sample: {input: g, grid: $x, mode: nearest, padding_mode: border, align_corners: true}}"},
	{name: "grid_sample_3d", shape: []int64{2, 5, 6, 7}, inputs: "g: [3, 4, 5, 3]", entry: "{grid_sample: {input: $x, grid: {tanh: , inputs: {Linear: 3, inputs: g}}, align_corners: true}}"},
	{name: "cummin", shape: []int64{6, 14}, entry: "{cummin: 1, inputs: $x, pick: 0}"},
	{name: "cummin_last", shape: []int64{6, 14}, entry: "{cummin: -1, inputs: $x, pick: 0}"},
	{name: "diag_embed", shape: []int64{6, 14}, entry: "{diag_embed: , inputs: $x}"},
	{name: "diagonal", shape: []int64{6, 14}, entry: "{diagonal: {offset: 1, dim1: 1, dim2: 2}, inputs: $x}"},
	{name: "dot", shape: []int64{14}, entry: "{dot: [{getitem: '0', inputs: $x}, {getitem: '1', inputs: $y}]}"},
	{name: "dot_columns", shape: []int64{14}, entry: "{dot: [{getitem: ':, 0', inputs: $x}, {getitem: ':, 3', inputs: $y}]}"},
	{name: "mv", shape: []int64{14}, entry: "{mv: [$x, {getitem: '1', inputs: $y}]}"},
	{name: "mv_columns", shape: []int64{14}, entry: "{mv: [{transpose: [0, 1], inputs: $x}, {getitem: ':, 2', inputs: $y}]}"},
	{name: "mm", shape: []int64{14}, entry: "{mm: [$x, {transpose: [0, 1], inputs: $y}]}"},
	{name: "dropout1d_inplace", shape: []int64{6, 14}, entry: "{Dropout1d: {p: 0.2, inplace: true}, inputs: $x}"},
	{name: "dropout2d_inplace", shape: []int64{3, 8, 9}, entry: "{Dropout2d: {p: 0.2, inplace: true}, inputs: $x}"},
	{name: "dropout3d", shape: []int64{3, 7, 6, 9}, entry: "{dropout3d: 0.2, inputs: $x}"},
	{name: "dropout3d_inplace", shape: []int64{3, 7, 6, 9}, entry: "{Dropout3d: {p: 0.2, inplace: true}, inputs: $x}"},
	{name: "feature_alpha_dropout_inplace", shape: []int64{6, 14}, entry: "{FeatureAlphaDropout: {p: 0.2, inplace: true}, inputs: $x}"},
	{name: "dstack", shape: []int64{6, 14}, entry: "{dstack: [[$x, $y]]}"},
	{name: "hstack", shape: []int64{6, 14}, entry: "{hstack: [[$x, $y]]}"},
	{name: "vstack", shape: []int64{6, 14}, entry: "{vstack: [[$x, $y]]}"},
	{name: "empty", shape: []int64{6, 14}, entry: "{mul: [$x, {empty: [14]}]}"},
	{name: "empty_like", shape: []int64{6, 14}, entry: "{mul: [$x, {empty_like: , inputs: $y}]}"},
	{name: "new_empty", shape: []int64{6, 14}, entry: "{mul: [$x, {new_empty: {self: $y, size: [6, 1]}}]}"},
	{name: "new_full", shape: []int64{6, 14}, entry: "{mul: [$x, {new_full: {self: $y, size: [6, 1], fill_value: 0.5}}]}"},
	{name: "new_ones", shape: []int64{6, 14}, entry: "{mul: [$x, {new_ones: {self: $y, size: [14], dtype: int64}}]}"},
	{name: "new_zeros", shape: []int64{6, 14}, entry: "{mul: [$x, {new_zeros: {self: $y, size: [6, 14]}}]}"},
	{name: "randint", shape: []int64{6, 14}, entry: "{mul: [$x, {randint: {low: 0, high: 5, size: [14]}}]}"},
	{name: "fractional_max_pool3d", shape: []int64{3, 7, 6, 9}, entry: "{fractional_max_pool3d: {kernel_size: 2, output_size: [3, 4, 5]}, inputs: $x}"},
	{name: "fractional_max_pool3d_ratio", shape: []int64{3, 7, 6, 9}, entry: "{fractional_max_pool3d: {kernel_size: 2, output_ratio: [0.5, 0.6, 0.7], return_indices: true}, inputs: $x, pick: 0}"},
	{name: "generate_square_subsequent_mask", shape: []int64{7, 7}, entry: "{add: [$x, {generate_square_subsequent_mask: 7}]}"},
	{name: "instance_norm", shape: []int64{6, 14}, entry: "{instance_norm: , inputs: $x}"},
	{name: "instance_norm_running", shape: []int64{6, 14}, entry: "{instance_norm: {input: $x, running_mean: {zeros: [6]}, running_var: {ones: [6]}}}"},
	{name: "lp_pool1d", shape: []int64{6, 17}, entry: "{lp_pool1d: [2.0, 3, 2], inputs: $x}"},
	{name: "lp_pool3d", shape: []int64{3, 7, 6, 9}, entry: "{lp_pool3d: [3.0, 2], inputs: $x}"},
	{name: "max_pool1d", shape: []int64{6, 17}, entry: "{max_pool1d: {kernel_size: 3, stride: 2, padding: 1}, inputs: $x}"},
	{name: "max_pool1d_indices", shape: []int64{6, 17}, entry: "{max_pool1d: {kernel_size: 3, stride: 2, return_indices: true}, inputs: $x, pick: 0}"},
	{name: "max_pool3d", shape: []int64{3, 7, 6, 9}, entry: "{max_pool3d: 2, inputs: $x}"},
	{name: "max_unpool1d", shape: []int64{6, 8}, inputs: "i: {shape: [6, 8], dtype: int64}", entry: "{max_unpool1d: {input: $x, indices: i, kernel_size: 2}}"},
	{name: "max_unpool2d", shape: []int64{3, 8, 9}, inputs: "i: {shape: [3, 8, 9], dtype: int64}", entry: "{max_unpool2d: {input: $x, indices: i, kernel_size: 2}}"},
	{name: "max_unpool2d_strided_indices", shape: []int64{3, 8, 9}, inputs: "i: {shape: [3, 8, 18], dtype: int64}",
		entry: "{max_unpool2d: {input: $x, indices: {getitem: '..., ::2', inputs: i}, kernel_size: 3, stride: 2, padding: 1}}"},
	{name: "max_unpool3d", shape: []int64{3, 4, 5, 6}, inputs: "i: {shape: [3, 4, 5, 6], dtype: int64}", entry: "{max_unpool3d: {input: $x, indices: i, kernel_size: 2}}"},
	{name: "movedim", shape: []int64{6, 14}, entry: "{movedim: {source: 1, destination: 2}, inputs: $x}"},
	{name: "ravel", shape: []int64{6, 14}, entry: "{ravel: , inputs: $x}"},
	{name: "reshape_as", shape: []int64{6, 14}, entry: "{reshape_as: [$x, {transpose: [1, 2], inputs: $y}]}"},
	{name: "swapaxes", shape: []int64{6, 14}, entry: "{swapaxes: [1, 2], inputs: $x}"},
	{name: "swapdims", shape: []int64{6, 14}, entry: "{swapdims: [0, 2], inputs: $x}"},
	{name: "take_along_dim", shape: []int64{6, 14}, inputs: "i: {shape: [6, 5], dtype: int64}", entry: "{take_along_dim: {input: $x, indices: i, dim: 2}}"},
	{name: "take_along_dim_broadcast", shape: []int64{6, 14}, inputs: "i: {shape: [1, 5], dtype: int64}", entry: "{take_along_dim: {input: $x, indices: i, dim: 2}}"},
	{name: "searchsorted", shape: []int64{6, 14}, entry: "{mul: [$x, {searchsorted: {sorted_sequence: {sort: , inputs: {detach: , inputs: $y}, pick: 0}, input: {detach: , inputs: $x}}}]}"},
	{name: "searchsorted_int32", shape: []int64{6, 14}, entry: "{mul: [$x, {searchsorted: {sorted_sequence: {getitem: '0, 0', inputs: {detach: , inputs: $y}}, input: {detach: , inputs: $x}, out_int32: true, right: true}}]}"},
	{name: "pow_tensor", shape: []int64{6, 14}, entry: "{pow: [$x, $y]}"},
	{name: "pow_tensor_broadcast", shape: []int64{6, 14}, entry: "{pow: [$x, {mean: {dim: 1, keepdim: true}, inputs: $y}]}"},
	{name: "remainder", shape: []int64{6, 14}, entry: "{remainder: [$x, $y]}"},
	{name: "remainder_broadcast", shape: []int64{6, 14}, entry: "{remainder: [$x, {mean: {dim: 1, keepdim: true}, inputs: $y}]}"},
	{name: "remainder_number", shape: []int64{6, 14}, entry: "{remainder: [$x, 0.3]}"},
	{name: "sub_inplace", shape: []int64{6, 14}, entry: "{sub: [$x, $y], inplace: true}"},
	{name: "sub_number_inplace", shape: []int64{6, 14}, entry: "{sub: [$x, 0.5], inplace: true}"},
	{name: "gru", shape: []int64{6, 12}, entry: "{GRU: {hidden_size: 10, batch_first: true}, inputs: $x, pick: 0}"},
	{name: "rrelu_inplace", shape: []int64{6, 14}, entry: "{RReLU: {inplace: true}, inputs: $x}"},
	{name: "gumbel_softmax", shape: []int64{6, 14}, entry: "{gumbel_softmax: {logits: $x, hard: true}}"},
	{name: "pad1_reflect", shape: []int64{6, 17}, entry: "{pad: {pad: [2, 1], mode: reflect}, inputs: $x}"},
	{name: "pad1_replicate", shape: []int64{6, 17}, entry: "{pad: {pad: [2, 1], mode: replicate}, inputs: $x}"},
	{name: "pad3_reflect", shape: []int64{3, 7, 6, 9}, entry: "{pad: {pad: [2, 1, 1, 2, 1, 0], mode: reflect}, inputs: $x}"},
	{name: "pad3_replicate", shape: []int64{3, 7, 6, 9}, entry: "{pad: {pad: [2, 1, 1, 2, 1, 0], mode: replicate}, inputs: $x}"},
	{name: "upsample_nearest", shape: []int64{3, 8, 9}, entry: "{upsample_nearest: {scale_factor: 2.0}, inputs: $x}"},
	{name: "interpolate3", shape: []int64{3, 7, 6, 9}, entry: "{interpolate: {scale_factor: 2, mode: nearest}, inputs: $x}"},
	{name: "interpolate3_trilinear", shape: []int64{3, 7, 6, 9}, entry: "{interpolate: {size: [4, 5, 10], mode: trilinear}, inputs: $x}"},
	{name: "interpolate3_exact", shape: []int64{3, 7, 6, 9}, entry: "{interpolate: {size: [4, 5, 10], mode: nearest-exact}, inputs: $x}"},
	{name: "interpolate1_exact", shape: []int64{6, 17}, entry: "{interpolate: {size: 11, mode: nearest-exact}, inputs: $x}"},
	{name: "pairwise_distance", shape: []int64{6, 14}, entry: "{pairwise_distance: {x1: $x, x2: $y}}"},
	{name: "pairwise_distance_3", shape: []int64{6, 14}, entry: "{pairwise_distance: {x1: $x, x2: $y, p: 3.0, keepdim: true}}"},
	{name: "encoder_mask", shape: []int64{6, 12}, entry: "{TransformerEncoder: {nhead: 3, num_layers: 1, dim_feedforward: 20, batch_first: true, mask: {triu: {input: {bool: , inputs: [{ones: [6, 6]}]}, diagonal: 1}}}, inputs: $x}"},
	{name: "encoder_padding", shape: []int64{6, 12}, entry: "{TransformerEncoder: {nhead: 2, num_layers: 1, dim_feedforward: 20, batch_first: true, src_key_padding_mask: {bool: , inputs: [{zeros: [$B, 6]}]}}, inputs: $x}"},

	{name: "gaussian_nll_loss", shape: []int64{6, 14}, entry: "{gaussian_nll_loss: {input: $x, target: t, var: {exp: , inputs: $y}, full: $bool, reduction: $reduction}}", inputs: "t: [6, 14]"},
	{name: "hinge_embedding_loss", shape: []int64{6, 14}, entry: "{hinge_embedding_loss: {input: $x, target: t, margin: 0.8, reduction: $reduction}}", inputs: "t: [6, 14]"},
	{name: "margin_ranking_loss", shape: []int64{6, 14}, entry: "{margin_ranking_loss: {input1: $x, input2: $y, target: t, margin: 0.2, reduction: $reduction}}", inputs: "t: [6, 14]"},
	{name: "multi_margin_loss", shape: []int64{14}, entry: "{multi_margin_loss: {input: $x, target: t, p: $12, margin: 0.8, reduction: $reduction}}", inputs: "t: {shape: [], dtype: int64}"},
	{name: "multi_margin_loss_weight", shape: []int64{14}, entry: "{multi_margin_loss: {input: $x, target: t, weight: {ones: [14]}, reduction: $reduction}}", inputs: "t: {shape: [], dtype: int64}"},
	{name: "multilabel_margin_loss", shape: []int64{14}, entry: "{multilabel_margin_loss: {input: $x, target: t, reduction: $reduction}}", inputs: "t: {shape: [14], dtype: int64}"},
	{name: "multilabel_soft_margin_loss", shape: []int64{14}, entry: "{multilabel_soft_margin_loss: {input: $x, target: t, reduction: $reduction}}", inputs: "t: [14]"},
	{name: "multilabel_soft_margin_loss_weight", shape: []int64{14}, entry: "{multilabel_soft_margin_loss: {input: $x, target: t, weight: {ones: [14]}, reduction: $reduction}}", inputs: "t: [14]"},
	{name: "poisson_nll_loss", shape: []int64{6, 14}, entry: "{poisson_nll_loss: {input: $x, target: t, log_input: $bool, full: true, reduction: $reduction}}", inputs: "t: [6, 14]"},
	{name: "poisson_nll_loss_short", shape: []int64{6, 14}, entry: "{poisson_nll_loss: {input: $x, target: t, log_input: $bool, reduction: $reduction}}", inputs: "t: [6, 14]"},
	{name: "soft_margin_loss", shape: []int64{6, 14}, entry: "{soft_margin_loss: {input: $x, target: t, reduction: $reduction}}", inputs: "t: [6, 14]"},
	{name: "triplet_margin_with_distance_loss", shape: []int64{14},
		entry: "{triplet_margin_with_distance_loss: {anchor: $x, positive: $y, negative: t, swap: $bool, reduction: $reduction}}", inputs: "t: [14]"},
	{name: "ctc_loss", shape: []int64{11, 14}, inputs: "t: {shape: [4], dtype: int64}, i: {shape: [], dtype: int64}, l: {shape: [], dtype: int64}",
		entry: "{ctc_loss: {log_probs: {transpose: [0, 1], inputs: {log_softmax: 2, inputs: {float: , inputs: $x}}}, targets: t, input_lengths: i, target_lengths: l, zero_infinity: $bool, reduction: $reduction}}"},

	{name: "nansum", shape: []int64{6, 14}, entry: "{nansum: , inputs: $x}"},
	{name: "nansum_dim", shape: []int64{6, 14}, entry: "{nansum: {dim: 1, keepdim: $bool}, inputs: $x}"},
	{name: "nansum_dims", shape: []int64{3, 8, 9}, entry: "{nansum: [0, -1], inputs: $x}"},
	{name: "nansum_mask", shape: []int64{6, 14}, entry: "{mul: [$x, {nansum: {dim: -1, keepdim: true}, inputs: {gt: [$y, 0.1]}}]}"},

	{name: "cross_map_lrn2d", shape: []int64{6, 8, 9}, entry: "{CrossMapLRN2d: 5, inputs: $x}"},
	{name: "cross_map_lrn2d_even", shape: []int64{3, 8, 9}, entry: "{CrossMapLRN2d: {size: 4, alpha: 0.01, beta: 0.6, k: 2}, inputs: $x}"},
}

// operatorForms are in which type, and how in memory, each operator is given what
// it takes; swapped: with the last two dimensions exchanged, sliced: every second
// element.
var operatorForms = []struct{ precision, form, arch string }{
	{"fp32", "", "sm80"}, {"fp32", "swapped", "sm90"}, {"bf16", "sliced", "sm80"}, {"fp16", "", "sm75"}, {"amp-bf16", "swapped", "sm86"}, {"amp-fp16", "", "sm80"},
	{"fp32", "sliced", "sm70"}, {"amp-bf16", "", "sm90"},
}

// rareOperator is the job of an operator in a form; each operator has as many seeds as
// there are forms.
func rareOperator(g *generator, seed uint64) (text, arch string) {
	k := uint64(len(operatorForms))
	c, f := rareOperators[seed/k%uint64(len(rareOperators))], operatorForms[seed%k]
	n := len(c.shape)
	in, out, after := append([]int64{}, c.shape...), c.shape[n-1], ""
	switch {
	case f.form == "sliced":
		out, after = 2*out, "    - {getitem: '..., ::2', inputs: %[1]s, name: %[1]s}\n"
	case f.form == "swapped" && n > 1:
		in[n-1], in[n-2], out = in[n-2], in[n-1], c.shape[n-2]
		after = "    - {transpose: [-1, -2], inputs: %[1]s, name: %[1]s}\n"
	}
	batch := int64(3 + g.r.IntN(8))
	var b strings.Builder
	inputs := fmt.Sprintf("x: %s", list(in))
	if c.inputs != "" {
		inputs += ", " + c.inputs
	}
	fmt.Fprintf(&b, "memplan: 1\nname: %s\nmodel:\n  inputs: {%s}\n  layers:\n", strings.Join(strings.Fields(c.name+" "+f.precision+" "+f.form), "_"), inputs)
	for _, v := range []string{"h", "k"} {
		if v == "k" && !strings.Contains(c.entry, "$y") {
			continue
		}
		fmt.Fprintf(&b, "    - {Linear: %d, inputs: x, name: %s}\n", out, v)
		if after != "" {
			fmt.Fprintf(&b, after, v)
		}
	}
	entry := strings.NewReplacer("$x", "h", "$y", "k", "$B", fmt.Sprint(batch), "$bool", g.pick("true", "false"), "$reduction", g.pick("mean", "sum", "none"), "$12", g.pick("1", "2")).Replace(c.entry)
	fmt.Fprintf(&b, "    - %s\n", strings.TrimSuffix(entry, "}")+", name: r}")
	if g.chance(0.5) { // a gradient with memory of its own, not an expanded number
		b.WriteString("    - {mul: [r, r]}\n")
	}
	fmt.Fprintf(&b, "  loss: {sum: }\ntrain: {batch_size: %d, precision: %s, optimizer: {SGD: {momentum: 0.9}}}\n", batch, f.precision)
	return b.String(), f.arch
}
