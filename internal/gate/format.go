package gate

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/report"
)

// Style changes what is printed, not what is true.
type Style struct {
	Color   bool
	Version string // of memplan
	// Root is the folder that services take paths to start at, absolute; "": the
	// current one.
	Root string

	Width int // of the terminal; 0: text is not for one
}

// path is how services name a file: from the root, with slashes.
func (s *Style) path(name string) string {
	if s.Root != "" && isFile(name) {
		if abs, err := filepath.Abs(name); err == nil {
			if rel, err := filepath.Rel(s.Root, abs); err == nil && filepath.IsLocal(rel) {
				name = rel
			}
		}
	}
	return filepath.ToSlash(name)
}

// Format is one way to print a result.
type Format = report.FormatOf[*Result, Style]

// Formats are the formats of results.
var Formats report.FormatTable[*Result, Style]

var _ = Formats.Add(Format{
	Name: "json", Doc: "for programs: everything, bytes as integers, names that do not change", Rank: 1,
	Write: func(w io.Writer, r *Result, _ Style) error { return report.JSON(w, r) },
})

// LookupFormat returns the format of that name; the error lists the allowed
// ones.
func LookupFormat(name string) (*Format, error) {
	if f := Formats.Lookup(name); f != nil {
		return f, nil
	}
	hint := ""
	if n := nearest.To(name, Formats.Names()); n != "" {
		hint = fmt.Sprintf("; did you mean %q?", n)
	}
	return nil, fmt.Errorf("unknown format %q; allowed are %s%s", name, strings.Join(Formats.Names(), ", "), hint)
}

// counts says how many findings there are of each severity.
func (r *Result) counts() string {
	return fmt.Sprintf("%s, %s, %s", report.Plural(int64(r.Errors), "error"), report.Plural(int64(r.Warnings), "warning"), report.Plural(int64(r.Notes), "note"))
}

// lenient is the line that tells of leniency, between two texts; "" if there is
// nothing to tell.
func (r *Result) lenient(before, after string) string {
	if l := r.leniency(); l != "" {
		return before + "not enforced: " + l + after
	}
	return ""
}

// verdict is the word for the whole.
func (r *Result) verdict() string {
	if r.Failed {
		return "FAILED"
	}
	return "PASSED"
}

// scope says what was checked.
func (r *Result) scope() string {
	specs, gpus := map[string]bool{}, map[string]bool{}
	for _, c := range r.Specs {
		specs[c.Spec] = true
		if c.GPU != "" {
			gpus[c.GPU] = true
		}
	}
	s := report.Plural(int64(len(specs)), "spec")
	if len(gpus) > 0 {
		s += " on " + report.Plural(int64(len(gpus)), "GPU")
	}
	return s
}

// word is the result of a spec in tables.
func (c *Checked) word() string {
	if c.Fits == nil {
		return "ERROR"
	}
	return c.Result
}

// change is how the peak of reserved memory differs from the baseline's, or that
// of allocated memory where it does not.
func (c *Checked) change() string {
	if c.Before == nil || c.Peak == nil {
		return ""
	}
	was, now := c.Before.ReservedBytes, c.Peak.ReservedBytes
	if was == now {
		was, now = c.Before.AllocatedBytes, c.Peak.AllocatedBytes
	}
	if was == now || was == 0 {
		return "="
	}
	return fmt.Sprintf("%+.1f %%", 100*float64(now-was)/float64(was))
}

// table lists the specs.
func (r *Result) table() *report.Table {
	t := &report.Table{Header: []string{"Result", "spec", "GPU", "batch", "reserved", "usable", "headroom"}, Numbers: []bool{false, false, false, true, true, true, true}}
	if r.Against != "" {
		t.Header, t.Numbers = append(t.Header, "change"), append(t.Numbers, true)
	}
	for i := range r.Specs {
		c := &r.Specs[i]
		row := []string{c.word(), c.Spec, c.GPU, "", "", "", ""}
		if c.Peak != nil {
			row = []string{c.word(), c.Spec, c.GPU, fmt.Sprint(c.Batch), c.Peak.ReservedBytes.String(), c.UsableBytes.String(), c.HeadroomBytes.String()}
		}
		if r.Against != "" {
			row = append(row, c.change())
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
