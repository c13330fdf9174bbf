package graph

import (
	"math"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

var MultiheadAttention = layer(Layer{
	Sig: "nn.MultiheadAttention(embed_dim: infer int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, " +
		"add_zero_attn: bool = False, kdim: infer int, vdim: infer int, batch_first: bool = False)",
	// forward's own arguments
	Forward: "forward(need_weights: bool = True, average_attn_weights: bool = True, is_causal: bool = False)",
	Inputs:  "query key value * key_padding_mask? attn_mask?",
	Is:      nn.Layer{Whole: true, Init: nn.Xavier},
	Build:   buildMHA,
})

var TransformerEncoderLayer = layer(Layer{
	Sig: "nn.TransformerEncoderLayer(d_model: infer int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, " +
		"activation: str(relu|gelu) = 'relu', layer_norm_eps: float = 1e-05, batch_first: bool = False, norm_first: bool = False, bias: bool = True)",
	Forward: "forward(is_causal: bool = False)",
	Inputs:  "src * src_mask? src_key_padding_mask?",
	Build:   buildEncoderLayer,
})

// buildMHA is nn.MultiheadAttention.forward (torch/nn/modules/activation.py).
func buildMHA(b *builder) {
	q, k, v := b.in(0), b.in(1), b.in(2)
	if b.x(3).Rank() != 3 || k.m.t.Rank() != 3 || v.m.t.Rank() != 3 {
		b.fail("", "query, key and value need three dimensions, not shape %v", b.x(3).Size)
	}
	e, heads := b.infer("embed_dim", b.x(3).Dim(-1)), b.positive("num_heads")
	if e%heads != 0 {
		b.fail("num_heads", "embed_dim %d is not divisible by num_heads %d", e, heads)
	}
	kdim, vdim := k.m.t.Dim(-1), v.m.t.Dim(-1)
	for name, n := range map[string]int64{"kdim": kdim, "vdim": vdim} {
		if n != e || b.given[name] {
			b.infer(name, n)
		}
	}
	m := &mhaParts{
		heads: heads, dropout: b.float("dropout"), weights: b.bool("need_weights"), average: b.bool("average_attn_weights"), causal: b.bool("is_causal"),
		zeroAttn: b.bool("add_zero_attn"),
	}
	if kdim == e && vdim == e {
		m.inWeight = b.param("in_proj_weight", 3*e, e)
	} else {
		m.apart = []val{b.param("q_proj_weight", e, e), b.param("k_proj_weight", e, kdim), b.param("v_proj_weight", e, vdim)}
	}
	if b.bool("bias") {
		m.inBias = b.param("in_proj_bias", 3*e)
	}
	// out_proj is a Linear whose weights the function takes.
	out := &program.Class{Layer: nn.OutProj, Params: []program.Param{{Name: "weight", Size: []int64{e, e}, DType: b.dtype()}}}
	m.outWeight = b.own("out_proj.weight", b.env.Computed(b.dtype()), []int64{e, e})
	if b.bool("bias") {
		out.Params = append(out.Params, program.Param{Name: "bias", Size: []int64{e}, DType: b.dtype()})
		m.outBias = b.own("out_proj.bias", b.env.Computed(b.dtype()), []int64{e})
	}
	b.class.Children = append(b.class.Children, program.Child{Path: "out_proj", Class: out})
	if b.bool("add_bias_kv") {
		m.biasK, m.biasV = b.param("bias_k", 1, 1, e), b.param("bias_v", 1, 1, e)
	}

	self, batchFirst := q.same(k) && k.same(v), b.bool("batch_first")
	padding, mask := b.canonical("key_padding_mask", b.in(3), q), b.canonical("attn_mask", b.in(4), q)
	if self && batchFirst && heads%2 == 0 && b.bool("bias") && !b.bool("add_bias_kv") && !m.zeroAttn && m.apart == nil && !isFloat(b.in(3)) && !isFloat(b.in(4)) {
		merged := b.mergedMasks(mask, padding, q, heads)
		b.fn.Body = append(b.fn.Body, m.fastPath(b, merged))
	}
	if batchFirst {
		swap := func(v val) val { return b.do(op.Transpose, &op.TransposeArgs{Dim0: 1, Dim1: 0}, v) }
		// The parameters are rebound to transposed views; the caller still holds
		// the originals.
		switch {
		case self:
			q = b.let("query", swap(q))
			k, v = q, q
		case k.same(v):
			q, k = b.let("query", swap(q)), b.let("key", swap(k))
			v = k
		default:
			q, k, v = b.let("query", swap(q)), b.let("key", swap(k)), b.let("value", swap(v))
		}
	}
	m.self, m.shared = self, k.same(v)
	r := b.inline("multi_head_attention_forward", []string{"query", "key", "value", "key_padding_mask", "attn_mask"}, []val{q, k, v, padding, mask}, m.forward)
	outs := b.letAll([]string{"attn_output", "attn_output_weights"}, r)
	y := outs[0]
	if batchFirst {
		y = b.do(op.Transpose, &op.TransposeArgs{Dim0: 1, Dim1: 0}, y)
	}
	b.finish([]val{y, outs[1]})
}

// mhaParts is what F.multi_head_attention_forward takes beside its tensors.
type mhaParts struct {
	heads                                int64
	dropout                              float64
	weights, average, causal, zeroAttn   bool
	self, shared                         bool
	inWeight, inBias, outWeight, outBias val
	apart                                []val // the weights of query, key and value where they have different widths
	biasK, biasV                         val
}

// fastPath is torch._native_multi_head_attention, which eval mode without
// gradients takes for self-attention.
func (m *mhaParts) fastPath(b *builder, mask val) program.Stmt {
	a := &op.NativeMHAArgs{Heads: m.heads, Weights: m.weights, Average: m.average}
	call := b.call(op.NativeMHA, a, b.ins[0], m.inWeight, m.inBias, m.outWeight, m.outBias, mask)
	st := program.Stmt{Kind: program.FastReturn, Value: call.e}
	if !m.weights {
		st.Value, st.Values = nil, []*program.Expr{call.e, noneVal().e}
	}
	return st
}

// forward is F.multi_head_attention_forward (torch/nn/functional.py).
func (m *mhaParts) forward(f *builder, in []val) []val {
	q, k, v, padding, mask := in[0], in[1], in[2], in[3], in[4]
	if m.self {
		k, v = q, q
	} else if m.shared {
		v = k
	}
	causal := m.causal
	switch {
	case causal && mask.isNone():
		f.fail("is_causal", "Need attn_mask if specifying the is_causal hint")
	case causal && padding.isNone() && !m.weights:
		mask = val{}
	case !padding.isNone():
		causal = false
	}
	t, bsz, e := q.m.t.Dim(0), q.m.t.Dim(1), q.m.t.Dim(2)
	s := k.m.t.Dim(0)
	d := e / m.heads
	var qkv []val
	if m.apart != nil {
		qkv = f.letAll([]string{"q", "k", "v"}, f.inline("_in_projection", []string{"q", "k", "v"}, []val{q, k, v}, m.projectApart))
	} else {
		qkv = f.letAll([]string{"q", "k", "v"}, f.inline("_in_projection_packed", []string{"q", "k", "v"}, []val{q, k, v}, m.project))
	}
	mask = f.batchedMask(mask, bsz*m.heads, t, s)
	view := func(v val, shape ...int64) val { return f.do(op.View, &op.ShapeArgs{Shape: shape}, v) }
	wider := func(name string, v val) val { // one more key that is masked by nothing
		return f.let(name, f.do(op.Pad, &op.PadArgs{Pad: []int64{0, 1}, Mode: "constant"}, v))
	}
	widen := func() {
		if s++; !mask.isNone() {
			mask = wider("attn_mask", mask)
		}
		if !padding.isNone() {
			padding = wider("key_padding_mask", padding)
		}
	}
	if !m.biasK.isNone() {
		for i, bias := range []val{m.biasK, m.biasV} {
			more := f.do(op.Repeat, &op.RepeatArgs{Repeats: []int64{1, bsz, 1}}, bias)
			qkv[i+1] = f.let([]string{"k", "v"}[i], f.do(op.Cat, &op.DimArgs{}, qkv[i+1], more))
		}
		widen()
	}
	split := func(name string, v val, n int64) val {
		return f.let(name, f.do(op.Transpose, &op.TransposeArgs{Dim0: 0, Dim1: 1}, view(v, n, bsz*m.heads, d)))
	}
	q, k, v = split("q", qkv[0], t), split("k", qkv[1], s), split("v", qkv[2], s)
	if m.zeroAttn {
		for i, x := range []*val{&k, &v} {
			dt := x.m.t.DType
			zeros := f.do(op.Zeros, &op.FillArgs{Size: []int64{bsz * m.heads, 1, d}, DType: &dt})
			*x = f.let([]string{"k", "v"}[i], f.do(op.Cat, &op.DimArgs{Dim: 1}, *x, zeros))
		}
		widen()
	}
	if !padding.isNone() {
		mask = f.paddedMask(mask, padding, bsz, m.heads, s)
	}
	if m.weights {
		scaled := f.let("q_scaled", f.do(op.Mul, &op.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: 1 / math.Sqrt(float64(d))}}, q))
		kt := f.do(op.Transpose, &op.TransposeArgs{Dim0: -2, Dim1: -1}, k)
		var w val
		if mask.isNone() {
			w = f.let("attn_output_weights", f.do(op.Bmm, nil, scaled, kt))
		} else {
			w = f.let("attn_output_weights", f.do(op.Baddbmm, &op.BaddbmmArgs{Beta: 1, Alpha: 1}, mask, scaled, kt))
		}
		w = f.let("attn_output_weights", f.do(op.Softmax, &op.SoftmaxArgs{Dim: -1}, w))
		if m.dropout > 0 {
			w = f.let("attn_output_weights", f.do(op.Dropout, &op.DropoutArgs{P: m.dropout}, w))
		}
		y := f.let("attn_output", f.do(op.Bmm, nil, w, v))
		y = f.let("attn_output", view(f.do(op.Contiguous, nil, f.do(op.Transpose, &op.TransposeArgs{Dim0: 0, Dim1: 1}, y)), t*bsz, e))
		y = f.let("attn_output", f.do(op.Linear, nil, y, m.outWeight, m.outBias))
		y = f.let("attn_output", view(y, t, bsz, e))
		w = f.let("attn_output_weights", view(w, bsz, m.heads, t, s))
		if m.average {
			w = f.let("attn_output_weights", f.do(op.Mean, &op.ReduceArgs{Dim: []int64{1}}, w))
		}
		return []val{y, w}
	}
	if !mask.isNone() {
		if mask.m.t.Dim(0) == 1 {
			mask = f.let("attn_mask", f.do(op.Unsqueeze, &op.DimArgs{}, mask))
		} else {
			mask = f.let("attn_mask", view(mask, bsz, m.heads, -1, s))
		}
	}
	q, k, v = f.let("q", view(q, bsz, m.heads, t, d)), f.let("k", view(k, bsz, m.heads, s, d)), f.let("v", view(v, bsz, m.heads, s, d))
	y := f.let("attn_output", f.do(op.SDPA, &op.SDPAArgs{DropoutP: m.dropout, IsCausal: causal}, q, k, v, mask))
	y = f.let("attn_output", view(f.do(op.Contiguous, nil, f.do(op.Permute, &op.PermuteArgs{Dims: []int64{2, 0, 1, 3}}, y)), bsz*t, e))
	y = f.let("attn_output", f.do(op.Linear, nil, y, m.outWeight, m.outBias))
	y = f.let("attn_output", view(y, t, bsz, e))
	return []val{y, noneVal()}
}

