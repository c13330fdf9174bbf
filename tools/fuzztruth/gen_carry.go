package main

import (
	"fmt"
	"strings"
)

// script is a job whose step is written out: what a carried job is made of.
type script struct {
	models, before, step, top []string
	inputs                    []string // of a batch
	optimizers                []string // their names; none: the only one
}

func (s *script) first(format string, args ...any) {
	s.before = append(s.before, fmt.Sprintf(format, args...))
}

func (s *script) then(format string, args ...any) {
	s.step = append(s.step, fmt.Sprintf(format, args...))
}

// carriedJob is a job with statements before the loop, names that live on from step
// to step, inputs that the step gives, batches that are bound in several ways,
// modules that nothing calls, and models that change their mode.
func (g *generator) carriedJob(seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	batch := g.size(2, 40)
	if g.chance(0.15) {
		return g.withNoise(seed), arch
	}
	var s *script
	switch g.r.IntN(4) {
	case 0, 1:
		s = g.bptt()
	case 2:
		s = g.adversaries()
	default:
		s = g.features()
	}
	s.batches(g)
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\n%s\n", seed, strings.Join(s.models, "\n"))
	train := []string{fmt.Sprintf("batch_size: %d", batch)}
	train = append(train, g.maybe(0.4, "precision: amp-bf16", "precision: amp-fp16")...)
	if s.optimizers == nil {
		train = append(train, "optimizer: "+fuzzOptimizers[g.r.IntN(len(fuzzOptimizers))])
	}
	train = append(train, g.maybe(0.5, "loop: flat")...)
	fmt.Fprintf(&b, "train: {%s}\n", strings.Join(train, ", "))
	if len(s.before) > 0 {
		b.WriteString("before:\n  - " + strings.Join(s.before, "\n  - ") + "\n")
	}
	b.WriteString("step:\n  - " + strings.Join(s.step, "\n  - ") + "\n")
	for _, t := range append(s.top, g.maybe(0.6, "data: {input: rebind}", "data: {input: rebind}", "data: {input: static}", "data: {device_prefetch: true}")...) {
		b.WriteString(t + "\n")
	}
	return b.String(), arch
}

// batches says when batches are taken: first of all, ahead of the next step, or
// ahead under other names.
func (s *script) batches(g *generator) {
	names := strings.Join(s.inputs, ", ")
	switch g.r.IntN(4) {
	case 0:
		s.before = append([]string{"batch"}, s.before...)
		s.then("batch")
	case 1:
		next := "next_" + strings.Join(s.inputs, ", next_")
		s.before = append([]string{fmt.Sprintf("{batch: , name: [%s]}", next)}, s.before...)
		taken := []string{fmt.Sprintf("{name: [%s], inputs: [%s]}", names, next)}
		if len(s.inputs) == 1 {
			taken[0] = fmt.Sprintf("{name: %s, inputs: %s}", names, next)
		}
		again := fmt.Sprintf("{batch: , name: [%s]}", next)
		if g.chance(0.5) {
			taken = append(taken, again)
		} else {
			s.then("%s", again)
		}
		s.step = append(taken, s.step...)
	case 2:
		s.step = append([]string{"batch"}, s.step...)
	}
}

// spare are modules that nothing calls: declared ones, and entries of layers, whose
// previous value has so many dimensions.
func (g *generator) spare(dims int) (modules, layers string) {
	if g.chance(0.4) {
		kinds := []string{
			"{Linear: {in_features: %d, out_features: %d}}", "{Conv2d: {in_channels: %d, out_channels: %d, kernel_size: 3, padding: 1}}",
			"{Embedding: {num_embeddings: %d, embedding_dim: %d}}", "{LSTM: {input_size: %d, hidden_size: %d, num_layers: 2}}",
			"{Sequential: [{Linear: {in_features: %d, out_features: %d}}, ReLU, {BatchNorm1d: {num_features: 7}}]}",
			"{MultiheadAttention: {embed_dim: 24, num_heads: 2, kdim: %d, vdim: %d}}", "{GRUCell: {input_size: %d, hidden_size: %d}}",
		}
		modules = "  modules:\n"
		for i := range 1 + g.r.IntN(3) {
			modules += fmt.Sprintf("    spare%d: "+kinds[g.r.IntN(len(kinds))]+"\n", i, g.size(3, 90), g.size(3, 90))
		}
	}
	if g.chance(0.4) {
		for range 1 + g.r.IntN(2) {
			head := g.pick(fmt.Sprintf("Linear: %d", g.size(3, 90)), "LayerNorm: ", fmt.Sprintf("Sequential: [{Linear: %d}, Tanh]", g.size(3, 90)))
			if dims == 4 {
				head = g.pick(fmt.Sprintf("Conv2d: {out_channels: %d, kernel_size: 1}", g.size(3, 30)), "BatchNorm2d: ", "Dropout2d: ")
			}
			layers += fmt.Sprintf("    - {%s, unused: true}\n", head)
		}
	}
	return modules, layers
}

