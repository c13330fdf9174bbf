package main

import (
	"fmt"
	"strings"
)

// options draws a program whose model is small and whose options are many: of
// each kind of option one after the other, so that all pairs of them come
// together. What memplan refuses together is drawn again.
func options(g *generator, seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	for range 200 {
		text = g.optionsJob(seed)
		if job := built(text, arch); job != nil {
			return text, arch
		}
		g.blocks, g.nBlock = nil, 0
	}
	return text, arch
}

// family is a small model: the shape of its input, its layers, the paths of
// linear layers, and the path of one whose number of outputs is free.
type family struct {
	input, layers string
	linear        []string
	free          string
	classes       int64
	positions     int64 // of which each has a label; 0: one label a sample
}

// optionsJob writes one job. It may be one that memplan refuses.
func (g *generator) optionsJob(seed uint64) string {
	batch := g.size(2, 12)
	f := []func() family{g.perceptron, g.convolutional, g.transformer, g.recurrentModel}[g.r.IntN(4)]()
	labels, loss := "[]", "{CrossEntropyLoss: {target: y}}"
	if f.positions > 0 {
		labels = list([]int64{f.positions})
		loss = fmt.Sprintf("{cross_entropy: {input: {view: [-1, %d], inputs: out}, target: {view: [-1], inputs: y}}}", f.classes)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\nmodel:\n  inputs:\n    a: %s\n    y: {shape: %s, dtype: int64}\n%s  loss: %s\n", seed, f.input, labels, f.layers, loss)
	for _, t := range g.top(f) {
		b.WriteString(t + "\n")
	}
	fmt.Fprintf(&b, "train:\n  batch_size: %d\n", batch)
	for _, t := range g.trainKeys() {
		b.WriteString("  " + t + "\n")
	}
	return b.String()
}

// maybe returns one of some texts in a share of the cases, nothing in the rest.
func (g *generator) maybe(share float64, s ...string) []string {
	if !g.chance(share) {
		return nil
	}
	return []string{g.pick(s...)}
}

// trainKeys draws the keys of train.
func (g *generator) trainKeys() []string {
	keys := g.maybe(0.75, "precision: bf16", "precision: fp16", "precision: amp-bf16", "precision: amp-bf16", "precision: amp-fp16", "precision: amp-fp16")
	if g.chance(0.12) {
		keys = append(keys, "optimizer_in_backward: true", "optimizer: "+g.optimizer(""))
	} else {
		groups := ""
		if g.chance(0.3) {
			groups = `, groups: [{params: ["*.bias"]` + group + `}]`
		}
		keys = append(keys, "optimizer: "+g.optimizer(groups))
	}
	keys = append(keys, g.maybe(0.3, "clip_grad_norm: 1.0", "clip_grad_norm: 0.5", "clip_grad_value: 0.5")...)
	keys = append(keys, g.maybe(0.25, "grad_accumulation: 2", "grad_accumulation: 3")...)
	if g.chance(0.6) {
		keys = append(keys, fmt.Sprintf("zero_grad: {at: %s, set_to_none: %s}", g.pick("before_forward", "before_backward", "after_step", "never"), g.pick("true", "false")))
	}
	keys = append(keys, g.maybe(0.35, "loop: flat")...)
	if g.chance(0.2) {
		keys = append(keys, fmt.Sprintf("empty_cache: {every: %d, at: %s}", 1+g.r.IntN(2), g.pick("step_start", "step_end", "before_backward")))
	}
	if g.chance(0.25) {
		keys = append(keys, "keep: "+keepText(g.r, g.pick("loss", "out")))
	}
	keys = append(keys, g.maybe(0.15, "ema: {decay: 0.99}", "ema: {device: cpu}")...)
	if g.chance(0.4) {
		how := g.pick(`modules: ["layers.*"]`, `modules: ["layers.*"], every: 2`, "segments: 2", "segments: 3", `modules: ["layers.1", "layers.2"]`)
		how += g.pick("", "", ", use_reentrant: true", ", use_reentrant: true", ", save: [matmul]", ", save: [matmul, convolution, scaled_dot_product_attention]")
		keys = append(keys, "checkpoint: {"+how+"}")
	}
	return keys
}

// top draws the sections beside train.
func (g *generator) top(f family) []string {
	keys := g.maybe(0.4, "data: {input: static}", "data: {input: rebind}", "data: {device_prefetch: true}")
	if g.chance(0.2) {
		keys = append(keys, fmt.Sprintf("eval: {every: %d, batches: %d, batch_size: %d, context: %s, train_mode: %v}", 1+g.r.IntN(2), 1+g.r.IntN(2), g.size(2, 20),
			g.pick("no_grad", "inference_mode", "grad"), g.chance(0.2)))
	}
	if g.chance(0.25) {
		how := g.pick("activations: true", "optimizer: true", "optimizer: true, gradients: true", "parameters: true", "parameters: true, activations: true", "optimizer: true, activations: true")
		keys = append(keys, "offload: {"+how+g.pick("", ", pin_memory: true")+"}")
	}
	if g.chance(0.1) && f.positions == 0 && !strings.Contains(f.input, "int64") {
		keys = append(keys, fmt.Sprintf("teacher: {inputs: {a: %s}, layers: [Flatten, {Linear: %d}, BatchNorm1d, ReLU, {Linear: %d}], temperature: 3}", f.input, g.size(8, 200), f.classes))
	}
	some := "[" + strings.Join(f.linear[:1+g.r.IntN(len(f.linear))], ", ") + "]"
	freeze := ""
	if g.chance(0.12) {
		freeze = "freeze: " + g.pick(`["*.bias"]`, "[layers.0]", `["layers.[0-1]"]`, `{modules: ["*"], except: [layers.1, "*.bias"]}`)
	}
	lora := fmt.Sprintf("lora: {r: %d, alpha: 16, dropout: %s, bias: %s, dtype: %s, targets: %s%s}", 1+g.r.IntN(12), g.pick("0", "0.1"), g.pick("none", "none", "all", "lora_only"),
		g.pick("float32", "float32", "bfloat16"), g.pick("all-linear", some), g.pick("", "", ", modules_to_save: [layers.0]"))
	quantize := g.pick(fmt.Sprintf("quantize: {bits: 8, threshold: %s}", g.pick("0", "6")),
		fmt.Sprintf("quantize: {bits: 4, type: %s, double_quant: %s, compute_dtype: %s}", g.pick("nf4", "fp4"), g.pick("true", "false"), g.pick("bfloat16", "float16", "float32")))
	switch g.r.IntN(12) {
	case 0, 1:
		keys = append(keys, lora)
	case 2:
		lora = strings.NewReplacer("bias: all", "bias: none", "bias: lora_only", "bias: none").Replace(lora)
		keys = append(keys, quantize, lora)
	case 3: // trained biases of quantized layers change their type, which is not modelled
		quantize, freeze = strings.TrimSuffix(quantize, "}")+", modules: "+some+"}", `freeze: ["*.bias"]`
		keys = append(keys, quantize)
	case 4:
		keys = append(keys, fmt.Sprintf("prune: {amount: 0.4, modules: %s}", some))
	case 5:
		keys = append(keys, fmt.Sprintf("prune: {amount: 0.%d, structured: true, modules: [%s]}", 1+g.r.IntN(8), f.free))
	}
	if freeze != "" {
		keys = append(keys, freeze)
	}
	return keys
}

// perceptron is a chain of linear layers, some of them in blocks.
func (g *generator) perceptron() family {
	n, d, c := g.size(8, 300), g.size(8, 300), g.size(2, 60)
	norm, act := g.pick("LayerNorm", "BatchNorm1d"), g.pick("ReLU", "GELU", "SiLU", "{ReLU: {inplace: true}}")
	island := "    - " + norm + "\n" // in another type than the model, perhaps
	if g.chance(0.3) {
		island = fmt.Sprintf("    - {name: h}\n    - {to: {dtype: float32}}\n    - {%s: , dtype: float32}\n    - {type_as: [x, h]}\n", norm)
	}
	mask := ""
	if g.chance(0.3) {
		mask = fmt.Sprintf("      buffers: {mask: {shape: [%d], dtype: %s}}\n", d, g.pick("float32", "bfloat16", "float16", "int64"))
	}
	masked := ""
	if mask != "" {
		masked = "        - {mul: [x, {type_as: [mask, x]}]}\n"
	}
	return family{
		input: fmt.Sprintf("{shape: [%d]}", n),
		layers: fmt.Sprintf(`  blocks:
    part:
      autocast: %v
%s      layers:
        - {name: identity}
        - {Linear: %d, module: fc1}
        - %s
        - {Linear: %d, module: fc2}
%s        - {add: [identity, x]}
  layers:
    - Linear: %d
    - {block: part%s}
    - {block: part}
%s    - Linear: %d
`, g.chance(0.8), mask, g.size(8, 300), act, d, masked, d, g.entryCheckpoint(), island, c),
		linear: []string{"layers.1.fc1", "layers.0", "layers.2.fc2"}, free: "layers.1.fc1", classes: c,
	}
}

// entryCheckpoint draws a checkpoint of an entry.
func (g *generator) entryCheckpoint() string {
	g.checkpoint = 0.3
	defer func() { g.checkpoint = 0 }()
	return g.checkpointed()
}

// convolutional is a small CNN.
func (g *generator) convolutional() family {
	c := g.size(2, 60)
	return family{
		input: fmt.Sprintf("{shape: [%d, %d, %d]}", g.size(1, 5), g.size(12, 30), g.size(12, 30)),
		layers: fmt.Sprintf(`  layers:
    - {Conv2d: {out_channels: %d, kernel_size: 3, bias: %v}}
    - BatchNorm2d
    - {ReLU: {inplace: true}}
    - {Conv2d: {out_channels: %d, kernel_size: 3, stride: 2}}
    - {GroupNorm: 1}
    - GELU
    - {AdaptiveAvgPool2d: 2}
    - Flatten
    - {Linear: %d}
    - {Dropout: 0.2}
    - Linear: %d
`, g.size(3, 30), g.chance(0.5), g.size(3, 30), g.size(8, 200), c),
		linear: []string{"layers.8", "layers.0"}, free: "layers.8", classes: c,
	}
}

// transformer is a small language model or classifier of sequences.
func (g *generator) transformer() family {
	heads := 1 + g.r.Int64N(3)
	d, c, vocab := g.multiple(8*heads, 16, 120), g.size(2, 300), g.size(20, 900)
	seq := g.size(6, 60)
	last, positions := "    - {mean: 1}\n", int64(0)
	if g.chance(0.4) {
		last, positions = "", seq
	}
	return family{
		input: fmt.Sprintf("{shape: [%d], dtype: int64}", seq),
		layers: fmt.Sprintf(`  blocks:
    layer:
      modules:
        norm1: LayerNorm
        qkv: {Linear: %d}
        proj: {Linear: %d}
        norm2: LayerNorm
        mlp: {Sequential: [{Linear: %d}, GELU, {Linear: %d}]}
      layers:
        - {chunk: [3, -1], inputs: [{call: qkv, inputs: [{call: norm1, inputs: x}]}], name: [q, k, v]}
        - {reshape: ["${x.shape[0]}", "${x.shape[1]}", %d, -1], inputs: q, name: q}
        - {reshape: ["${x.shape[0]}", "${x.shape[1]}", %d, -1], inputs: k, name: k}
        - {reshape: ["${x.shape[0]}", "${x.shape[1]}", %d, -1], inputs: v, name: v}
        - {scaled_dot_product_attention: {is_causal: %v}, inputs: [{transpose: [1, 2], inputs: q}, {transpose: [1, 2], inputs: k}, {transpose: [1, 2], inputs: v}], name: y}
        - {reshape: ["${x.shape[0]}", "${x.shape[1]}", %d], inputs: [{transpose: [1, 2], inputs: y}], name: y}
        - {add: [x, {call: proj, inputs: y}], name: x}
        - return: {add: [x, {call: mlp, inputs: [{call: norm2, inputs: x}]}]}
  layers:
    - {Embedding: [%d, %d]}
    - {block: layer%s}
    - {block: layer}
    - LayerNorm
%s    - Linear: %d
`, 3*d, d, g.size(20, 300), d, heads, heads, heads, g.chance(0.5), d, vocab, d, g.entryCheckpoint(), last, c),
		linear: []string{"qkv", "proj", "layers.1.mlp.0"}, free: "mlp.0", classes: c, positions: positions,
	}
}

// recurrentModel is a recurrent layer between linear ones.
func (g *generator) recurrentModel() family {
	c := g.size(2, 60)
	return family{
		input: fmt.Sprintf("{shape: [%d, %d]}", g.size(3, 20), g.size(8, 60)),
		layers: fmt.Sprintf(`  layers:
    - Linear: %d
    - ReLU
    - {%s: {hidden_size: %d, batch_first: true, num_layers: %d}, pick: 0}
    - {mean: 1}
    - {Linear: %d}
    - Tanh
    - Linear: %d
`, g.size(8, 90), g.pick("LSTM", "GRU", "RNN"), g.size(8, 90), 1+g.r.IntN(2), g.size(8, 90), c),
		linear: []string{"layers.3", "layers.0"}, free: "layers.0", classes: c,
	}
}
