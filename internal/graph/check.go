package graph

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
)

// check reports all mistakes that need no shapes, in every block of the spec:
// unknown layers, operators, arguments and blocks, and literal arguments of
// the wrong type.
func (el *elaborator) check() {
	models := el.spec.Models
	if el.spec.Model != nil {
		models = append(models[:len(models):len(models)], &spec.Named[spec.Model]{V: el.spec.Model})
	}
	for _, m := range models {
		c := &checker{el: el, blocks: map[string]bool{}}
		for _, b := range m.V.Blocks {
			if c.blocks[b.Name.V] {
				el.errs.Addf(b.Name.At, "block %q is defined twice", b.Name.V)
			}
			c.blocks[b.Name.V] = true
			if layers[b.Name.V] != nil {
				el.errs.Addf(b.Name.At, "block %q has the name of a layer", b.Name.V)
			}
		}
		for _, b := range m.V.Blocks {
			c.entries(b.V.Modules, false)
			c.entries(b.V.Layers, false)
		}
		c.entries(m.V.Modules, false)
		c.entries(m.V.Layers, false)
		c.entries(m.V.Loss, false)
	}
	c := &checker{el: el, blocks: map[string]bool{}}
	c.entries(el.spec.Step, true)
}

type checker struct {
	el     *elaborator
	blocks map[string]bool
}

func (c *checker) entries(es []*spec.Entry, step bool) {
	for _, e := range es {
		c.entry(e, step)
	}
}

func (c *checker) entry(e *spec.Entry, step bool) {
	errs := c.el.errs
	c.entries(e.Body, step)
	for _, o := range e.Inputs {
		c.operand(o)
	}
	head := e.Head.V
	l, o := layers[head], op.Lookup(head)
	switch {
	case head == "" || contains(spec.Statements, head):
		if head == spec.HeadBlock && e.Arg != nil && e.Arg.Kind == spec.Str && !e.Arg.IsExpr() && !c.blocks[e.Arg.Str] {
			errs.Unknown(e.Arg.Span, "block", e.Arg.Str, sorted(keys(c.blocks)))
		}
	case contains(spec.StepStatements, head):
		if !step {
			errs.Addf(e.Head.At, "%s is a statement of a step and has no place in a model", head)
		}
	case l != nil:
		c.arg(e, []*op.Sig{l.sig, l.forward}, l.isInput)
	case o != nil:
		c.arg(e, []*op.Sig{o.Sig}, func(name string) bool {
			p := o.Sig.Find(name)
			return p != nil && p.IsTensor()
		})
	default:
		known := append(append(append([]string(nil), spec.Statements...), LayerNames()...), op.Names()...)
		if step {
			known = append(known, spec.StepStatements...)
		}
		if c.blocks[head] {
			errs.Addf(e.Head.At, "%q is a block; call it with {block: %s}", head, head)
			return
		}
		errs.Unknown(e.Head.At, "layer or operator", head, known)
	}
}

func (c *checker) operand(o *spec.Operand) {
	if o.Nested != nil {
		c.entry(o.Nested, false)
	}
	for _, it := range o.List {
		c.operand(it)
	}
}

// arg checks the keys and literal values of a mapping argument.
func (c *checker) arg(e *spec.Entry, sigs []*op.Sig, tensor func(string) bool) {
	if e.Arg == nil || e.Arg.Kind != spec.Map {
		return
	}
	a := &argReader{el: c.el, what: e.Head.V, sigs: sigs}
	for _, p := range e.Arg.Pairs {
		param := a.find(p.Key.Str)
		switch {
		case tensor(p.Key.Str):
		case param == nil:
			c.el.errs.Unknown(p.Key.Span, "argument of "+e.Head.V, p.Key.Str, a.names())
		case !p.Value.HasExpr():
			x, err := p.Value.Eval(nil)
			if err == nil {
				_, err = param.Check(x)
			}
			if err != nil {
				c.el.errs.Addf(p.Value.Span, "%s: %v", e.Head.V, err)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}
