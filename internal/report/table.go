package report

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/memplan/memplan/internal/printable"
)

// Table is a table of text. Columns are named; those of numbers are aligned to
// the right. The footer, if there is one, is the total.
type Table struct {
	Header  []string
	Numbers []bool // by column: aligned to the right
	Rows    [][]string
	Footer  []string
	Width   int // the last column is wrapped at spaces so that lines are no longer; 0: they are as long as they are
}

// Write prints the table without frames, indented by two columns.
func (t *Table) Write(w io.Writer) error {
	align := make(tw.Alignment, len(t.Header))
	for i := range align {
		align[i] = tw.AlignLeft
		if i < len(t.Numbers) && t.Numbers[i] {
			align[i] = tw.AlignRight
		}
	}
	lines := tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.On}
	var b bytes.Buffer
	out := tablewriter.NewTable(&b,
		tablewriter.WithRendition(tw.Rendition{
			Borders:  tw.BorderNone,
			Symbols:  tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: lines},
		}),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithFooterAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithFooterAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align),
	)
	out.Header(t.Header)
	rest := t.lastWidth()
	for _, r := range t.Rows {
		cells := make([]string, len(r))
		for i, c := range r {
			cells[i] = printable.Text(c)
		}
		if last := len(cells) - 1; rest > 0 && last == len(t.Header)-1 {
			cells[last] = strings.Join(Wrap(cells[last], rest), "\n")
		}
		if err := out.Append(cells); err != nil {
			return err
		}
	}
	if t.Footer != nil {
		out.Footer(t.Footer)
	}
	if err := out.Render(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, " "+strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// lastWidth is what Width leaves for the last column, and at least a few words;
// 0 where nothing is to be wrapped.
func (t *Table) lastWidth() int {
	if t.Width == 0 {
		return 0
	}
	const indent, gap, least = 2, 2, 20
	rest := t.Width - indent
	for i := range t.Header[:len(t.Header)-1] {
		wide := utf8.RuneCountInString(t.Header[i])
		for _, r := range t.Rows {
			wide = max(wide, utf8.RuneCountInString(r[i]))
		}
		rest -= wide + gap
	}
	return max(rest, least)
}

// lineWidth is how wide the lines of lists are.
const lineWidth = 100

// Wrap breaks a line at spaces into lines of at most width characters; a word
// that is longer has a line of its own.
func Wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
