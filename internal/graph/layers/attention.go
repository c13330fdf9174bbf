package layers

import (
	"math"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

var MultiheadAttention = define(module.Layer{
	Sig: "nn.MultiheadAttention(embed_dim: infer int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, " +
		"add_zero_attn: bool = False, kdim: infer int, vdim: infer int, batch_first: bool = False)",
	// forward's own arguments
	Forward: "forward(need_weights: bool = True, average_attn_weights: bool = True, is_causal: bool = False)",
	Inputs:  "query key value * key_padding_mask? attn_mask?",
	Is:      nn.Layer{Whole: true, Init: nn.Xavier},
	Alone: func(b *module.Builder) []*op.Tensor {
		widths := []int64{b.Size("embed_dim"), b.Size("embed_dim"), b.Size("embed_dim")}
		for i, name := range []string{"kdim", "vdim"} {
			if b.Has(name) {
				widths[i+1] = b.Size(name)
			}
		}
		return b.Alone([]int64{1, 1, widths[0]}, []int64{1, 1, widths[1]}, []int64{1, 1, widths[2]})
	},
	Build: buildMHA,
})

var TransformerEncoderLayer = define(module.Layer{
	Sig: "nn.TransformerEncoderLayer(d_model: infer int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, " +
		"activation: str(relu|gelu) = 'relu', layer_norm_eps: float = 1e-05, batch_first: bool = False, norm_first: bool = False, bias: bool = True)",
	Forward: "forward(is_causal: bool = False)",
	Inputs:  "src * src_mask? src_key_padding_mask?",
	Alone:   steps("d_model"),
	Build:   buildEncoderLayer,
})

// buildMHA is nn.MultiheadAttention.forward (torch/nn/modules/activation.py).
func buildMHA(b *module.Builder) {
	q, k, v := b.In(0), b.In(1), b.In(2)
	if b.Tensor(3).Rank() != 3 || k.Meta.Tensor.Rank() != 3 || v.Meta.Tensor.Rank() != 3 {
		b.Fail("", "query, key and value need three dimensions, not shape %v", b.Tensor(3).Size)
	}
	e, heads := b.Infer("embed_dim", b.Tensor(3).Dim(-1)), b.Positive("num_heads")
	if e%heads != 0 {
		b.Fail("num_heads", "embed_dim %d is not divisible by num_heads %d", e, heads)
	}
	kdim, vdim := k.Meta.Tensor.Dim(-1), v.Meta.Tensor.Dim(-1)
	for name, n := range map[string]int64{"kdim": kdim, "vdim": vdim} {
		if n != e || b.Given[name] {
			b.Infer(name, n)
		}
	}
	m := &mhaParts{
		heads: heads, dropout: b.Float("dropout"), weights: b.Bool("need_weights"), average: b.Bool("average_attn_weights"), causal: b.Bool("is_causal"),
		zeroAttn: b.Bool("add_zero_attn"),
	}
	if kdim == e && vdim == e {
		m.inWeight = b.Param("in_proj_weight", 3*e, e)
	} else {
		m.apart = []value.Value{b.Param("q_proj_weight", e, e), b.Param("k_proj_weight", e, kdim), b.Param("v_proj_weight", e, vdim)}
	}
	if b.Bool("bias") {
		m.inBias = b.Param("in_proj_bias", 3*e)
	}
	// out_proj is a Linear whose weights the function takes.
	out := &program.Class{Layer: nn.OutProj, Params: []program.Param{{Name: "weight", Size: []int64{e, e}, DType: b.DType()}}}
	m.outWeight = b.Own("out_proj.weight", b.Env.Computed(b.DType()), []int64{e, e})
	if b.Bool("bias") {
		out.Params = append(out.Params, program.Param{Name: "bias", Size: []int64{e}, DType: b.DType()})
		m.outBias = b.Own("out_proj.bias", b.Env.Computed(b.DType()), []int64{e})
	}
	b.Class.Children = append(b.Class.Children, program.Child{Path: "out_proj", Class: out})
	if b.Bool("add_bias_kv") {
		m.biasK, m.biasV = b.Param("bias_k", 1, 1, e), b.Param("bias_v", 1, 1, e)
	}

	self, batchFirst := q.Same(k) && k.Same(v), b.Bool("batch_first")
	padding, mask := canonical(b, "key_padding_mask", b.In(3), q), canonical(b, "attn_mask", b.In(4), q)
	if self && batchFirst && heads%2 == 0 && b.Bool("bias") && !b.Bool("add_bias_kv") && !m.zeroAttn && m.apart == nil && !isFloat(b.In(3)) && !isFloat(b.In(4)) {
		merged := mergedMasks(b, mask, padding, q, heads)
		b.Emit(m.fastPath(b, merged))
	}
	if batchFirst {
		swap := func(v value.Value) value.Value { return b.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 1, Dim1: 0}, v) }
		// The parameters are rebound to transposed views; the caller still holds
		// the originals.
		switch {
		case self:
			q = b.Let("query", swap(q))
			k, v = q, q
		case k.Same(v):
			q, k = b.Let("query", swap(q)), b.Let("key", swap(k))
			v = k
		default:
			q, k, v = b.Let("query", swap(q)), b.Let("key", swap(k)), b.Let("value", swap(v))
		}
	}
	m.self, m.shared = self, k.Same(v)
	r := b.Inline("multi_head_attention_forward", []string{"query", "key", "value", "key_padding_mask", "attn_mask"}, []value.Value{q, k, v, padding, mask}, m.forward)
	outs := b.LetAll([]string{"attn_output", "attn_output_weights"}, r)
	y := outs[0]
	if batchFirst {
		y = b.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 1, Dim1: 0}, y)
	}
	b.Finish(y, outs[1])
}

