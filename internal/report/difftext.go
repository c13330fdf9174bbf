package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// DiffFormat is one way to print a Diff.
type DiffFormat = FormatOf[*Diff, DiffOptions]

// DiffFormats are the formats of comparisons.
var DiffFormats FormatTable[*Diff, DiffOptions]

var _ = DiffFormats.Add(DiffFormat{
	Name: "json", Doc: "for programs: everything, bytes as integers", Rank: 2,
	Write: func(w io.Writer, d *Diff, _ DiffOptions) error { return JSON(w, d) },
})

// DiffOptions change what is printed.
type DiffOptions struct {
	All bool // figures that are equal too
	Top int  // layers to show

	Width int // of the terminal; 0: text is not for one
	Color Ink // mark verdicts with ANSI colours
}

// wide reports a setting that the table of a terminal has no room for, which has two and a name.
func (t *DiffText) wide(o DiffOptions) bool {
	most := 36
	if o.Width > 0 {
		most = min(most, o.Width*36/100)
	}
	return utf8.RuneCountInString(t.A) > most || utf8.RuneCountInString(t.B) > most
}

// tables are the sections of a comparison; those in which nothing is to be
// shown are left out, as are wide settings unless they are asked for.
func (d *Diff) tables(o DiffOptions, wide bool) []*Table {
	var out []*Table
	add := func(title string, rows [][]string, numbers bool, more ...string) {
		if len(rows) > 0 {
			out = append(out, &Table{Header: append([]string{title, "A", "B"}, more...), Numbers: []bool{false, numbers, numbers, true, true}, Rows: rows, Width: o.Width, Spare: []int{4, 5}})
		}
	}
	var rows [][]string
	for _, s := range d.Settings {
		if wide || !s.wide(o) {
			rows = append(rows, []string{s.Name, orDash(s.A), orDash(s.B)})
		}
	}
	add("Differs", rows, false)
	rows = nil
	for _, c := range d.Batch {
		rows = append(rows, []string{c.label, fmt.Sprint(c.A), fmt.Sprint(c.B), fmt.Sprintf("%+d", c.Delta)})
	}
	add("Batch size", rows, true, "change")
	for _, s := range []struct {
		title string
		list  []DiffBytes
	}{{"Peak memory", d.Peak}, {"At the peak", d.AtPeak}, {"Peak of each phase", d.Phases}, {"In all", d.Totals}, {"Host memory", d.Host}} {
		rows = nil
		for _, x := range s.list {
			if (x.Delta != 0 || o.All) && !d.repeats(&x) {
				rows = append(rows, append([]string{x.label}, x.cells()...))
			}
		}
		add(s.title, rows, true, "change", "%")
	}
	rows = nil
	for i := range d.Layers {
		if len(rows) == o.Top {
			break
		}
		l := &d.Layers[i]
		rows = append(rows, append([]string{l.name()}, append(l.Total.cells(), l.remark())...))
	}
	if len(rows) > 0 {
		title := "Layer, at the peak"
		if n := len(d.Layers) - len(rows); n > 0 {
			title += fmt.Sprintf(" (%d more)", n)
		}
		add(title, rows, true, "change", "%", "")
	}
	return out
}

