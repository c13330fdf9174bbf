package op

import "strings"

// String writes the signature as Python does: names and defaults. A parameter
// that is inferred from the input is in brackets.
func (s *Sig) String() string {
	var parts []string
	kwOnly := false
	for i := range s.Params {
		p := &s.Params[i]
		if p.KwOnly && !kwOnly {
			parts, kwOnly = append(parts, "*"), true
		}
		text := p.Name
		switch {
		case p.Star:
			text = "*" + text
		case p.Infer:
			text = "[" + text + "]"
		case !p.Required:
			text += "=" + Literal(p.Default)
		}
		parts = append(parts, text)
	}
	return s.Python + "(" + strings.Join(parts, ", ") + ")"
}
