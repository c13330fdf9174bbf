package report

import (
	"strings"

	"github.com/memplan/memplan/internal/printable"
)

// ANSI colours.
const (
	green  = "\x1b[1;32m"
	yellow = "\x1b[1;33m"
	red    = "\x1b[1;31m"
	cyan   = "\x1b[36m"
	strong = "\x1b[1m"
	plain  = "\x1b[0m"
)

var verdictColors = map[string]string{Fits: green, Tight: yellow, OOMs: red}

// Ink marks texts with ANSI colours, if it is true.
type Ink bool

// Verdict is a text in the colour of a verdict.
func (k Ink) Verdict(result, s string) printable.Verbatim {
	return printable.Verbatim(k.paint(verdictColors[result], s))
}

// Bold is a heading.
func (k Ink) Bold(s string) printable.Verbatim { return printable.Verbatim(k.paint(strong, s)) }

func (k Ink) paint(color, s string) string {
	if s = printable.Text(s); !k || color == "" || strings.TrimSpace(s) == "" {
		return s
	}
	return color + s + plain
}
