package graph

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// method is xs.pop() or x.item().
func (f *fn) method(t *spec.Tree, sc *scope) value.Value {
	el := f.u.el
	x := t.Args[0]
	switch {
	case len(t.Args) > 1:
	case t.Name == "pop":
		if x.Kind == spec.NameTree {
			return f.reference(x.Name+".pop", t.At)
		}
	case t.Name == "item":
		v := f.expression(x, sc)
		if v.Meta.Tensor == nil || v.Meta.Tensor.Numel() != 1 {
			el.fail(t.At, "item needs a tensor of one element, not %s", v.Describe())
		}
		return value.Value{Expr: &program.Expr{Kind: program.Scalar, Args: []*program.Expr{v.Expr}}, Meta: value.Meta{Scalar: true}}
	}
	entry := ""
	switch of := x.Text(); {
	case namespaces[of] || of == "self":
		entry = f.u.entryOf(t.Name, t.Args[1:])
	case x.Kind == spec.NameTree && f.u.isModule(strings.TrimPrefix(of, "self.")+"."+t.Name):
		entry = f.u.entryOf(strings.TrimPrefix(of, "self.")+"."+t.Name, t.Args[1:])
	default:
		entry = f.u.entryOf(t.Name, t.Args)
	}
	if entry != "" {
		el.fail(t.At, "%s is an entry, not a part of an expression: %s", t.Text(), entry)
	}
	methods := []string{"item", "pop"}
	switch {
	case slices.Contains(methods, t.Name):
		el.fail(t.At, "%s takes no arguments", t.Name)
	case namespaces[x.Text()]:
		el.errs.Unknown(t.At, "operator", t.Name, aten.Names())
	case t.Name == "size" || t.Name == "dim":
		el.fail(t.At, "%s is not a method of expressions; the size of a tensor is x.shape[0], its number of dimensions x.ndim", t.Name)
	default:
		el.errs.Unknown(t.At, "method", t.Name, methods)
	}
	panic(spec.Stop{})
}

// namespaces are the names before functions of torch.
var namespaces = map[string]bool{"torch": true, "F": true, "nn.functional": true, "torch.nn.functional": true}

// isModule reports whether a path is that of a module of u.
func (u *unit) isModule(path string) bool {
	_, made := u.children[path]
	return made || u.declared[path] != nil || u.lists[path]
}

// entryOf is the entry that calls a module, a block, a model or an operator of a name, as a
// spec writes it; empty if there is none of that name.
func (u *unit) entryOf(name string, args []*spec.Tree) string {
	of := ""
	for i, a := range args {
		if i > 0 {
			of += ", "
		}
		of += a.Text()
	}
	if len(args) != 1 {
		of = "[" + of + "]"
	}
	if strings.ContainsAny(of, "=\"'") || len(of) > 40 { // keywords of Python, text
		of = "..."
	}
	switch {
	case u.isModule(name):
		return "{call: " + name + ", inputs: " + of + "}"
	case u.blocks[name] != nil:
		return "{block: " + name + ", inputs: " + of + "}"
	case u.el.findModel(name) != nil:
		return "{forward: {model: " + name + ", inputs: " + of + "}}"
	case aten.Lookup(name) != nil:
		return "{" + name + ": " + of + "}"
	}
	return ""
}
