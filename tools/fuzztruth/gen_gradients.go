package main

import (
	"fmt"
	"strings"
)

// gradients writes a job with torch.autograd.grad in its step, in most cases with
// create_graph: penalties of gradients and the like.
func gradients(g *generator, seed uint64) (text, arch string) {
	arch = g.pick("sm75", "sm80", "sm86", "sm89", "sm90")
	batch, n := g.size(2, 40), g.size(20, 400)
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\nblocks:\n", seed)
	shape, first := []int64{n}, []string{}
	if g.chance(0.5) {
		shape = []int64{g.size(1, 4), g.size(8, 24), g.size(8, 24)}
		first = append(g.imageCritic(), "Flatten")
	}
	create := g.chance(0.75)
	input := []string{"{rand: [\"${B}\"" + strings.Repeat(", 1", len(shape)) + "], name: alpha}", "{add: [{mul: [alpha, real]}, {mul: [{sub: [1, alpha]}, fake]}], name: hat}"}
	if g.chance(0.3) {
		input = []string{"{clone: , inputs: real, name: hat}"}
	}
	lines := append(input, "{requires_grad_: {}, inputs: hat, name: hat}")
	keys := []string{"inputs: hat"}
	if create {
		keys = append(keys, "create_graph: true")
	}
	if g.chance(0.5) {
		keys = append(keys, fmt.Sprintf("retain_graph: %t", create || g.chance(0.5)))
	}
	score := "{forward: {model: critic, inputs: hat}}"
	if g.chance(0.5) {
		keys = append(keys, "outputs: d", "grad_outputs: {ones_like: {}, inputs: d}")
		lines = append(lines, "{forward: {model: critic, inputs: hat}, name: d}")
	} else {
		keys = append(keys, "outputs: {"+g.pick("sum", "mean")+": {}, inputs: ["+score+"]}")
	}
	lines = append(lines, "{grad: {"+strings.Join(keys, ", ")+"}, "+g.pick("pick: 0, name: g", "name: [g]")+"}")
	if g.chance(0.7) {
		lines = append(lines, "{view: [\"${B}\", -1], inputs: g, name: g}", "{norm: {p: 2, dim: 1}, inputs: g, name: m}",
			g.pick("{mean: {}, inputs: [{pow: 2, inputs: [{sub: [m, 1]}]}]}", "{mul: 10, inputs: [{mean: {}, inputs: [{pow: 2, inputs: [{sub: [m, 1]}]}]}]}"))
	} else {
		lines = append(lines, g.pick("{mean: {}, inputs: [{pow: 2, inputs: g}]}", "{sum: {}, inputs: [{mul: [g, g]}]}"))
	}
	fmt.Fprintf(&b, "  penalty:\n    kind: function\n    inputs: [real, fake]\n    layers:\n      - %s\n", strings.Join(lines, "\n      - "))
	fmt.Fprintf(&b, "models:\n  net:\n    inputs: {z: {shape: [%d]}}\n    layers:\n      - Linear: %d\n      - ReLU\n      - Linear: %d\n      - {view: %s}\n", g.size(8, 60), g.size(20, 90), numel(shape), list(append([]int64{-1}, shape...)))
	fmt.Fprintf(&b, "  critic:\n    inputs: {real: {shape: %s}}\n    layers:\n      - %s\n", list(shape), strings.Join(append(first, g.critic()...), "\n      - "))
	fmt.Fprintf(&b, "optimizers:\n  one: {optimizer: %s, models: [net]}\n  two: {optimizer: %s, models: [critic]}\n", g.pick("SGD", "Adam"), g.pick("Adam", "RMSprop"))
	b.WriteString("step:\n  - batch\n  - {zero_grad: two}\n  - {forward: {model: net, inputs: z}, name: fake}\n")
	in := "fake"
	if g.chance(0.7) {
		b.WriteString("  - {detach: {}, inputs: fake, name: fd}\n")
		in = "fd"
	}
	loss := fmt.Sprintf("{sub: [{mean: {}, inputs: [{forward: {model: critic, inputs: %s}}]}, {mean: {}, inputs: [{forward: {model: critic, inputs: real}}]}], name: loss}", in)
	penalty := fmt.Sprintf("{block: penalty, inputs: [real, %s], name: gp}", in)
	if g.chance(0.5) {
		loss, penalty = penalty, loss
	}
	fmt.Fprintf(&b, "  - %s\n  - %s\n  - {add: [loss, gp], name: loss}\n  - {backward: loss}\n  - {optimizer_step: two}\n", loss, penalty)
	if g.chance(0.7) {
		b.WriteString("  - layers:\n      - {zero_grad: one}\n      - {forward: {model: net, inputs: z}, name: again}\n      - {neg: {}, inputs: [{mean: {}, inputs: [{forward: {model: critic, inputs: again}}]}], name: other}\n" +
			"      - {backward: other}\n      - {optimizer_step: one}\n    every: 2\n")
	}
	fmt.Fprintf(&b, "train:\n  batch_size: %d\n", batch)
	if g.chance(0.2) {
		b.WriteString("  loop: flat\n")
	}
	return b.String(), arch
}

// imageCritic writes convolutions whose derivatives are recorded.
func (g *generator) imageCritic() []string {
	var s []string
	for range g.r.IntN(4) {
		s = append(s, fmt.Sprintf("Conv2d: {out_channels: %d, kernel_size: %d, stride: %d, padding: %d, bias: %t}", g.size(4, 40), 3+g.r.IntN(2), 1+g.r.IntN(2), 1+g.r.IntN(2), g.chance(0.7)),
			g.pick("ReLU", "{LeakyReLU: {negative_slope: 0.2, inplace: true}}", "Tanh", "{LeakyReLU: 0.2}"))
	}
	return s
}

// critic writes layers whose derivatives are recorded.
func (g *generator) critic() []string {
	var s []string
	for i := range 1 + g.r.IntN(4) {
		s = append(s, fmt.Sprintf("Linear: {out_features: %d, bias: %t}", g.size(16, 300), g.chance(0.8)))
		switch g.r.IntN(9) {
		case 0:
			s = append(s, "ReLU")
		case 1:
			s = append(s, "{ReLU: {inplace: true}}")
		case 2, 3:
			s = append(s, "{LeakyReLU: {negative_slope: 0.2, inplace: true}}")
		case 4:
			s = append(s, "{LeakyReLU: 0.2}")
		case 5:
			s = append(s, "Tanh")
		case 6:
			s = append(s, "Sigmoid", "{mul: 0.5}")
		case 7:
			h := fmt.Sprintf("h%d", i)
			s = append(s, "{name: "+h+"}", "{"+g.pick("tanh", "relu", "sigmoid")+": , inputs: "+h+"}", "{"+g.pick("add", "mul", "sub", "div")+": [x, "+h+"]}")
		case 8:
			s = append(s, "{unsqueeze: 1}", "{LeakyReLU: 0.1}", "{squeeze: 1}")
		}
	}
	return append(s, g.pick("Linear: 1", "Linear: 1\n      - {flatten: 0}", "Linear: 1\n      - Sigmoid"))
}
