package layers

import (
	"fmt"
	"maps"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
)

// The arguments that the layers of a transformer share, after d_model and
// nhead. In nn.Transformer two modules of the user's own stand between them.
const (
	feedForwardArgs = "dim_feedforward: int = 2048, dropout: float = 0.1, activation: str(relu|gelu) = 'relu'"
	furtherArgs     = "layer_norm_eps: float = 1e-05, batch_first: bool = False, norm_first: bool = False, bias: bool = True"
	transformerArgs = feedForwardArgs + ", " + furtherArgs
)

var TransformerDecoderLayer = define(module.Layer{
	Sig:     "nn.TransformerDecoderLayer(d_model: infer int, nhead: int, " + transformerArgs + ")",
	Forward: "forward(tgt_is_causal: bool = False, memory_is_causal: bool = False)",
	Inputs:  "tgt memory * tgt_mask? memory_mask? tgt_key_padding_mask? memory_key_padding_mask?",
	Alone:   steps("d_model", "d_model"),
	Build:   buildDecoderLayer,
})

// TransformerEncoder and TransformerDecoder take a layer as their first argument;
// specs give that layer's own arguments, and norm for a LayerNorm at the end.
var TransformerEncoder = define(module.Layer{
	Sig: "nn.TransformerEncoder(*, num_layers: int, nhead: int, d_model: infer int, " + transformerArgs + ", norm: bool = False, " +
		"enable_nested_tensor: bool = True)",
	Forward: "forward(is_causal: bool? = None)",
	Inputs:  "src * mask? src_key_padding_mask?",
	Alone:   steps("d_model"),
	Build: func(b *module.Builder) {
		mask, padding := encoderMasks(b, "mask")
		if !padding.Absent() && nestedTensors(b) {
			b.Run(aten.NestedFromMask, nil, padding)
		}
		if !padding.Absent() { // names that hold the mask where a recomputation stops early
			b.Let("output", b.In(0))
			padding = b.Let("src_key_padding_mask_for_layers", padding)
		}
		stack(b, TransformerEncoderLayer, map[string]any{"is_causal": detectCausal(b, "is_causal", mask)}, mask, padding)
	},
})

var TransformerDecoder = define(module.Layer{
	Sig:     "nn.TransformerDecoder(*, num_layers: int, nhead: int, d_model: infer int, " + transformerArgs + ", norm: bool = False)",
	Forward: "forward(tgt_is_causal: bool? = None, memory_is_causal: bool = False)",
	Inputs:  "tgt memory * tgt_mask? memory_mask? tgt_key_padding_mask? memory_key_padding_mask?",
	Alone:   steps("d_model", "d_model"),
	Build: func(b *module.Builder) {
		causal := map[string]any{"tgt_is_causal": detectCausal(b, "tgt_is_causal", b.In(2)), "memory_is_causal": b.Bool("memory_is_causal")}
		stack(b, TransformerDecoderLayer, causal, b.In(1), b.In(2), b.In(3), b.In(4), b.In(5))
	},
})

var Transformer = define(module.Layer{
	Sig: "nn.Transformer(d_model: infer int, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, " +
		feedForwardArgs + ", *, " + furtherArgs + ")",
	Forward: "forward(src_is_causal: bool? = None, tgt_is_causal: bool? = None, memory_is_causal: bool = False)",
	Inputs:  "src tgt * src_mask? tgt_mask? memory_mask? src_key_padding_mask? tgt_key_padding_mask? memory_key_padding_mask?",
	Alone:   steps("d_model", "d_model"),
	Build: func(b *module.Builder) {
		stack := func(name string, l *module.Layer, count string, more map[string]any, ins ...value.Value) value.Value {
			args := layerArgs(b)
			args["norm"], args["num_layers"] = true, b.Positive(count)
			maps.Copy(args, more)
			i, rets := b.Child(name, l, args, ins...)
			return b.CallChild(i, rets, ins...)
		}
		encoder := map[string]any{"is_causal": b.Args["src_is_causal"]}
		decoder := map[string]any{"tgt_is_causal": b.Args["tgt_is_causal"], "memory_is_causal": b.Args["memory_is_causal"]}
		memory := b.Let("memory", stack("encoder", TransformerEncoder, "num_encoder_layers", encoder, b.In(0), b.In(2), b.In(5)))
		output := b.Let("output", stack("decoder", TransformerDecoder, "num_decoder_layers", decoder,
			b.In(1), memory, b.In(3), b.In(4), b.In(6), b.In(7)))
		b.Finish(output)
	},
})

// layerArgs copies the arguments that a stack passes on to its layers.
func layerArgs(b *module.Builder) map[string]any {
	args := map[string]any{"d_model": b.Infer("d_model", b.Tensor(3).Dim(-1))}
	for _, name := range []string{"nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps", "batch_first", "norm_first", "bias"} {
		args[name] = b.Args[name]
	}
	return args
}

// nestedTensors reports whether a TransformerEncoder in eval mode turns padded
// sequences into nested tensors (use_nested_tensor).
func nestedTensors(b *module.Builder) bool {
	return b.Bool("enable_nested_tensor") && !b.Bool("norm_first") && b.Bool("batch_first") && b.Bool("bias") && b.Int("nhead")%2 == 0
}

