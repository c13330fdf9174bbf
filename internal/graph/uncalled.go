package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/graph/module"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// unsized is why the sizes of a module that nothing calls are not known.
type unsized struct{ why string }

// close makes the declared modules that nothing called, where their arguments say
// all of their sizes, as in torch.
func (u *unit) close() {
	failed := false
	var trained []string
	var at spec.Span
	for _, path := range keys(u.declared) {
		ch := &u.class.Children[u.children[path]]
		if ch.Class != nil {
			continue
		}
		d := u.declared[path]
		switch {
		case !u.el.attempt(func() { u.makeUncalled(d, path) }):
			failed = true
		case len(ch.Class.ParamPaths()) > 0:
			trained, at = append(trained, path), d.entry.At
		}
	}
	for _, check := range u.later {
		failed = !u.el.attempt(check) || failed
	}
	if failed {
		panic(spec.Stop{})
	}
	if trained != nil {
		u.el.warnings = note.Add(u.el.warnings, placed(note.UncalledModule.New("nothing calls %s of %s, whose parameters never get a gradient", shortened(trained, "modules"), u.what), u.el.spec, at.Line))
	}
}

// makeUncalled makes a declared module that nothing calls.
func (u *unit) makeUncalled(d *declared, path string) {
	el := u.el
	defer func() {
		switch why := recover().(type) {
		case nil:
		case unsized:
			el.fail(d.entry.At, "module %q is declared but never called, so that its sizes are unknown: %s; give them as in torch, call it with {call: %s}, "+
				"or say where it would be called with {call: %s, unused: true}", path, why.why, path, path)
		default:
			panic(why)
		}
	}()
	u.fillUncalled(d.entry, d.scope, path, u.children[path])
}

// fillUncalled makes the module at a place.
func (u *unit) fillUncalled(e *spec.Entry, sc *scope, path string, idx int) {
	class := u.uncalled(e, sc, path)
	ch := &u.class.Children[idx]
	ch.Class, ch.Ties = class, u.ties(e, sc, class)
	if u.made == nil {
		u.made = map[int]*declared{}
	}
	u.made[idx] = &declared{e, sc}
}

// uncalled makes the module of an entry of its arguments alone.
func (u *unit) uncalled(e *spec.Entry, sc *scope, path string) *program.Class {
	el := u.el
	if el.isBad(e) {
		panic(spec.Stop{})
	}
	outer, dtype := el.path, el.job.DType
	el.path = program.Join(outer, path)
	el.job.DType = el.moduleType(e, sc)
	defer func() { el.path, el.job.DType = outer, dtype }()
	switch l := layers.Lookup(e.Head.V); {
	case e.Head.V == spec.HeadSeq:
		n := &unit{el: el, class: &program.Class{Layer: nn.Sequential, Python: nn.Sequential.Python}, scope: sc, blocks: u.blocks, children: map[string]int{}}
		n.fillAll(e.Body, sc, func(*spec.Entry, *scope, int) string { return fmt.Sprint(len(n.class.Children)) })
		return n.class
	case e.Head.V == spec.HeadBlock:
		return u.uncalledBlock(u.findBlock(e, sc), e, sc)
	default:
		return u.uncalledLayer(e, sc, l)
	}
}

// uncalledLayer makes a module of torch.nn.
func (u *unit) uncalledLayer(e *spec.Entry, sc *scope, l *module.Layer) *program.Class {
	a := u.arguments(e, sc, l, nil)
	a.require()
	u.el.shrunk.Shrink(u.el.path, a.vals)
	defer func() {
		r := recover()
		if err, ok := r.(error); ok {
			var m *module.Mistake
			if errors.As(err, &m) {
				if v := a.from[m.Arg]; v != nil {
					u.el.fail(v.Span, "%s: %s", e.Head.V, m.Msg)
				}
				panic(unsized{e.Head.V + ": " + m.Msg})
			}
		}
		if r != nil {
			panic(r)
		}
	}()
	return u.el.env().BuildAlone(l, a.vals, a.given)
}

