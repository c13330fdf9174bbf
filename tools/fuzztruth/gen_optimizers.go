package main

import (
	"fmt"
	"slices"
	"strings"
)

// optimizerOptions are what the random optimizers are given, each with a chance
// of a third. Implementations are drawn apart: one of forms.
var optimizerOptions = map[string]struct{ options, forms []string }{
	"SGD":        {[]string{"momentum: 0.9", "weight_decay: 0.01", "nesterov: true", "maximize: true"}, []string{"foreach: true", "foreach: false", "fused: true"}},
	"Adam":       {[]string{"weight_decay: 0.01", "amsgrad: true", "maximize: true", "capturable: true"}, []string{"foreach: true", "foreach: false", "fused: true"}},
	"AdamW":      {[]string{"weight_decay: 0", "amsgrad: true", "maximize: true", "capturable: true"}, []string{"foreach: true", "foreach: false", "fused: true"}},
	"RMSprop":    {[]string{"momentum: 0.9", "weight_decay: 0.01", "centered: true", "maximize: true", "capturable: true"}, loops},
	"Adagrad":    {[]string{"weight_decay: 0.01", "maximize: true", "lr_decay: 0.1", "initial_accumulator_value: 0.1"}, loops},
	"Adadelta":   {[]string{"weight_decay: 0.01", "maximize: true", "capturable: true"}, loops},
	"Adamax":     {[]string{"weight_decay: 0.01", "maximize: true", "capturable: true"}, loops},
	"NAdam":      {[]string{"weight_decay: 0.01", "decoupled_weight_decay: true", "maximize: true", "capturable: true"}, loops},
	"RAdam":      {[]string{"weight_decay: 0.01", "decoupled_weight_decay: true", "maximize: true", "capturable: true", "betas: [0.9, 0.95]"}, loops},
	"ASGD":       {[]string{"weight_decay: 0.01", "maximize: true", "capturable: true"}, loops},
	"Rprop":      {[]string{"maximize: true", "capturable: true", "etas: [0.4, 1.3]"}, loops},
	"Lion":       {[]string{"weight_decay: 0.01", "decoupled_weight_decay: true"}, nil},
	"Lamb":       {[]string{"weight_decay: 0", "always_adapt: true", "trust_clip: true", "caution: true", "max_grad_norm: null", "decoupled_decay: true"}, nil},
	"AdamW8bit":  {[]string{"weight_decay: 0", "min_8bit_size: 1000", "is_paged: true"}, nil},
	"Lion8bit":   {[]string{"min_8bit_size: 1000"}, nil},
	"PagedAdamW": {nil, nil},
	"Adafactor":  {[]string{"weight_decay: 0.01", "maximize: true"}, loops},
}

// loops are the implementations of optimizers without a fused one.
var loops = []string{"foreach: true", "foreach: false"}

// groupOptions are what parameter groups may have of their own.
var groupOptions = []string{"weight_decay: 0.0", "weight_decay: 0.1", "maximize: true", "foreach: false", "lr: 0.01", "capturable: true", "amsgrad: true", "momentum: 0.5"}

// optimizerJob writes a job whose model matters little and whose optimizers
// much: all of them, with their options, parameter groups, several for one
// model, one for each of two models.
func (g *generator) optimizerJob(seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	batch := g.size(2, 24)
	g.bf16, g.scaled = g.chance(0.25), true
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\n", seed)
	if g.chance(0.2) {
		g.rivals(&b, batch)
	} else {
		g.oneModel(&b, batch)
	}
	return b.String(), arch
}

