package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

// generator writes one random spec. It keeps track of the shapes of values so
// that what it writes fits together, and draws every size again so that sizes
// tell tensors apart.
type generator struct {
	r      *rand.Rand
	used   map[int64]bool
	blocks []string // finished block definitions
	nBlock int
	depth  int
	bf16   bool
	infer  bool
	scaled bool // may use GradScaler
	images bool // inputs are images

	shards     int64   // of each part of a parameter that parallelize_module leaves; 0: it is not divided again
	offload    float64 // share of FSDP1 with parameters in host memory
	checkpoint float64 // share of blocks that are checkpointed
	breadth    float64 // share of the less common operators
}

// value is a name with its shape; dimension 0 is the batch.
type value struct {
	name  string
	shape []int64
	view  bool // an in-place operation on it may be refused
}

func newGenerator(seed uint64) *generator {
	return &generator{r: rand.New(rand.NewPCG(seed, 0x6d656d706c616e)), used: map[int64]bool{}}
}

func (g *generator) chance(p float64) bool   { return g.r.Float64() < p }
func (g *generator) pick(s ...string) string { return s[g.r.IntN(len(s))] }

// size draws a size between lo and hi that was not drawn before.
func (g *generator) size(lo, hi int64) int64 {
	for range 100 {
		n := lo + g.r.Int64N(hi-lo+1)
		if !g.used[n] {
			g.used[n] = true
			return n
		}
	}
	return lo + g.r.Int64N(hi-lo+1)
}

// multiple draws an unused multiple of k.
func (g *generator) multiple(k, lo, hi int64) int64 {
	for range 100 {
		n := k * (lo/k + 1 + g.r.Int64N(max((hi-lo)/k, 1)))
		if !g.used[n] {
			g.used[n] = true
			return n
		}
	}
	return k * (hi / k)
}

func numel(s []int64) int64 {
	n := int64(1)
	for _, d := range s {
		n *= d
	}
	return n
}