// repeats reports a row that says the same as that of reserved memory, as where
// there are no convolutions.
func (d *Diff) repeats(x *DiffBytes) bool {
	if x.Name != "reserved_expected_bytes" {
		return false
	}
	for _, r := range d.Peak {
		if r.Name == "reserved_bytes" {
			return r.A == x.A && r.B == x.B
		}
	}
	return false
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cells are both sizes, the change, and the change in per cent.
func (x *DiffBytes) cells() []string {
	p := "-"
	if x.Percent != nil {
		p = fmt.Sprintf("%+.1f %%", *x.Percent)
	}
	return []string{size(x.A), size(x.B), change(x.Delta), p}
}

// change prints a difference.
func change(b tensor.Bytes) string {
	sign := ""
	if b > 0 {
		sign = "+"
	}
	return sign + b.String()
}

func (l *DiffLayer) name() string {
	name := layerName(l.Layer)
	if l.Kind != "" {
		name += " " + l.Kind
	}
	return name
}

// remark says that only one side has the layer, or what changed most.
func (l *DiffLayer) remark() string {
	switch l.In {
	case "a":
		return "only in A"
	case "b":
		return "only in B"
	}
	var most *DiffBytes
	for i := range l.Parts {
		if p := &l.Parts[i]; most == nil || abs(p.Delta) > abs(most.Delta) {
			most = p
		}
	}
	s := ""
	if most != nil {
		s = most.label + " " + change(most.Delta)
	}
	if l.CountA != l.CountB {
		s = strings.TrimPrefix(fmt.Sprintf("%s, %d layers, not %d", s, l.CountB, l.CountA), ", ")
	}
	return s
}

// sides says in a line each what is compared.
func (d *Diff) sides(o DiffOptions) [2]string {
	var out [2]string
	for i, s := range []DiffSide{d.A, d.B} {
		out[i] = fmt.Sprintf("%s: %s, %s", printable.Text(s.Source), o.Color.Verdict(s.Result, s.Result), printable.Text(s.Model+" on "+s.Device))
	}
	return out
}

// remarks are the lines behind the tables.
func (d *Diff) remarks() []string {
	var out []string
	for _, m := range d.Missing {
		in := map[string]string{"a": " (in A)", "b": " (in B)"}[m.In]
		out = append(out, printable.Text("not modelled"+in+": "+m.Text))
	}
	if d.Equal && len(d.Renamed) > 0 {
		out = append(out, Plural(int64(len(d.Renamed)), "layer")+" named otherwise, with the same memory")
	}
	return out
}

const diffEqual = "no difference in memory or settings"

var _ = DiffFormats.Add(DiffFormat{Name: "text", Doc: "for people: what differs, in tables", Rank: 0, Write: writeDiffText})

func writeDiffText(w io.Writer, d *Diff, o DiffOptions) error {
	sides := d.sides(o)
	if _, err := fmt.Fprintf(w, "A  %s\nB  %s\n", sides[0], sides[1]); err != nil {
		return err
	}
	if d.Equal {
		fmt.Fprintf(w, "%s\n", diffEqual)
	}
	for _, s := range d.Settings {
		if s.wide(o) {
			fmt.Fprintf(w, "\n  %s\n    A  %s\n    B  %s\n", s.Name, printable.Text(orDash(s.A)), printable.Text(orDash(s.B)))
		}
	}
	for _, t := range d.tables(o, false) {
		fmt.Fprintln(w)
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if remarks := d.remarks(); len(remarks) > 0 {
		fmt.Fprintf(w, "\n  %s\n", strings.Join(remarks, "\n  "))
	}
	return nil
}

var _ = DiffFormats.Add(DiffFormat{Name: "markdown", Doc: "for comments on changes: the same tables", Rank: 1, Write: writeDiffMarkdown})

func writeDiffMarkdown(w io.Writer, d *Diff, o DiffOptions) error {
	sides := d.sides(DiffOptions{})
	if _, err := fmt.Fprintf(w, "- **A** %s\n- **B** %s\n", markdown(sides[0]), markdown(sides[1])); err != nil {
		return err
	}
	if d.Equal {
		fmt.Fprintf(w, "\n%s\n", diffEqual)
	}
	for _, t := range d.tables(o, true) {
		fmt.Fprintln(w)
		if err := t.WriteMarkdown(w); err != nil {
			return err
		}
	}
	if remarks := d.remarks(); len(remarks) > 0 {
		fmt.Fprintln(w)
		for _, r := range remarks {
			fmt.Fprintf(w, "- %s\n", markdown(r))
		}
	}
	return nil
}
