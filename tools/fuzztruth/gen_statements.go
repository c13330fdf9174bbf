package main

import (
	"fmt"
	"slices"
	"strings"
)

// statements writes a job of two models whose step is made of what stands
// outside of them: blocks and functions of the script, models that are called
// inline and from functions, contexts without gradients, statements of some
// steps only.
func statements(g *generator, seed uint64) (text, arch string) {
	arch = g.pick("sm75", "sm80", "sm86", "sm89", "sm90")
	batch := g.size(2, 40)
	shape := []int64{batch, g.size(20, 400)}
	if g.chance(0.3) {
		shape = []int64{batch, g.size(1, 8), g.size(12, 40), g.size(12, 40)}
	}
	net := g.part("a", shape, 2+g.r.IntN(5))
	for len(net.cur.shape) == 0 || net.cur.shape[0] != batch || numel(net.cur.shape) > 1<<20 {
		g.blocks = nil
		net = g.part("a", shape, 2+g.r.IntN(4))
	}
	out := slices.Clone(net.cur.shape)
	out[len(out)-1] = g.size(20, 200)
	net.step(fmt.Sprintf("Linear: %d", out[len(out)-1]), out, "", false)
	critic := g.part("real", out, 1+g.r.IntN(4))
	for critic.cur.shape[0] != batch {
		critic = g.part("real", out, 1+g.r.IntN(2))
	}
	critic.step("flatten: 1", []int64{batch, numel(critic.cur.shape) / batch}, "", true)
	critic.step("Linear: 1", []int64{batch, 1}, "", false)
	features := g.part("x", out, 1+g.r.IntN(3))
	arithmetic := &body{g: g, cur: value{"x", out, false}, given: true}
	for range 1 + g.r.IntN(3) {
		arithmetic.any()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\nblocks:\n%s", seed, strings.Join(g.blocks, ""))
	fmt.Fprintf(&b, "    features:\n      layers:\n        %s\n", strings.Join(g.contexts(features.lines), "\n        "))
	fmt.Fprintf(&b, "    arithmetic:\n      kind: function\n      layers:\n        %s\n", strings.Join(g.contexts(arithmetic.lines), "\n        "))
	fmt.Fprintf(&b, "    score:\n      kind: function\n      inputs: [s]\n      layers:\n        %s\n", strings.Join(g.score(), "\n        "))
	fmt.Fprintf(&b, "models:\n  net:\n    inputs: {a: {shape: %s}}\n    layers:\n      %s\n", list(shape[1:]), strings.Join(g.contexts(net.lines), "\n      "))
	fmt.Fprintf(&b, "  critic:\n    inputs: {real: {shape: %s}}\n    layers:\n      %s\n", list(out[1:]), strings.Join(g.contexts(critic.lines), "\n      "))
	fmt.Fprintf(&b, "optimizers:\n  one: {optimizer: %s, models: [net]}\n  two: {optimizer: %s, models: [critic]}\n",
		fuzzOptimizers[g.r.IntN(len(fuzzOptimizers))], fuzzOptimizers[g.r.IntN(len(fuzzOptimizers))])
	fmt.Fprintf(&b, "step:\n  %s\n", strings.Join(g.script(), "\n  "))
	fmt.Fprintf(&b, "train:\n  batch_size: %d\n", batch)
	if g.chance(0.4) {
		fmt.Fprintf(&b, "  precision: %s\n", g.pick("amp-bf16", "amp-fp16", "bf16"))
	}
	if g.chance(0.35) {
		b.WriteString("  loop: flat\n")
	}
	if g.chance(0.3) {
		b.WriteString("data: {input: static}\n")
	}
	return b.String(), arch
}

// part writes some statements of a module that takes a value.
func (g *generator) part(in string, shape []int64, n int) *body {
	b := &body{g: g, module: true, cur: value{in, slices.Clone(shape), false}, given: in == "x"}
	for range n {
		b.any()
	}
	return b
}

// contexts puts some runs of statements into contexts of gradients.
func (g *generator) contexts(lines []string) []string {
	var out []string
	for len(lines) > 0 {
		n := min(len(lines), 1+g.r.IntN(3))
		run := lines[:n]
		lines = lines[n:]
		if !g.chance(0.15) || slices.ContainsFunc(run, func(s string) bool { return strings.Contains(s, "return") }) {
			out = append(out, run...)
			continue
		}
		items := make([]string, n)
		for i, s := range run {
			items[i] = strings.TrimPrefix(s, "- ")
		}
		if g.chance(0.3) {
			items[n-1] = fmt.Sprintf("{layers: [%s], enable_grad: true}", items[n-1])
		}
		out = append(out, fmt.Sprintf("- {layers: [%s], no_grad: true}", strings.Join(items, ", ")))
	}
	return out
}

// score is a function that calls a model.
func (g *generator) score() []string {
	lines := []string{"- {forward: {model: critic, inputs: s}, name: p}"}
	if g.chance(0.5) {
		lines = []string{"- {forward: {model: critic, inputs: [{mul: 0.5, inputs: s}]}}", "- {name: p}"}
	}
	if g.chance(0.3) {
		lines = append(lines, "- {mul: [p, {forward: {model: critic, inputs: s}}], name: p}")
	}
	return append(lines, g.pick("- {mean: {}, inputs: p}", "- {softplus: {}, inputs: p}\n        - mean", "- {mean: {}, inputs: [{relu: {}, inputs: p}]}"))
}

// script is the step.
func (g *generator) script() []string {
	var s []string
	add := func(format string, args ...any) { s = append(s, "- "+fmt.Sprintf(format, args...)) }
	every := func(share float64) string {
		if g.chance(share) {
			return fmt.Sprintf(", every: %d", 2+g.r.IntN(2))
		}
		return ""
	}
	add("batch")
	add("{zero_grad: one%s}", every(0.2))
	add("{zero_grad: two%s}", every(0.2))
	add("{forward: {model: net, inputs: a}, name: fake}")
	if g.chance(0.4) {
		add("{block: arithmetic, inputs: fake, name: t%s}", g.pick("", ", no_grad: true"))
	}
	critic := func(in string) string { return "{forward: {model: critic, inputs: " + in + "}}" }
	switch g.r.IntN(4) {
	case 0:
		add("{sub: [{mean: {}, inputs: [%s]}, {mean: {}, inputs: [%s]}], name: loss}", critic("fake"), critic("real"))
	case 1:
		add("{block: score, inputs: fake, name: loss}")
	case 2:
		add("{forward: {model: critic, inputs: real}, name: p}")
		add("{BCEWithLogitsLoss: {input: %s, target: {ones_like: {}, inputs: [p]}}, name: loss}", critic("fake"))
	case 3:
		add("{binary_cross_entropy_with_logits: {input: %s, target: {zeros_like: {}, inputs: [%s]}}, name: loss}", critic("fake"), critic("real"))
	}
	for range 1 + g.r.IntN(3) {
		n := every(0.6)
		switch g.r.IntN(6) {
		case 0:
			add("{layers: [{block: score, inputs: real, name: more}, {add: [loss, more], name: loss}]%s}", n)
		case 1:
			add("{layers: [{forward: {model: net, inputs: a}, no_grad: true, name: goal}, {mse_loss: [fake, goal], name: more}, {add: [loss, more], name: loss}]%s}", n)
		case 2:
			add("{layers: [{block: features, module: f, inputs: fake, name: u}, {call: f, inputs: real, no_grad: true, name: v}, {l1_loss: [u, v], name: more}, {add: [loss, more], inplace: true, name: loss}]%s}", n)
		case 3:
			add("{layers: [{mean: {}, inputs: [{block: arithmetic, inputs: fake}], name: more}, {del: more}]%s}", n)
		case 4:
			add("{add: [loss, {mean: {}, inputs: [%s]}], name: loss%s}", critic("real"), n)
		case 5:
			add("{layers: [{keep: {of: loss, detach: true, item: true}}, empty_cache]%s}", n)
		}
	}
	if g.chance(0.3) {
		add("{layers: [{backward: {of: loss, retain_graph: true}}]%s}", every(1))
	}
	add("{backward: loss}")
	add("{optimizer_step: one%s}", every(0.3))
	add("{optimizer_step: two%s}", every(0.3))
	return s
}
