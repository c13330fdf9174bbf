package graph

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// modules reserves the places of declared modules, in their order.
func (u *unit) modules(entries []*spec.Entry) {
	for _, e := range entries {
		u.expand(e, u.scope, func(sc *scope, i int) { u.declare(e, sc, u.modulePath(e, sc, i)) })
	}
}

// declare reserves the place of a module, or those of the modules in a ModuleList or
// ModuleDict.
func (u *unit) declare(e *spec.Entry, sc *scope, path string) {
	switch e.Head.V {
	case spec.HeadModuleList:
		n := 0
		for _, it := range e.Body {
			if it.Module != nil {
				u.el.fail(it.Module.Span, "the modules of a ModuleList are numbered, and have no names of their own")
			}
			u.expand(it, sc, func(sc *scope, _ int) {
				u.declare(it, sc, fmt.Sprintf("%s.%d", path, n))
				n++
			})
		}
		return
	case spec.HeadModuleDict:
		for _, it := range e.Body {
			u.expand(it, sc, func(sc *scope, i int) {
				if i >= 0 {
					u.el.fail(it.At, "a module of a ModuleDict stands for one; {ModuleList: [...], repeat: n} is a list under its key")
				}
				u.declare(it, sc, path+"."+it.Module.Str)
			})
		}
		return
	}
	if strings.Count(path, ".") >= spec.MaxContainers {
		u.el.fail(e.At, "lists of modules may be nested at most %d deep", spec.MaxContainers)
	}
	if _, ok := u.children[path]; ok {
		u.el.fail(e.At, "module %q is declared twice", path)
	}
	u.child(path, e.At)
	u.declared[path] = &declared{e, sc}
}

// child makes a module at a path, which is no other attribute of the class, and
// returns its index.
func (u *unit) child(path string, at spec.Span) int {
	if first, _, _ := strings.Cut(path, "."); u.shapes[first] != nil {
		u.el.fail(at, "module %q: %q is a parameter or buffer already", path, first)
	}
	if u.lists[path] {
		u.el.fail(at, "module %q: there are modules below that name already, such as %q", path, u.below(path))
	}
	for p := path; strings.Contains(p, "."); {
		p = p[:strings.LastIndexByte(p, '.')]
		if _, ok := u.children[p]; ok {
			u.el.fail(at, "module %q: %q is a module already, no list of modules", path, p)
		}
		if u.lists == nil {
			u.lists = map[string]bool{}
		}
		u.lists[p] = true
	}
	idx := len(u.class.Children)
	u.children[path] = idx
	u.class.Children = append(u.class.Children, program.Child{Path: path})
	return idx
}

// below is the first child whose path goes on from a list's.
func (u *unit) below(list string) string {
	for _, c := range u.class.Children {
		if strings.HasPrefix(c.Path, list+".") {
			return c.Path
		}
	}
	return ""
}

// modulePath is the attribute path of an entry's module. An entry that is
// repeated (i ≥ 0) is an item of a list.
func (u *unit) modulePath(e *spec.Entry, sc *scope, i int) string {
	if e.Module == nil {
		for {
			p := fmt.Sprintf("layers.%d", u.layers)
			u.layers++
			if _, taken := u.children[p]; !taken {
				return p
			}
		}
	}
	s := e.Module.Str
	if e.Module.IsExpr() {
		s = u.el.evalStr(e.Module, sc, "module")
	}
	if !spec.IsModulePath(s) {
		u.el.fail(e.Module.Span, "module must be an attribute such as conv1, or an item of a list such as up[0] or layers[0][1], not %q", s)
	}
	u.el.attribute("module", s, e.Module.Span)
	p := strings.Join(spec.PathParts(s), ".")
	if i >= 0 && !e.Module.IsExpr() {
		n := i
		for {
			q := fmt.Sprintf("%s.%d", p, n)
			if _, taken := u.children[q]; !taken {
				return q
			}
			n++
		}
	}
	return p
}
