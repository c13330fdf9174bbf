// Package printable makes text of others fit to print.
//
// Names, paths and messages come from files that anybody may have written, and
// go where somebody reads them: a terminal, the log of a service that looks for
// commands in it, a file of YAML or of a shell. What may be printed is decided
// here alone, by Unicode's categories: letters, marks, numbers, punctuation,
// symbols and spaces. All else (controls, what formats text without being seen,
// ends of lines and paragraphs, private and unassigned characters) is written
// as an escape that JSON, Python and YAML read as the character itself.
package printable

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Rune reports whether a character may be printed as it is.
func Rune(r rune) bool { return unicode.IsGraphic(r) }

// Text is a name or message in one line: what may not be printed is escaped,
// and what a service would take for a command is broken up.
func Text(s string) string { return disarmed(escape(s, Rune)) }

// disarmed is a line that is no command, and holds none.
func disarmed(s string) string {
	if at := len(s) - len(strings.TrimLeftFunc(s, unicode.IsSpace)); strings.HasPrefix(s[at:], "::") {
		s = s[:at] + `\u003a` + s[at+1:]
	}
	return command.ReplaceAllString(s, `#\u0023$1`)
}

// Lines is text of several lines, each as Text has it; tabs stay.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = disarmed(escape(l, func(r rune) bool { return Rune(r) || r == '\t' }))
	}
	return strings.Join(lines, "\n")
}

// Quoted is text of Python or YAML in which names stand in string literals that
// know escapes: it means the same, and has nothing that a terminal or a service
// obeys.
func Quoted(s string) string {
	s = escape(s, func(r rune) bool { return Rune(r) || r == '\n' || r == '\t' })
	return command.ReplaceAllString(s, `#\u0023$1`)
}

// JSON is the same for text of JSON, which writes characters beyond 16 bits as
// two surrogates.
func JSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r > 0xffff && !Rune(r) {
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		} else {
			b.WriteRune(r)
		}
	}
	return Quoted(b.String())
}

// Masked is a line with as many characters, to be shown behind a margin: another
// stands for each that may not be printed. Tabs stay.
func Masked(line string) string {
	line = strings.Map(func(r rune) rune {
		if Rune(r) || r == '\t' {
			return r
		}
		return utf8.RuneError
	}, line)
	return command.ReplaceAllString(line, "#\ufffd$1")
}

// command is what begins a command in the logs of GitHub (##[error], the old
// form, anywhere in a line), Azure (##vso[, ##[) and TeamCity (##teamcity[). The
// other form of GitHub's, ::error::, begins its line.
var command = regexp.MustCompile(`##(\w*\[)`)

// escape writes the characters that are not kept as Python does.
func escape(s string, keep func(rune) bool) string {
	if strings.IndexFunc(s, func(r rune) bool { return !keep(r) }) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case keep(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Verbatim is text that Sprintf and Fprintf leave as it is.
type Verbatim string

// Sprintf is fmt.Sprintf with every string and error among the arguments as Text
// has it.
func Sprintf(format string, args ...any) string {
	out := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			out[i] = Text(a)
		case error:
			out[i] = Text(a.Error())
		default:
			out[i] = a
		}
	}
	return fmt.Sprintf(format, out...)
}

// Fprintf writes what Sprintf makes.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	return io.WriteString(w, Sprintf(format, args...))
}

// bare matches words that mean themselves to a shell.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-][A-Za-z0-9_./:@%+,=-]*$`)

// File is a path as an argument of a command line that can be copied: quoted
// for a shell, and never taken for a flag.
func File(path string) string {
	if strings.HasPrefix(path, "-") && path != "-" {
		path = "./" + path
	}
	return Word(path)
}

// Word is an argument of a command line that can be copied.
func Word(s string) string {
	if bare.MatchString(s) {
		return s
	}
	if strings.IndexFunc(s, func(r rune) bool { return !Rune(r) }) < 0 && utf8.ValidString(s) && Quoted(s) == s {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder // $'...' of bash, zsh and POSIX 2024, byte by byte
	for i := range len(s) {
		switch c := s[i]; {
		case c >= ' ' && c <= '~' && c != '\'' && c != '\\' && c != '#':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	return "$'" + b.String() + "'"
}
