package archtest

import (
	"os/exec"
	"strings"
	"testing"
)

// Every package says what it is for.
func TestPackageComments(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{if .GoFiles}}{{.ImportPath}} {{.Doc}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		pkg, comment, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg == "" {
			continue
		}
		packages++
		if !strings.HasPrefix(comment, "Package ") && !strings.HasPrefix(comment, "Command ") {
			t.Errorf("%s has no package comment", pkg)
		}
	}
	if packages < 30 {
		t.Errorf("only %d packages", packages)
	}
}
