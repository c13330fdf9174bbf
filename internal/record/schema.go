package record

import "strings"

// Schema is the signature of an operator of PyTorch's dispatcher.
type Schema struct {
	Name     string // without namespace and overload
	Space    string // "aten"
	Overload string
	Args     []Arg
}

// Arg is one argument of a Schema.
type Arg struct {
	Name    string
	Tensor  bool // takes tensors
	Written bool // and is changed by the operator
}

// Full is the name as dispatchers write it.
func (s *Schema) Full() string {
	if s.Overload == "" {
		return s.Space + "::" + s.Name
	}
	return s.Space + "::" + s.Name + "." + s.Overload
}

// Writes reports whether the operator changes an argument.
func (s *Schema) Writes() bool {
	for _, a := range s.Args {
		if a.Written {
			return true
		}
	}
	return false
}

// parseSchema reads a signature such as
//
//	aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)
func parseSchema(text string) (*Schema, bool) {
	name, rest, ok := strings.Cut(text, "(")
	if !ok || name == "" {
		return nil, false
	}
	s := &Schema{}
	s.Space, s.Name, ok = strings.Cut(name, "::")
	if !ok {
		s.Space, s.Name = "", name
	}
	s.Name, s.Overload, _ = strings.Cut(s.Name, ".")
	end := closing(rest)
	if end < 0 {
		return nil, false
	}
	for _, part := range splitArgs(rest[:end]) {
		if part == "*" {
			continue
		}
		decl, _, _ := strings.Cut(part, "=")
		at := strings.LastIndexByte(strings.TrimSpace(decl), ' ')
		if at < 0 {
			return nil, false
		}
		kind := decl[:at]
		s.Args = append(s.Args, Arg{
			Name: strings.TrimSpace(decl[at:]), Tensor: strings.HasPrefix(kind, "Tensor"), Written: strings.HasPrefix(kind, "Tensor(") && strings.Contains(kind, "!"),
		})
	}
	return s, true
}

// closing is where the parenthesis ends that is open at the start; -1: nowhere.
func closing(s string) int {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// splitArgs splits at commas outside of parentheses, brackets and strings.
func splitArgs(s string) []string {
	var parts []string
	depth, start, quoted := 0, 0, false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	if last := strings.TrimSpace(s[start:]); last != "" {
		parts = append(parts, last)
	}
	return parts
}