// uncalledBlock makes a block whose modules have all of their sizes.
func (u *unit) uncalledBlock(b *spec.Named[spec.Block], e *spec.Entry, sc *scope) *program.Class {
	el := u.el
	if b.V.Kind.V != spec.KindModule {
		el.fail(e.At, "block %q is a function, not a module", b.Name.V)
	}
	with := u.with(e, sc, b)
	key := fmt.Sprintf("uncalled %p %s %v %p", b, keyOf(with), el.job.DType, el.loaded)
	key += el.pathKey()
	if c := el.cache[key]; c != nil {
		return c.class
	}
	el.enter(e.At)
	defer func() { el.depth-- }()
	bs := el.blockScope(b, u, with)
	n := el.newUnit(b.Name.V, bs, u.blocks)
	n.what = "block " + b.Name.V
	el.in(b, func() {
		n.parameters(b.V.Parameters, b.V.Buffers)
		n.modules(b.V.Modules)
		n.standsFor(b.V)
		for i := range n.class.Children {
			path := n.class.Children[i].Path
			n.fillUncalled(n.declared[path].entry, n.declared[path].scope, path, i)
		}
		n.fillAll(b.V.Layers, bs, n.modulePath)
	})
	el.cache[key] = &elaborated{class: n.class}
	return n.class
}

// fillAll makes the modules of entries that stand in a list of layers; path says
// where each has its place.
func (u *unit) fillAll(es []*spec.Entry, sc *scope, path func(e *spec.Entry, sc *scope, i int) string) {
	for _, e := range es {
		u.expand(e, sc, func(sc *scope, i int) {
			switch h := e.Head.V; {
			case h == spec.HeadLayers:
				u.fillAll(e.Body, sc, path)
			case h == spec.HeadBlock && u.findBlock(e, sc).V.Kind.V != spec.KindModule:
				if b := u.findBlock(e, sc); slices.ContainsFunc(b.V.Layers, func(e *spec.Entry) bool {
					return makesModule(e.Head.V) || len(e.Body) > 0 || innerModule(e) != ""
				}) {
					panic(unsized{fmt.Sprintf("the function %q makes modules", b.Name.V)})
				}
			case makesModule(h):
				p := path(e, sc, i)
				if _, there := u.children[p]; !there {
					u.fillUncalled(e, sc, p, u.child(p, e.At))
				}
			}
			if name := innerModule(e); name != "" {
				panic(unsized{name + " stands inside of another entry"})
			}
		})
	}
}

// innerModule is what makes a module inside of another entry, "" if nothing does.
func innerModule(e *spec.Entry) string {
	if name := moduleIn(e.Arg); name != "" {
		return name
	}
	var in func(o *spec.Operand) string
	in = func(o *spec.Operand) string {
		if n := o.Nested; n != nil {
			if makesModule(n.Head.V) {
				return n.Head.V
			}
			return innerModule(n)
		}
		for _, it := range o.List {
			if name := in(it); name != "" {
				return name
			}
		}
		return ""
	}
	for _, o := range e.Inputs {
		if name := in(o); name != "" {
			return name
		}
	}
	return ""
}

// moduleIn is innerModule of an argument.
func moduleIn(v *spec.Value) string {
	if v == nil {
		return ""
	}
	for _, it := range v.Items {
		if name := moduleIn(it); name != "" {
			return name
		}
	}
	for _, p := range v.Pairs {
		if makesModule(p.Key.Str) {
			return p.Key.Str
		}
		if name := moduleIn(p.Value); name != "" {
			return name
		}
	}
	return ""
}

func makesModule(head string) bool {
	return head == spec.HeadSeq || head == spec.HeadBlock || layers.Lookup(head) != nil
}

// shortened names the first of some paths, and what the others are.
func shortened(paths []string, what string) string {
	const most = 3
	if len(paths) <= most {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more %s", strings.Join(paths[:most], ", "), len(paths)-most, what)
}

// placed is a note of a line of a spec; of one that another program's file means, of the
// line of that file.
func placed(n note.Note, s *spec.Spec, line int) note.Note {
	if o := s.Errs.Origin(spec.Span{Pos: spec.Pos{Line: line}}); o.Line > 0 {
		return n.At(o.File, o.Line)
	}
	return n.At(s.Path, line)
}
