package main

import (
	"fmt"
	"strings"
)

// checkpointJob writes a program in which modules and functions go through
// torch.utils.checkpoint: by their entries, by train.checkpoint, or a chain of
// modules in segments.
func (g *generator) checkpointJob(seed uint64) (text, arch string) {
	if g.chance(0.15) {
		return g.segments(seed)
	}
	g.checkpoint = 0.6
	if g.chance(0.25) {
		g.checkpoint = 0.2
	}
	text, arch = g.spec(seed)
	if !strings.Contains(text, "checkpoint:") && strings.Contains(text, "Linear") {
		how := g.pick(`{modules: ["layers.*"]}`, `{modules: ["layers.*"], every: 2}`, `{modules: "layers.[0-3]", use_reentrant: true}`,
			`{modules: ["layers.*.layers.*", "layers.1"]}`, `{modules: ["layers.*"], save: [matmul, convolution]}`)
		text = strings.Replace(text, "train:\n", "train:\n  checkpoint: "+how+"\n", 1)
	}
	return text, arch
}

// checkpointed draws what an entry says of its checkpoint, with a comma in
// front; nothing in other programs.
func (g *generator) checkpointed() string {
	if g.checkpoint == 0 || !g.chance(g.checkpoint) {
		return ""
	}
	return ", checkpoint: " + g.pick("true", "true", "true", "{use_reentrant: true}", "{use_reentrant: true}", "{save: [matmul, gelu]}",
		"{save: [native_layer_norm, scaled_dot_product_attention, convolution]}", "{use_reentrant: false}")
}

// several defines a checkpointed block with two inputs, one of which may need no
// gradient, and two results, and calls it.
func (b *body) several() {
	g, s := b.g, b.cur.shape
	g.nBlock++
	name := fmt.Sprintf("b%d", g.nBlock)
	in := &body{g: g, cur: value{"x", s, b.cur.view}, module: b.module && g.chance(0.8), given: true}
	in.named = append(in.named, value{"other", s, false})
	kind := ""
	if !in.module {
		kind = "      kind: function\n"
	}
	for range 1 + g.r.IntN(3) {
		in.activation()
	}
	in.emit("{mul: [%s, other], name: first}", in.cur.name)
	for range 1 + g.r.IntN(2) {
		in.activation()
	}
	result := in.cur.name
	switch g.r.IntN(4) {
	case 0:
		in.emit("{transpose: [0, 1], inputs: [{transpose: [0, 1], inputs: %s}], name: second}", result)
		result = "second"
	case 1:
		result = "other"
	}
	in.emit("{return: [first, %s]}", result)
	g.blocks = append(g.blocks, fmt.Sprintf("    %s:\n%s      inputs: [x, other]\n      layers:\n        %s\n", name, kind, strings.Join(in.lines, "\n        ")))
	other := b.cur.name
	if p, ok := b.partner(); ok && g.chance(0.5) {
		other = p.name
	} else if g.chance(0.5) {
		other = b.fresh()
		b.emit("{ones: {size: %s, dtype: %s}, name: %s}", list(s), g.pick("float32", "float32", "int64"), other)
	}
	p, q := b.fresh(), b.fresh()
	b.emit("{block: %s, inputs: [%s, %s], name: [%s, %s]%s}", name, b.cur.name, other, p, q, g.checkpointed())
	b.named = append(b.named, value{p, s, true})
	switch g.r.IntN(3) {
	case 0: // the second result goes unused
		b.emit("{mul: 1.5, inputs: %s}", p)
		b.result("", s, false)
	case 1:
		b.emit("{add: [%s, %s]}", p, q)
		b.result("", s, false)
	default:
		b.emit("{view: %s, inputs: %s}", list(s), p)
		b.emit("{del: %s}", q)
		b.result("", s, true)
	}
}

// segments writes a chain of modules that checkpoint_sequential cuts.
func (g *generator) segments(seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	batch, n := g.size(2, 40), g.size(20, 500)
	var items []string
	width := n
	for range 2 + g.r.IntN(8) {
		switch g.r.IntN(5) {
		case 0, 1:
			width = g.size(9, 700)
			items = append(items, fmt.Sprintf("Linear: %d", width))
		case 2:
			items = append(items, g.pick("LayerNorm", "BatchNorm1d", "Dropout: 0.3"))
		case 3:
			items = append(items, g.pick("GELU", "ReLU", "ReLU: {inplace: true}", "SiLU", "Tanh"))
		case 4:
			b := &body{g: g, cur: value{"x", []int64{batch, width}, false}, module: true}
			b.block()
			line := b.lines[len(b.lines)-1]
			if len(b.lines) == 1 && !strings.Contains(line, "name") && !strings.Contains(line, "inputs") && len(b.cur.shape) == 2 && strings.HasPrefix(line, "- {block") && !strings.Contains(g.blocks[len(g.blocks)-1], "kind: function") {
				items = append(items, strings.TrimSuffix(strings.TrimPrefix(line, "- {"), "}"))
				width = b.cur.shape[1]
			}
		}
	}
	items = append(items, "Linear: 10")
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\nmodel:\n  inputs: {a: [%d], y: {shape: [], dtype: int64}}\n", seed, n)
	if len(g.blocks) > 0 {
		b.WriteString("  blocks:\n" + strings.Join(g.blocks, ""))
	}
	b.WriteString("  layers:\n")
	indent := "    "
	if g.chance(0.5) {
		b.WriteString("    - Sequential:\n")
		indent = "        "
	}
	for _, it := range items {
		if strings.Contains(it, ":") {
			it = "{" + it + "}"
		}
		b.WriteString(indent + "- " + it + "\n")
	}
	b.WriteString("  loss: {cross_entropy: {target: y}}\n")
	g.train(&b, batch)
	how := fmt.Sprintf("{segments: %d%s}", 1+g.r.IntN(min(5, len(items))), g.pick("", "", ", use_reentrant: true"))
	return strings.Replace(b.String(), "train:\n", "train:\n  checkpoint: "+how+"\n", 1), arch
}
