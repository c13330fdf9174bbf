package op

import (
	"fmt"
	"strconv"
	"strings"
)

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
			text += "=" + pythonDefault(p.Default)
		}
		parts = append(parts, text)
	}
	return s.Python + "(" + strings.Join(parts, ", ") + ")"
}

func pythonDefault(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return strconv.Quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = pythonDefault(x)
		}
		return "(" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprint(v)
}
