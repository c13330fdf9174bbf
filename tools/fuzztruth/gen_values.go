package main

import (
	"fmt"
	"slices"
	"strings"
)

// values writes a program of statements as in Python: lists and tuples that are built,
// sliced, joined, changed and handed to blocks and functions, arithmetic of tensors and
// numbers, and loops over values and modules. All tensors of it have one shape.
func values(g *generator, seed uint64) (text, arch string) {
	p := &valueProgram{g: g, width: g.multiple(4, 8, 64), lists: map[string]*valueList{}}
	for range 1 + g.r.IntN(3) {
		p.block()
	}
	p.emit("{Linear: %d, name: a}", p.width)
	p.tensors = []string{"a"}
	p.emit("b = a * 0.5 + %d", g.r.IntN(3))
	p.tensors = append(p.tensors, "b")
	p.emit("p = [a, b]")
	p.lists["p"] = &valueList{n: 2}
	for range 8 + g.r.IntN(18) {
		p.statement()
	}
	p.emit("y = a + b")
	for _, name := range p.listNames() {
		if l := p.lists[name]; l.n > 0 && g.chance(0.5) {
			p.emit("{cat: [[%q, %s], 1], name: y}", "*"+name, p.tensor())
			p.emit("{Linear: %d, inputs: y, name: y}", p.width)
		}
	}
	p.emit("{Linear: 10, inputs: y, name: out}")
	p.emit("return: out")
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nmodel:\n  inputs: {x: [%d], label: {shape: [], dtype: int64}}\n", p.width)
	fmt.Fprintf(&b, "  blocks:\n%s", strings.Join(p.blocks, ""))
	if len(p.modules) > 0 {
		fmt.Fprintf(&b, "  modules:\n%s", strings.Join(p.modules, ""))
	}
	fmt.Fprintf(&b, "  layers:\n    %s\n", strings.Join(p.lines, "\n    "))
	fmt.Fprintf(&b, "  loss: {CrossEntropyLoss: {target: label}}\n")
	fmt.Fprintf(&b, "train: {batch_size: %d, optimizer: %s, precision: %s, loop: %s}\n", 2+g.r.IntN(30), g.pick("SGD", "Adam"),
		g.pick("fp32", "fp32", "bf16", "amp-bf16"), g.pick("function", "flat"))
	return b.String(), g.pick("sm80", "sm90")
}

// valueProgram is a program under way.
type valueProgram struct {
	g       *generator
	width   int64
	lines   []string
	blocks  []string
	modules []string
	kinds   []blockOf
	tensors []string
	lists   map[string]*valueList
}

// valueList is a list, which several names may have.
type valueList struct {
	n     int
	tuple bool
}

// blockOf is a block: what it takes and gives, and how many items it adds to its list.
type blockOf struct {
	name         string
	needs, grows int  // items that its list must have; by how many it grows
	own          bool // the list that it returns is another
	returns      string
}

func (p *valueProgram) emit(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if line[0] != '{' && !strings.HasPrefix(line, "return:") && !strings.HasPrefix(line, "del:") {
		line = fmt.Sprintf("%q", line)
	}
	p.lines = append(p.lines, "- "+line)
}

func (p *valueProgram) tensor() string { return p.tensors[p.g.r.IntN(len(p.tensors))] }

func (p *valueProgram) listNames() []string {
	var out []string
	for _, n := range []string{"p", "q", "r", "s"} {
		if p.lists[n] != nil {
			out = append(out, n)
		}
	}
	return out
}

// list draws a list with at least n items, or a tuple unless it must change; "" if
// there is none.
func (p *valueProgram) list(n int, changes bool) string {
	names := slices.DeleteFunc(p.listNames(), func(name string) bool {
		l := p.lists[name]
		return l.n < n || l.n > 12 || changes && l.tuple
	})
	if len(names) == 0 {
		return ""
	}
	return names[p.g.r.IntN(len(names))]
}

// named draws a name for a tensor, mostly one that is bound.
func (p *valueProgram) named() string {
	n := p.g.pick("a", "b", "c", "d", "e")
	if !slices.Contains(p.tensors, n) {
		p.tensors = append(p.tensors, n)
	}
	return n
}

// index draws an index of a list of n.
func (p *valueProgram) index(n int) int { return p.g.r.IntN(2*n) - n }

