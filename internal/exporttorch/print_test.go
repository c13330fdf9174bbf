package exporttorch_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

var update = flag.Bool("update", false, "rewrite the scripts beside the specs")

// TestScripts prints every right spec of testdata/ok and compares with the
// script beside it. Scripts were run with their recordings, testdata/fuzz.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob(needs.File(t, "ok", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no specs", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(f, text, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		env := op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Recorded}
		g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := exporttorch.Write(&b, g.Job, exporttorch.Options{}); err != nil {
			t.Fatal(err)
		}
		script := strings.TrimSuffix(f, ".yaml") + ".py"
		if *update {
			if err := os.WriteFile(script, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("%s prints\n%s\nwant\n%s", f, b.String(), want)
		}
	}
}
