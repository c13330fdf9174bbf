package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// looped is what a loop goes over: n items, of which bind gives variables the i-th.
type looped struct {
	n    int
	bind func(i int, vars map[string]any)
}

// looped finds what the variables of a loop go over: a list of an expression, or by
// its name a list of modules or of values.
func (u *unit) looped(l spec.Loop, e *spec.Entry, sc *scope) looped {
	el := u.el
	x := el.eval(l.In, sc)
	switch x := x.(type) {
	case []any:
		return looped{len(x), func(i int, vars map[string]any) { u.unpack(l, x[i], vars) }}
	case string:
		if f := sc.function(); f != nil {
			if slot, ok := f.slots[x]; ok && f.metas[slot].Lost {
				panic(spec.Stop{})
			}
			if f.isList(x) {
				return f.loopedValues(x, l, e, sc)
			}
		}
		if items := u.listed(x); items != nil {
			return looped{len(items), func(i int, vars map[string]any) { u.unpack(l, u.modulesOf(items[i], l), vars) }}
		}
		el.fail(l.In.Span, "for needs a list, such as \"${range(4)}\", or the name of a list of values or modules; %q is neither", x)
	}
	el.fail(l.In.Span, "for needs a list, not %s", spec.Show(x))
	return looped{}
}

// unpack gives the variables of a loop an item.
func (u *unit) unpack(l spec.Loop, item any, vars map[string]any) {
	if len(l.Vars) == 1 {
		vars[l.Vars[0].V] = item
		return
	}
	items, ok := item.([]any)
	if !ok || len(items) != len(l.Vars) {
		u.el.fail(l.Vars[0].At, "%d variables cannot unpack %s", len(l.Vars), spec.Show(item))
	}
	for i, v := range l.Vars {
		vars[v.V] = items[i]
	}
}

// listed are the paths of the items of a list of modules; nil if there is no such
// list.
func (u *unit) listed(path string) []string {
	list := strings.Join(spec.PathParts(strings.TrimPrefix(path, "self.")), ".")
	var out []string
	for _, c := range u.class.Children {
		if rest, ok := strings.CutPrefix(c.Path, list+"."); ok {
			first, _, _ := strings.Cut(rest, ".")
			if p := list + "." + first; !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// modulesOf is the path of a module, for one variable, or those of the modules of a
// list, for several.
func (u *unit) modulesOf(path string, l spec.Loop) any {
	if len(l.Vars) == 1 {
		return path
	}
	var out []any
	for _, p := range u.listed(path) {
		out = append(out, p)
	}
	if len(out) != len(l.Vars) {
		u.el.fail(l.Vars[0].At, "%d variables cannot unpack %s, which holds %s", len(l.Vars), path, spec.Plural(len(out), "module"))
	}
	return out
}

// loopedValues goes over a list or tuple of values, each of which is bound to the
// loop's variables as local variables, in the steps in which the entry runs.
func (f *fn) loopedValues(name string, l spec.Loop, e *spec.Entry, sc *scope) looped {
	el := f.u.el
	before := f.local(name)
	n := before.Meta.Count()
	bind := func(i int) {
		f.name(f.slots[name], l.In.Span)
		f.reads(f.slots[name], l.In.Span)
		if now := f.metas[f.slots[name]].Now(); !f.isList(name) || now.List != before.Meta.List || len(now.Tuple) != n || now.List == nil && &now.Tuple[0] != &before.Meta.Tuple[0] {
			el.fail(l.In.Span, "the loop over %s binds that name again or changes the list; collect the results in another list", name)
		}
		item := f.item(f.local(name), int64(i), l.In.Span)
		st := program.Stmt{Kind: program.Assign, Value: item.Expr, Line: e.At.Line}
		metas := []value.Meta{item.Meta}
		if len(l.Vars) > 1 {
			st.Unpack, metas = true, item.Meta.Tuple
			if len(metas) != len(l.Vars) {
				el.fail(l.Vars[0].At, "%d variables cannot unpack %s", len(l.Vars), item.Describe())
			}
		}
		for k, v := range l.Vars {
			if !spec.IsName(v.V) {
				el.fail(v.At, "name must be a Python identifier that scripts do not have already, not %q", v.V)
			}
			st.Targets = append(st.Targets, f.set(v.V, metas[k]))
		}
		f.emit(st)
	}
	return looped{n, func(i int, _ map[string]any) { f.inSteps(e, sc, func() { bind(i) }) }}
}

// loopedModule is the path of the module that a loop's variable stands for.
func (f *fn) loopedModule(name string, sc *scope) string {
	x, _ := sc.Lookup(name)
	path, ok := x.(string)
	if !ok {
		return name
	}
	if _, ok := f.u.children[path]; ok {
		return path
	}
	return name
}

// function is the function around a scope; nil if there is none.
func (s *scope) function() *fn {
	for s != nil {
		if s.fn != nil {
			return s.fn
		}
		s, _ = s.parent.(*scope)
	}
	return nil
}

// example says how the modules of a list are called.
func (u *unit) example(path string, items []string) string {
	if _, ok := u.children[items[0]]; !ok {
		return fmt.Sprintf(`%s holds lists of modules; go over it: {for: {"a, b": %s}, layers: [{call: a}, {call: b}]}`, path, path)
	}
	return fmt.Sprintf(`%s is a list of %s; call each: {call: "%s[${i}]", repeat: {n: %d, as: i}}`, path, spec.Plural(len(items), "module"), path, len(items))
}
