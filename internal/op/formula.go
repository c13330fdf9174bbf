package op

import (
	"strconv"
	"strings"
)

// Formula is a derivative as tools/autograd/derivatives.yaml writes it: grad,
// self, other, result and numbers, with + - * /, functions and methods. Every
// operation on a tensor makes one; all but the result are freed, in reverse order,
// when the expression ends.
type Formula struct {
	of   *Vocabulary
	root *term
}

// term is a part of a formula.
type term struct {
	word string // a name, a sign or the name of a function
	num  bool   // a number
	args []*term
}

// Vocabulary is what formulas are made of beside signs and operands.
type Vocabulary struct {
	Product, Multiple *Op                // the operator of two tensors, and that of one and numbers
	Functions         map[string]Word    // that they call
	Constants         map[string]float64 // that they name as C++ does
}

// Word is a function that formulas call.
type Word struct {
	Of func(x ...float64) float64
	Op *Op // that it runs; nil: as a product does
}

// ParseFormula reads a formula; one that does not parse is a programming error.
func ParseFormula(text string, of *Vocabulary) *Formula {
	p := &formulaParser{whole: text, text: strings.ReplaceAll(text, " ", "")}
	t := p.sum()
	if p.text != "" {
		p.fail("ends in " + p.text)
	}
	return &Formula{of, t}
}

type formulaParser struct{ whole, text string }

func (p *formulaParser) fail(how string) { panic("op: formula " + p.whole + " " + how) }

func (p *formulaParser) next(signs string) string {
	if p.text != "" && strings.IndexByte(signs, p.text[0]) >= 0 {
		s := p.text[:1]
		p.text = p.text[1:]
		return s
	}
	return ""
}

func (p *formulaParser) sum() *term { return p.chain("+-", p.product) }

func (p *formulaParser) product() *term { return p.chain("*/", p.unary) }

func (p *formulaParser) chain(signs string, part func() *term) *term {
	f := part()
	for s := p.next(signs); s != ""; s = p.next(signs) {
		f = &term{word: s, args: []*term{f, part()}}
	}
	return f
}

func (p *formulaParser) unary() *term {
	if p.next("-") != "" {
		return &term{word: "neg", args: []*term{p.unary()}}
	}
	f := p.atom()
	for p.next(".") != "" {
		name := p.name()
		f = &term{word: name, args: append([]*term{f}, p.arguments()...)}
	}
	return f
}

func (p *formulaParser) atom() *term {
	if p.next("(") != "" {
		f := p.sum()
		if p.next(")") == "" {
			p.fail("lacks a )")
		}
		return f
	}
	name := p.name()
	if strings.HasPrefix(p.text, "(") {
		return &term{word: name, args: p.arguments()}
	}
	if n := strings.IndexFunc(p.text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); name == "" && p.text != "" {
		if n < 0 {
			n = len(p.text)
		}
		name, p.text = p.text[:n], p.text[n:]
	}
	_, err := strconv.ParseFloat(name, 64)
	return &term{word: name, num: err == nil}
}

func (p *formulaParser) name() string {
	n := 0
	for n < len(p.text) && (p.text[n] >= 'a' && p.text[n] <= 'z' || p.text[n] >= 'A' && p.text[n] <= 'Z' || p.text[n] == '_' || n > 0 && p.text[n] >= '0' && p.text[n] <= '9') {
		n++
	}
	s := p.text[:n]
	p.text = p.text[n:]
	return s
}

func (p *formulaParser) arguments() []*term {
	if p.next("(") == "" {
		return nil
	}
	var args []*term
	for p.next(")") == "" {
		args = append(args, p.sum())
		if p.next(",") == "" && !strings.HasPrefix(p.text, ")") {
			p.fail("lacks a )")
		}
	}
	return args
}

// Uses reports whether a name occurs in the formula.
func (f *Formula) Uses(name string) bool { return f.root.uses(name) }

func (t *term) uses(name string) bool {
	if t.word == name && len(t.args) == 0 {
		return true
	}
	for _, a := range t.args {
		if a.uses(name) {
			return true
		}
	}
	return false
}

// operands are the names that formulas use, with the inputs' indices; an
// operator of three tensors calls them as torch.addcmul does.
var operands = map[string]int{"self": 0, "other": 1, "end": 1, "tensor1": 1, "tensor2": 2, "weight": 2}

// Value computes the formula: a tensor, or nil for a number. What it makes is a
// local of the row.
func (f *Formula) Value(b *Back) *Tensor { return f.of.value(f.root, b) }

func (v *Vocabulary) value(t *term, b *Back) *Tensor {
	if len(t.args) == 0 {
		switch i, isInput := operands[t.word]; {
		case t.num:
			return nil
		case t.word == "grad":
			return b.Grads[0]
		case t.word == "result":
			return b.SavedOut(0)
		case isInput:
			return b.SavedIn(i) // nil: a number in the place of the tensor
		}
		return nil
	}
	var tensors []*Tensor
	for i := len(t.args) - 1; i >= 0; i-- { // GCC computes the last argument first
		if x := v.value(t.args[i], b); x != nil {
			tensors = append([]*Tensor{x}, tensors...)
		}
	}
	switch of := v.Functions[t.word].Op; {
	case len(tensors) == 0:
		return nil
	case of != nil:
		return b.Local(b.Do1(of, nil, tensors[0]))
	case len(tensors) == 2:
		return b.Local(b.Do1(v.Product, nil, tensors...))
	}
	return b.Local(b.Do1(v.Multiple, nil, tensors[0]))
}

// Grad sets the gradient of input i to the formula's value.
func (f *Formula) Grad(b *Back, i int) {
	mark := b.Mark()
	b.Set(i, b.Keep(f.Value(b)))
	b.DropTo(mark)
}