// bptt is a recurrent model whose states live on from step to step.
func (g *generator) bptt() *script {
	r := g.drawRNN()
	for r.batchNot || r.dirs > 1 {
		r = g.drawRNN()
	}
	s := &script{inputs: []string{"data", "target"}}
	length, width, classes := g.size(2, 40), g.size(4, 90), g.size(2, 90)
	states := []string{"h"}
	taken, given := "h", "h"
	s.first(`{%s: [%d, "${B}", %d], name: h}`, g.pick("zeros", "randn"), r.cells, r.out)
	if r.lstm {
		states = append(states, "c")
		taken, given = "[h, c]", "[h, c]"
		s.first(`{%s: [%d, "${B}", %d], name: c}`, g.pick("zeros", "randn"), r.cells, r.hidden)
	}
	modules, layers := g.spare(3)
	inputs := "    h: {from: step}\n"
	if r.lstm {
		inputs += "    c: {from: step}\n"
	}
	s.models = []string{fmt.Sprintf("model:\n  inputs:\n    data: {shape: [%d, %d]}\n    target: {shape: [%d]}\n%s%s  layers:\n%s    - {%s: {%s}, inputs: [data, %s], name: [out, %s]}\n"+
		"    - {Linear: %d, inputs: [{getitem: \":, -1\", inputs: out}], name: out}\n    - return: [out, %s]",
		length, width, classes, inputs, modules, layers, r.kind, r.args, taken, given, classes, strings.Join(states, ", "))}
	all := strings.Join(states, ", ")
	cut := func() {
		if g.chance(0.5) || len(states) == 1 {
			for _, n := range states {
				s.then("{detach: , inputs: %s, name: %s}", n, n)
			}
			return
		}
		s.then("{name: [h, c], inputs: [{detach: , inputs: h}, {detach: , inputs: c}]}")
	}
	where := g.r.IntN(3)
	s.then("zero_grad")
	if where == 0 {
		cut()
	}
	s.then("{forward: {inputs: [data, %s]}, name: [out, %s]}", all, all)
	if where == 1 {
		cut()
	}
	s.then("{mse_loss: [out, target], name: loss}")
	s.then("{backward: loss}")
	s.step = append(s.step, g.maybe(0.4, "{clip_grad_norm: 0.25}", "{clip_grad_value: 0.5}")...)
	s.then("optimizer_step")
	if where == 2 {
		cut()
	}
	if g.chance(0.3) { // a running average
		s.first("{zeros: [1], name: average}")
		s.then("{add: [{mul: [average, 0.9]}, {detach: , inputs: loss}], name: average}")
	}
	switch {
	case g.chance(0.3):
		s.then("{layers: [eval, {forward: {inputs: [data, %s]}, no_grad: true, name: [val, %s]}, train], every: %d}", all, strings.Repeat("_, ", len(states)-1)+"_", 1+g.r.IntN(2))
	case g.chance(0.2):
		s.top = append(s.top, fmt.Sprintf("eval: {every: 2, step: [{forward: {inputs: [data, %s]}, name: [val, %s]}, {mse_loss: [val, target], name: val_loss}]}", all, all))
	}
	return s
}

// adversaries are a generator, whose noise the step makes, and a discriminator.
func (g *generator) adversaries() *script {
	s := &script{inputs: []string{"image"}, optimizers: []string{"optG", "optD"}}
	noise, size := g.size(4, 60), g.size(8, 300)
	hidden := g.size(8, 200)
	modules, layers := g.spare(2)
	s.models = []string{fmt.Sprintf("models:\n  netG:\n    inputs:\n      noise: {from: step}\n%s    layers:\n%s      - {Linear: %d}\n      - {ReLU: {inplace: true}}\n      - {Linear: %d}\n"+
		"  netD:\n    inputs:\n      image: {shape: [%d]}\n    layers:\n      - {Linear: %d}\n      - {LeakyReLU: 0.2}\n      - {Linear: 1}\n"+
		"optimizers:\n  optG: {optimizer: Adam, models: [netG]}\n  optD: {optimizer: %s, models: [netD]}",
		indented(modules), indented(layers), hidden, size, size, g.size(8, 200), g.pick("Adam", "SGD"))}
	s.first(`{%s: ["${B}", %d], name: fixed}`, g.pick("randn", "ones"), noise)
	ones, zeros := `{ones_like: , inputs: score}`, `{zeros_like: , inputs: score}`
	if g.chance(0.5) {
		s.first(`{ones: ["${B}", 1], name: real}`)
		s.first(`{zeros: ["${B}", 1], name: made}`)
		ones, zeros = "real", "made"
	}
	loss := g.pick("binary_cross_entropy_with_logits", "mse_loss")
	s.then("{zero_grad: optD}")
	s.then("{forward: {model: netD, inputs: image}, name: score}")
	s.then("{%s: [score, %s], name: loss_real}", loss, ones)
	s.then("{backward: loss_real}")
	s.then(`{randn: ["${B}", %d], name: noise}`, noise)
	s.then("{forward: {model: netG}, name: fake}")
	s.then("{forward: {model: netD, inputs: {detach: , inputs: fake}}, name: score}")
	s.then("{%s: [score, %s], name: loss_fake}", loss, zeros)
	s.then("{backward: loss_fake}")
	s.then("{optimizer_step: optD}")
	s.then("{zero_grad: optG}")
	s.then("{forward: {model: netD, inputs: fake}, name: score}")
	s.then("{%s: [score, %s], name: loss_gen}", loss, ones)
	s.then("{backward: loss_gen}")
	s.then("{optimizer_step: optG}")
	switch g.r.IntN(3) {
	case 0:
		s.then("{layers: [{eval: netG}, {forward: {model: netG, inputs: fixed}, no_grad: true, name: shown}, {train: netG}], every: 2}")
	case 1:
		s.top = append(s.top, "eval: {every: 2, step: [{forward: {model: netG, inputs: fixed}, name: shown}]}")
	}
	return s
}

