package layers

import (
	"math"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// isFloat reports a mask of a floating type.
func isFloat(mask value.Value) bool { return !mask.Absent() && mask.Meta.Tensor.DType.IsFloating() }

// canonical is F._canonical_mask: a mask of bools becomes one that is added, of
// zeros and -inf in the type of the query, under its own name.
func canonical(b *module.Builder, name string, mask, query value.Value) value.Value {
	switch {
	case mask.Absent() || isFloat(mask):
		return mask
	case mask.Meta.Tensor.DType != tensor.Bool:
		b.Fail("", "only bool and floating types of %s are supported, not %v", name, mask.Meta.Tensor.DType)
	}
	zeros := b.Do(aten.ZerosLikeQuery, nil, mask, query)
	fill := aten.MaskedFillInPlace
	return b.Let(name, b.Do(fill, op.BindArgs(fill.Args, map[string]any{"value": math.Inf(-1)}), zeros, mask))
}

// encoderMasks are the masks of an encoder or its layer, inputs 1 and 2.
func encoderMasks(b *module.Builder, name string) (mask, padding value.Value) {
	padding = canonical(b, "src_key_padding_mask", b.In(2), b.In(0))
	return canonical(b, name, b.In(1), b.In(0)), padding
}

// mergedMasks is MultiheadAttention.merge_masks, which the fused paths call; none
// if there is no mask.
func mergedMasks(b *module.Builder, mask, padding, query value.Value, heads int64) value.Value {
	if mask.Absent() && padding.Absent() {
		return value.Value{}
	}
	n, t := query.Meta.Tensor.Dim(0), query.Meta.Tensor.Dim(1)
	v := b.Inline("merge_masks", []string{"attn_mask", "key_padding_mask"}, []value.Value{mask, padding}, func(f *module.Builder, in []value.Value) []value.Value {
		mask, padding := in[0], in[1]
		if mask.Absent() {
			maskSize(f, "key_padding_mask", padding, n, t)
			return []value.Value{padding}
		}
		expand := func(m value.Value, shape ...int64) value.Value {
			return f.Do(aten.Expand, &aten.ShapeArgs{Shape: shape}, m)
		}
		view := func(m value.Value, shape ...int64) value.Value {
			return f.Do(aten.View, &aten.ShapeArgs{Shape: shape}, m)
		}
		if mask.Meta.Tensor.Rank() == 3 {
			mask = f.Let("attn_mask_expanded", view(mask, n, -1, t, t))
		} else {
			maskSize(f, "attn_mask", mask, t, t)
			mask = f.Let("attn_mask_expanded", expand(view(mask, 1, 1, t, t), n, heads, -1, -1))
		}
		if !padding.Absent() {
			maskSize(f, "key_padding_mask", padding, n, t)
			padding = f.Let("key_padding_mask_expanded", expand(view(padding, n, 1, 1, t), -1, heads, -1, -1))
			mask = f.Let("merged_mask", f.Do(aten.Add, &aten.BinaryArgs{}, mask, padding))
		}
		return []value.Value{mask}
	})
	merged := b.Let("merged_mask", v)
	b.Fast()
	return merged
}

// maskSize refuses a mask of another shape.
func maskSize(b *module.Builder, name string, mask value.Value, size ...int64) {
	if want := tensor.D(size...); mask.Meta.Tensor.Size != want {
		b.Fail("", "%s has shape %v, but should have %v", name, mask.Meta.Tensor.Size, want)
	}
}

// batchedMask gives attn_mask its third dimension: one mask for all heads, or
// one for each.
func batchedMask(b *module.Builder, mask value.Value, heads, t, s int64) value.Value {
	switch {
	case mask.Absent():
		return mask
	case mask.Meta.Tensor.Rank() == 2:
		maskSize(b, "attn_mask", mask, t, s)
		return b.Let("attn_mask", b.Do(aten.Unsqueeze, &aten.DimArgs{}, mask))
	}
	maskSize(b, "attn_mask", mask, heads, t, s)
	return mask
}

// paddedMask adds key_padding_mask to attn_mask, for every head.
func paddedMask(b *module.Builder, mask, padding value.Value, bsz, heads, s int64) value.Value {
	maskSize(b, "key_padding_mask", padding, bsz, s)
	v := b.Do(aten.View, &aten.ShapeArgs{Shape: []int64{bsz, 1, 1, s}}, padding)
	v = b.Do(aten.Expand, &aten.ShapeArgs{Shape: []int64{-1, heads, -1, -1}}, v)
	padding = b.Let("key_padding_mask", b.Do(aten.Reshape, &aten.ShapeArgs{Shape: []int64{bsz * heads, 1, s}}, v))
	if mask.Absent() {
		return b.Let("attn_mask", padding)
	}
	return b.Let("attn_mask", b.Do(aten.Add, &aten.BinaryArgs{}, mask, padding))
}

// detectCausal is _detect_is_causal_mask: without a hint the mask is compared
// with the causal one.
func detectCausal(b *module.Builder, arg string, mask value.Value) bool {
	if b.Has(arg) || mask.Absent() {
		return b.Bool(arg)
	}
	x := b.Tensor(3)
	n := x.Dim(0)
	if b.Bool("batch_first") {
		n = x.Dim(1)
	}
	row := aten.DetectCausalMask
	if mask.Meta.Causal {
		row = aten.DetectCausalMaskKnown
	}
	v := b.Call(row, &aten.CausalMaskArgs{Size: n}, mask)
	b.Emit(program.Stmt{Kind: program.Expression, Value: v.Expr})
	return mask.Meta.Causal && mask.Meta.Tensor.Size == tensor.D(n, n)
}