func list(ns []int64) string {
	parts := make([]string, len(ns))
	for i, n := range ns {
		parts[i] = fmt.Sprint(n)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// body is a function under way: its lines, the previous value and the values
// that have names.
type body struct {
	g       *generator
	lines   []string
	cur     value
	named   []value
	n       int
	module  bool // may hold layers
	lists   int
	given   bool // x is the name of a value: an input, or what name: says
	unnamed int  // with it: which line, counted from 1, has no name and took x since; 0: none
}

var wordX = regexp.MustCompile(`\bx\b`)

// emit writes an entry. Where it names x, the result that is called so gets the
// name.
func (b *body) emit(format string, args ...any) {
	entry := fmt.Sprintf(format, args...)
	if b.unnamed > 0 && wordX.MatchString(entry) {
		b.lines[b.unnamed-1] = "- " + namedX(strings.TrimPrefix(b.lines[b.unnamed-1], "- "))
		b.unnamed = 0
	}
	b.lines = append(b.lines, "- "+entry)
	switch statement := strings.HasPrefix(entry, "{del: ") || strings.HasPrefix(entry, "{return: "); {
	case strings.Contains(entry, "name: x"):
		b.given, b.unnamed = true, 0
	case b.given && !statement && !strings.Contains(entry, "name: "):
		b.unnamed = len(b.lines)
	}
}

// namedX gives the result of an entry the name x.
func namedX(entry string) string {
	if inner, ok := strings.CutPrefix(entry, "{"); ok {
		return "{" + strings.TrimSuffix(inner, "}") + ", name: x}"
	}
	if !strings.Contains(entry, ":") {
		entry += ": "
	}
	return "{" + entry + ", name: x}"
}

// fresh makes a name.
func (b *body) fresh() string {
	b.n++
	return fmt.Sprintf("v%d", b.n)
}

// step writes an entry whose head is text ("ReLU", "Linear: 64") with result
// shape s, sometimes with a name, explicit inputs, or nested in another call.
func (b *body) step(head string, s []int64, extra string, view bool) {
	g := b.g
	entry := head
	in := ""
	if b.cur.name != "" && g.chance(0.3) {
		in = ", inputs: " + b.cur.name
	}
	if !strings.Contains(head, ":") {
		entry += ": "
		if in == "" && extra == "" && !g.chance(0.25) {
			b.emit("%s", head)
			b.cur = value{"x", s, view}
			b.dropX()
			return
		}
	}
	name := ""
	if g.chance(0.25) {
		name = b.fresh()
		if len(b.named) > 0 && g.chance(0.4) { // rebind an old name
			name = b.named[g.r.IntN(len(b.named))].name
		}
	}
	tail := ""
	if name != "" {
		tail = ", name: " + name
	}
	b.emit("{%s%s%s%s}", entry, in, extra, tail)
	b.result(name, s, view)
}

// result notes that the previous value has this name (x if none) and shape.
func (b *body) result(name string, s []int64, view bool) {
	if name == "" {
		b.cur = value{"x", s, view}
		b.dropX()
		return
	}
	b.cur = value{name, s, view}
	for i := range b.named {
		if b.named[i].name == name {
			b.named[i] = b.cur
			return
		}
	}
	b.named = append(b.named, b.cur)
}

// dropX forgets what the running variable was before.
func (b *body) dropX() {
	for i := range b.named {
		if b.named[i].name == "x" {
			b.named = append(b.named[:i], b.named[i+1:]...)
			return
		}
	}
}

// partner finds a named value of the current shape.
func (b *body) partner() (value, bool) {
	for _, i := range b.g.r.Perm(len(b.named)) {
		v := b.named[i]
		if v.name != b.cur.name && fmt.Sprint(v.shape) == fmt.Sprint(b.cur.shape) {
			return v, true
		}
	}
	return value{}, false
}

var activations = []string{"ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "LeakyReLU", "Mish", "Hardswish", "Softplus", "{GELU: tanh}", "{ReLU: {inplace: true}}", "{ELU: {inplace: true}}", "{SiLU: {inplace: true}}",
	"{Hardswish: {inplace: true}}", "{Hardsigmoid: {inplace: true}}", "{Hardtanh: {inplace: true}}", "{ReLU6: {inplace: true}}", "{Mish: {inplace: true}}",
	"{Dropout: {p: 0.2, inplace: true}}"}

var functions = []string{"relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "mish", "exp", "elu"}

func (b *body) activation() {
	g := b.g
	s := b.cur.shape
	if b.module && g.chance(0.6) {
		a := activations[g.r.IntN(len(activations))]
		if strings.HasPrefix(a, "{") {
			inner := strings.TrimSuffix(strings.TrimPrefix(a, "{"), "}")
			if strings.Contains(a, "inplace") {
				inner += "}"
				inner = strings.TrimSuffix(inner, "}")
			}
			b.step(inner, s, "", b.cur.view && strings.Contains(a, "inplace"))
			return
		}
		b.step(a, s, "", false)
		return
	}
	b.step(functions[g.r.IntN(len(functions))], s, "", false)
}

// generic writes an operation that suits any shape.
func (b *body) generic() {
	g := b.g
	s := b.cur.shape
	switch g.r.IntN(13) {
	case 0, 1, 2:
		b.activation()
	case 3:
		b.step(fmt.Sprintf("dropout: %.2f", 0.05+0.4*g.r.Float64()), s, "", false)
	case 4:
		b.step(g.pick("mul: 0.5", "add: 1", "div: 3", "sub: 0.25", "add: 2.5"), s, "", false)
	case 5, 6:
		if p, ok := b.partner(); ok {
			op := g.pick("add", "mul", "sub", "add", "add")
			name := ""
			if g.chance(0.3) {
				name = ", name: " + b.cur.name
			}
			in := ""
			if op == "add" && g.chance(0.3) && !b.cur.view {
				in = ", inplace: true"
			}
			b.emit("{%s: [%s, %s]%s%s}", op, b.cur.name, p.name, in, name)
			n := ""
			if name != "" {
				n = b.cur.name
			}
			if n == "x" {
				n = ""
			}
			b.result(n, s, b.cur.view && in != "")
			return
		}
		b.emit("{name: %s}", b.keep())
	case 7:
		b.emit("{name: %s}", b.keep())
	case 8:
		if len(b.named) > 0 {
			v := b.named[g.r.IntN(len(b.named))]
			if v.name != b.cur.name && v.name != "x" {
				b.emit("{del: %s}", v.name)
				b.forget(v.name)
				return
			}
		}
		b.activation()
	case 9: // a nested call: two operations in one entry
		f1, f2 := functions[g.r.IntN(len(functions))], functions[g.r.IntN(len(functions))]
		b.emit("{%s: , inputs: [{%s: , inputs: %s}]}", f1, f2, b.cur.name)
		b.result("", s, false)
	case 10: // through a list
		b.lists++
		l := fmt.Sprintf("l%d", b.lists)
		b.emit("{%s: , inputs: %s, name: \"%s[]\"}", functions[g.r.IntN(len(functions))], b.cur.name, l)
		b.emit("{%s: , inputs: \"%s[-1]\", name: \"%s[]\"}", functions[g.r.IntN(len(functions))], l, l)
		b.emit("{add: [%s.pop, %s.pop]}", l, l)
		b.result("", s, false)
	case 11:
		b.step(fmt.Sprintf("softmax: %d", len(s)-1), s, "", false)
	case 12:
		b.step(g.pick("clone", "neg", "abs", "sin", "cos"), s, "", false)
	}
}

// keep gives the current value a second name and returns it.
func (b *body) keep() string {
	n := b.fresh()
	b.named = append(b.named, value{n, b.cur.shape, b.cur.view})
	return n
}

func (b *body) forget(name string) {
	for i := range b.named {
		if b.named[i].name == name {
			b.named = append(b.named[:i], b.named[i+1:]...)
			return
		}
	}
}

// any writes one statement that suits the current shape.
func (b *body) any() {
	g := b.g
	if g.depth < 3 && g.chance(0.12+g.checkpoint/5) {
		b.block()
		return
	}
	if g.checkpoint > 0 && g.chance(0.06) {
		b.several()
		return
	}
	if g.breadth > 0 && g.chance(g.breadth) && b.rare() {
		return
	}
	if g.chance(0.3) && b.more() {
		return
	}
	switch len(b.cur.shape) {
	case 2:
		b.vector()
	case 3:
		if b.cur.shape[1] == 1 && g.chance(0.6) {
			b.step("squeeze: 1", []int64{b.cur.shape[0], b.cur.shape[2]}, "", true)
			return
		}
		if g.chance(0.08) && b.recurrent() {
			return
		}
		b.sequence()
	case 4:
		b.image()
	}
}

// block defines a block or function for the current shape and calls it, once
// or, if it keeps the shape, several times.
func (b *body) block() {
	g := b.g
	g.depth++
	defer func() { g.depth-- }()
	g.nBlock++
	name := fmt.Sprintf("b%d", g.nBlock)
	in := &body{g: g, cur: value{"x", b.cur.shape, b.cur.view}, module: b.module && g.chance(0.8), given: true}
	kind := ""
	if !in.module {
		kind = "      kind: function\n"
	}
	if g.chance(0.5) {
		in.emit("{name: %s}", in.keep())
	}
	for range 1 + g.r.IntN(5) {
		in.any()
	}
	if p, ok := in.partner(); ok && g.chance(0.6) {
		in.emit("{add: [%s, %s]}", in.cur.name, p.name)
		in.result("", in.cur.shape, false)
	}
	if g.chance(0.3) {
		in.emit("{return: %s}", in.cur.name)
	}
	g.blocks = append(g.blocks, fmt.Sprintf("    %s:\n%s      layers:\n        %s\n", name, kind, strings.Join(in.lines, "\n        ")))
	repeat := ""
	if fmt.Sprint(in.cur.shape) == fmt.Sprint(b.cur.shape) && g.chance(0.5) {
		repeat = fmt.Sprintf(", repeat: %d", 2+g.r.IntN(2))
	}
	if repeat != "" && b.cur.name != "x" {
		b.emit("{name: x, inputs: %s}", b.cur.name)
	}
	if repeat == "" && g.chance(0.3) {
		n := b.fresh()
		b.emit("{block: %s, inputs: %s, name: %s%s}", name, b.cur.name, n, g.checkpointed())
		b.result(n, in.cur.shape, in.cur.view)
		return
	}
	b.emit("{block: %s%s%s}", name, repeat, g.checkpointed())
	b.result("", in.cur.shape, in.cur.view)
}

var fuzzOptimizers = []string{
	"SGD", "{SGD: {lr: 0.1, momentum: 0.9}}", "{SGD: {momentum: 0.9, nesterov: true, weight_decay: 0.001}}", "{SGD: {weight_decay: 0.01, foreach: false}}",
	"{SGD: {momentum: 0.9, foreach: false}}", "Adam", "{Adam: {weight_decay: 0.01}}", "{Adam: {amsgrad: true}}", "{Adam: {fused: true}}", "AdamW",
	"{AdamW: {foreach: false}}", "{AdamW: {fused: true}}", "{AdamW: {amsgrad: true, foreach: false}}", "{SGD: {maximize: true, momentum: 0.5}}",
	"RMSprop", "{RMSprop: {momentum: 0.9, centered: true, weight_decay: 0.01}}", "{RMSprop: {foreach: false, centered: true, maximize: true, weight_decay: 0.01}}",
	"{RMSprop: {capturable: true, maximize: true, weight_decay: 0.01}}", "Adagrad", "{Adagrad: {weight_decay: 0.01}}", "{Adagrad: {maximize: true, weight_decay: 0.01}}",
	"{Adagrad: {foreach: false, maximize: true, weight_decay: 0.01}}", "Adadelta", "{Adadelta: {weight_decay: 0.01, capturable: true}}",
	"{Adadelta: {foreach: false, maximize: true}}", "Adamax", "{Adamax: {weight_decay: 0.01, maximize: true}}", "{Adamax: {capturable: true}}",
	"{Adamax: {foreach: false, capturable: true, weight_decay: 0.01}}", "{Adamax: {foreach: false, maximize: true}}", "NAdam", "{NAdam: {weight_decay: 0.01}}",
	"{NAdam: {weight_decay: 0.01, decoupled_weight_decay: true, maximize: true}}", "{NAdam: {foreach: false, maximize: true, weight_decay: 0.01}}",
	"RAdam", "{RAdam: {weight_decay: 0.01, maximize: true}}", "Adafactor", "{Adafactor: {maximize: true, weight_decay: 0.01}}",
	"{Adafactor: {foreach: true}}", "{Adafactor: {foreach: true, maximize: true}}",
}

// spec writes a whole spec.
func (g *generator) spec(seed uint64) (text, arch string) {
	arch = g.pick("sm70", "sm75", "sm80", "sm80", "sm86", "sm89", "sm90")
	batch := g.size(2, 40)
	g.bf16 = g.chance(0.25)
	g.infer = g.chance(0.15)
	m := &body{g: g, module: true}
	var inputs string
	input := g.r.IntN(5)
	if g.images {
		input = 1
	}
	switch input {
	case 0:
		n := g.size(20, 500)
		inputs = fmt.Sprintf("    a: {shape: [%d]}\n", n)
		m.cur = value{"a", []int64{batch, n}, false}
	case 1:
		c, h, w := g.size(1, 12), g.size(12, 64), g.size(12, 64)
		inputs = fmt.Sprintf("    a: {shape: [%d, %d, %d]}\n", c, h, w)
		m.cur = value{"a", []int64{batch, c, h, w}, false}
	case 2:
		t, d := g.size(6, 120), g.size(8, 200)
		inputs = fmt.Sprintf("    a: {shape: [%d, %d]}\n", t, d)
		m.cur = value{"a", []int64{batch, t, d}, false}
	case 3:
		t, d, vocab := g.size(8, 240), g.size(8, 160), g.size(50, 3000)
		inputs = fmt.Sprintf("    a: {shape: [%d], dtype: int64}\n", t)
		m.emit("{Embedding: [%d, %d]}", vocab, d)
		m.cur = value{"x", []int64{batch, t, d}, false}
	case 4:
		inputs = g.bags(m, batch)
	}
	for range 4 + g.r.IntN(14) {
		m.any()
	}
	loss := g.finish(m)
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: fuzz-%d\n", seed)
	if g.infer {
		fmt.Fprintf(&b, "mode: %s\n", g.pick("no_grad", "inference"))
	}
	b.WriteString("model:\n  inputs:\n" + inputs + loss.inputs)
	if len(g.blocks) > 0 {
		b.WriteString("  blocks:\n" + strings.Join(g.blocks, ""))
	}
	b.WriteString("  layers:\n    " + strings.Join(m.lines, "\n    ") + "\n")
	b.WriteString(loss.text)
	g.train(&b, batch)
	return b.String(), arch
}

// train writes how a step is made.
func (g *generator) train(b *strings.Builder, batch int64) {
	fmt.Fprintf(b, "train:\n  batch_size: %d\n", batch)
	switch {
	case g.bf16:
		b.WriteString("  precision: bf16\n")
	case g.chance(0.4):
		fmt.Fprintf(b, "  precision: %s\n", g.pick("amp-bf16", "amp-bf16", "amp-fp16"))
	}
	fmt.Fprintf(b, "  optimizer: %s\n", fuzzOptimizers[g.r.IntN(len(fuzzOptimizers))])
	if !g.infer && g.chance(0.15) {
		fmt.Fprintf(b, "  grad_accumulation: %d\n", 2+g.r.IntN(2))
	}
	if !g.infer && g.chance(0.2) {
		b.WriteString(g.pick("  clip_grad_norm: 1.0\n", "  clip_grad_norm: 1.0\n", "  clip_grad_value: 0.5\n"))
	}
	if g.chance(0.5) {
		fmt.Fprintf(b, "  zero_grad: {at: %s, set_to_none: %s}\n", g.pick("before_forward", "before_backward", "after_step", "never"), g.pick("true", "true", "false"))
	}
	if g.chance(0.35) {
		b.WriteString("  loop: flat\n")
	}
	if g.chance(0.1) {
		fmt.Fprintf(b, "  empty_cache: {every: %d}\n", 1+g.r.IntN(2))
	}
	if g.chance(0.3) {
		b.WriteString("data: {input: static}\n")
	}
}

type lossText struct{ inputs, text string }

// finish brings the value to a loss.
func (g *generator) finish(m *body) lossText {
	s := m.cur.shape
	if g.chance(0.25) { // regression on the value as it is
		return g.elementLoss(m)
	}
	switch len(s) {
	case 4:
		if g.chance(0.4) { // a label for each pixel
			return g.classLoss(s)
		}
		m.step("AdaptiveAvgPool2d: 1", []int64{s[0], s[1], 1, 1}, "", false)
		m.step("flatten: 1", []int64{s[0], s[1]}, "", true)
	case 3:
		if g.chance(0.4) { // a label for each position
			c := g.size(5, 900)
			m.step(fmt.Sprintf("Linear: %d", c), []int64{s[0], s[1], c}, "", true)
			return lossText{
				fmt.Sprintf("    y: {shape: [%d], dtype: int64}\n", s[1]),
				fmt.Sprintf("  loss:\n    - {view: [-1, %d], name: flat}\n    - {cross_entropy: {input: flat, target: {view: [-1], inputs: y}}}\n", c),
			}
		}
		m.step("mean: 1", []int64{s[0], s[2]}, "", false)
	}
	c := g.size(2, 200)
	m.step(fmt.Sprintf("Linear: %d", c), []int64{s[0], c}, "", false)
	return g.classLoss(m.cur.shape)
}