// arithmetic draws an expression over tensors.
func (p *valueProgram) arithmetic(depth int) string {
	g := p.g
	if depth == 0 || g.chance(0.2) {
		if l := p.list(1, false); l != "" && g.chance(0.3) {
			return fmt.Sprintf("%s[%d]", l, p.index(p.lists[l].n))
		}
		return p.tensor()
	}
	x, y := p.arithmetic(depth-1), p.arithmetic(depth-1)
	switch g.r.IntN(8) {
	case 0:
		return fmt.Sprintf("(%s) ** 2", x)
	case 1:
		return fmt.Sprintf("-(%s)", x)
	case 2:
		return fmt.Sprintf("1 - (%s)", x)
	case 3:
		return fmt.Sprintf("(%s) / (%s * 2)", x, y)
	case 4:
		return fmt.Sprintf("(%s) * %s", x, g.pick("0.5", "2", "len(p) ** -0.5", "x.shape[0]"))
	case 5:
		return fmt.Sprintf("(%s) * (%s)", x, y)
	}
	return fmt.Sprintf("(%s) + (%s)", x, y)
}

// built draws an expression for a list or tuple.
func (p *valueProgram) built() (text string, l *valueList) {
	g := p.g
	from := p.list(1, false)
	if from == "" {
		return fmt.Sprintf("[%s, %s]", p.tensor(), p.tensor()), &valueList{n: 2}
	}
	old := p.lists[from]
	one, two := fmt.Sprintf("[%s]", p.arithmetic(1)), fmt.Sprintf("(%s, %s)", p.tensor(), p.arithmetic(1))
	switch g.r.IntN(8) {
	case 0:
		if old.tuple {
			return from + " + " + two, &valueList{old.n + 2, true}
		}
		return one + " + " + from, &valueList{n: old.n + 1}
	case 1:
		return from + "[::-1]", &valueList{old.n, old.tuple}
	case 2:
		return from + "[1:]", &valueList{old.n - 1, old.tuple}
	case 3:
		return from + "[:-1] + " + from + "[:1]", &valueList{old.n, old.tuple}
	case 4:
		return fmt.Sprintf("[%s, *%s]", p.arithmetic(1), from), &valueList{n: old.n + 1}
	case 5:
		return fmt.Sprintf("(*%s[:2], %s)", from, p.tensor()), &valueList{min(old.n, 2) + 1, true}
	case 6:
		return from + "[:1] * 2", &valueList{2, old.tuple}
	}
	return two, &valueList{2, true}
}

// statement writes one or some statements.
func (p *valueProgram) statement() {
	g := p.g
	switch g.r.IntN(14) {
	case 0, 1:
		p.assign(p.arithmetic(2))
	case 2:
		in := p.tensor()
		p.emit("{Linear: %d, inputs: %s, name: %s}", p.width, in, p.named())
	case 3, 4:
		text, l := p.built()
		name := g.pick("p", "q", "r", "s")
		p.emit("%s = %s", name, text)
		p.lists[name] = l
	case 5:
		if l := p.list(0, true); l != "" {
			p.emit("%s.append(%s)", l, p.arithmetic(1))
			p.lists[l].n++
		}
	case 6:
		if l := p.list(0, true); l != "" {
			p.emit("%s += [%s, %s]", l, p.tensor(), p.arithmetic(1))
			p.lists[l].n += 2
		}
	case 7:
		if l := p.list(2, true); l != "" && l != "p" {
			p.emit("%s = %s.pop()", p.named(), l)
			p.lists[l].n--
		}
	case 8:
		if l := p.list(0, false); l != "" { // another name for it
			name := g.pick("q", "r", "s")
			p.emit("%s = %s", name, l)
			p.lists[name] = p.lists[l]
		}
	case 9:
		if l := p.list(2, false); l != "" {
			n := p.lists[l].n
			i, k := p.index(n), p.index(n)
			if g.chance(0.5) {
				p.emit("%s, %s = %s[%d], %s", "c", "d", l, i, p.tensor())
			} else {
				p.emit("c, (d, e) = %s[%d], (%s[%d], %s)", l, i, l, k, p.tensor())
				p.know("e")
			}
			p.know("c")
			p.know("d")
		}
	case 10:
		p.loop()
	case 11:
		p.pairs()
	default:
		p.call()
	}
}

func (p *valueProgram) know(name string) {
	if !slices.Contains(p.tensors, name) {
		p.tensors = append(p.tensors, name)
	}
}

// assign binds a tensor, and sometimes changes it in place.
func (p *valueProgram) assign(text string) {
	name := p.named()
	p.emit("%s = %s", name, text)
	if p.g.chance(0.2) {
		p.emit("%s = %s * 3", name, name)
		p.emit("%s += %s", name, p.pickOther(name))
	}
}

// pickOther draws a tensor that is not of this name.
func (p *valueProgram) pickOther(name string) string {
	for {
		if t := p.tensor(); t != name {
			return t
		}
	}
}

// loop goes over the items of a list.
func (p *valueProgram) loop() {
	l := p.list(1, false)
	if l == "" {
		return
	}
	t := p.tensor()
	p.emit("t = %s", p.g.pick("0", t, t+" * 2"))
	if p.g.chance(0.5) {
		p.emit(`{layers: ["t = t + v * (k + 1)"], for: {v: %s, k: "${range(len(%s))}"}}`, l, l)
	} else {
		p.emit(`{layers: [{Linear: %d, inputs: v, name: w}, "t = w + t"], for: {v: %s}}`, p.width, l)
		p.know("w")
	}
	p.know("t")
	p.know("v")
}

