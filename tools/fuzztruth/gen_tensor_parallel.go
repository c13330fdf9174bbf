package main

import (
	"fmt"
	"strings"
)

// tensorParallel draws a transformer of odd parts, of one rank of several, with a
// random plan of parallelize_module.
func tensorParallel(g *generator, seed uint64) (text, arch string) {
	for range 400 {
		text, arch = g.tensorParallel(seed)
		if built(text, arch) != nil {
			return text, arch
		}
	}
	return text, arch
}

// planned is a program whose modules get styles as they are written.
type planned struct {
	g       *generator
	ranks   int64
	parts   int64 // into which a dimension of a parameter may be divided
	b, t, d int64 // sizes of the whole stream of values
	divided bool  // the stream x is, in its second dimension
	n       int
	lines   []string
	plan    []string

	h      string // how h is a DTensor: its placement; "": it is none
	inside string // the path of the block whose modules are written, with a dot
	rms    bool   // norms are RMSNorm
	blocks []string

	checkpoints bool
}

func (p *planned) emit(format string, args ...any) {
	p.lines = append(p.lines, "    - "+fmt.Sprintf(format, args...))
}

// module names a new module of a style with arguments.
func (p *planned) module(style string, args ...string) string {
	p.n++
	name := fmt.Sprintf("m%d", p.n)
	if len(args) > 0 {
		style = "{" + style + ": {" + strings.Join(args, ", ") + "}}"
	}
	p.plan = append(p.plan, p.inside+name+": "+style)
	return name
}

// stream is the placement of x.
func (p *planned) stream() string {
	if p.divided {
		return "shard(1)"
	}
	return "replicate"
}

// reads are the arguments of a colwise style that reads x.
func (p *planned) reads() []string {
	if p.inside != "" {
		return nil
	}
	if p.divided || p.g.chance(0.2) {
		return []string{"input_layouts: " + p.stream()}
	}
	return nil
}

// writes are the arguments of a rowwise style whose result is added to x.
func (p *planned) writes() []string {
	if p.divided || p.g.chance(0.2) {
		return []string{"output_layouts: " + p.stream()}
	}
	return nil
}

func (p *planned) bias() string {
	if p.g.chance(0.5) {
		return ", bias: false"
	}
	return ""
}

func (p *planned) linear(in, out string, features int64, style string, args []string) {
	p.emit("{Linear: {out_features: %d%s}, inputs: %s, name: %s, module: %s}", features, p.bias(), in, out, p.module(style, args...))
}

// norm normalizes x into h, where there is a style for it.
func (p *planned) norm(to string) {
	p.h = ""
	switch {
	case p.divided:
		layer, args := fmt.Sprintf("LayerNorm: {%s}", p.g.pick("", "bias: false")), []string{"use_local_output: true"}
		if p.rms {
			layer = "RMSNorm: {}"
		}
		if p.g.chance(0.6) {
			p.h, args = p.stream(), nil
		}
		p.emit("{%s, inputs: x, name: %s, module: %s}", layer, to, p.module("sequence", args...))
	case p.g.chance(0.5):
		p.emit("{LayerNorm: {elementwise_affine: false}, inputs: x, name: %s}", to)
	case to != "x":
		p.emit("{mul: [x, 2.0], name: %s}", to)
	}
}

func (p *planned) added() {
	if p.g.chance(0.3) {
		p.emit("{dropout: {input: h, p: 0.1}, name: h}")
	}
	p.emit("{add: [%s], name: x}", p.g.pick("x, h", "h, x"))
}

