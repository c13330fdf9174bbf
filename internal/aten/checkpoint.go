package aten

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
)

// keepable lists the operators whose results a selective checkpoint may keep, by
// the names under which torch dispatch sees them below autograd, each with its
// overload default.
// Views and operators that modify their inputs cannot be kept.
var keepable = []*op.Op{
	InnerLogSoftmax, EfficientAttention, FlashAttention, CudnnAttention, InnerSoftmax, Addmm, Bmm, Conv, Embedding, Gelu, MaxPool2dIndices, Mm, NativeDropout,
	NativeGroupNorm, NativeLayerNorm, Relu, Sigmoid, Silu, Tanh,
}

// keepableGroups are words for several of them.
var keepableGroups = map[string][]*op.Op{
	"matmul":                       {Mm, Addmm, Bmm},
	"scaled_dot_product_attention": {FlashAttention, EfficientAttention},
}

// Keepable returns the operators that a selective checkpoint keeps for a word of
// a spec; none if the word is not known.
func Keepable(word string) []*op.Op {
	if i := slices.IndexFunc(keepable, func(r *op.Op) bool { return r.Name == word }); i >= 0 {
		return keepable[i : i+1 : i+1]
	}
	return keepableGroups[word]
}

// KeepableNames lists the words that Keepable knows.
func KeepableNames() []string {
	var out []string
	for _, r := range keepable {
		out = append(out, r.Name)
	}
	for g := range keepableGroups {
		out = append(out, g)
	}
	slices.Sort(out)
	return out
}
