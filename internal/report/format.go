package report

import (
	"encoding/json"
	"io"
)

// Options change what is printed, not what is true.
type Options struct {
	Top   int  // layers that text shows; 0: none
	Color bool // mark the verdict with ANSI colours
	Shown int  // changes of which text shows the lines; the first always
}

// Format is one way to print a report.
type Format struct {
	Name  string
	Doc   string
	Write func(w io.Writer, r *Report, o Options) error
	// Request says that the format asks a scheduler for resources, and is no
	// verdict: that a job does not fit is to be said elsewhere too.
	Request bool
}

// Formats is the table of formats; the first is the default.
var Formats = []Format{
	{"text", "for people: the verdict, the three numbers, what the peak is made of", writeText, false},
	{"json", "for programs: everything, bytes as integers, names that do not change", writeJSON, false},
	{"slurm", "the #SBATCH lines that ask for what the job needs", writeSlurm, true},
	{"kubernetes", "the part of a Pod that asks for what the job needs", writeKubernetes, true},
	{"hami", "the same for a part of a GPU, as HAMi shares them", writeHAMi, true},
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
