package graph

import (
	"reflect"
	"slices"

	"github.com/memplan/memplan/internal/program"
)

// same reports whether two classes are one module: equal constructors,
// parameters and statements, down to the last child. The names that blocks get
// as Python classes do not count.
func same(a, b *program.Class) bool {
	return (&comparison{seen: map[[2]*program.Class]bool{}}).same(a, b)
}

// sameModule is same without a look at forward: a module of the library may do
// other things for other inputs, such as a recurrent layer with a state.
func sameModule(a, b *program.Class) bool {
	return (&comparison{seen: map[[2]*program.Class]bool{}}).module(a, b)
}

// comparison remembers the pairs that were compared, since classes are shared.
type comparison struct {
	seen map[[2]*program.Class]bool
}

func (c *comparison) same(a, b *program.Class) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	pair := [2]*program.Class{a, b}
	equal, ok := c.seen[pair]
	if !ok {
		equal = c.compare(a, b)
		c.seen[pair] = equal
	}
	return equal
}

func (c *comparison) compare(a, b *program.Class) bool {
	switch {
	case !c.module(a, b):
		return false
	case a.Forward == nil || b.Forward == nil:
		return a.Forward == b.Forward
	default:
		return sameFunc(a.Forward, a, b.Forward, b)
	}
}

// sameFunc compares two functions: as they are printed, and the arguments of
// operators that are not, as in a library's modules.
func sameFunc(f *program.Func, a *program.Class, g *program.Func, b *program.Class) bool {
	if f.Dump(a) != g.Dump(b) {
		return false
	}
	other := g.Statements()
	for i, s := range f.Statements() {
		o := other[i]
		if !sameArgs(s.Value, o.Value) || !slices.EqualFunc(s.Values, o.Values, sameArgs) {
			return false
		}
	}
	return true
}

// sameArgs compares the arguments of operators in expressions that are printed
// alike.
func sameArgs(x, y *program.Expr) bool {
	if x == nil || y == nil {
		return x == y
	}
	return reflect.DeepEqual(x.OpArgs, y.OpArgs) && slices.EqualFunc(x.Args, y.Args, sameArgs)
}

// module compares all but forward.
func (c *comparison) module(a, b *program.Class) bool {
	if a.Layer != b.Layer || a.Python != b.Python || (a.Name == "") != (b.Name == "") || len(a.Children) != len(b.Children) || len(a.Methods) != len(b.Methods) || len(a.Applied) != len(b.Applied) {
		return false
	}
	if !reflect.DeepEqual(a.Params, b.Params) || !reflect.DeepEqual(a.Buffers, b.Buffers) || !reflect.DeepEqual(a.ForwardGiven, b.ForwardGiven) {
		return false
	}
	for i := range a.Children {
		x, y := &a.Children[i], &b.Children[i]
		if x.Path != y.Path || !reflect.DeepEqual(x.Ties, y.Ties) || !c.same(x.Class, y.Class) {
			return false
		}
	}
	for i := range a.Methods {
		if !sameFunc(a.Methods[i], a, b.Methods[i], b) {
			return false
		}
	}
	for i := range a.Applied {
		if !c.sameApplied(a.Applied[i].Autograd, b.Applied[i].Autograd) {
			return false
		}
	}
	return true
}

func (c *comparison) sameApplied(a, b *program.Autograd) bool {
	return reflect.DeepEqual(a.Saved, b.Saved) && reflect.DeepEqual(a.Kept, b.Kept) && c.same(a.Class, b.Class) && sameFunc(a.Backward, a.Class, b.Backward, b.Class)
}
