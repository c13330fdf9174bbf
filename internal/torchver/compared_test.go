package torchver

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

// compared lists the files that were laid side by side, of 2.6.0 and 2.14.1. After "dir" and a directory follow lines of
// names: "same" as before; "read", which differ and were read; "lines", which differ, and of which what allocates or
// copies was read; "new" ones. "found" says what a file's difference does.
//
//go:embed testdata/compared.txt
var compared string

// comparisons are the words that a line of names begins with, and what docs/releases.md says of them.
var comparisons = map[string]string{
	"same":  "the same",
	"read":  "read",
	"lines": "what allocates or copies was read of",
	"new":   "new",
}

// comparedText is the section of docs/releases.md with the files that were compared.
func comparedText(t *testing.T) string {
	var b strings.Builder
	counts := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(compared), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch said := comparisons[word]; {
		case word == "dir":
			fmt.Fprintf(&b, "\n`%s`:\n\n", rest)
		case word == "found":
			name, what, ok := strings.Cut(rest, " ")
			if !ok {
				t.Errorf("%q says nothing", line)
			}
			fmt.Fprintf(&b, "- **%s**: %s.\n", name, what)
		case said != "":
			names := strings.Fields(rest)
			counts[word] += len(names)
			fmt.Fprintf(&b, "- %s: %s\n", said, strings.Join(names, ", "))
		default:
			t.Errorf("%q: a line of no kind", line)
		}
	}
	total := counts["same"] + counts["read"] + counts["lines"] + counts["new"]
	return fmt.Sprintf(`## Files compared

%d headers and files of Python, of 2.6.0 and 2.14.1, without comments, documentation, annotations and messages: %d are the same, of %d each
difference was read, of %d each that allocates or copies, %d are new. A file of which nothing is said reaches no memory of the device. Headers of 2.14.1 are
those of Debian's package; what lies in .cpp and .cu files alone is in the section above.
`, total, counts["same"], counts["read"], counts["lines"], counts["new"]) + b.String()
}
