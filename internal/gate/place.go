package gate

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/graph/layers"
	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// place is the first of the keys that the spec's file has; its first line, if it
// has none. Where the file is no spec, as a config.json of Hugging Face, it is
// the line that says so.
func (u *unit) place(keys ...string) spec.Span {
	if u.text != nil && u.recipe.Options.Origins != nil {
		for _, k := range keys {
			if at, ok := u.text.Place(k); ok {
				if o := u.text.Errs.Origin(at); o.Line > 0 && o.File == u.recipe.Path {
					return o.Span
				}
			}
		}
	} else if u.text != nil && u.recipe.Options.Label == "" {
		for _, k := range keys {
			if at, ok := u.text.Place(k); ok {
				return at
			}
		}
	} else if u.recipe != nil && u.recipe.Options.Label != "" && u.recipe.Recorded == nil {
		if text, err := u.recipe.ReadFile(u.recipe.Path); err == nil {
			if i := strings.Index(string(text), `"model_type"`); i >= 0 {
				return spec.Span{Pos: posOf(string(text), i)}
			}
		}
	}
	return spec.Span{Pos: spec.Pos{Line: 1, Col: 1}}
}

// posOf is the line and column of an offset.
func posOf(text string, offset int) spec.Pos {
	before := text[:offset]
	return spec.Pos{Line: 1 + strings.Count(before, "\n"), Col: 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])}
}

// subject is the place of what a note is about: a line of the spec, a key that it
// has, an entry of an operator; else that of the rule.
func (u *unit) subject(r *Rule, p note.Place, o *outcome) spec.Span {
	if u.recipe.Options.Label != "" && u.recipe.Options.Origins == nil {
		return u.place()
	}
	if p.Line > 0 && p.File == u.recipe.Path {
		return spec.Span{Pos: spec.Pos{Line: p.Line, Col: max(p.Col, 1)}}
	}
	for _, k := range p.Keys {
		if at, ok := u.text.Place(k); ok && u.recipe.Options.Origins == nil {
			return at
		} else if ok {
			return u.place(k)
		}
	}
	if p.Op != "" {
		if at, ok := u.layer(p.Op, o); ok {
			return at
		}
	}
	return u.at(r)
}

// layer is the first entry of the spec's own layers that is an operator, or a
// module which runs it.
func (u *unit) layer(name string, o *outcome) (spec.Span, bool) {
	whole, _, _ := strings.Cut(name, ".") // _cudnn_rnn.reserve is a part of _cudnn_rnn
	row := aten.Named(whole)
	runs := map[*nn.Layer]bool{}
	tr := o.Played.Trace
	for i := range tr.Events {
		if e := &tr.Events[i]; tr.Ops[e.Op] == name || tr.Ops[e.Op] == whole {
			if c := o.Played.Classes[e.Layer]; c != nil {
				runs[c.Layer] = true
			}
		}
	}
	for _, m := range o.Job.Program.Models { // operators that allocate nothing by themselves
		m.Root.Walk(func(_ string, c *program.Class) {
			if c.Forward != nil && row != nil && calls(c.Forward, row) {
				runs[c.Layer] = true
			}
		})
	}
	delete(runs, nil)
	var found *spec.Entry
	var walk func(list []*spec.Entry)
	walk = func(list []*spec.Entry) {
		for _, e := range list {
			if l := layers.Lookup(e.Head.V); found == nil && (e.Head.V == whole || l != nil && runs[&l.Is]) {
				found = e
			}
			for _, in := range e.Inputs {
				if in.Nested != nil {
					walk([]*spec.Entry{in.Nested})
				}
				for _, p := range in.Named {
					if p.V.Nested != nil {
						walk([]*spec.Entry{p.V.Nested})
					}
				}
			}
			walk(e.Body)
		}
	}
	s := u.text
	models := s.Models
	if s.Model != nil {
		models = append(models[:len(models):len(models)], &spec.Named[spec.Model]{V: s.Model})
	}
	for _, m := range models {
		walk(m.V.Modules)
		walk(m.V.Layers)
		walk(m.V.Loss)
		for _, b := range m.V.Blocks {
			walk(b.V.Modules)
			walk(b.V.Layers)
		}
	}
	walk(s.Before)
	walk(s.Step)
	if found == nil || found.Head.At.Line < 1 {
		return spec.Span{}, false
	}
	return found.Head.At, true
}

// leakAt is the entry of the step that keeps a value, else one of the keys of the rule.
func (u *unit) leakAt() spec.Span {
	if u.text != nil {
		for _, e := range u.text.Step {
			if e.Head.V == spec.HeadKeep && e.Head.At.Line > 0 {
				return e.Head.At
			}
		}
	}
	return u.place("train.keep", "step", "train.loop", "train", "memplan")
}

// calls reports whether a function calls an operator itself.
func calls(f *program.Func, row *op.Op) bool {
	var in func(e *program.Expr) bool
	in = func(e *program.Expr) bool {
		return e != nil && (e.Kind == program.CallOp && e.Row == row || slices.ContainsFunc(e.Args, in))
	}
	return slices.ContainsFunc(f.Statements(), func(s *program.Stmt) bool { return in(s.Value) || slices.ContainsFunc(s.Values, in) })
}
