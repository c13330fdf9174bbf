package report

import (
	"bytes"
	"io"
	"slices"
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
	// Width is how long lines may be; 0: as long as they are. Where they would be longer, columns are left out
	// that are spared, the last column is wrapped at spaces, or the rows are written as lists.
	Width int
	Spare []int // columns that may be left out, in this order
	Loose bool  // Width is no terminal's: nothing but the last column is changed, and lines may be longer
}

// Write prints the table without frames, indented by two columns.
func (t *Table) Write(w io.Writer) error {
	if !t.Loose && t.Width > 0 && t.natural() > t.Width {
		n := t.narrowed()
		if n.natural() > t.Width && n.lastWidth() < leastWrapped {
			return t.writeLists(w)
		}
		t = n
	}
	return t.writeTable(w)
}

func (t *Table) writeTable(w io.Writer) error {
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
			cells[last] = strings.Join(Wrap(cells[last], max(rest, leastWrapped)), "\n")
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
		line = " " + strings.TrimRight(line, " \n")
		if t.Width > 0 && strings.HasSuffix(line, "─") { // it goes one column beyond the last
			line = string([]rune(line)[:min(t.Width, utf8.RuneCountInString(line))])
		}
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// wide is how wide a column is.
func (t *Table) wide(column int) int {
	wide := utf8.RuneCountInString(t.Header[column])
	for _, r := range t.Rows {
		if column < len(r) {
			wide = max(wide, utf8.RuneCountInString(printable.Text(r[column])))
		}
	}
	if t.Footer != nil {
		wide = max(wide, utf8.RuneCountInString(t.Footer[column]))
	}
	return wide
}

// The columns in front of a table and between its columns, and how narrow a column may become
// whose texts are wrapped: a few words.
const (
	tableIndent, tableGap = 2, 2
	leastWrapped          = 20
)

// natural is how long the lines are if nothing is wrapped.
func (t *Table) natural() int {
	n := tableIndent - tableGap
	for i := range t.Header {
		n += t.wide(i) + tableGap
	}
	return n
}

// lastWidth is what Width leaves for the last column; 0 where nothing is to be wrapped.
func (t *Table) lastWidth() int {
	last := len(t.Header) - 1
	if t.Width == 0 || last < len(t.Numbers) && t.Numbers[last] {
		return 0
	}
	return max(t.Width-t.natural()+t.wide(last), 1)
}

// narrowed leaves out columns: those that say nothing, and then those that are spared, until the lines are short
// enough.
func (t *Table) narrowed() *Table {
	out := *t
	spare := slices.Clone(t.Spare)
	for i := range t.Header {
		if !slices.ContainsFunc(t.Rows, func(r []string) bool { return i < len(r) && strings.Trim(r[i], "- ") != "" }) {
			spare = slices.Insert(spare, 0, i)
		}
	}
	var gone []int
	for _, i := range spare {
		if out.natural() <= t.Width {
			break
		}
		gone = append(gone, i)
		without := func(cells []string) (left []string) {
			for k, c := range cells {
				if !slices.Contains(gone, k) {
					left = append(left, c)
				}
			}
			return left
		}
		out = Table{Width: t.Width, Header: without(t.Header)}
		for k := range t.Header {
			if !slices.Contains(gone, k) {
				out.Numbers = append(out.Numbers, k < len(t.Numbers) && t.Numbers[k])
			}
		}
		for _, r := range t.Rows {
			out.Rows = append(out.Rows, without(r))
		}
		if t.Footer != nil {
			out.Footer = without(t.Footer)
		}
	}
	return &out
}

// writeLists prints each row as a list of what its columns say.
func (t *Table) writeLists(w io.Writer) error {
	var out strings.Builder
	out.WriteString("  " + t.Header[0] + "\n")
	rows := t.Rows
	if t.Footer != nil {
		rows = append(slices.Clone(rows), t.Footer)
	}
	for _, r := range rows {
		line, items := "  - "+printable.Text(strings.TrimSpace(r[0])), 0
		for i, c := range r[1:] {
			if c = printable.Text(strings.TrimSpace(c)); c == "" || c == "-" {
				continue
			}
			item := c
			if head := t.Header[i+1]; head != "" && !strings.HasSuffix(c, head) { // not % of 5 %
				item = head + " " + c
			}
			if items++; items == 1 || utf8.RuneCountInString(line)+2+utf8.RuneCountInString(item) > t.Width {
				out.WriteString(line + "\n")
				line = "    " + item
			} else {
				line += ", " + item
			}
		}
		out.WriteString(line + "\n")
	}
	for line := range strings.Lines(out.String()) {
		for _, l := range broken(strings.TrimSuffix(line, "\n"), t.Width) {
			if _, err := io.WriteString(w, l+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
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
