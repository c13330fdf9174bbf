package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/printable"
)

// Options change what is printed, not what is true.
type Options struct {
	Top   int // layers that text shows; 0: none
	Color Ink // mark verdicts, bars and headings with ANSI colours
	Shown int // changes of which text shows the lines; the first always

	Width int    // of the terminal; 0: text is not for one
	Spark *Spark // nil: none is drawn
}

// FormatOf is one way to print a T.
type FormatOf[T, O any] struct {
	Name string
	Doc  string
	// Rank is its place where formats are listed; the default has 0.
	Rank  int
	Write func(w io.Writer, v T, o O) error
	// Request says that the format asks a scheduler for resources, and is no
	// verdict: that a job does not fit is to be said elsewhere too.
	Request bool
}

// Print is what the format prints.
func (f *FormatOf[T, O]) Print(v T, o O) ([]byte, error) {
	var b bytes.Buffer
	err := f.Write(&b, v, o)
	return b.Bytes(), err
}

// FormatTable holds the ways to print a T. Each is added where it is defined.
type FormatTable[T, O any] struct{ rows []*FormatOf[T, O] }

// Add adds a row; a name or rank that is used already is a programming error.
func (t *FormatTable[T, O]) Add(f FormatOf[T, O]) *FormatOf[T, O] {
	for _, o := range t.rows {
		if o.Name == f.Name || o.Rank == f.Rank {
			panic(fmt.Sprintf("report: formats %s and %s have one name or rank", o.Name, f.Name))
		}
	}
	t.rows = append(t.rows, &f)
	return &f
}

// All lists the formats by rank.
func (t *FormatTable[T, O]) All() []*FormatOf[T, O] {
	return slices.SortedFunc(slices.Values(t.rows), func(a, b *FormatOf[T, O]) int { return cmp.Compare(a.Rank, b.Rank) })
}

// Names lists the names of the formats.
func (t *FormatTable[T, O]) Names() []string {
	var names []string
	for _, f := range t.All() {
		names = append(names, f.Name)
	}
	return names
}

// Default is the name of the format that needs no flag.
func (t *FormatTable[T, O]) Default() string { return t.All()[0].Name }

// Lookup returns the format of that name, nil if there is none.
func (t *FormatTable[T, O]) Lookup(name string) *FormatOf[T, O] {
	for _, f := range t.rows {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Format is one way to print a report.
type Format = FormatOf[*Report, Options]

// Formats are the formats of reports.
var Formats FormatTable[*Report, Options]

var _ = Formats.Add(Format{
	Name: "json", Doc: "for programs: everything, bytes as integers, names that do not change", Rank: 1, Write: writeJSON,
})

func writeJSON(w io.Writer, r *Report, _ Options) error { return JSON(w, r) }

// JSON prints any value of the contract, indented, with a newline at the end.
// Characters that only HTML minds are left alone; those that steer what the text
// is printed on are escaped.
func JSON(w io.Writer, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, printable.JSON(b.String()))
	return err
}
