package spec

import (
	"fmt"
	"regexp"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
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
	File string
	// Private says that who wrote the spec may have chosen what file this is:
	// nothing of its text is printed, neither lines nor what messages quote.
	Private   bool
	Lines     []string
	Overrides []string          // flags as written: "--set key=value"
	Origins   []Origin          // of the lines, as Options.Origins
	Keys      map[string]string // as Options.Keys
	Ignored   []note.Note       // keys that the program of the file ignores, which may be what is wrong
	List      []Diag            // the first maxErrors that were found
	More      int               // mistakes beyond those

	within    int // Contained calls under way
	contained int // mistakes that were found in them
	reported  int // mistakes, with those that had been reported before
}

// maxErrors is how many mistakes of a file are told.
const maxErrors = 100

// add appends a mistake unless the very same was reported before.
func (e *Errors) add(d Diag) {
	d.Msg, d.Hint = clip(d.Msg), clip(d.Hint)
	e.reported++
	for _, o := range e.List {
		if o == d {
			return
		}
	}
	e.count()
	if len(e.List) == maxErrors {
		e.More++
		return
	}
	e.List = append(e.List, d)
}

// count notes whether the mistake that is being added is contained.
func (e *Errors) count() {
	if e.within > 0 {
		e.contained++
	}
}

// Contained runs f, whose mistakes do not matter to the rest of the file, because
// a default or what is unknown stands for what they are in. It reports whether
// there were any.
func (e *Errors) Contained(f func()) bool {
	n := e.reported
	e.within++
	defer func() { e.within-- }()
	f()
	return e.reported > n
}

// Reported counts the mistakes so far, the same ones too.
func (e *Errors) Reported() int { return e.reported }

// AllContained reports whether no mistake matters to the rest of the file.
func (e *Errors) AllContained() bool { return e.contained == len(e.List)+e.More }

// Full reports whether no more mistakes are told.
func (e *Errors) Full() bool { return len(e.List) == maxErrors }

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

// Stop unwinds, as a panic, from a mistake that was reported to a Try: what comes
// next cannot be understood without what was to come of it.
type Stop struct{}

// Failf reports a mistake at a place and stops.
func (e *Errors) Failf(s Span, format string, args ...any) {
	e.Addf(s, format, args...)
	panic(Stop{})
}

// Try runs f, which a mistake may stop, and reports whether it came to its end.
func Try(f func()) (ok bool) {
	defer func() {
		switch r := recover().(type) {
		case nil, Stop:
		default:
			panic(r)
		}
	}()
	f()
	return true
}

// Eval computes a value; it stops at a mistake.
func (e *Errors) Eval(v *Value, env Env) any {
	x, err := v.Eval(env)
	if err != nil {
		e.AddErr(v.Span, err)
		panic(Stop{})
	}
	return x
}

// DType reads a type of elements; it stops if there is none of that name.
func (e *Errors) DType(s String) tensor.DType {
	d, err := tensor.ParseDType(s.V)
	if err != nil {
		e.Unknown(s.At, "dtype", s.V, tensor.DTypeNames())
		panic(Stop{})
	}
	return d
}

// Unknown reports a name that is not among the allowed ones, with the nearest
// of them if one is near.
func (e *Errors) Unknown(s Span, what, name string, allowed []string) {
	if e.Full() { // what is near costs time
		e.count()
		e.reported++
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

// Sorted lists the mistakes by their places.
func (e *Errors) Sorted() []Diag {
	list := append([]Diag(nil), e.List...)
	sort.SliceStable(list, func(i, j int) bool { return list[i].Pos.Before(list[j].Pos) })
	return list
}

// Error prints every mistake as "file:line:col: message", the source line and
// a caret under the place.
func (e *Errors) Error() string {
	list := e.Sorted()
	var b strings.Builder
	for i, d := range list {
		if i > 0 {
			b.WriteByte('\n')
		}
		msg := e.Message(&d)
		from := e.Origin(d.Span)
		if o, ok := e.Override(&d); ok {
			printable.Fprintf(&b, "%s: %s", o, msg)
		} else if from.Flag != "" {
			printable.Fprintf(&b, "%s: %s", from.Flag, msg)
		} else if from.File != "" {
			printable.Fprintf(&b, "%s:%d:%d: %s", from.File, from.Line, from.Col, msg)
			if !e.Private {
				b.WriteString(caret(from.Text, from.Span))
			}
		} else {
			printable.Fprintf(&b, "%s:%d:%d: %s", e.File, d.Line, d.Col, msg)
		}
		if from == (Origin{}) && d.Line >= 1 && d.Line <= len(e.Lines) && !e.Private {
			b.WriteString(caret(e.Lines[d.Line-1], d.Span))
		}
		if d.Hint != "" {
			b.WriteString("\n      = " + printable.Text(d.Hint))
		}
	}
	for _, n := range e.Ignored {
		printable.Fprintf(&b, "\n%s:%d:%d: %s", n.Place.File, n.Place.Line, n.Place.Col, n.Text)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", e.File, e.More)
	}
	return b.String()
}

// Override is what said what is wrong, in place of the file: a flag, or the
// configuration of a check.
func (e *Errors) Override(d *Diag) (what string, ok bool) {
	if d.Line >= 0 || -d.Line > len(e.Overrides) {
		return "", false
	}
	return e.Overrides[-d.Line-1], true
}

// Origin is what a place comes from in a text that was made of other files; the zero
// Origin in others, and where no file says it.
func (e *Errors) Origin(s Span) Origin {
	if s.Line < 1 || s.Line > len(e.Origins) {
		return Origin{}
	}
	return e.Origins[s.Line-1]
}

// quoted is what a message quotes of a file, in quotes or as a number.
var quoted = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"?|'[^']*'?|`[^`]*`?|[+-]?[0-9][^\\s,;:]*")

// didYouMean is the part of a message that quotes what memplan knows.
const didYouMean = "; did you mean "

// ofValue is how messages about a value begin that name its key after them.
const ofValue = "unknown value of "

// InFile is a text that begins with a key of the spec, with the name that the file has for the
// key, from which the spec was made.
func InFile(text string, keys map[string]string) string {
	at := len(text) - len(strings.TrimPrefix(text, ofValue))
	end := at + len(text[at:]) - len(strings.TrimLeft(text[at:], keyChars))
	word := text[at:end]
	name := keys[word]
	if name == "" && !strings.Contains(word, ".") {
		for path, n := range keys {
			if strings.HasSuffix(path, "."+word) {
				if name != "" && name != n {
					return text
				}
				name = n
			}
		}
	}
	if name == "" {
		return text
	}
	return text[:at] + name + text[end:]
}

const keyChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."

// Message is what a mistake says, without what is private.
func (e *Errors) Message(d *Diag) string {
	if d.Line < 0 {
		return d.Msg
	}
	msg := InFile(d.Msg, e.Keys)
	if !e.Private {
		return msg
	}
	msg, hint, found := strings.Cut(msg, didYouMean)
	msg = quoted.ReplaceAllString(msg, "...")
	if found {
		msg += didYouMean + hint
	}
	return msg
}

// caret shows the line and marks the span. Tabs are kept so that the mark
// stays under its place, what may not be printed is replaced character by
// character; very long lines are cut around it.
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
	r := []rune(printable.Masked(line[begin : begin+end]))
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

// Are writes how many there are: 1 is, 2 are.
func Are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// Plural counts things in a message: 1 input, 2 inputs.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
