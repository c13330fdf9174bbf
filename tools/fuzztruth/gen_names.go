package main

import (
	"fmt"
	"strings"
)

// named draws a program in which values are known by their names: inputs that are
// called x and h, names that are given again, residuals, tuples, blocks, loops.
// Sizes tell values apart, and each Linear says the size of the value that is
// meant: a name that means another value is an error.
func named(g *generator, seed uint64) (text, arch string) { return namedJob(g, seed, false) }

// namedJob is named; a careless one also names values that results without a name
// took the name of.
func namedJob(g *generator, seed uint64, careless bool) (text, arch string) {
	arch = g.pick("sm70", "sm80", "sm80", "sm86", "sm89", "sm90")
	batch := g.size(2, 40)
	names := []string{"x", "h", "a"}[:1+g.r.IntN(3)]
	g.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	b := g.names(names, nil, careless)
	inputs := ""
	for _, n := range names {
		inputs += fmt.Sprintf("    %s: {shape: [%d]}\n", n, b.given[n])
	}
	x, fromX := b.given["x"]
	for range 3 + g.r.IntN(8) {
		b.any()
	}
	loss := "  loss: {cross_entropy: {target: y}}\n"
	if fromX && g.chance(0.4) { // what comes in is to come out
		b.linear(x, "")
		loss = g.reconstruction(careless)
	} else {
		inputs += "    y: {shape: [], dtype: int64}\n"
		b.linear(g.size(2, 99), "")
	}
	var s strings.Builder
	fmt.Fprintf(&s, "memplan: 1\nname: fuzz-%d\nmodel:\n  inputs:\n%s", seed, inputs)
	if len(g.blocks) > 0 {
		s.WriteString("  blocks:\n" + strings.Join(g.blocks, ""))
	}
	s.WriteString("  layers:\n    " + strings.Join(b.lines, "\n    ") + "\n" + loss)
	g.train(&s, batch)
	return s.String(), arch
}

// reconstruction is a loss between what the model gives and the input x.
func (g *generator) reconstruction(careless bool) string {
	entries := []string{"{tanh: , inputs: out, name: r}"}
	if careless {
		entries[0] = "{tanh: , inputs: out}"
	}
	r := g.pick("r", "out")
	if careless {
		r = "out"
	}
	if g.chance(0.5) {
		entries = append(entries, fmt.Sprintf("{mse_loss: [%s, x]}", r))
	} else {
		entries = append(entries, fmt.Sprintf("{mse_loss: {target: x}, inputs: %s}", r))
	}
	return "  loss:\n    - " + strings.Join(entries, "\n    - ") + "\n"
}

// names is a function under way in which values have names.
type names struct {
	g        *generator
	lines    []string
	given    map[string]int64 // sizes of the values that names were given to
	cur      int64            // size of the previous value; 0: none
	curName  string           // its name; x, if it has none
	x        xState
	running  int64 // size of the result without a name that is called x
	careless bool
	depth    int
}

// xState is what x means.
type xState uint8

const (
	xNone    xState = iota // a result without a name: x is given to nothing
	xGiven                 // what it was given to
	xChain                 // a result without a name, computed from that by name: the previous value alone
	xImplied               // so, but by an entry that does not name x
	xTaken                 // a result without a name that has nothing to do with it
)

// names begins a function with inputs of some sizes, drawn where they are not given.
func (g *generator) names(inputs []string, sizes []int64, careless bool) *names {
	b := &names{g: g, given: map[string]int64{}, careless: careless}
	for i, n := range inputs {
		if len(sizes) > i {
			b.given[n] = sizes[i]
		} else {
			b.given[n] = g.size(8, 300)
		}
		if n == "x" {
			b.x = xGiven
		}
	}
	b.cur, b.curName = b.given[inputs[0]], inputs[0]
	return b
}

func (b *names) emit(format string, args ...any) {
	b.lines = append(b.lines, "- "+fmt.Sprintf(format, args...))
}