// block writes body as a block from h to h, whose module may be prepared and
// checkpointed.
func (p *planned) block(body func()) {
	if p.inside != "" || p.g.chance(0.4) {
		body()
		return
	}
	p.n++
	name := fmt.Sprintf("m%d", p.n)
	outer, divided := p.lines, p.divided
	p.lines, p.inside = nil, name+"."
	style := fmt.Sprintf("{prepare_input: {input_layouts: [%s], desired_input_layouts: [replicate]%s}}", p.stream(), p.g.pick("", "", ", use_local_output: true", ", use_local_output: false"))
	p.plan = append(p.plan, name+": "+style)
	body()
	p.blocks = append(p.blocks, fmt.Sprintf("    %s:\n      inputs: [h]\n      layers:\n    %s\n", name, strings.Join(p.lines, "\n    ")))
	p.lines, p.inside, p.divided = outer, "", divided
	how := ""
	if p.checkpoints {
		how = p.g.pick("", ", checkpoint: true", ", checkpoint: true", ", checkpoint: {use_reentrant: true}", ", checkpoint: {save: [matmul]}", ", checkpoint: {save: [scaled_dot_product_attention, gelu]}")
	}
	p.emit("{block: %s, inputs: h, name: h, module: %s%s}", name, name, how)
}

// result writes the layer with which a branch ends, into h.
func (p *planned) result(features int64) {
	if p.inside == "" && p.g.chance(0.3) { // a DTensor, of which a block makes a tensor again
		p.n++
		name := fmt.Sprintf("m%d", p.n)
		at := p.stream()
		if p.g.chance(0.5) {
			at = "replicate"
		}
		p.linear("h", "h", features, "rowwise", []string{"output_layouts: " + at, "use_local_output: false"})
		p.plan = append(p.plan, fmt.Sprintf("%s: {prepare_output: {output_layouts: %s, desired_output_layouts: %s}}", name, at, p.stream()))
		p.blocks = append(p.blocks, fmt.Sprintf("    %s:\n      inputs: [h]\n      layers: [{return: [h]}]\n", name))
		p.emit("{block: %s, inputs: h, name: h, module: %s}", name, name)
		return
	}
	p.linear("h", "h", features, "rowwise", p.writes())
}

func (p *planned) mlp() {
	p.norm("h")
	p.block(p.feedForward)
	p.added()
}

func (p *planned) feedForward() {
	wide := p.g.multiple(p.parts, 16, 600)
	if p.g.chance(0.4) {
		p.linear("h", "u", wide, "colwise", p.reads())
		p.linear("h", "h", wide, "colwise", p.reads())
		p.emit("{%s: h, name: h}", p.g.pick("silu", "gelu", "relu"))
		p.emit("{mul: [h, u], name: h}")
	} else {
		p.linear("h", "h", wide, "colwise", p.reads())
		p.emit("{%s: h, name: h}", p.g.pick("silu", "gelu", "relu", "tanh"))
	}
	p.result(p.d)
}

func (p *planned) attention() {
	p.norm("h")
	p.block(p.heads)
	p.added()
}

func (p *planned) heads() {
	heads, width := p.ranks*(1+p.g.r.Int64N(3)), p.g.multiple(max(4, p.parts/p.ranks*4), 4, 40)
	for _, name := range []string{"q", "k", "v"} {
		p.linear("h", name, heads*width, "colwise", p.reads())
		p.emit("{view: [%d, %d, %d, %d], inputs: %s, name: %s}", p.b, p.t, heads/p.ranks, width, name, name)
		p.emit("{transpose: [1, 2], inputs: %s, name: %s}", name, name)
	}
	p.emit("{scaled_dot_product_attention: {query: q, key: k, value: v, is_causal: %s}, name: h}", p.g.pick("true", "false"))
	p.emit("{transpose: [1, 2], inputs: h, name: h}")
	p.emit("{reshape: [%d, %d, %d], inputs: h, name: h}", p.b, p.t, heads/p.ranks*width)
	p.result(p.d)
}

// alone is a linear layer by itself, whose result is whole.
func (p *planned) alone() {
	if p.g.chance(0.3) { // two layers, a DTensor between them
		p.linear("x", "x", p.g.multiple(p.parts, 16, 300), "colwise", append(p.reads(), "use_local_output: false"))
		p.d = p.g.multiple(p.parts, 16, 300)
		p.linear("x", "x", p.d, "rowwise", p.writes())
		return
	}
	p.d = p.g.multiple(p.parts, 16, 300)
	if !p.divided && p.g.chance(0.5) {
		p.linear("x", "x", p.d, "rowwise", []string{"input_layouts: replicate"})
	} else {
		p.linear("x", "x", p.d, "colwise", append(p.reads(), "output_layouts: replicate"))
	}
	p.divided = false
}

