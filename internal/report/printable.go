package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable replaces characters that would steer a terminal by their escapes:
// names come from files that others wrote.
func Printable(s string) string {
	if strings.IndexFunc(s, steers) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if steers(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// steers reports control characters and those that change the direction of
// writing (Unicode's Bidi_Control).
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Markdown escapes what Markdown would read as more than text, and the @ that
// would send somebody a message.
func Markdown(s string) string { return markdown(s) }

// markdown escapes what Markdown would read as more than text.
func markdown(s string) string { return markdownEscapes.Replace(Printable(s)) }

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "&", "&amp;", "@", "&#64;", "[", `\[`, "#", `\#`)

// WriteMarkdown prints the table as one of GitHub's Markdown.
func (t *Table) WriteMarkdown(w io.Writer) error {
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---"
		if i < len(t.Numbers) && t.Numbers[i] {
			rule[i] = "---:"
		}
	}
	lines := [][]string{t.Header, rule}
	for _, r := range append(t.Rows[:len(t.Rows):len(t.Rows)], t.Footer) {
		if r != nil {
			lines = append(lines, r)
		}
	}
	for n, line := range lines {
		for i := range t.Header {
			cell := ""
			if i < len(line) {
				cell = line[i]
			}
			if n != 1 {
				cell = markdown(cell)
			}
			if _, err := fmt.Fprintf(w, "| %s ", cell); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, "|\n"); err != nil {
			return err
		}
	}
	return nil
}