// features are those of a frozen net for something that stays, to which a model
// is trained.
func (g *generator) features() *script {
	s := &script{inputs: []string{"image", "label"}, optimizers: []string{"opt"}}
	c, h, w := g.size(1, 8), g.size(8, 40), g.size(8, 40)
	modules, layers := g.spare(4)
	fixed := g.chance(0.5)
	s.models = []string{fmt.Sprintf("models:\n  net:\n    inputs:\n      image: {shape: [%d, %d, %d]}\n      label: {shape: [3]}\n%s    layers:\n%s      - {Conv2d: {out_channels: %d, kernel_size: 3, padding: 1}}\n      - ReLU\n"+
		"      - {Conv2d: {out_channels: %d, kernel_size: 3, padding: 1}}\n"+
		"  feat:\n    eval: %v\n    freeze: [\"*\"]\n    inputs:\n      picture: {from: step}\n    layers:\n      - {Conv2d: {out_channels: %d, kernel_size: 3}}\n      - BatchNorm2d\n      - {ReLU: , name: low}\n"+
		"      - {MaxPool2d: 2}\n      - {Conv2d: {out_channels: %d, kernel_size: 3}}\n      - return: [low, x]\n"+
		"optimizers:\n  opt: {optimizer: %s, models: [net]}",
		c, h, w, indented(modules), indented(layers), g.size(4, 40), c, g.chance(0.5), g.size(4, 40), g.size(4, 40), fuzzOptimizers[g.r.IntN(len(fuzzOptimizers))])}
	if fixed {
		s.first(`{randn: ["${B}", %d, %d, %d], name: style}`, c, h, w)
	} else {
		s.first("{batch: , name: [style, unused_label]}")
	}
	grad := g.pick(", no_grad: true", ", no_grad: true", "")
	s.first("{forward: {model: feat, inputs: style}%s, name: [want_low, want_high]}", grad)
	if g.chance(0.5) {
		s.first("{mean: {dim: [2, 3]}, inputs: want_low, name: gram}")
		if g.chance(0.5) {
			s.first("{del: [style, want_low]}")
		}
	} else {
		s.first("{name: gram, inputs: {mean: {dim: [2, 3]}, inputs: {relu: , inputs: want_low}}}")
	}
	if g.chance(0.3) { // values without a name, which are deleted
		s.first("{mul: [gram, 2]}")
		s.first("{sigmoid: }")
	}
	s.then("zero_grad")
	s.then("{forward: {model: net, inputs: image}, name: out}")
	s.then("{forward: {model: feat, inputs: out}, name: [low, high]}")
	s.then("{mse_loss: [high, want_high], name: loss}")
	s.then("{add: [loss, {mse_loss: [{mean: {dim: [2, 3]}, inputs: low}, gram]}], name: loss}")
	s.then("{backward: loss}")
	s.then("optimizer_step")
	if g.chance(0.3) {
		s.then("{name: want_high, inputs: {detach: , inputs: high}}")
	}
	return s
}

// withNoise is a random program that adds to its input what is made before the
// loop, and has modules that nothing calls.
func (g *generator) withNoise(seed uint64) string {
	text, _ := g.spec(seed)
	if strings.Contains(text, "Embedding") || strings.Contains(text, "precision: bf16") { // of integers, of another type
		return text
	}
	head, layers, _ := strings.Cut(text, "\n  layers:\n    ")
	head = strings.Replace(head, "  inputs:\n", "  inputs:\n    noise: {from: step}\n", 1)
	_, shape, _ := strings.Cut(head, "    a: {shape: [")
	shape, _, _ = strings.Cut(shape, "]")
	return head + "\n  layers:\n    - {Linear: 5, unused: true, inputs: a}\n    - {add: [a, noise], name: a}\n    " + layers +
		fmt.Sprintf("before: [{randn: [\"${B}\", %s], name: noise}]\n", shape)
}

// indented moves lines deeper, into one of several models.
func indented(text string) string {
	if text == "" {
		return ""
	}
	return "  " + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n  "), "  ")
}
