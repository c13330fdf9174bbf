package graph

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// maxSteps bounds the operators and calls that one call of a module or function
// stands for. Classes and functions are shared, so that a few nested blocks may
// stand for more than could ever be played.
const maxSteps = 2_000_000

// bound stops if a call of f, a function of class c, does too much.
func (el *elaborator) bound(f *program.Func, c *program.Class, at spec.Span) {
	if el.sizeOf(f, c) > maxSteps {
		el.fail(at, "this call has more than %d operations", maxSteps)
	}
}

// sizeOf counts the operators and calls in f and in what it calls. What is
// called was bounded before, so that the sums do not overflow.
func (el *elaborator) sizeOf(f *program.Func, c *program.Class) int {
	if f == nil { // a module of the library that is never called by itself
		return 1
	}
	if n, ok := el.sizes[f]; ok {
		return n
	}
	n := 1
	var expr func(e *program.Expr)
	expr = func(e *program.Expr) {
		if e == nil {
			return
		}
		n++
		switch e.Kind {
		case program.CallMod:
			if ch := c.Children[e.Child].Class; ch != nil {
				forward := ch.Forward
				if e.Forward != nil {
					forward = e.Forward
				}
				n += el.sizeOf(forward, ch)
			}
		case program.CallFun:
			if a := e.Func.Autograd; a != nil {
				n += el.sizeOf(e.Func, a.Class) + el.sizeOf(a.Backward, a.Class)
				break
			}
			n += el.sizeOf(e.Func, c)
		case program.CallModel:
			if m := el.called(e.Model).class; m != nil {
				n += el.sizeOf(m.Forward, m)
			}
		}
		for _, a := range e.Args {
			expr(a)
		}
	}
	for _, s := range f.Statements() {
		expr(s.Value)
		for _, v := range s.Values {
			expr(v)
		}
	}
	el.sizes[f] = n
	return n
}