// pairs declares a ModuleList of pairs and goes over it.
func (p *valueProgram) pairs() {
	g := p.g
	name := fmt.Sprintf("pairs%d", len(p.modules))
	first := g.pick(fmt.Sprintf("{Linear: %d}", p.width), fmt.Sprintf("{Sequential: [{Linear: %d}, GELU, {Linear: %d}]}", 2*p.width, p.width))
	p.modules = append(p.modules, fmt.Sprintf("    %s: {ModuleList: [%s, %s], repeat: %d}\n", name, first, g.pick("ReLU", "LayerNorm", fmt.Sprintf("{Linear: %d}", p.width)), 1+g.r.IntN(3)))
	from := p.tensor()
	t := p.named()
	p.emit("%s = %s * 1", t, from)
	p.emit(`{layers: [{call: m, inputs: %s, name: h}, "%s = %s", {call: n, inputs: %s, name: %s}], for: {"m, n": %s}}`,
		t, t, g.pick("h + "+t, t+" * 0.5 - h", "h"), t, t, name)
	p.know("h")
}

// block writes a block or function that takes a list and a tensor.
func (p *valueProgram) block() {
	g := p.g
	b := blockOf{name: fmt.Sprintf("f%d", len(p.kinds))}
	lines := []string{"t = y * 2"}
	n := 0 // by which its list has grown
	for range 1 + g.r.IntN(4) {
		switch g.r.IntN(6) {
		case 0:
			lines = append(lines, "xs = xs + [t]")
			n, b.own = n+1, true
		case 1:
			lines = append(lines, "xs = xs[::-1]")
			b.own = true
		case 2:
			lines = append(lines, "xs.append(t * y)")
			n++
			if !b.own {
				b.grows++
			}
		case 3:
			lines = append(lines, "t = xs.pop() + t")
			b.needs = max(b.needs, 1-n)
			n--
			if !b.own {
				b.grows--
			}
		case 4:
			lines = append(lines, "t = xs[0] + t")
			b.needs = max(b.needs, 1-n)
		default:
			lines = append(lines, "t = t ** 2 - y")
		}
	}
	if b.needs += 1; n < 0 {
		b.needs += -n
	}
	b.returns = g.pick("t", "[t, xs]", "(t, [t, y])", "xs")
	kind := ""
	if g.chance(0.6) {
		kind = "      kind: function\n"
	}
	for i, l := range lines {
		lines[i] = fmt.Sprintf("        - %q\n", l)
	}
	p.blocks = append(p.blocks, fmt.Sprintf("    %s:\n%s      inputs: [xs, y]\n      layers:\n%s        - return: %s\n", b.name, kind, strings.Join(lines, ""),
		map[bool]string{true: b.returns, false: fmt.Sprintf("%q", b.returns)}[b.returns[0] == '[']))
	b.returns = strings.ReplaceAll(b.returns, "xs", fmt.Sprintf("xs%+d", n))
	p.kinds = append(p.kinds, b)
}

// call calls a block with a list.
func (p *valueProgram) call() {
	b := p.kinds[p.g.r.IntN(len(p.kinds))]
	name := p.list(b.needs, true)
	if name == "" || name == "p" && b.grows < 0 {
		return
	}
	l := p.lists[name]
	arg := name
	if p.g.chance(0.3) { // a list of its own, which the call alone holds
		arg = fmt.Sprintf("%q", name+"[:]")
	}
	var grown int
	if _, after, ok := strings.Cut(b.returns, "xs"); ok {
		fmt.Sscanf(after, "%d", &grown)
	}
	left := &valueList{n: l.n + grown}
	if arg == name {
		if l.n += b.grows; !b.own {
			left = l
		}
	}
	in := p.tensor()
	switch {
	case b.returns == "t":
		p.emit("{block: %s, inputs: [%s, %s], name: %s}", b.name, arg, in, p.named())
	case strings.HasPrefix(b.returns, "xs"):
		p.emit("{block: %s, inputs: [%s, %s], name: s}", b.name, arg, in)
		p.lists["s"] = left
	case strings.HasPrefix(b.returns, "[t, xs"):
		p.emit("{block: %s, inputs: [%s, %s], name: [c, s]}", b.name, arg, in)
		p.know("c")
		p.lists["s"] = left
	default:
		p.emit("{block: %s, inputs: [%s, %s], name: [c, [d, e]]}", b.name, arg, in)
		for _, t := range []string{"c", "d", "e"} {
			p.know(t)
		}
	}
}
