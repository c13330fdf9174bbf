package graph

import (
	"fmt"
	"maps"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// The arguments that the layers of a transformer share, after d_model and
// nhead.
const transformerArgs = "dim_feedforward: int = 2048, dropout: float = 0.1, activation: str(relu|gelu) = 'relu', " +
	"layer_norm_eps: float = 1e-05, batch_first: bool = False, norm_first: bool = False, bias: bool = True"

var TransformerDecoderLayer = layer(Layer{
	Sig:     "nn.TransformerDecoderLayer(d_model: infer int, nhead: int, " + transformerArgs + ")",
	Forward: "forward(tgt_is_causal: bool = False, memory_is_causal: bool = False)",
	Inputs:  "tgt memory * tgt_mask? memory_mask? tgt_key_padding_mask? memory_key_padding_mask?",
	Build:   buildDecoderLayer,
})

// TransformerEncoder and TransformerDecoder take a layer as their first argument;
// specs give that layer's own arguments, and norm for a LayerNorm at the end.
var TransformerEncoder = layer(Layer{
	Sig: "nn.TransformerEncoder(num_layers: int, nhead: int, d_model: infer int, " + transformerArgs + ", norm: bool = False, " +
		"enable_nested_tensor: bool = True)",
	Forward: "forward(is_causal: bool? = None)",
	Inputs:  "src * mask? src_key_padding_mask?",
	Build: func(b *builder) {
		mask, padding := b.encoderMasks("mask")
		if !padding.isNone() && b.nestedTensors() {
			b.run(op.NestedFromMask, nil, padding)
		}
		if !padding.isNone() { // names that hold the mask where a recomputation stops early
			b.let("output", b.in(0))
			padding = b.let("src_key_padding_mask_for_layers", padding)
		}
		b.stack(TransformerEncoderLayer, map[string]any{"is_causal": b.detectCausal("is_causal", mask)}, mask, padding)
	},
})

var TransformerDecoder = layer(Layer{
	Sig:     "nn.TransformerDecoder(num_layers: int, nhead: int, d_model: infer int, " + transformerArgs + ", norm: bool = False)",
	Forward: "forward(tgt_is_causal: bool? = None, memory_is_causal: bool = False)",
	Inputs:  "tgt memory * tgt_mask? memory_mask? tgt_key_padding_mask? memory_key_padding_mask?",
	Build: func(b *builder) {
		causal := map[string]any{"tgt_is_causal": b.detectCausal("tgt_is_causal", b.in(2)), "memory_is_causal": b.bool("memory_is_causal")}
		b.stack(TransformerDecoderLayer, causal, b.in(1), b.in(2), b.in(3), b.in(4), b.in(5))
	},
})

var Transformer = layer(Layer{
	Sig: "nn.Transformer(d_model: infer int, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, " +
		transformerArgs + ")",
	Forward: "forward(src_is_causal: bool? = None, tgt_is_causal: bool? = None, memory_is_causal: bool = False)",
	Inputs:  "src tgt * src_mask? tgt_mask? memory_mask? src_key_padding_mask? tgt_key_padding_mask? memory_key_padding_mask?",
	Build: func(b *builder) {
		stack := func(name string, l *Layer, count string, more map[string]any, ins ...val) val {
			args := b.layerArgs()
			args["norm"], args["num_layers"] = true, b.positive(count)
			maps.Copy(args, more)
			i, rets := b.child(name, l, args, ins...)
			return b.callChild(i, rets, ins...)
		}
		encoder := map[string]any{"is_causal": b.args["src_is_causal"]}
		decoder := map[string]any{"tgt_is_causal": b.args["tgt_is_causal"], "memory_is_causal": b.args["memory_is_causal"]}
		memory := b.let("memory", stack("encoder", TransformerEncoder, "num_encoder_layers", encoder, b.in(0), b.in(2), b.in(5)))
		output := b.let("output", stack("decoder", TransformerDecoder, "num_decoder_layers", decoder,
			b.in(1), memory, b.in(3), b.in(4), b.in(6), b.in(7)))
		b.finish([]val{output})
	},
})

// layerArgs copies the arguments that a stack passes on to its layers.
func (b *builder) layerArgs() map[string]any {
	args := map[string]any{"d_model": b.infer("d_model", b.x(3).Dim(-1))}
	for _, name := range []string{"nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps", "batch_first", "norm_first", "bias"} {
		args[name] = b.args[name]
	}
	return args
}

// nestedTensors reports whether a TransformerEncoder in eval mode turns padded
// sequences into nested tensors (use_nested_tensor).
func (b *builder) nestedTensors() bool {
	return b.bool("enable_nested_tensor") && !b.bool("norm_first") && b.bool("batch_first") && b.bool("bias") && b.int("nhead")%2 == 0
}

// stack is nn.TransformerEncoder or nn.TransformerDecoder: copies of a layer,
// one after the other, and perhaps a norm (torch/nn/modules/transformer.py).
// The layers are called with further inputs and with arguments of their
// forward.
func (b *builder) stack(l *Layer, forward map[string]any, further ...val) {
	const most = 1024
	n := b.positive("num_layers")
	if n > most {
		b.fail("num_layers", "num_layers must be at most %d, not %d", most, n)
	}
	args, x := b.layerArgs(), b.in(0)
	maps.Copy(args, forward)
	var class *program.Class
	output := b.let("output", x)
	for i := range n {
		ins := append([]val{output}, further...)
		at, rets := b.child(fmt.Sprintf("layers.%d", i), l, args, ins...)
		class = b.class.Children[at].Class
		output = b.let("output", b.callChild(at, rets, ins...))
	}
	parts := []string{class.Python, fmt.Sprintf("num_layers=%d", n)}
	if b.bool("norm") {
		norm := map[string]any{"normalized_shape": []int64{args["d_model"].(int64)}, "eps": b.float("layer_norm_eps"), "bias": b.bool("bias")}
		at, rets := b.child("norm", LayerNorm, norm, output)
		parts = append(parts, "norm="+b.class.Children[at].Class.Python)
		output = b.let("output", b.callChild(at, rets, output))
	}
	if b.given["enable_nested_tensor"] {
		parts = append(parts, "enable_nested_tensor="+program.Literal(b.bool("enable_nested_tensor")))
	}
	b.class.Python = b.layer.sig.Python + "(" + strings.Join(parts, ", ") + ")"
	b.finish([]val{output})
}

// buildDecoderLayer is nn.TransformerDecoderLayer.forward
// (torch/nn/modules/transformer.py).
func buildDecoderLayer(b *builder) {
	d, heads, ff := b.infer("d_model", b.x(3).Dim(-1)), b.positive("nhead"), b.positive("dim_feedforward")
	if b.x(3).Rank() != 3 {
		b.fail("", "the input needs three dimensions, not shape %v", b.x(3).Size)
	}
	bias, p := b.bool("bias"), b.float("dropout")
	tgt, memory := b.in(0), b.in(1)
	wide := val{&program.Expr{}, tensorMeta(shaped(tgt.m.t, ff))}
	var results [][]val // of the children
	add := func(name string, l *Layer, args map[string]any, ins ...val) int {
		i, rets := b.child(name, l, args, ins...)
		results = append(results, rets)
		return i
	}
	mha := func(causal string) map[string]any {
		return map[string]any{"embed_dim": d, "num_heads": heads, "dropout": p, "bias": bias, "batch_first": b.bool("batch_first"), "need_weights": false,
			"is_causal": b.bool(causal)}
	}
	drop := map[string]any{"p": p}
	norm := map[string]any{"normalized_shape": []int64{d}, "eps": b.float("layer_norm_eps"), "bias": bias}
	self := add("self_attn", MultiheadAttention, mha("tgt_is_causal"), tgt, tgt, tgt, b.in(4), b.in(2))
	query := val{&program.Expr{Kind: program.Local, Slot: -1}, tgt.m} // never the memory itself
	cross := add("multihead_attn", MultiheadAttention, mha("memory_is_causal"), query, memory, memory, b.in(5), b.in(3))
	lin1 := add("linear1", Linear, map[string]any{"in_features": d, "out_features": ff, "bias": bias}, tgt)
	mid := add("dropout", Dropout, drop, wide)
	lin2 := add("linear2", Linear, map[string]any{"in_features": ff, "out_features": d, "bias": bias}, wide)
	var norms, drops [3]int
	for i := range norms {
		norms[i] = add(fmt.Sprintf("norm%d", i+1), LayerNorm, norm, tgt)
	}
	for i := range drops {
		drops[i] = add(fmt.Sprintf("dropout%d", i+1), Dropout, drop, tgt)
	}

	mod := func(i int, x val) val { return b.callChild(i, results[i], x) }
	dropped := func(b *builder, i int, x val) val { return b.callChild(i, []val{x}, x) }
	attend := func(f *builder, attn, dropout int, q, kv, mask, padding val) []val {
		r := val{f.callChild(attn, results[attn], q, kv, kv, padding, mask).e, meta{tuple: []meta{results[attn][0].m, {}}}}
		y := f.let("x", f.pick(r, 0))
		return []val{dropped(f, dropout, y)}
	}
	blocks := [3]func(x val) val{
		func(x val) val {
			return b.inline("_sa_block", []string{"x", "attn_mask", "key_padding_mask"}, []val{x, b.in(2), b.in(4)}, func(f *builder, in []val) []val {
				return attend(f, self, drops[0], in[0], in[0], in[1], in[2])
			})
		},
		func(x val) val {
			ins := []val{x, memory, b.in(3), b.in(5)}
			return b.inline("_mha_block", []string{"x", "mem", "attn_mask", "key_padding_mask"}, ins, func(f *builder, in []val) []val {
				return attend(f, cross, drops[1], in[0], in[1], in[2], in[3])
			})
		},
		func(x val) val {
			return b.inline("_ff_block", []string{"x"}, []val{x}, func(f *builder, in []val) []val {
				h := f.do(activations[b.str("activation")], nil, mod(lin1, in[0]))
				y := f.let("x", mod(lin2, dropped(b, mid, h)))
				return []val{dropped(f, drops[2], y)}
			})
		},
	}
	x := b.let("x", tgt)
	for i, block := range blocks {
		if b.bool("norm_first") {
			x = b.let("x", b.do(op.Add, &op.BinaryArgs{}, x, block(mod(norms[i], x))))
		} else {
			x = b.let("x", mod(norms[i], b.do(op.Add, &op.BinaryArgs{}, x, block(x))))
		}
	}
	b.finish([]val{x})
}
