package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// pyStr prints a value as Python's str does.
func pyStr(x any) string {
	switch x := x.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case float64:
		return pyFloat(x)
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = pyStr(e)
			if s, ok := e.(string); ok {
				parts[i] = strconv.Quote(s)
			}
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(x)
}

func pyFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

// Show prints a value in messages: a string in quotes, long ones cut.
func Show(x any) string {
	switch x := x.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(shorten(x))
	case bool:
		return strconv.FormatBool(x)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case Object:
		return "a tensor"
	}
	return shorten(pyStr(x))
}

// truth is Python's.
func truth(x any) bool {
	switch x := x.(type) {
	case nil:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case float64:
		return x != 0
	case string:
		return x != ""
	case []any:
		return len(x) > 0
	}
	return true
}

// Truth is Python's truth of a value that Eval returned.
func Truth(x any) bool { return truth(x) }

func typeName(x any) string {
	switch x.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "a tensor"
}
