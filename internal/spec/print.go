package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pyStr prints a value as Python's str does.
func pyStr(x any) string {
	var b strings.Builder
	writePy(&b, x, math.MaxInt)
	return b.String()
}

// writePy appends what pyStr prints, and stops where there is more than most. It
// reports whether that was all.
func writePy(b *strings.Builder, x any, most int) bool {
	switch x := x.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if x {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case float64:
		b.WriteString(pyFloat(x))
	case string:
		b.WriteString(x)
	case []any:
		b.WriteByte('[')
		for i, e := range x {
			if i > 0 {
				b.WriteString(", ")
			}
			if s, ok := e.(string); ok {
				b.WriteString(strconv.Quote(s))
			} else {
				writePy(b, e, most)
			}
			if b.Len() > most {
				return false
			}
		}
		b.WriteByte(']')
	default:
		fmt.Fprint(b, x)
	}
	return b.Len() <= most
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
		return typeName(x)
	}
	var b strings.Builder
	writePy(&b, x, maxShown*utf8.UTFMax)
	return shorten(b.String())
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
	switch x := x.(type) {
	case interface{ TypeName() string }:
		return x.TypeName()
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