// stack is nn.TransformerEncoder or nn.TransformerDecoder: copies of a layer,
// one after the other, and perhaps a norm (torch/nn/modules/transformer.py).
// The layers are called with further inputs and with arguments of their
// forward.
func stack(b *module.Builder, l *module.Layer, forward map[string]any, further ...value.Value) {
	const most = 1024
	n := b.Positive("num_layers")
	if n > most {
		b.Fail("num_layers", "num_layers must be at most %d, not %d", most, n)
	}
	args, x := layerArgs(b), b.In(0)
	maps.Copy(args, forward)
	var class *program.Class
	output := b.Let("output", x)
	for i := range n {
		ins := append([]value.Value{output}, further...)
		at, rets := b.Child(fmt.Sprintf("layers.%d", i), l, args, ins...)
		class = b.Class.Children[at].Class
		output = b.Let("output", b.CallChild(at, rets, ins...))
	}
	parts := []string{class.Python, fmt.Sprintf("num_layers=%d", n)}
	if b.Bool("norm") {
		norm := map[string]any{"normalized_shape": []int64{args["d_model"].(int64)}, "eps": b.Float("layer_norm_eps"), "bias": b.Bool("bias")}
		at, rets := b.Child("norm", LayerNorm, norm, output)
		parts = append(parts, "norm="+b.Class.Children[at].Class.Python)
		output = b.Let("output", b.CallChild(at, rets, output))
	}
	if b.Given["enable_nested_tensor"] {
		parts = append(parts, "enable_nested_tensor="+program.Literal(b.Bool("enable_nested_tensor")))
	}
	b.Class.Python = b.Class.Layer.Python + "(" + strings.Join(parts, ", ") + ")"
	b.Finish(output)
}

// buildDecoderLayer is nn.TransformerDecoderLayer.forward
// (torch/nn/modules/transformer.py).
func buildDecoderLayer(b *module.Builder) {
	d, heads, ff := b.Infer("d_model", b.Tensor(3).Dim(-1)), b.Positive("nhead"), b.Positive("dim_feedforward")
	if b.Tensor(3).Rank() != 3 {
		b.Fail("", "the input needs three dimensions, not shape %v", b.Tensor(3).Size)
	}
	bias, p := b.Bool("bias"), b.Float("dropout")
	tgt, memory := b.In(0), b.In(1)
	wide := value.Value{Expr: &program.Expr{}, Meta: value.Tensor(shaped(tgt.Meta.Tensor, ff))}
	var results [][]value.Value // of the children
	add := func(name string, l *module.Layer, args map[string]any, ins ...value.Value) int {
		i, rets := b.Child(name, l, args, ins...)
		results = append(results, rets)
		return i
	}
	mha := func(causal string) map[string]any {
		return map[string]any{"embed_dim": d, "num_heads": heads, "dropout": p, "bias": bias, "batch_first": b.Bool("batch_first"), "need_weights": false,
			"is_causal": b.Bool(causal)}
	}
	drop := map[string]any{"p": p}
	norm := map[string]any{"normalized_shape": []int64{d}, "eps": b.Float("layer_norm_eps"), "bias": bias}
	self := add("self_attn", MultiheadAttention, mha("tgt_is_causal"), tgt, tgt, tgt, b.In(4), b.In(2))
	query := value.Value{Expr: &program.Expr{Kind: program.Local, Slot: -1}, Meta: tgt.Meta} // never the memory itself
	cross := add("multihead_attn", MultiheadAttention, mha("memory_is_causal"), query, memory, memory, b.In(5), b.In(3))
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

	mod := func(i int, x value.Value) value.Value { return b.CallChild(i, results[i], x) }
	dropped := func(b *module.Builder, i int, x value.Value) value.Value { return b.CallChild(i, []value.Value{x}, x) }
	attend := func(f *module.Builder, attn, dropout int, q, kv, mask, padding value.Value) []value.Value {
		r := value.Value{Expr: f.CallChild(attn, results[attn], q, kv, kv, padding, mask).Expr, Meta: value.Meta{Tuple: []value.Meta{results[attn][0].Meta, {}}}}
		y := f.Let("x", f.Pick(r, 0))
		return []value.Value{dropped(f, dropout, y)}
	}
	blocks := [3]func(x value.Value) value.Value{
		func(x value.Value) value.Value {
			return b.Inline("_sa_block", []string{"x", "attn_mask", "key_padding_mask"}, []value.Value{x, b.In(2), b.In(4)}, func(f *module.Builder, in []value.Value) []value.Value {
				return attend(f, self, drops[0], in[0], in[0], in[1], in[2])
			})
		},
		func(x value.Value) value.Value {
			ins := []value.Value{x, memory, b.In(3), b.In(5)}
			return b.Inline("_mha_block", []string{"x", "mem", "attn_mask", "key_padding_mask"}, ins, func(f *module.Builder, in []value.Value) []value.Value {
				return attend(f, cross, drops[1], in[0], in[1], in[2], in[3])
			})
		},
		func(x value.Value) value.Value {
			return b.Inline("_ff_block", []string{"x"}, []value.Value{x}, func(f *module.Builder, in []value.Value) []value.Value {
				h := f.Do(activations[b.Str("activation")], nil, mod(lin1, in[0]))
				y := f.Let("x", mod(lin2, dropped(b, mid, h)))
				return []value.Value{dropped(f, drops[2], y)}
			})
		},
	}
	x := b.Let("x", tgt)
	for i, block := range blocks {
		if b.Bool("norm_first") {
			x = b.Let("x", b.Do(aten.Add, &aten.BinaryArgs{}, x, block(mod(norms[i], x))))
		} else {
			x = b.Let("x", mod(norms[i], b.Do(aten.Add, &aten.BinaryArgs{}, x, block(x))))
		}
	}
	b.Finish(x)
}