// shaped is a contiguous tensor like t with another last dimension.
func shaped(t *op.Tensor, last int64) *op.Tensor {
	return &op.Tensor{Layout: tensor.Contiguous(t.Size.Set(t.Rank()-1, last)), DType: t.DType}
}

// noneVal is the literal None.
func noneVal() val { return val{&program.Expr{Kind: program.Const}, meta{none: true}} }

// project is F._in_projection_packed: one product where query, key and value
// are the same tensor.
func (m *mhaParts) project(f *builder, in []val) []val {
	q, k := in[0], in[1]
	e := q.m.t.Dim(-1)
	// linear, then a contiguous copy with the pieces in front
	packed := func(name string, x, w, b val, n int64) val {
		p := f.let(name, f.do(op.Linear, nil, x, w, b))
		p = f.do(op.Unflatten, &op.UnflattenArgs{Dim: -1, Sizes: []int64{n, e}}, p)
		p = f.do(op.Unsqueeze, &op.DimArgs{Dim: 0}, p)
		p = f.do(op.Transpose, &op.TransposeArgs{Dim0: 0, Dim1: -2}, p)
		p = f.do(op.Squeeze, &op.DimArgs{Dim: -2}, p)
		return f.let(name, f.do(op.Contiguous, nil, p))
	}
	item := func(p val, i int64) val { return f.do(op.Select, &op.SelectArgs{Dim: 0, Index: i}, p) }
	if m.self {
		p := packed("proj", q, m.inWeight, m.inBias, 3)
		return []val{item(p, 0), item(p, 1), item(p, 2)}
	}
	cut := func(names []string, v val, sizes ...int64) []val {
		return f.letAll(names, f.call(op.SplitWithSizes, &op.SplitArgs{Sizes: sizes}, v))
	}
	if m.shared {
		w := cut([]string{"w_q", "w_kv"}, m.inWeight, e, 2*e)
		bs := []val{{}, {}}
		if !m.inBias.isNone() {
			bs = cut([]string{"b_q", "b_kv"}, m.inBias, e, 2*e)
		}
		qp := f.let("q_proj", f.do(op.Linear, nil, q, w[0], bs[0]))
		kv := packed("kv_proj", k, w[1], bs[1], 2)
		return []val{qp, item(kv, 0), item(kv, 1)}
	}
	w := f.letAll([]string{"w_q", "w_k", "w_v"}, f.call(op.Chunk, &op.SplitArgs{Chunks: 3}, m.inWeight))
	bs := []val{{}, {}, {}}
	if !m.inBias.isNone() {
		bs = f.letAll([]string{"b_q", "b_k", "b_v"}, f.call(op.Chunk, &op.SplitArgs{Chunks: 3}, m.inBias))
	}
	out := make([]val, 3)
	for i := range out {
		out[i] = f.do(op.Linear, nil, in[i], w[i], bs[i])
	}
	return out
}

