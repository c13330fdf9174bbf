package op

import "strconv"

// point is what a formula is computed from, at one element: the incoming gradient, the
// result, the inputs and the number among the arguments; what is not there is NaN.
type point struct {
	grad, result float64
	in           [3]float64
	value        float64
}

// compute makes a function of the formula; one that names what it cannot is a
// programming error.
func (f *Formula) compute() func(p *point) float64 { return f.of.compute(f.root) }

func (v *Vocabulary) compute(t *term) func(p *point) float64 {
	if len(t.args) == 0 {
		return v.leaf(t)
	}
	args := make([]func(p *point) float64, len(t.args))
	for i, a := range t.args {
		args[i] = v.compute(a)
	}
	switch {
	case t.word == "neg":
		return func(p *point) float64 { return -args[0](p) }
	case t.word == "+":
		return func(p *point) float64 { return args[0](p) + args[1](p) }
	case t.word == "-":
		return func(p *point) float64 { return args[0](p) - args[1](p) }
	case t.word == "*":
		return func(p *point) float64 { return args[0](p) * args[1](p) }
	case t.word == "/":
		return func(p *point) float64 { return args[0](p) / args[1](p) }
	}
	of := v.Functions[t.word].Of
	switch {
	case of == nil:
		panic("op: formulas cannot compute " + t.word)
	case len(args) == 1:
		return func(p *point) float64 { return of(args[0](p)) }
	}
	return func(p *point) float64 { return of(args[0](p), args[1](p)) }
}

func (v *Vocabulary) leaf(t *term) func(p *point) float64 {
	if n, is := v.Constants[t.word]; is {
		return func(*point) float64 { return n }
	}
	if t.num {
		n, err := strconv.ParseFloat(t.word, 64)
		if err != nil {
			panic("op: number " + t.word)
		}
		return func(*point) float64 { return n }
	}
	switch i, isInput := operands[t.word]; {
	case t.word == "grad":
		return func(p *point) float64 { return p.grad }
	case t.word == "result":
		return func(p *point) float64 { return p.result }
	case t.word == "value":
		return func(p *point) float64 { return p.value }
	case isInput:
		return func(p *point) float64 { return p.in[i] }
	}
	panic("op: formulas know no " + t.word)
}

// Derived is the derivative of f by the formulas of its inputs' gradients: what they
// allocate and what they compute is the same text. An input without one has none.
func (f Elements) Derived(formulas [3]*Formula) *Eval {
	var grads [3]func(p *point) float64
	for i, g := range formulas {
		if g != nil {
			grads[i] = g.compute()
		}
	}
	return f.with(f.backward(func(k int, at *point) float64 { return grads[k](at) }))
}

// Single makes a function of one tensor of one number.
func Single(of func(x float64) float64) Elements {
	return Elements{Of: func(x [3]float64, _ float64) float64 { return of(x[0]) }}
}
