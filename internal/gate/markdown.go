package gate

import (
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/report"
)

// markdownMark lets a bot find its own comment, to rewrite it.
const markdownMark = "<!-- memplan check -->"

var _ = Formats.Add(Format{Name: "markdown", Doc: "for a comment on a change: the verdict, a table, the findings", Rank: 4, Write: writeMarkdown})

// writeMarkdown prints a comment for a change.
func writeMarkdown(w io.Writer, r *Result, _ Style) error {
	fmt.Fprintf(w, "%s\n### memplan check: %s\n\n%s: %s.", markdownMark, r.verdict(), r.scope(), r.counts())
	if r.Against != "" {
		fmt.Fprintf(w, " Compared with %s.", report.Markdown(r.Against))
	}
	fmt.Fprint(w, r.lenient("\n\n**", "**"), "\n\n")
	if len(r.Specs) > 0 {
		if err := r.table().WriteMarkdown(w); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		severity   Severity
		head, tail string
	}{
		{Error, "**Errors**\n\n", ""},
		{Warning, "**Warnings**\n\n", ""},
		{Note, "<details><summary>Notes</summary>\n\n", "\n</details>\n"}, // many, and seldom read
	} {
		first := true
		for _, f := range r.All() {
			if f.Severity != l.severity {
				continue
			}
			if first {
				fmt.Fprintf(w, "\n%s", l.head)
				first = false
			}
			fmt.Fprintf(w, "- %s:%d: %s (%s %s)\n", report.Markdown(f.File), f.Line, report.Markdown(f.Message), f.Rule, f.Name)
		}
		if !first {
			fmt.Fprint(w, l.tail)
		}
	}
	fmt.Fprint(w, r.leftOutLines("\n", "\n"))
	_, err := fmt.Fprintf(w, "\n`memplan explain %s` says what a rule means.\n", predictedOOM.ID)
	return err
}