// mhaParts is what F.multi_head_attention_forward takes beside its tensors.
type mhaParts struct {
	heads                                int64
	dropout                              float64
	weights, average, causal, zeroAttn   bool
	self, shared                         bool
	inWeight, inBias, outWeight, outBias value.Value
	apart                                []value.Value // the weights of query, key and value where they have different widths
	biasK, biasV                         value.Value
}

// fastPath is torch._native_multi_head_attention, which eval mode without
// gradients takes for self-attention.
func (m *mhaParts) fastPath(b *module.Builder, mask value.Value) program.Stmt {
	a := &aten.NativeMHAArgs{Heads: m.heads, Weights: m.weights, Average: m.average}
	call := b.Call(aten.NativeMHA, a, b.Ins[0], m.inWeight, m.inBias, m.outWeight, m.outBias, mask)
	st := program.Stmt{Kind: program.FastReturn, Value: call.Expr}
	if !m.weights {
		st.Value, st.Values = nil, []*program.Expr{call.Expr, value.None().Expr}
	}
	return st
}

// forward is F.multi_head_attention_forward (torch/nn/functional.py).
func (m *mhaParts) forward(f *module.Builder, in []value.Value) []value.Value {
	q, k, v, padding, mask := in[0], in[1], in[2], in[3], in[4]
	if m.self {
		k, v = q, q
	} else if m.shared {
		v = k
	}
	causal := m.causal
	switch {
	case causal && mask.Absent():
		f.Fail("is_causal", "Need attn_mask if specifying the is_causal hint")
	case causal && padding.Absent() && !m.weights:
		mask = value.Value{}
	case !padding.Absent():
		causal = false
	}
	t, bsz, e := q.Meta.Tensor.Dim(0), q.Meta.Tensor.Dim(1), q.Meta.Tensor.Dim(2)
	s := k.Meta.Tensor.Dim(0)
	d := e / m.heads
	var qkv []value.Value
	if m.apart != nil {
		qkv = f.LetAll([]string{"q", "k", "v"}, f.Inline("_in_projection", []string{"q", "k", "v"}, []value.Value{q, k, v}, m.projectApart))
	} else {
		qkv = f.LetAll([]string{"q", "k", "v"}, f.Inline("_in_projection_packed", []string{"q", "k", "v"}, []value.Value{q, k, v}, m.project))
	}
	mask = batchedMask(f, mask, bsz*m.heads, t, s)
	view := func(v value.Value, shape ...int64) value.Value {
		return f.Do(aten.View, &aten.ShapeArgs{Shape: shape}, v)
	}
	early := f.Env.Shapes.Env().Torch.Has(torchver.AttentionInputsFreed)
	drop := func(vs ...value.Value) { // del
		for i := range vs {
			if early {
				f.Emit(program.Stmt{Kind: program.Del, Targets: []int{vs[i].Expr.Slot}})
			}
		}
	}
	flat := func(y value.Value) value.Value {
		if early {
			return f.Do(aten.Reshape, &aten.ShapeArgs{Shape: []int64{bsz * t, e}}, y)
		}
		return view(f.Do(aten.Contiguous, nil, y), bsz*t, e)
	}
	wider := func(name string, v value.Value) value.Value { // one more key that is masked by nothing
		return f.Let(name, f.Do(aten.Pad, &aten.PadArgs{Pad: []int64{0, 1}, Mode: "constant"}, v))
	}
	widen := func() {
		if s++; !mask.Absent() {
			mask = wider("attn_mask", mask)
		}
		if !padding.Absent() {
			padding = wider("key_padding_mask", padding)
		}
	}
	if !m.biasK.Absent() {
		for i, bias := range []value.Value{m.biasK, m.biasV} {
			more := f.Do(aten.Repeat, &aten.RepeatArgs{Repeats: []int64{1, bsz, 1}}, bias)
			qkv[i+1] = f.Let([]string{"k", "v"}[i], f.Do(aten.Cat, &aten.DimArgs{}, qkv[i+1], more))
		}
		widen()
	}
	split := func(name string, v value.Value, n int64) value.Value {
		return f.Let(name, f.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 0, Dim1: 1}, view(v, n, bsz*m.heads, d)))
	}
	q, k, v = split("q", qkv[0], t), split("k", qkv[1], s), split("v", qkv[2], s)
	if m.zeroAttn {
		for i, x := range []*value.Value{&k, &v} {
			dt := x.Meta.Tensor.DType
			zeros := f.Do(aten.Zeros, &aten.FillArgs{Size: []int64{bsz * m.heads, 1, d}, DType: &dt})
			*x = f.Let([]string{"k", "v"}[i], f.Do(aten.Cat, &aten.DimArgs{Dim: 1}, *x, zeros))
		}
		widen()
	}
	if !padding.Absent() {
		mask = paddedMask(f, mask, padding, bsz, m.heads, s)
	}
	if m.weights {
		scaled := f.Let("q_scaled", f.Do(aten.Mul, &aten.BinaryArgs{Other: op.Number{Set: true, Float: true, Value: 1 / math.Sqrt(float64(d))}}, q))
		kt := f.Do(aten.Transpose, &aten.TransposeArgs{Dim0: -2, Dim1: -1}, k)
		var w value.Value
		if mask.Absent() {
			w = f.Let("attn_output_weights", f.Do(aten.Bmm, nil, scaled, kt))
		} else {
			w = f.Let("attn_output_weights", f.Do(aten.Baddbmm, &aten.BaddbmmArgs{Beta: 1, Alpha: 1}, mask, scaled, kt))
		}
		drop(scaled, k)
		w = f.Let("attn_output_weights", f.Do(aten.Softmax, &aten.SoftmaxArgs{Dim: -1}, w))
		if m.dropout > 0 {
			w = f.Let("attn_output_weights", f.Do(aten.Dropout, &aten.DropoutArgs{P: m.dropout}, w))
		}
		y := f.Let("attn_output", f.Do(aten.Bmm, nil, w, v))
		drop(v)
		y = f.Let("attn_output", flat(f.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 0, Dim1: 1}, y)))
		y = f.Let("attn_output", f.Do(aten.Linear, nil, y, m.outWeight, m.outBias))
		y = f.Let("attn_output", view(y, t, bsz, e))
		w = f.Let("attn_output_weights", view(w, bsz, m.heads, t, s))
		if m.average {
			w = f.Let("attn_output_weights", f.Do(aten.Mean, &aten.ReduceArgs{Dim: []int64{1}}, w))
		}
		return []value.Value{y, w}
	}
	if !mask.Absent() {
		if mask.Meta.Tensor.Dim(0) == 1 {
			mask = f.Let("attn_mask", f.Do(aten.Unsqueeze, &aten.DimArgs{}, mask))
		} else {
			mask = f.Let("attn_mask", view(mask, bsz, m.heads, -1, s))
		}
	}
	q, k, v = f.Let("q", view(q, bsz, m.heads, t, d)), f.Let("k", view(k, bsz, m.heads, s, d)), f.Let("v", view(v, bsz, m.heads, s, d))
	y := f.Let("attn_output", f.Do(aten.SDPA, &aten.SDPAArgs{DropoutP: m.dropout, IsCausal: causal}, q, k, v, mask))
	drop(q, k, v)
	y = f.Let("attn_output", flat(f.Do(aten.Permute, &aten.PermuteArgs{Dims: []int64{2, 0, 1, 3}}, y)))
	y = f.Let("attn_output", f.Do(aten.Linear, nil, y, m.outWeight, m.outBias))
	y = f.Let("attn_output", view(y, t, bsz, e))
	return []value.Value{y, value.None()}
}

