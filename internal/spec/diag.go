package spec

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/memplan/memplan/internal/nearest"
)

// Pos is a place in a file: line and column from 1, the column counted in
// characters. A negative line -n is the n-th override from the command line.
type Pos struct{ Line, Col int }

// Before orders positions: overrides in their order, then the file.
func (p Pos) Before(q Pos) bool {
	if p.Line < 0 && q.Line < 0 {
		return p.Line > q.Line
	}
	return p.Line < q.Line || (p.Line == q.Line && p.Col < q.Col)
}

// Span is a stretch of one line.
type Span struct {
	Pos
	Len int // characters; at least 1 is marked
}

// Diag is one mistake in a spec.
type Diag struct {
	Span
	Msg  string
	Hint string // what is allowed, or what to do
}

// Errors are all mistakes of one file. It prints them sorted, each with its
// source line and a caret.
type Errors struct {
	File      string
	Lines     []string
	Overrides []string // flags as written: "--set key=value"
	List      []Diag   // the first maxErrors that were found
	More      int      // mistakes beyond those
}

// maxErrors is how many mistakes of a file are told.
const maxErrors = 100

// add appends a mistake unless the very same was reported before.
func (e *Errors) add(d Diag) {
	d.Msg, d.Hint = clip(d.Msg), clip(d.Hint)
	for _, o := range e.List {
		if o == d {
			return
		}
	}
	if len(e.List) == maxErrors {
		e.More++
		return
	}
	e.List = append(e.List, d)
}

// maxMessage is how many bytes of a message are told.
const maxMessage = 4000

// clip cuts a message, of names for instance that are as long as the file.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "..."
}

// Addf reports a mistake at s.
func (e *Errors) Addf(s Span, format string, args ...any) {
	e.add(Diag{Span: s, Msg: fmt.Sprintf(format, args...)})
}

// Unknown reports a name that is not among the allowed ones, with the nearest
// of them if one is near.
func (e *Errors) Unknown(s Span, what, name string, allowed []string) {
	if len(e.List) == maxErrors { // what is near costs time
		e.More++
		return
	}
	d := Diag{Span: s, Msg: fmt.Sprintf("unknown %s %q", what, name)}
	if n := nearest.To(name, allowed); n != "" {
		d.Msg += fmt.Sprintf("; did you mean %q?", n)
	}
	if len(allowed) > 0 && len(allowed) <= 60 {
		d.Hint = "allowed: " + strings.Join(allowed, ", ")
	}
	e.add(d)
}

// Err returns e if it holds a mistake.
func (e *Errors) Err() error {
	if len(e.List) == 0 {
		return nil
	}
	return e
}

// Error prints every mistake as "file:line:col: message", the source line and
// a caret under the place.
func (e *Errors) Error() string {
	list := append([]Diag(nil), e.List...)
	sort.SliceStable(list, func(i, j int) bool { return list[i].Pos.Before(list[j].Pos) })
	var b strings.Builder
	for i, d := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		if d.Line < 0 && -d.Line <= len(e.Overrides) {
			fmt.Fprintf(&b, "%s: %s", e.Overrides[-d.Line-1], d.Msg)
		} else {
			fmt.Fprintf(&b, "%s:%d:%d: %s", e.File, d.Line, d.Col, d.Msg)
		}
		if d.Line >= 1 && d.Line <= len(e.Lines) {
			b.WriteString(caret(e.Lines[d.Line-1], d.Span))
		}
		if d.Hint != "" {
			b.WriteString("\n      = " + d.Hint)
		}
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", e.File, e.More)
	}
	return b.String()
}

// caret shows the line and marks the span. Tabs are kept so that the mark
// stays under its place, other control characters replaced; very long lines are
// cut around it.
func caret(line string, s Span) string {
	const width = 110
	_, col := cutAt(line, s.Col-1)
	n := max(s.Len, 1)
	from, cut := 0, ""
	if col > width-20 {
		from, cut = col-20, "..."
	}
	begin, _ := cutAt(line, from)
	end, _ := cutAt(line[begin:], width)
	r := []rune(strings.Map(func(c rune) rune {
		if steers(c) {
			return utf8.RuneError
		}
		return c
	}, line[begin:begin+end]))
	var pad strings.Builder
	for _, c := range cut {
		_ = c
		pad.WriteByte(' ')
	}
	for _, c := range r[:col-from] {
		switch {
		case c == '\t':
			pad.WriteByte('\t')
		case wide(c):
			pad.WriteString("  ")
		default:
			pad.WriteByte(' ')
		}
	}
	n = max(1, min(n, from+len(r)-col))
	return fmt.Sprintf("\n %4d | %s%s\n      | %s%s%s", s.Line, cut, string(r), pad.String(), "^", strings.Repeat("~", n-1))
}

// cutAt returns the byte at which the n-th character of a text begins, from 0, or
// its end, and how many characters are before.
func cutAt(s string, n int) (at, before int) {
	for at = range s {
		if before == n {
			return at, n
		}
		before++
	}
	return len(s), before
}

// wide reports characters that terminals show in two columns: the East Asian
// wide blocks and emoji.
func wide(c rune) bool {
	return c >= 0x1100 && (c <= 0x115f || (c >= 0x2e80 && c <= 0xa4cf) || (c >= 0xac00 && c <= 0xd7a3) ||
		(c >= 0xf900 && c <= 0xfaff) || (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
		(c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) || (c >= 0x20000 && c <= 0x3fffd))
}
