package graph_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

var update = flag.Bool("update", false, "rewrite the expected errors of testdata/err")

// options are what the tests build with: an A100 and the presets.
func options() graph.Options {
	return graph.Options{
		Env:    op.Env{Arch: 80, SMs: 108, Torch: torchver.Recorded},
		Preset: specs.Preset, Presets: specs.Names(),
	}
}

// overrides returns the values of the "# set: key=value" lines at the top of a
// spec.
func overrides(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		s, ok := strings.CutPrefix(line, "# set: ")
		if !ok {
			break
		}
		out = append(out, strings.TrimRight(s, "\r\n"))
	}
	return out
}

// build parses and elaborates a spec, which may take as much work as twenty seconds
// allow, whatever time that takes.
func build(t *testing.T, name string, text []byte) (*graph.Result, error) {
	b := limit.New(t.Context(), limit.Limits{Memory: limit.CheckMemory, Work: 20 * limit.WorkPerSecond})
	defer b.Close()
	return buildWithin(b, name, text)
}

// buildWithin is build within a budget.
func buildWithin(b *limit.Budget, name string, text []byte) (r *graph.Result, err error) {
	m := b.Meter()
	defer m.Close()
	defer limit.Catch(&err)
	s, err := spec.Parse(name, text, spec.Options{Set: overrides(text), Meter: m})
	if s == nil {
		return nil, err
	}
	return graph.Build(s, options()) // adds what it finds to the mistakes of Parse
}

func specFiles(t *testing.T, folder string, atLeast int) []string {
	t.Helper()
	files, err := filepath.Glob(needs.File(t, folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < atLeast {
		t.Fatalf("%d specs in testdata/%s, expected at least %d", len(files), folder, atLeast)
	}
	return files
}

// TestErrors compares what is said about broken specs with the .out file
// beside each.
func TestErrors(t *testing.T) {
	for _, path := range specFiles(t, "err", 150) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = build(t, filepath.Base(path), text)
			var errs *spec.Errors
			switch {
			case err == nil:
				t.Fatal("no error")
			case !errors.As(err, &errs):
				t.Fatalf("error of type %T: %v", err, err)
			}
			got, golden := err.Error()+"\n", strings.TrimSuffix(path, ".yaml")+".out"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// TestAccepted builds and plays small specs that between them use every
// feature of the language.
func TestAccepted(t *testing.T) {
	for _, path := range specFiles(t, "ok", 25) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := build(t, filepath.Base(path), text)
			if err != nil {
				t.Fatal(err)
			}
			played, err := engine.Play(r.Job, options().Env, nil, 2)
			if err != nil {
				t.Fatal(err)
			}
			if played.Steps != 2 || len(played.Trace.Events) == 0 {
				t.Errorf("played %d steps with %d events, expected 2 steps with some", played.Steps, len(played.Trace.Events))
			}
		})
	}
}