// shaped is a contiguous tensor like t with another last dimension.
func shaped(t *op.Tensor, last int64) *op.Tensor {
	return &op.Tensor{Layout: tensor.Contiguous(t.Size.Set(t.Rank()-1, last)), DType: t.DType}
}

// project is F._in_projection_packed: one product where query, key and value
// are the same tensor.
func (m *mhaParts) project(f *module.Builder, in []value.Value) []value.Value {
	q, k := in[0], in[1]
	e := q.Meta.Tensor.Dim(-1)
	// linear, then a contiguous copy with the pieces in front
	packed := func(name string, x, w, b value.Value, n int64) value.Value {
		p := f.Let(name, f.Do(aten.Linear, nil, x, w, b))
		p = f.Do(aten.Unflatten, &aten.UnflattenArgs{Dim: -1, Sizes: []int64{n, e}}, p)
		p = f.Do(aten.Unsqueeze, &aten.DimArgs{Dim: 0}, p)
		p = f.Do(aten.Transpose, &aten.TransposeArgs{Dim0: 0, Dim1: -2}, p)
		p = f.Do(aten.Squeeze, &aten.SqueezeArgs{Dim: []int64{-2}}, p)
		return f.Let(name, f.Do(aten.Contiguous, nil, p))
	}
	item := func(p value.Value, i int64) value.Value {
		return f.Do(aten.Select, &aten.SelectArgs{Dim: 0, Index: i}, p)
	}
	if m.self {
		p := packed("proj", q, m.inWeight, m.inBias, 3)
		return []value.Value{item(p, 0), item(p, 1), item(p, 2)}
	}
	cut := func(names []string, v value.Value, sizes ...int64) []value.Value {
		return f.LetAll(names, f.Call(aten.SplitWithSizes, &aten.SplitArgs{Sizes: sizes}, v))
	}
	if m.shared {
		w := cut([]string{"w_q", "w_kv"}, m.inWeight, e, 2*e)
		bs := []value.Value{{}, {}}
		if !m.inBias.Absent() {
			bs = cut([]string{"b_q", "b_kv"}, m.inBias, e, 2*e)
		}
		qp := f.Let("q_proj", f.Do(aten.Linear, nil, q, w[0], bs[0]))
		kv := packed("kv_proj", k, w[1], bs[1], 2)
		return []value.Value{qp, item(kv, 0), item(kv, 1)}
	}
	w := f.LetAll([]string{"w_q", "w_k", "w_v"}, f.Call(aten.Chunk, &aten.SplitArgs{Chunks: 3}, m.inWeight))
	bs := []value.Value{{}, {}, {}}
	if !m.inBias.Absent() {
		bs = f.LetAll([]string{"b_q", "b_k", "b_v"}, f.Call(aten.Chunk, &aten.SplitArgs{Chunks: 3}, m.inBias))
	}
	out := make([]value.Value, 3)
	for i := range out {
		out[i] = f.Do(aten.Linear, nil, in[i], w[i], bs[i])
	}
	return out
}

