package main

import (
	"fmt"
	"strings"
)

// attention is a job whose attention cuDNN computes, which PyTorch 2.6 asks where
// nothing else is enabled: layouts of queries, keys and values, of masks and of the
// gradient of the result.
func attention(g *generator, _ uint64) (text, arch string) {
	heads := 1 + g.r.Int64N(4)
	shared, qk, val := heads, 8*(1+g.r.Int64N(16)), int64(0)
	if val = qk; g.chance(0.3) {
		val = 8 * (1 + g.r.Int64N(16))
	}
	if g.chance(0.3) {
		shared, heads = 1+g.r.Int64N(3), 0
		heads = shared * (1 + g.r.Int64N(4))
	}
	length, width := g.size(2, 90), g.multiple(8, 16, 160)
	keys := length
	precision := g.pick("amp-bf16", "amp-fp16", "bf16", "fp16")
	var layers strings.Builder
	emit := func(format string, args ...any) { fmt.Fprintf(&layers, "        - "+format+"\n", args...) }
	if packed := shared == heads && val == qk && g.chance(0.4); packed {
		emit("{Linear: %d, inputs: x, name: qkv}", 3*heads*qk)
		emit("{chunk: [3, -1], inputs: qkv, name: [q, k, v]}")
	} else {
		source := "x"
		if g.chance(0.3) {
			keys = 2 + g.r.Int64N(length)
			emit("{getitem: ':, :%d', inputs: x, name: z}", min(keys, length))
			keys, source = min(keys, length), "z"
		}
		emit("{Linear: %d, inputs: x, name: q}", heads*qk)
		emit("{Linear: %d, inputs: %s, name: k}", shared*qk, source)
		emit("{Linear: %d, inputs: %s, name: v}", shared*val, source)
	}
	for _, t := range []struct {
		name          string
		n, heads, dim int64
	}{{"q", length, heads, qk}, {"k", keys, shared, qk}, {"v", keys, shared, val}} {
		emit(`{view: ["${B}", %d, %d, %d], inputs: %s, name: %[5]s}`, t.n, t.heads, t.dim, t.name, t.name)
		emit("{transpose: [1, 2], inputs: %s, name: %[1]s}", t.name)
		if g.chance(0.2) {
			emit("{contiguous: , inputs: %s, name: %[1]s}", t.name)
		}
	}
	args, mask := fmt.Sprintf("dropout_p: %s", g.pick("0.0", "0.0", "0.1")), ""
	switch g.r.IntN(4) {
	case 0:
		args += ", is_causal: true"
	case 1:
		emit("{ones: [%d, %d], inputs: [], name: m}", length, keys)
		emit("{tril: , inputs: [m], name: m}")
		if g.chance(0.5) {
			emit("{to: bool, inputs: m, name: m}")
		} else {
			emit("{to: %s, inputs: m, name: m}", strings.NewReplacer("amp-", "", "bf16", "bfloat16", "fp16", "float16").Replace(precision))
		}
		mask = ", m"
	case 2:
		emit(`{ones: ["${B}", %s, %d, %d], inputs: [], name: m}`, g.pick("1", fmt.Sprint(heads)), length, keys)
		emit("{to: bool, inputs: m, name: m}")
		mask = ", m"
	}
	if shared != heads {
		args += ", enable_gqa: true"
	}
	emit("{scaled_dot_product_attention: {%s}, inputs: [q, k, v%s], name: y}", args, mask)
	switch g.r.IntN(3) {
	case 0:
		emit("{transpose: [1, 2], inputs: y, name: y}")
		emit(`{reshape: ["${B}", %d, %d], inputs: y, name: y}`, length, heads*val)
	case 1: // another layout of its gradient
		emit(`{reshape: ["${B}", %d, %d], inputs: y, name: y}`, length, heads*val)
	default:
		emit("{permute: [0, 2, 3, 1], inputs: y, name: y}")
		emit(`{reshape: ["${B}", %d, %d], inputs: y, name: y}`, length, heads*val)
	}
	emit("{Linear: %d, inputs: y, name: y}", width)
	emit("return: {add: [x, y]}")
	text = fmt.Sprintf(`memplan: 1
model:
  inputs: {x: {shape: [%d, %d]}, label: {shape: [], dtype: int64}}
  blocks:
    layer:
      layers:
%s  layers:
    - {Linear: %d}
    - {block: layer, repeat: %d%s}
    - {mean: 1}
    - {Linear: 7}
  loss: {cross_entropy: {input: out, target: label}}
train: {batch_size: %d, precision: %s, optimizer: AdamW, sdpa: [cudnn]}
`, length, g.size(4, 30), layers.String(), width, 1+g.r.IntN(3), g.pick("", "", ", checkpoint: true"), g.size(1, 9), precision)
	return text, "sm90"
}
