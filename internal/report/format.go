package report

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
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
