package report

import (
	"encoding/json"
	"io"
)

// Options change what is printed, not what is true.
type Options struct {
	Top   int  // layers that text shows; 0: none
	Color bool // mark the verdict with ANSI colours
}

// Format is one way to print a report.
type Format struct {
	Name  string
	Doc   string
	Write func(w io.Writer, r *Report, o Options) error
}

// Formats is the table of formats; the first is the default.
var Formats = []Format{
	{"text", "for people: the verdict, the three numbers, what the peak is made of", writeText},
	{"json", "for programs: everything, bytes as integers, names that do not change", writeJSON},
}

// FormatNames lists the names of Formats.
func FormatNames() []string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// Lookup returns the format of that name, nil if there is none.
func Lookup(name string) *Format {
	for i := range Formats {
		if Formats[i].Name == name {
			return &Formats[i]
		}
	}
	return nil
}

func writeJSON(w io.Writer, r *Report, _ Options) error { return JSON(w, r) }

// JSON prints any value of the contract, indented, with a newline at the end.
// Characters that only HTML minds are left alone.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