// known are the names that may be used, in an entry that takes the previous value
// by itself as well, or not.
func (b *names) known(implied bool) []string {
	var out []string
	for _, n := range []string{"a", "h", "r", "t", "u", "x"} {
		_, given := b.given[n]
		switch {
		case n == "x" && b.x == xNone:
			given = b.running > 0
		case n == "x" && b.x != xGiven:
			given = b.careless || b.x < xTaken && b.curName == "x" && !implied
		}
		if given {
			out = append(out, n)
		}
	}
	return out
}

// size is that of the value that a name means.
func (b *names) size(n string) int64 {
	if n == "x" && (b.x == xNone || (b.x == xChain || b.x == xImplied) && b.curName == "x") {
		return b.running
	}
	return b.given[n]
}

// some draws one of the known names, "" if there is none.
func (b *names) some(implied bool) string {
	if k := b.known(implied); len(k) > 0 {
		return k[b.g.r.IntN(len(k))]
	}
	return ""
}

// result notes what an entry gave: its size and name, and which of the names it used;
// took: it also took the previous value without naming it.
func (b *names) result(n string, size int64, took bool, used ...string) {
	named, reads := false, took && b.curName == "x"
	for _, u := range used {
		named = named || u == "x"
	}
	if named && (b.x == xChain || b.x == xImplied) { // from now on it is called so
		b.x, b.given["x"] = xGiven, b.running
	}
	b.cur, b.curName = size, n
	switch {
	case n != "":
		b.given[n] = size
		if n == "x" {
			b.x = xGiven
		}
		return
	case b.x == xNone:
	case !named && !reads:
		b.x = xTaken
	case named && b.x == xGiven:
		b.x = xChain
	case !named && b.x != xTaken:
		b.x = xImplied
	}
	b.curName, b.running = "x", size
}

// name draws a name for a result, often none.
func (b *names) name() string {
	if b.g.chance(0.45) {
		return ""
	}
	return b.g.pick("x", "x", "h", "h", "r", "t", "u")
}

func called(n string) string {
	if n == "" {
		return ""
	}
	return ", name: " + n
}

// from draws what an entry takes: a name, or the previous value without one.
func (b *names) from() (n string, size int64) {
	if b.cur > 0 && b.g.chance(0.55) {
		return "", b.cur
	}
	if n = b.some(false); n == "" {
		n = b.fresh()
	}
	return n, b.size(n)
}

// fresh makes a value from nothing where no other is known.
func (b *names) fresh() string {
	n := b.g.size(8, 300)
	b.emit("{ones: {size: [\"${B}\", %d]}, name: u}", n)
	b.result("u", n, false)
	return "u"
}

func inputs(n string) string {
	if n == "" {
		return ""
	}
	return ", inputs: " + n
}

// linear writes a Linear to a size.
func (b *names) linear(out int64, name string) {
	n, in := b.from()
	b.emit("{Linear: {in_features: %d, out_features: %d}%s%s}", in, out, inputs(n), called(name))
	b.result(name, out, n == "", n)
}