// stack writes the layers of a small model from n features to the last, and
// returns the paths of its parameters.
func (g *generator) stack(b *strings.Builder, indent string, n int64, last int64) []string {
	var paths []string
	i := 0
	emit := func(layer string, params ...string) {
		fmt.Fprintf(b, "%s- %s\n", indent, layer)
		for _, p := range params {
			paths = append(paths, fmt.Sprintf("layers.%d.%s", i, p))
		}
		i++
	}
	for range 1 + g.r.IntN(3) {
		d := g.size(8, 400)
		switch g.r.IntN(4) {
		case 0:
			emit(fmt.Sprintf("{Linear: {out_features: %d, bias: false}}", d), "weight")
		default:
			emit(fmt.Sprintf("Linear: %d", d), "weight", "bias")
		}
		switch g.r.IntN(4) {
		case 0:
			emit("LayerNorm", "weight", "bias")
		case 1:
			emit("BatchNorm1d", "weight", "bias")
		}
		emit(g.pick("ReLU", "GELU", "Tanh"))
	}
	emit(fmt.Sprintf("Linear: %d", last), "weight", "bias")
	return paths
}

func (g *generator) oneModel(b *strings.Builder, batch int64) {
	n, c := g.size(8, 300), g.size(2, 60)
	fmt.Fprintf(b, "model:\n  inputs:\n    a: {shape: [%d]}\n    y: {shape: [], dtype: int64}\n  layers:\n", n)
	paths := g.stack(b, "    ", n, c)
	b.WriteString("  loss: {CrossEntropyLoss: {target: y}}\n")
	if g.chance(0.25) { // two optimizers, each with some of the parameters
		cut := 1 + g.r.IntN(len(paths)-1)
		parts := [][]string{paths[:cut], paths[cut:]}
		if g.chance(0.3) {
			parts = [][]string{{`"*.weight"`}, {`"*.bias"`}}
		}
		b.WriteString("optimizers:\n")
		for i, p := range parts {
			fmt.Fprintf(b, "  opt%d: {optimizer: %s, params: [%s]}\n", i, g.optimizer(""), strings.Join(p, ", "))
		}
		b.WriteString("step:\n")
		if g.chance(0.5) {
			b.WriteString("  - {zero_grad: opt1}\n  - {zero_grad: opt0}\n")
		}
		b.WriteString("  - {forward: {model: model}, name: out}\n  - {CrossEntropyLoss: {target: y}, name: loss}\n  - {backward: loss}\n")
		if g.chance(0.3) {
			b.WriteString("  - {clip_grad_norm: {max_norm: 1.0, optimizer: opt0}}\n")
		}
		b.WriteString("  - {optimizer_step: opt0}\n  - {optimizer_step: opt1}\n")
		if g.chance(0.5) {
			b.WriteString("  - {zero_grad: opt0}\n  - {zero_grad: opt1}\n")
		}
		g.how(b, batch)
		return
	}
	groups := ""
	if g.chance(0.5) {
		groups = g.paramGroups(paths)
	}
	if g.chance(0.2) {
		g.scaled = false
		g.how(b, batch)
		fmt.Fprintf(b, "  optimizer: %s\n  optimizer_in_backward: true\n", g.optimizer(groups))
		return
	}
	g.how(b, batch)
	fmt.Fprintf(b, "  optimizer: %s\n", g.optimizer(groups))
	if g.chance(0.15) {
		fmt.Fprintf(b, "  grad_accumulation: %d\n", 2+g.r.IntN(2))
	}
	if g.chance(0.25) {
		b.WriteString(g.pick("  clip_grad_norm: 1.0\n", "  clip_grad_norm: 1.0\n", "  clip_grad_value: 0.5\n"))
	}
	if g.chance(0.5) {
		fmt.Fprintf(b, "  zero_grad: {at: %s, set_to_none: %s}\n", g.pick("before_forward", "before_backward", "after_step", "never"), g.pick("true", "true", "false"))
	}
}

// how writes precision and loop.
func (g *generator) how(b *strings.Builder, batch int64) {
	if g.chance(0.3) {
		b.WriteString("data: {input: static}\n")
	}
	fmt.Fprintf(b, "train:\n  batch_size: %d\n", batch)
	switch {
	case g.bf16:
		b.WriteString("  precision: bf16\n")
	case g.chance(0.4):
		precision := g.pick("amp-bf16", "amp-fp16")
		if !g.scaled {
			precision = "amp-bf16"
		}
		fmt.Fprintf(b, "  precision: %s\n", precision)
	}
	if g.chance(0.35) {
		b.WriteString("  loop: flat\n")
	}
}

