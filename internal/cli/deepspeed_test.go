package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/spec"
)

// TestDocsDeepSpeed writes the table of DeepSpeed's keys into docs/deepspeed.md.
func TestDocsDeepSpeed(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "deepspeed.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- deepspeed -->\n", "<!-- end deepspeed -->"
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/deepspeed.md has no table of DeepSpeed's keys")
	}
	var b strings.Builder
	b.WriteString("\n| key | reaches memory | why |\n|---|---|---|\n")
	for _, k := range spec.DeepSpeedKeys() {
		reach := "no"
		if k.Left {
			reach = "not modelled"
			if k.Harmless != "" {
				reach += ", unless " + k.Harmless
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Path, reach, k.Why)
	}
	want := head + begin + b.String() + "\n" + end + tail
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatal("docs/deepspeed.md: the table of DeepSpeed's keys is not that of the code; run with -update")
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
