package op

import (
	"strconv"
	"strings"
)

// formula is a derivative as tools/autograd/derivatives.yaml writes it: grad,
// self, other, result and numbers, with + - * /, functions and methods. Every
// operation on a tensor makes one; all but the result die, in reverse order,
// when the expression ends.
type formula struct {
	word string // a name, a sign or the name of a function
	num  bool   // a number
	args []*formula
}

// parseFormula reads a formula; one that does not parse is a programming error.
func parseFormula(text string) *formula {
	p := &formulaParser{text: strings.ReplaceAll(text, " ", "")}
	f := p.sum()
	if p.text != "" {
		panic("op: formula " + text + " ends in " + p.text)
	}
	return f
}

type formulaParser struct{ text string }

func (p *formulaParser) next(signs string) string {
	if p.text != "" && strings.IndexByte(signs, p.text[0]) >= 0 {
		s := p.text[:1]
		p.text = p.text[1:]
		return s
	}
	return ""
}

func (p *formulaParser) sum() *formula     { return p.chain("+-", p.product) }
func (p *formulaParser) product() *formula { return p.chain("*/", p.unary) }

func (p *formulaParser) chain(signs string, part func() *formula) *formula {
	f := part()
	for s := p.next(signs); s != ""; s = p.next(signs) {
		f = &formula{word: s, args: []*formula{f, part()}}
	}
	return f
}

func (p *formulaParser) unary() *formula {
	if p.next("-") != "" {
		return &formula{word: "neg", args: []*formula{p.unary()}}
	}
	f := p.atom()
	for p.next(".") != "" {
		name := p.name()
		f = &formula{word: name, args: append([]*formula{f}, p.arguments()...)}
	}
	return f
}

func (p *formulaParser) atom() *formula {
	if p.next("(") != "" {
		f := p.sum()
		p.next(")")
		return f
	}
	name := p.name()
	if strings.HasPrefix(p.text, "(") {
		return &formula{word: name, args: p.arguments()}
	}
	if n := strings.IndexFunc(p.text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); name == "" && p.text != "" {
		if n < 0 {
			n = len(p.text)
		}
		name, p.text = p.text[:n], p.text[n:]
	}
	_, err := strconv.ParseFloat(name, 64)
	return &formula{word: name, num: err == nil}
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

func (p *formulaParser) arguments() []*formula {
	if p.next("(") == "" {
		return nil
	}
	var args []*formula
	for p.next(")") == "" {
		args = append(args, p.sum())
		p.next(",")
	}
	return args
}

// uses reports whether a name occurs in the formula.
func (f *formula) uses(name string) bool {
	if f.word == name && len(f.args) == 0 {
		return true
	}
	for _, a := range f.args {
		if a.uses(name) {
			return true
		}
	}
	return false
}

// operands are the names that formulas use, with the inputs' indices; an
// operator of three tensors calls them as torch.addcmul does.
var operands = map[string]int{"self": 0, "other": 1, "end": 1, "tensor1": 1, "tensor2": 2, "weight": 2}

// value computes the formula: a tensor, or nil for a number. What it makes is a
// local of the row.
func (f *formula) value(b *Back) *Tensor {
	if len(f.args) == 0 {
		switch i, isInput := operands[f.word]; {
		case f.num:
			return nil
		case f.word == "grad":
			return b.Grads[0]
		case f.word == "result":
			return b.SavedOut[0]
		case isInput && i < len(b.SavedIn):
			return b.SavedIn[i] // nil: a number in the place of the tensor
		}
		return nil
	}
	var tensors []*Tensor
	for i := len(f.args) - 1; i >= 0; i-- { // GCC computes the last argument first
		if t := f.args[i].value(b); t != nil {
			tensors = append([]*Tensor{t}, tensors...)
		}
	}
	switch {
	case len(tensors) == 0:
		return nil
	case f.word == "isfinite":
		return b.Local(b.Do1(IsFinite, nil, tensors[0]))
	case len(tensors) == 2:
		return b.Local(b.Do1(MulTensor, nil, tensors...))
	}
	return b.Local(b.Do1(MulScalar, nil, tensors[0]))
}

// grad sets the gradient of input i to the formula's value.
func (f *formula) grad(b *Back, i int) {
	mark := b.Mark()
	b.Set(i, b.Keep(f.value(b)))
	b.DropTo(mark)
}
