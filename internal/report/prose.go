package report

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Prose breaks lines at spaces, so that none is longer than a terminal is wide. What follows
// begins below the text of the line, behind its words that stand apart. Words that are longer have
// lines of their own.
type Prose struct {
	w     io.Writer
	width int
	rest  []byte // of a line without its end
}

// NewProse returns a writer of lines of at most so many columns. Flush writes a last line
// that has no end.
func NewProse(w io.Writer, width int) *Prose { return &Prose{w: w, width: width} }

func (p *Prose) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	var out strings.Builder
	for line := range strings.Lines(string(p.rest[:end])) {
		for _, l := range broken(strings.TrimSuffix(line, "\n"), p.width) {
			out.WriteString(l + "\n")
		}
	}
	p.rest = append(p.rest[:0], p.rest[end:]...)
	if _, err := io.WriteString(p.w, out.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Flush writes what came after the last end of a line.
func (p *Prose) Flush() error {
	_, err := io.WriteString(p.w, strings.Join(broken(string(p.rest), p.width), "\n"))
	p.rest = nil
	return err
}

// ansi finds what changes the colour, which takes no room.
var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

// columns is how wide a text is.
func columns(s string) int { return utf8.RuneCountInString(ansi.ReplaceAllString(s, "")) }

// lead finds the words of a line that stand apart from its text: the name of a row, a number
// of a list.
var lead = regexp.MustCompile(`^ *(?:(?:[-!]|\d+\.) +|\S+(?: \S+)*?  +)*`)

// unit finds the unit behind a number.
var unit = regexp.MustCompile(`^ (?:[KMGTP]iB|B|%)(?:[,;:.)]*)(?: |$)`)

// broken breaks a line.
func broken(line string, width int) []string {
	if columns(line) <= width {
		return []string{line}
	}
	bare := ansi.ReplaceAllString(line, "")
	indent := len(bare) - len(strings.TrimLeft(bare, " "))
	hang := indent + 2
	if text := utf8.RuneCountInString(lead.FindString(bare)); text > indent && text <= width/2 {
		hang = text
	}
	var out []string
	now, wide := "", 0
	rest := line
	for rest != "" {
		gap := rest[:len(rest)-len(strings.TrimLeft(rest, " "))]
		word, _, _ := strings.Cut(rest[len(gap):], " ")
		if n := len(word); n > 0 && word[n-1] >= '0' && word[n-1] <= '9' {
			word += strings.TrimRight(unit.FindString(rest[len(gap)+n:]), " ")
		}
		rest = rest[len(gap)+len(word):]
		if word == "" {
			break
		}
		n := columns(word)
		if strings.TrimSpace(now) != "" && wide+len(gap)+n > width {
			out = append(out, strings.TrimRight(now, " "))
			now, wide, gap = strings.Repeat(" ", hang), hang, ""
		}
		now += gap + word
		wide += len(gap) + n
	}
	return append(out, strings.TrimRight(now, " "))
}
