package graph

import (
	"math"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// isFloat reports a mask of a floating type.
func isFloat(mask val) bool { return !mask.isNone() && mask.m.t.DType.IsFloating() }

// canonical is F._canonical_mask: a mask of bools becomes one that is added, of
// zeros and -inf in the type of the query, under its own name.
func (b *builder) canonical(name string, mask, query val) val {
	switch {
	case mask.isNone() || isFloat(mask):
		return mask
	case mask.m.t.DType != tensor.Bool:
		b.fail("", "only bool and floating types of %s are supported, not %v", name, mask.m.t.DType)
	}
	zeros := b.do(op.ZerosLikeQuery, nil, mask, query)
	fill := op.MaskedFillInPlace
	return b.let(name, b.do(fill, op.BindArgs(fill.Args, map[string]any{"value": math.Inf(-1)}), zeros, mask))
}

// encoderMasks are the masks of an encoder or its layer, inputs 1 and 2.
func (b *builder) encoderMasks(name string) (mask, padding val) {
	padding = b.canonical("src_key_padding_mask", b.in(2), b.in(0))
	return b.canonical(name, b.in(1), b.in(0)), padding
}

// mergedMasks is MultiheadAttention.merge_masks, which the fused paths call; none
// if there is no mask.
func (b *builder) mergedMasks(mask, padding, query val, heads int64) val {
	if mask.isNone() && padding.isNone() {
		return val{}
	}
	n, t := query.m.t.Dim(0), query.m.t.Dim(1)
	v := b.inline("merge_masks", []string{"attn_mask", "key_padding_mask"}, []val{mask, padding}, func(f *builder, in []val) []val {
		mask, padding := in[0], in[1]
		if mask.isNone() {
			f.maskSize("key_padding_mask", padding, n, t)
			return []val{padding}
		}
		expand := func(m val, shape ...int64) val { return f.do(op.Expand, &op.ShapeArgs{Shape: shape}, m) }
		view := func(m val, shape ...int64) val { return f.do(op.View, &op.ShapeArgs{Shape: shape}, m) }
		if mask.m.t.Rank() == 3 {
			mask = f.let("attn_mask_expanded", view(mask, n, -1, t, t))
		} else {
			f.maskSize("attn_mask", mask, t, t)
			mask = f.let("attn_mask_expanded", expand(view(mask, 1, 1, t, t), n, heads, -1, -1))
		}
		if !padding.isNone() {
			f.maskSize("key_padding_mask", padding, n, t)
			padding = f.let("key_padding_mask_expanded", expand(view(padding, n, 1, 1, t), -1, heads, -1, -1))
			mask = f.let("merged_mask", f.do(op.Add, &op.BinaryArgs{}, mask, padding))
		}
		return []val{mask}
	})
	merged := b.let("merged_mask", v)
	b.fn.Body[len(b.fn.Body)-1].Fast = true
	return merged
}

// maskSize refuses a mask of another shape.
func (b *builder) maskSize(name string, mask val, size ...int64) {
	if want := tensor.D(size...); mask.m.t.Size != want {
		b.fail("", "%s has shape %v, but should have %v", name, mask.m.t.Size, want)
	}
}

// batchedMask gives attn_mask its third dimension: one mask for all heads, or
// one for each.
func (b *builder) batchedMask(mask val, heads, t, s int64) val {
	switch {
	case mask.isNone():
		return mask
	case mask.m.t.Rank() == 2:
		b.maskSize("attn_mask", mask, t, s)
		return b.let("attn_mask", b.do(op.Unsqueeze, &op.DimArgs{}, mask))
	}
	b.maskSize("attn_mask", mask, heads, t, s)
	return mask
}

// paddedMask adds key_padding_mask to attn_mask, for every head.
func (b *builder) paddedMask(mask, padding val, bsz, heads, s int64) val {
	b.maskSize("key_padding_mask", padding, bsz, s)
	v := b.do(op.View, &op.ShapeArgs{Shape: []int64{bsz, 1, 1, s}}, padding)
	v = b.do(op.Expand, &op.ShapeArgs{Shape: []int64{-1, heads, -1, -1}}, v)
	padding = b.let("key_padding_mask", b.do(op.Reshape, &op.ShapeArgs{Shape: []int64{bsz * heads, 1, s}}, v))
	if mask.isNone() {
		return b.let("attn_mask", padding)
	}
	return b.let("attn_mask", b.do(op.Add, &op.BinaryArgs{}, mask, padding))
}

// detectCausal is _detect_is_causal_mask: without a hint the mask is compared
// with the causal one.
func (b *builder) detectCausal(arg string, mask val) bool {
	if b.has(arg) || mask.isNone() {
		return b.bool(arg)
	}
	x := b.x(3)
	n := x.Dim(0)
	if b.bool("batch_first") {
		n = x.Dim(1)
	}
	row := op.DetectCausalMask
	if mask.m.causal {
		row = op.DetectCausalMaskKnown
	}
	v := b.call(row, &op.CausalMaskArgs{Size: n}, mask)
	b.fn.Body = append(b.fn.Body, program.Stmt{Kind: program.Expression, Value: v.e})
	return mask.m.causal && mask.m.t.Size == tensor.D(n, n)
}
