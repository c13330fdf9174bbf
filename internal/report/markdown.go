package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
)

// Markdown escapes what Markdown would read as more than text, and the @ that
// would send somebody a message.
func Markdown(s string) string { return markdown(s) }

// markdown escapes what Markdown would read as more than text.
func markdown(s string) string { return markdownEscapes.Replace(printable.Text(s)) }

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "~", `\~`, "$", `\$`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "[", `\[`, "@", "@"+apart, "#", `\#`+apart, "://", ":"+apart+"//", "www.", "www"+apart+".")

// apart is a space of no width: GitHub looks for mentions, links and numbers of
// issues in the text that was rendered, in which escapes are gone.
const apart = "&#8203;"

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