// projectApart is F._in_projection: three products of weights of their own.
func (m *mhaParts) projectApart(f *module.Builder, in []value.Value) []value.Value {
	bs := []value.Value{{}, {}, {}}
	if !m.inBias.Absent() { // which multi_head_attention_forward cuts; views take nothing
		bs = f.LetAll([]string{"b_q", "b_k", "b_v"}, f.Call(aten.Chunk, &aten.SplitArgs{Chunks: 3}, m.inBias))
	}
	k := in[1]
	if m.self {
		k = in[0]
	}
	v := in[2]
	if m.self || m.shared {
		v = k
	}
	out := make([]value.Value, 3)
	for i, x := range []value.Value{in[0], k, v} {
		out[i] = f.Do(aten.Linear, nil, x, m.apart[i], bs[i])
	}
	return out
}

// buildEncoderLayer is nn.TransformerEncoderLayer.forward
// (torch/nn/modules/transformer.py).
func buildEncoderLayer(b *module.Builder) {
	d, heads, ff := b.Infer("d_model", b.Tensor(3).Dim(-1)), b.Positive("nhead"), b.Positive("dim_feedforward")
	if b.Tensor(3).Rank() != 3 {
		b.Fail("", "the input needs three dimensions, not shape %v", b.Tensor(3).Size)
	}
	bias, p, batchFirst, normFirst := b.Bool("bias"), b.Float("dropout"), b.Bool("batch_first"), b.Bool("norm_first")
	src := b.In(0)
	wide := value.Value{Expr: &program.Expr{}, Meta: value.Tensor(shaped(src.Meta.Tensor, ff))}
	var results [][]value.Value // of the children
	add := func(name string, l *module.Layer, args map[string]any, ins ...value.Value) int {
		i, rets := b.Child(name, l, args, ins...)
		results = append(results, rets)
		return i
	}
	mask, padding := encoderMasks(b, "src_mask")
	mha := map[string]any{"embed_dim": d, "num_heads": heads, "dropout": p, "bias": bias, "batch_first": batchFirst, "need_weights": false,
		"is_causal": b.Bool("is_causal")}
	drop := map[string]any{"p": p}
	norm := map[string]any{"normalized_shape": []int64{d}, "eps": b.Float("layer_norm_eps"), "bias": bias}
	attn := add("self_attn", MultiheadAttention, mha, src, src, src, padding, mask)
	lin1 := add("linear1", Linear, map[string]any{"in_features": d, "out_features": ff, "bias": bias}, src)
	mid := add("dropout", Dropout, drop, wide)
	lin2 := add("linear2", Linear, map[string]any{"in_features": ff, "out_features": d, "bias": bias}, wide)
	norm1, norm2 := add("norm1", LayerNorm, norm, src), add("norm2", LayerNorm, norm, src)
	drop1, drop2 := add("dropout1", Dropout, drop, src), add("dropout2", Dropout, drop, src)

	mod := func(i int, x value.Value) value.Value { return b.CallChild(i, results[i], x) }
	drops := func(b *module.Builder, i int, x value.Value) value.Value { return b.CallChild(i, []value.Value{x}, x) }
	sa := func(x value.Value) value.Value {
		return b.Inline("_sa_block", []string{"x", "attn_mask", "key_padding_mask"}, []value.Value{x, mask, padding}, func(f *module.Builder, in []value.Value) []value.Value {
			r := value.Value{Expr: f.CallChild(attn, results[attn], in[0], in[0], in[0], in[2], in[1]).Expr, Meta: value.Meta{Tuple: []value.Meta{results[attn][0].Meta, {}}}}
			y := f.Let("x", f.Pick(r, 0))
			return []value.Value{drops(f, drop1, y)}
		})
	}
	feed := func(x value.Value) value.Value {
		return b.Inline("_ff_block", []string{"x"}, []value.Value{x}, func(f *module.Builder, in []value.Value) []value.Value {
			h := f.Do(activations[b.Str("activation")], nil, mod(lin1, in[0]))
			y := f.Let("x", mod(lin2, drops(b, mid, h)))
			return []value.Value{drops(f, drop2, y)}
		})
	}
	plus := func(x, y value.Value) value.Value { return b.Do(aten.Add, &aten.BinaryArgs{}, x, y) }
	if heads%2 == 0 && batchFirst && bias {
		merged := mergedMasks(b, mask, padding, src, heads)
		b.Emit(program.Stmt{Kind: program.FastReturn, Value: encoderFastPath(b, src, merged, ff)})
	}
	x := b.Let("x", src)
	if normFirst {
		x = b.Let("x", plus(x, sa(mod(norm1, x))))
		x = b.Let("x", plus(x, feed(mod(norm2, x))))
	} else {
		x = b.Let("x", mod(norm1, plus(x, sa(x))))
		x = b.Let("x", mod(norm2, plus(x, feed(x))))
	}
	b.Finish(x)
}

// activations are those of the layers of a transformer.
var activations = map[string]*op.Op{"relu": aten.Relu, "gelu": aten.Gelu}

// encoderFastPath is torch._transformer_encoder_layer_fwd.
func encoderFastPath(b *module.Builder, src, mask value.Value, ff int64) *program.Expr {
	d := src.Meta.Tensor.Dim(-1)
	a := &aten.EncoderLayerArgs{Heads: b.Int("nhead"), NormFirst: b.Bool("norm_first"), Activation: b.Str("activation"), Eps: b.Float("layer_norm_eps")}
	own := func(path string, size ...int64) value.Value { return b.Own(path, b.Env.Computed(b.DType()), size) }
	return b.Do(aten.EncoderLayerForward, a, src,
		own("self_attn.in_proj_weight", 3*d, d), own("self_attn.in_proj_bias", 3*d),
		own("self_attn.out_proj.weight", d, d), own("self_attn.out_proj.bias", d),
		own("norm1.weight", d), own("norm1.bias", d), own("norm2.weight", d), own("norm2.bias", d),
		own("linear1.weight", ff, d), own("linear1.bias", ff), own("linear2.weight", d, ff), own("linear2.bias", d), mask).Expr
}
