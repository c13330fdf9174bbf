package exporttorch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/nn"
	"github.com/memplan/memplan/internal/program"
)

// classes prints the blocks of the spec as classes, inner ones first.
func (s *script) classes() {
	s.seen = map[*program.Class]bool{}
	for _, m := range s.job.Models {
		for _, root := range s.roots(m) {
			s.class(root)
		}
	}
	s.called(s.job.Aux)
	if e := s.job.Eval; e != nil {
		for _, m := range s.job.Models {
			for _, z := range e.Sizes() {
				if z.Apart[m.Name] {
					s.class(z.Models[m.Name])
				}
			}
		}
		s.called(e.Aux)
	}
}

// called prints the blocks that statements of the script itself call.
func (s *script) called(aux *program.Class) {
	for _, ch := range aux.Children {
		s.class(ch.Class)
	}
	s.applied(aux)
}

func (s *script) class(c *program.Class) {
	if s.seen[c] || !c.IsBlock() && c.Layer != nn.Sequential {
		return
	}
	s.seen[c] = true
	for _, ch := range c.Children {
		s.class(ch.Class)
	}
	s.applied(c)
	if c.Name == "" {
		return
	}
	s.line("")
	s.line("")
	if c.Layer == nn.Sequential {
		s.printf("class %s(nn.Sequential):", s.className(c))
		s.indent++
		s.line(`"""nn.Sequential, some of whose modules are checkpointed."""`)
		s.function(c.Forward, c)
		s.indent--
		return
	}
	s.printf("class %s(nn.Module):", s.className(c))
	s.indent++
	s.members[c] = c.Members()
	if s.isStage(c) {
		s.dicts = numbered(c)
		defer func() { s.dicts = nil }()
	}
	s.init(c)
	for _, f := range c.Methods {
		s.function(f, c)
	}
	if c.Forward != nil { // something calls it
		s.function(s.forwardOf(c), c)
	}
	s.indent--
}

// initials are the functions that make first values.
var initials = map[string]string{"": "torch.zeros", "zeros": "torch.zeros", "ones": "torch.ones", "normal": "torch.randn"}

// init prints __init__: own parameters, buffers, then submodules.
func (s *script) init(c *program.Class) {
	s.line("def __init__(self):")
	s.indent++
	s.line("super().__init__()")
	for _, p := range c.Params {
		dtype := ""
		if p.Fixed {
			dtype = ", dtype=" + program.Literal(p.DType)
		}
		s.printf("self.%s = nn.Parameter(%s(%s%s))", s.path(p.Name), initials[p.Init], sizes(p.Size), dtype)
	}
	if c.Layer == nn.LinearOf {
		s.line("self.out_features, self.in_features = self.weight.shape")
	}
	for _, p := range c.Buffers {
		dtype := ""
		if p.Fixed {
			dtype = ", dtype=" + program.Literal(p.DType)
		}
		persistent := ""
		if p.NonPersistent {
			persistent = ", persistent=False"
		}
		s.printf(`self.register_buffer("%s", %s(%s%s)%s)`, s.path(p.Name), initials[p.Init], sizes(p.Size), dtype, persistent)
	}
	order := c.Registered()
	for i := 0; i < len(order); {
		ch := &c.Children[order[i]]
		name, _, contained := strings.Cut(ch.Path, ".")
		if !contained {
			s.printf("self.%s = %s", s.path(name), s.construct(ch.Class))
			i++
			continue
		}
		n := i
		for n < len(order) && strings.HasPrefix(c.Children[order[n]].Path, name+".") {
			n++
		}
		s.printf("self.%s = %s", s.path(name), s.container(c, name, order[i:n]))
		i = n
	}
	for _, ch := range c.Children {
		for _, t := range ch.Ties {
			s.printf("self.%s.%s = self.%s", s.attr(ch.Path), s.attr(t.Param), s.attr(t.Source))
		}
	}
	s.indent--
}

// container prints the ModuleList or ModuleDict at a path, which holds some children;
// runs of equal items become a comprehension.
func (s *script) container(c *program.Class, path string, children []int) string {
	var keys, parts []string
	for i := 0; i < len(children); {
		rest := strings.TrimPrefix(c.Children[children[i]].Path, path+".")
		key, _, inner := strings.Cut(rest, ".")
		n := i + 1
		part := path + "." + key
		if inner {
			for n < len(children) && strings.HasPrefix(c.Children[children[n]].Path, part+".") {
				n++
			}
			parts = append(parts, s.container(c, part, children[i:n]))
		} else {
			parts = append(parts, s.construct(c.Children[children[i]].Class))
		}
		keys = append(keys, key)
		i = n
	}
	if strings.Trim(keys[0], "0123456789") != "" || s.dicts[path] {
		for i, k := range keys {
			parts[i] = fmt.Sprintf("%q: %s", k, parts[i])
		}
		return s.wrapped("nn.ModuleDict({", parts, "})")
	}
	if len(parts) > 2 && !slices.ContainsFunc(parts, func(p string) bool { return p != parts[0] }) {
		return fmt.Sprintf("nn.ModuleList([%s for _ in range(%d)])", parts[0], len(parts))
	}
	return s.wrapped("nn.ModuleList([", parts, "])")
}

// wrapped joins parts, on lines of their own if they are long.
func (s *script) wrapped(open string, parts []string, closing string) string {
	one := open + strings.Join(parts, ", ") + closing
	if len(one) < 100 && !strings.Contains(one, "\n") {
		return one
	}
	pad := strings.Repeat("    ", s.indent+1)
	for i, p := range parts {
		parts[i] = pad + strings.ReplaceAll(p, "\n", "\n    ")
	}
	return open + "\n" + strings.Join(parts, ",\n") + ",\n" + strings.Repeat("    ", s.indent) + closing
}

// construct prints the expression that makes a module.
func (s *script) construct(c *program.Class) string {
	switch {
	case c.Layer == nn.Sequential:
		parts := make([]string, len(c.Children))
		for i, ch := range c.Children {
			parts[i] = s.construct(ch.Class)
		}
		name := nn.Sequential.Python
		if c.Name != "" {
			name = s.className(c)
		}
		return s.wrapped(name+"(", parts, ")")
	case c.Name != "":
		return s.className(c) + "()"
	}
	return c.Python
}

func sizes(n []int64) string {
	if len(n) == 0 {
		return "()"
	}
	parts := make([]string, len(n))
	for i, v := range n {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ", ")
}

// attr writes a path of attributes and indices as Python: "blocks.0.fc" is
// blocks[0].fc.
func (s *script) attr(path string) string {
	var b strings.Builder
	list := ""
	for i, p := range strings.Split(s.path(path), ".") {
		of := list
		list = program.Join(list, strings.Split(path, ".")[i])
		switch {
		case s.dicts[of] && p != "" && strings.Trim(p, "0123456789") == "":
			b.WriteString(`["` + p + `"]`)
		case p != "" && strings.Trim(p, "0123456789") == "":
			b.WriteString("[" + p + "]")
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}