// rivals writes two models that are trained against each other, with an
// optimizer each.
func (g *generator) rivals(b *strings.Builder, batch int64) {
	n, z := g.size(8, 300), g.size(4, 60)
	fmt.Fprintf(b, "models:\n  generator:\n    inputs: {z: {shape: [%d]}}\n    layers:\n", z)
	g.stack(b, "      ", z, n)
	fmt.Fprintf(b, "  critic:\n    inputs: {real: {shape: [%d]}}\n    layers:\n", n)
	g.stack(b, "      ", n, 1)
	fmt.Fprintf(b, "optimizers:\n  opt_g: {optimizer: %s, models: [generator]}\n  opt_d: {optimizer: %s, models: [critic]}\n", g.optimizer(""), g.optimizer(""))
	b.WriteString(`step:
  - {zero_grad: opt_d}
  - {forward: {model: critic, inputs: real}, name: score}
  - {forward: {model: generator, inputs: z}, name: fake}
  - {detach: , inputs: fake, name: still}
  - {forward: {model: critic, inputs: still}, name: score_fake}
  - {sub: [score, score_fake], name: gap}
  - {mean: , inputs: gap, name: loss_d}
  - {backward: loss_d}
  - {optimizer_step: opt_d}
  - {zero_grad: opt_g}
  - {forward: {model: critic, inputs: fake}, name: score_g}
  - {mean: , inputs: score_g, name: loss_g}
  - {backward: loss_g}
  - {optimizer_step: opt_g}
`)
	g.how(b, batch)
}

// optimizer draws one with options, and the groups that are given.
func (g *generator) optimizer(groups string) string {
	var names []string
	for n := range optimizerOptions {
		names = append(names, n)
	}
	slices.Sort(names)
	name := g.pick(names...)
	o := optimizerOptions[name]
	var args []string
	for _, a := range o.options {
		if g.chance(0.33) && !(a == "nesterov: true" && !slices.Contains(args, "momentum: 0.9")) {
			args = append(args, a)
		}
	}
	if len(o.forms) > 0 && g.chance(0.6) {
		args = append(args, g.pick(o.forms...))
	}
	if groups != "" {
		groups = g.ownOptions(name, groups)
	}
	return fmt.Sprintf("{%s: {%s}%s}", name, strings.Join(args, ", "), groups)
}

// group marks the place of a group's options.
const group = "OPTIONS"

// paramGroups writes parameter groups by patterns: biases, layers, single
// parameters.
func (g *generator) paramGroups(paths []string) string {
	var out []string
	for range 1 + g.r.IntN(2) {
		var patterns []string
		switch g.r.IntN(3) {
		case 0:
			patterns = []string{g.pick(`"*.bias"`, `"*.weight"`)}
		case 1:
			patterns = []string{"layers.0"}
		default:
			for _, i := range g.r.Perm(len(paths))[:1+g.r.IntN(2)] {
				patterns = append(patterns, paths[i])
			}
		}
		out = append(out, fmt.Sprintf("{params: [%s]%s}", strings.Join(patterns, ", "), group))
	}
	if g.chance(0.3) {
		out = append(out, "{lr: 0.02}")
	}
	return ", groups: [" + strings.Join(out, ", ") + "]"
}

// ownOptions gives each group options that the optimizer has.
func (g *generator) ownOptions(name, groups string) string {
	for strings.Contains(groups, group) {
		own := ""
		for _, a := range groupOptions {
			key, _, _ := strings.Cut(a, ":")
			known := key == "lr"
			for _, list := range [][]string{optimizerOptions[name].options, optimizerOptions[name].forms} {
				known = known || slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, key+":") })
			}
			if known && g.chance(0.3) && !strings.Contains(own, key+":") {
				own += ", " + a
			}
		}
		groups = strings.Replace(groups, group, own, 1)
	}
	return groups
}