// projectApart is F._in_projection: three products of weights of their own.
func (m *mhaParts) projectApart(f *builder, in []val) []val {
	bs := []val{{}, {}, {}}
	if !m.inBias.isNone() { // which multi_head_attention_forward cuts; views take nothing
		bs = f.letAll([]string{"b_q", "b_k", "b_v"}, f.call(op.Chunk, &op.SplitArgs{Chunks: 3}, m.inBias))
	}
	k := in[1]
	if m.self {
		k = in[0]
	}
	v := in[2]
	if m.self || m.shared {
		v = k
	}
	out := make([]val, 3)
	for i, x := range []val{in[0], k, v} {
		out[i] = f.do(op.Linear, nil, x, m.apart[i], bs[i])
	}
	return out
}

// buildEncoderLayer is nn.TransformerEncoderLayer.forward
// (torch/nn/modules/transformer.py).
func buildEncoderLayer(b *builder) {
	d, heads, ff := b.infer("d_model", b.x(3).Dim(-1)), b.positive("nhead"), b.positive("dim_feedforward")
	if b.x(3).Rank() != 3 {
		b.fail("", "the input needs three dimensions, not shape %v", b.x(3).Size)
	}
	bias, p, batchFirst, normFirst := b.bool("bias"), b.float("dropout"), b.bool("batch_first"), b.bool("norm_first")
	src := b.in(0)
	wide := val{&program.Expr{}, tensorMeta(shaped(src.m.t, ff))}
	var results [][]val // of the children
	add := func(name string, l *Layer, args map[string]any, ins ...val) int {
		i, rets := b.child(name, l, args, ins...)
		results = append(results, rets)
		return i
	}
	mask, padding := b.encoderMasks("src_mask")
	mha := map[string]any{"embed_dim": d, "num_heads": heads, "dropout": p, "bias": bias, "batch_first": batchFirst, "need_weights": false,
		"is_causal": b.bool("is_causal")}
	drop := map[string]any{"p": p}
	norm := map[string]any{"normalized_shape": []int64{d}, "eps": b.float("layer_norm_eps"), "bias": bias}
	attn := add("self_attn", MultiheadAttention, mha, src, src, src, padding, mask)
	lin1 := add("linear1", Linear, map[string]any{"in_features": d, "out_features": ff, "bias": bias}, src)
	mid := add("dropout", Dropout, drop, wide)
	lin2 := add("linear2", Linear, map[string]any{"in_features": ff, "out_features": d, "bias": bias}, wide)
	norm1, norm2 := add("norm1", LayerNorm, norm, src), add("norm2", LayerNorm, norm, src)
	drop1, drop2 := add("dropout1", Dropout, drop, src), add("dropout2", Dropout, drop, src)

	mod := func(i int, x val) val { return b.callChild(i, results[i], x) }
	drops := func(b *builder, i int, x val) val { return b.callChild(i, []val{x}, x) }
	sa := func(x val) val {
		return b.inline("_sa_block", []string{"x", "attn_mask", "key_padding_mask"}, []val{x, mask, padding}, func(f *builder, in []val) []val {
			r := val{f.callChild(attn, results[attn], in[0], in[0], in[0], in[2], in[1]).e, meta{tuple: []meta{results[attn][0].m, {}}}}
			y := f.let("x", f.pick(r, 0))
			return []val{drops(f, drop1, y)}
		})
	}
	feed := func(x val) val {
		return b.inline("_ff_block", []string{"x"}, []val{x}, func(f *builder, in []val) []val {
			h := f.do(activations[b.str("activation")], nil, mod(lin1, in[0]))
			y := f.let("x", mod(lin2, drops(b, mid, h)))
			return []val{drops(f, drop2, y)}
		})
	}
	plus := func(x, y val) val { return b.do(op.Add, &op.BinaryArgs{}, x, y) }
	if heads%2 == 0 && batchFirst && bias {
		merged := b.mergedMasks(mask, padding, src, heads)
		b.fn.Body = append(b.fn.Body, program.Stmt{Kind: program.FastReturn, Value: encoderFastPath(b, src, merged, ff)})
	}
	x := b.let("x", src)
	if normFirst {
		x = b.let("x", plus(x, sa(mod(norm1, x))))
		x = b.let("x", plus(x, feed(mod(norm2, x))))
	} else {
		x = b.let("x", mod(norm1, plus(x, sa(x))))
		x = b.let("x", mod(norm2, plus(x, feed(x))))
	}
	b.finish([]val{x})
}

// activations are those of the layers of a transformer.
var activations = map[string]*op.Op{"relu": op.Relu, "gelu": op.Gelu}

// encoderFastPath is torch._transformer_encoder_layer_fwd.
func encoderFastPath(b *builder, src, mask val, ff int64) *program.Expr {
	d := src.m.t.Dim(-1)
	a := &op.EncoderLayerArgs{Heads: b.int("nhead"), NormFirst: b.bool("norm_first"), Activation: b.str("activation"), Eps: b.float("layer_norm_eps")}
	own := func(path string, size ...int64) val { return b.own(path, b.env.Computed(b.dtype()), size) }
	return b.do(op.EncoderLayerForward, a, src,
		own("self_attn.in_proj_weight", 3*d, d), own("self_attn.in_proj_bias", 3*d),
		own("self_attn.out_proj.weight", d, d), own("self_attn.out_proj.bias", d),
		own("norm1.weight", d), own("norm1.bias", d), own("norm2.weight", d), own("norm2.bias", d),
		own("linear1.weight", ff, d), own("linear1.bias", ff), own("linear2.weight", d, ff), own("linear2.bias", d), mask).e
}
