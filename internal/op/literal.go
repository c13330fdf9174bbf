package op

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Literal prints a value as Python writes it.
func Literal(v any) string {
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
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case []int64:
		if len(v) == 1 {
			return strconv.FormatInt(v[0], 10)
		}
		parts := make([]string, len(v))
		for i, n := range v {
			parts[i] = strconv.FormatInt(n, 10)
		}
		return "(" + strings.Join(parts, ", ") + ")"
	case []float64:
		parts := make([]string, len(v))
		for i, n := range v {
			parts[i] = Literal(n)
		}
		return "(" + strings.Join(parts, ", ") + ")"
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = Literal(x)
		}
		return "(" + strings.Join(parts, ", ") + ")"
	case tensor.MemoryFormat:
		return "torch." + string(v)
	case tensor.DType:
		return "torch." + v.String()
	}
	return fmt.Sprint(v)
}
