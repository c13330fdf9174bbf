package exporttorch

import (
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// applied prints the torch.autograd.Functions that the functions of a class
// apply, inner ones first.
func (s *script) applied(c *program.Class) {
	for _, f := range c.Applied {
		a := f.Autograd
		if s.seen[a.Class] {
			continue
		}
		s.seen[a.Class] = true
		s.applied(a.Class)
		s.line("")
		s.line("")
		s.printf("class %s(torch.autograd.Function):", s.className(a.Class))
		s.indent++
		for i, m := range a.Class.Methods {
			if i > 0 {
				s.line("")
			}
			s.scope(m, func() {
				s.static(s.name(nameKey{method, a.Class, m.Name}), s.variables(m, 0, m.Params))
				s.staticBody(m, a.Class, m.Body)
			})
		}
		if len(a.Class.Methods) > 0 {
			s.line("")
		}
		s.scope(f, func() { s.applyForward(f) })
		s.line("")
		s.scope(a.Backward, func() { s.applyBackward(f) })
		s.indent--
	}
}

// applyForward prints the forward of a torch.autograd.Function.
func (s *script) applyForward(f *program.Func) {
	a := f.Autograd
	s.static("forward", append([]string{"ctx"}, s.variables(f, 0, f.Params)...))
	last := len(f.Body) - 1
	s.staticBody(f, a.Class, f.Body[:last])
	s.indent++
	if len(a.Saved) > 0 {
		p := s.staticPrinter(f, a.Class)
		s.printf("ctx.save_for_backward(%s)", p.names(a.Saved))
	}
	for _, k := range a.Kept {
		s.printf("ctx.%s = %s", s.name(nameKey{kept, f, f.Slots[k]}), s.variable(f, k))
	}
	s.indent--
	s.staticBody(f, a.Class, []program.Stmt{results(&f.Body[last], a.Results)})
}

// applyBackward prints the backward.
func (s *script) applyBackward(f *program.Func) {
	a := f.Autograd
	b := a.Backward
	s.static("backward", append([]string{"ctx"}, s.variables(b, 0, a.Results)...))
	if n := len(a.Saved); n > 0 {
		names := strings.Join(s.variables(b, a.Results, a.Results+n), ", ")
		if n == 1 {
			names += "," // the tuple is unpacked
		}
		s.indent++
		s.printf("%s = ctx.saved_tensors", names)
		s.indent--
	}
	s.indent++
	for i, k := range a.Kept {
		s.printf("%s = ctx.%s", s.variable(b, a.Results+len(a.Saved)+i), s.name(nameKey{kept, f, f.Slots[k]}))
	}
	s.indent--
	s.staticBody(b, a.Class, b.Body)
}

// results is forward's return without the tensors that it only saves.
func results(ret *program.Stmt, n int) program.Stmt {
	out := *ret
	switch {
	case ret.Value == nil && n == 1:
		out.Value, out.Values = ret.Values[0], nil
	case ret.Value == nil:
		out.Values = ret.Values[:n]
	}
	return out
}

func (s *script) static(name string, params []string) {
	s.line("@staticmethod")
	s.printf("def %s(%s):", name, strings.Join(params, ", "))
}

func (s *script) staticPrinter(f *program.Func, c *program.Class) *printer {
	return &printer{script: s, fn: f, class: c, self: s.className(c) + "."}
}

func (s *script) staticBody(f *program.Func, c *program.Class, body []program.Stmt) {
	s.indent++
	s.staticPrinter(f, c).body(body)
	s.indent--
}
