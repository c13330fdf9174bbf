package gate

import (
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
)

// githubCommands are the workflow commands that annotate lines.
var githubCommands = map[Severity]string{Error: "error", Warning: "warning", Note: "notice"}

// What workflow commands end at must be escaped, in properties more than in
// messages (actions/toolkit, packages/core/src/command.ts).
var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

var _ = Formats.Add(Format{Name: "github", Doc: "for GitHub's log: annotations of the lines of specs", Rank: 5, Write: writeGitHub})

// writeGitHub prints an annotation for each finding, and the verdict as text.
func writeGitHub(w io.Writer, r *Result, s Style) error {
	for _, f := range r.All() {
		place := ""
		message := f.Message
		if isFile(f.File) {
			place = fmt.Sprintf("file=%s,line=%d,col=%d,", githubProperty.Replace(printable.Text(s.path(f.File))), f.Line, f.Column)
		} else {
			message = f.File + ": " + message
		}
		title := f.Rule + " " + f.Name
		if _, err := fmt.Fprintf(w, "::%s %stitle=%s::%s\n", githubCommands[f.Severity], place, githubProperty.Replace(title), githubData.Replace(printable.Text(message))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s  %s: %s\n%s%s", r.verdict(), r.scope(), r.counts(), r.lenient("", "\n"), r.leftOutLines("", "\n"))
	return err
}