// table looks up the words of the batch.
func (p *planned) table() {
	vocab := p.g.multiple(p.parts, 50, 2000)
	style, args := "rowwise", []string{"input_layouts: replicate"}
	p.divided = p.g.chance(0.5)
	if p.g.chance(0.3) {
		style, args, p.divided = "colwise", p.g.maybe(0.3, "input_layouts: replicate"), false
		args = append(args, "output_layouts: replicate")
	} else {
		args = append(args, p.writes()...)
	}
	p.emit("{Embedding: [%d, %d], inputs: ids, name: x, module: %s}", vocab, p.d, p.module(style, args...))
}

func (g *generator) tensorParallel(seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	p := &planned{g: g, ranks: []int64{2, 2, 3, 4, 8}[g.r.IntN(5)], b: g.size(1, 6), rms: g.chance(0.6), checkpoints: g.chance(0.5)}
	p.parts = p.ranks * max(g.shards, 1)
	p.t, p.d = g.multiple(p.ranks, 8, 160), g.multiple(p.ranks, 16, 300)
	input := fmt.Sprintf("x: {shape: [%d, %d]}", p.t, p.d)
	if g.chance(0.6) {
		input = fmt.Sprintf("ids: {shape: [%d], dtype: int64}", p.t)
		p.table()
	}
	for range 1 + g.r.IntN(4) {
		switch g.r.IntN(5) {
		case 0:
			p.alone()
		case 1, 2:
			p.attention()
		default:
			p.mlp()
		}
	}
	classes := g.multiple(p.parts, 16, 500)
	if g.chance(0.5) {
		p.norm("x")
	}
	last := append(p.reads(), "output_layouts: replicate")
	parallel := g.chance(0.5)
	if parallel {
		last = append(p.reads(), "use_local_output: false")
	}
	p.linear("x", "x", classes, "colwise", last)
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\nmodel:\n  inputs:\n    %s\n", seed, input)
	loss := "  loss: {mean: out}\n"
	if parallel || g.chance(0.6) {
		fmt.Fprintf(&b, "    y: {shape: [%d], dtype: int64}\n", p.t)
		loss = "  loss:\n    - {flatten: {input: out, end_dim: 1}, name: out}\n    - {flatten: {input: y}, name: y}\n    - {cross_entropy: [out, y]}\n"
		if parallel {
			convert := g.pick("", "", "    - {float: out, name: out}\n")
			args := g.pick("", "", ", reduction: sum", ", ignore_index: 0")
			loss = "  loss:\n    - {flatten: {input: out, end_dim: 1}, name: out}\n" + convert + "    - {flatten: {input: y}, name: y}\n    - {cross_entropy: {input: out, target: y" + args + "}}\n"
		}
	}
	if len(p.blocks) > 0 {
		b.WriteString("  blocks:\n" + strings.Join(p.blocks, ""))
	}
	fmt.Fprintf(&b, "  layers:\n%s\n%s", strings.Join(p.lines, "\n"), loss)
	train := []string{fmt.Sprintf("batch_size: %d", p.b)}
	train = append(train, g.maybe(0.5, "precision: bf16", "precision: amp-bf16", "precision: amp-bf16")...)
	train = append(train, g.maybe(0.5, "clip_grad_norm: 1.0")...)
	train = append(train, g.maybe(0.25, "grad_accumulation: 2")...)
	train = append(train, "optimizer: "+g.pick("AdamW", "AdamW", "{AdamW: {weight_decay: 0.1, amsgrad: true}}", "Adam", "SGD", "{SGD: {momentum: 0.9}}", "{AdamW: {foreach: false}}", "{AdamW: {fused: true}}"))
	fmt.Fprintf(&b, "train: {%s}\n", strings.Join(train, ", "))
	more := ""
	if parallel {
		more = ", loss_parallel: true"
	}
	fmt.Fprintf(&b, "parallel: {tp: %d, plan: {%s}%s}\n", p.ranks, strings.Join(p.plan, ", "), more)
	return b.String(), arch
}
