package op

import "slices"

// keepable lists the operators whose results a selective checkpoint may keep, by
// the names under which torch dispatch sees them below autograd, each with its
// overload default.
// Views and operators that modify their inputs cannot be kept.
var keepable = []string{
	"_log_softmax", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention", "_softmax", "addmm", "bmm",
	"convolution", "embedding", "gelu", "max_pool2d_with_indices", "mm", "native_dropout", "native_group_norm", "native_layer_norm", "relu",
	"sigmoid", "silu", "tanh",
}

// keepableGroups are words for several of them.
var keepableGroups = map[string][]string{
	"matmul":                       {"mm", "addmm", "bmm"},
	"scaled_dot_product_attention": {"_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"},
}

// Keepable returns the operators that a selective checkpoint keeps for a word of
// a spec; none if the word is not known.
func Keepable(word string) []*Row {
	var out []*Row
	names := keepableGroups[word]
	if slices.Contains(keepable, word) {
		names = []string{word}
	}
	for _, n := range names {
		out = append(out, Row0(n))
	}
	return out
}

// KeepableNames lists the words that Keepable knows.
func KeepableNames() []string {
	out := slices.Clone(keepable)
	for g := range keepableGroups {
		out = append(out, g)
	}
	slices.Sort(out)
	return out
}
