package report

import (
	"bytes"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// Table is a table of text. Columns are named; those of numbers are aligned to
// the right. The footer, if there is one, is the total.
type Table struct {
	Header  []string
	Numbers []bool // by column: aligned to the right
	Rows    [][]string
	Footer  []string
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
	for _, r := range t.Rows {
		cells := make([]string, len(r))
		for i, c := range r {
			cells[i] = Printable(c)
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