// any writes an entry, or a few.
func (b *names) any() {
	g := b.g
	switch g.r.IntN(13) {
	case 0, 1, 2:
		b.linear(g.size(8, 300), b.name())
	case 3, 4:
		n, size := b.from()
		name := b.name()
		b.emit("{%s: %s%s}", g.pick("ReLU", "tanh", "Sigmoid", "LayerNorm", "exp"), inputs(n), called(name))
		b.result(name, size, n == "", n)
	case 5, 6: // a residual, whose branch is a nested call
		n := b.some(false)
		if n == "" {
			return
		}
		name, size := b.name(), b.size(n)
		from, in := n, size
		if b.cur > 0 && (n != "x" || b.x <= xChain) && g.chance(0.5) {
			from, in = "", b.cur
		} else if g.chance(0.5) {
			from = b.some(false)
			in = b.size(from)
		}
		b.emit("{%s: [%s, {Linear: {in_features: %d, out_features: %d}%s}]%s}", g.pick("add", "mul"), n, in, size, inputs(from), called(name))
		b.result(name, size, from == "", n, from)
	case 7: // of the previous value and a named one
		n := b.some(true)
		if b.cur == 0 || n == "" {
			return
		}
		name, size := b.name(), b.cur
		b.emit("{add: {other: {Linear: {in_features: %d, out_features: %d}, inputs: %s}}%s}", b.size(n), size, n, called(name))
		b.result(name, size, true, n)
	case 8: // two names for the two halves
		n, size := b.from()
		if size%2 != 0 {
			b.linear(2*g.size(8, 150), b.name())
			return
		}
		p, q := g.pick("x", "h", "r"), g.pick("t", "u", "a")
		b.emit("{chunk: {chunks: 2, dim: 1}%s, name: [%s, %s]}", inputs(n), p, q)
		b.result(p, size/2, n == "", n)
		b.result(q, size/2, false)
		b.cur, b.curName = 0, ""
	case 9: // other names
		if k := b.known(false); len(k) > 1 && g.chance(0.5) {
			g.r.Shuffle(len(k), func(i, j int) { k[i], k[j] = k[j], k[i] })
			b.emit("{inputs: [%s, %s], name: [%s, %s]}", k[0], k[1], k[1], k[0])
			p, q := b.size(k[0]), b.size(k[1])
			b.result(k[1], p, false, k[0], k[1])
			b.result(k[0], q, false)
			b.cur, b.curName = 0, ""
			return
		}
		n, name := b.some(false), g.pick("x", "h", "r", "t")
		if n == "" || name == n || name == b.curName || n == "x" && b.x == xNone {
			return
		}
		cur, curName, size := b.cur, b.curName, b.size(n)
		b.emit("{name: %s, inputs: %s}", name, n)
		b.result(name, size, false, n)
		if b.cur, b.curName = cur, curName; n != curName {
			b.cur, b.curName = 0, ""
		}
	case 10:
		if n := b.some(false); n != "" && n != b.curName && (n != "x" || b.x == xGiven) {
			b.emit("{del: %s}", n)
			delete(b.given, n)
			if n == "x" {
				b.x, b.running = xNone, 0
			}
		}
	case 11:
		if b.depth < 2 {
			b.block()
		}
	case 12: // a loop over a residual stream
		n := b.some(false)
		if n == "" || b.careless {
			return
		}
		size, name := b.size(n), g.pick("", n)
		b.emit("{repeat: 2, layers: [{Linear: {in_features: %d, out_features: %d}, inputs: %s, name: t}, {add: [%s, t]%s}]}", size, size, n, n, called(name))
		for range 2 {
			b.result("t", size, false, n)
			b.result(name, size, false, n, "t")
		}
	}
}

// block calls a new block, which has names of its own.
func (b *names) block() {
	g := b.g
	args, took := []string{b.some(false)}, false
	if args[0] == "" {
		return
	}
	sizes := []int64{b.size(args[0])}
	params := []string{"x"}
	switch {
	case b.cur > 0 && g.chance(0.4):
		args, sizes, took = nil, []int64{b.cur}, true
	case g.chance(0.4):
		n := b.some(false)
		args, sizes = append(args, n), append(sizes, b.size(n))
		params = [][]string{{"x", "h"}, {"h", "x"}, {"a", "r"}}[g.r.IntN(3)]
	}
	g.nBlock++
	block := fmt.Sprintf("b%d", g.nBlock)
	in := g.names(params, sizes, b.careless)
	in.depth = b.depth + 1
	for range 2 + g.r.IntN(5) {
		in.any()
	}
	out := g.size(8, 300)
	in.linear(out, "")
	head := ""
	if len(params) > 1 || g.chance(0.3) {
		head = fmt.Sprintf("      inputs: [%s]\n", strings.Join(params, ", "))
	}
	g.blocks = append(g.blocks, fmt.Sprintf("    %s:\n%s      layers:\n        %s\n", block, head, strings.Join(in.lines, "\n        ")))
	name := b.name()
	call := ""
	if len(args) > 0 {
		call = fmt.Sprintf(", inputs: [%s]", strings.Join(args, ", "))
	}
	b.emit("{block: %s%s%s}", block, call, called(name))
	b.result(name, out, took, args...)
}
