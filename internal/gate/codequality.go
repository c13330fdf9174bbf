package gate

import (
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
)

var _ = Formats.Add(Format{Name: "codequality", Doc: "for merge requests of GitLab: a Code Quality report", Rank: 6, Write: writeCodeQuality})

// codeQuality is one finding, in the part of Code Climate's format that GitLab reads
// (docs.gitlab.com/ci/testing/code_quality).
type codeQuality struct {
	Description string              `json:"description"`
	Check       string              `json:"check_name"`
	Fingerprint string              `json:"fingerprint"`
	Severity    string              `json:"severity"`
	Location    codeQualityLocation `json:"location"`
}

type codeQualityLocation struct {
	Path  string           `json:"path"`
	Lines codeQualityLines `json:"lines"`
}

type codeQualityLines struct {
	Begin int `json:"begin"`
}

// codeQualitySeverities are GitLab's words.
var codeQualitySeverities = map[Severity]string{Error: "critical", Warning: "major", Note: "info"}

// writeCodeQuality prints a list of findings. GitLab shows one of those that have a
// fingerprint in common, so each gets its own.
func writeCodeQuality(w io.Writer, r *Result, s Style) error {
	out, seen := []codeQuality{}, map[string]int{}
	for _, f := range r.All() {
		id := fingerprint(&f)
		if seen[id]++; seen[id] > 1 {
			id += fmt.Sprint("-", seen[id])
		}
		out = append(out, codeQuality{
			Description: printable.Text(f.Message), Check: f.Rule + " " + f.Name, Fingerprint: id, Severity: codeQualitySeverities[f.Severity],
			Location: codeQualityLocation{printable.Text(s.path(f.File)), codeQualityLines{f.Line}},
		})
	}
	return report.JSON(w, out)
}
