package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/spec"
)

// print writes the spec with its comments, and where its lines are from.
func (j *job) print() ([]byte, []spec.Origin) {
	var (
		b       strings.Builder
		origins []spec.Origin
	)
	comment := func(format string, args ...any) {
		for _, l := range wrap(printable.Text(fmt.Sprintf(format, args...)), 96) {
			b.WriteString("# " + l + "\n")
			origins = append(origins, spec.Origin{})
		}
	}
	names := []string{j.name}
	for _, f := range Formats() {
		if s := j.beside[f]; s != nil {
			names = append(names, s.name)
		}
	}
	comment("%s: %s", strings.Join(names, ", "), j.format.Title)
	for _, n := range j.notes {
		what := map[*note.Code]string{note.FileAssumed: "assumed", note.FileIgnored: "ignored"}[n.Code]
		if what == "" {
			what = "not modelled"
		}
		comment("%s: %s", what, n.Text)
	}
	slices.SortStableFunc(j.out.kids, func(a, b *node) int { return slices.Index(sections, a.key) - slices.Index(sections, b.key) })
	j.out.print(&b, &origins, "")
	var whys []string
	of := map[string][]string{}
	for _, l := range j.left {
		if of[l.why] == nil {
			whys = append(whys, l.why)
		}
		of[l.why] = append(of[l.why], l.key)
	}
	if len(whys) > 0 {
		b.WriteString("\n")
		origins = append(origins, spec.Origin{})
		comment("Left out, as they do not reach memory:")
	}
	for _, w := range whys {
		comment("- %s: %s", strings.Join(of[w], ", "), w)
	}
	return []byte(b.String()), origins
}

// wrap breaks a text into lines at spaces.
func wrap(s string, width int) []string {
	var out []string
	line := ""
	for _, w := range strings.Fields(s) {
		if line != "" && len(line)+1+len(w) > width {
			out = append(out, line)
			line = "  " + w
			continue
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(out, line)
}
