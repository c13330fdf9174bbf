package gate

import (
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
)

// ANSI colours of severities and of the verdict; words say the same.
var colors = map[string]string{
	"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m", "FAILED": "\x1b[1;31m", "PASSED": "\x1b[1;32m",
}

var _ = Formats.Add(Format{Name: "text", Doc: "for people: findings with their places, a table of specs", Rank: 0, Write: writeText})

// writeText prints findings as compilers do, so that editors find the places, a
// table of specs, and the verdict.
func writeText(w io.Writer, r *Result, s Style) error {
	color := func(word string) printable.Verbatim {
		if s.Color {
			return printable.Verbatim(colors[word] + word + "\x1b[0m")
		}
		return printable.Verbatim(word)
	}
	all := r.All()
	for _, f := range all {
		if _, err := printable.Fprintf(w, "%s:%d:%d: %s: %s [%s %s]\n", f.File, f.Line, f.Column, color(string(f.Severity)), f.Message, f.Rule, f.Name); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		fmt.Fprintln(w)
	}
	if len(r.Specs) > 0 {
		t := r.table()
		t.Width, t.Spare = s.Width, []int{5}
		if err := t.Write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%s  %s: %s\n%s%s%s", color(r.verdict()), r.scope(), r.counts(), r.lenient("", "\n"), r.leftOutLines("", "\n"), r.next())
	return err
}

// next says what to do about a job that does not fit: for the first of them,
// what to call.
func (r *Result) next() string {
	for _, c := range r.Specs {
		if c.Result == report.OOMs {
			on := ""
			if c.Asked != "" {
				on = " --gpu " + printable.Word(c.Asked)
			}
			return fmt.Sprintf("memplan estimate %s%s says what makes it fit\n", printable.File(c.Spec), on)
		}
	}
	return ""
}
