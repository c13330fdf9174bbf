package graph_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/specs"
)

// maxPlayed bounds the statements of the programs that FuzzSpec plays.
const maxPlayed = 2000

// What an input of FuzzSpec may take to be read and built.
const (
	fuzzMemory = 256 * tensor.MiB
	fuzzWork   = limit.WorkPerSecond
)

// FuzzSpec reads, builds and plays whatever a file may hold: there must be a
// result or *spec.Errors with a place and a message each, and no panic.
func FuzzSpec(f *testing.F) {
	for _, folder := range []string{"ok", "err"} {
		files, err := filepath.Glob(needs.File(f, folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			f.Fatal(folder, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	for _, name := range specs.Names() {
		text, err := specs.Preset(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		budget := limit.New(t.Context(), limit.Limits{Memory: fuzzMemory, Work: fuzzWork})
		defer budget.Close()
		r, err := buildWithin(budget, "fuzz.yaml", text)
		if errors.As(err, new(*limit.Error)) {
			return
		}
		if err != nil {
			var errs *spec.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("error of type %T: %v", err, err)
			}
			for _, d := range errs.List {
				if d.Line == 0 || d.Col < 1 || d.Msg == "" {
					t.Errorf("mistake without a place or a message: %+v", d)
				}
			}
			if errs.Error() == "" {
				t.Error("an error without text")
			}
			return
		}
		if !small(r.Job) {
			return
		}
		played, err := engine.Play(r.Job, options().Env, nil, 2)
		var pe *program.Error
		if err != nil && !errors.As(err, &pe) {
			t.Fatalf("error of type %T: %v", err, err)
		}
		if err == nil && played.Steps != 2 {
			t.Errorf("played %d steps of 2", played.Steps)
		}
	})
}

// small reports whether a job is played quickly.
func small(j *program.Job) bool {
	n := len(j.Step.Body)
	seen := map[*program.Class]int{}
	var size func(c *program.Class) int
	size = func(c *program.Class) int {
		if n, ok := seen[c]; ok {
			return n
		}
		n := 1
		if c.Forward != nil {
			n += len(c.Forward.Body)
		}
		for _, m := range c.Methods {
			n += len(m.Body) * len(m.Body)
		}
		for _, ch := range c.Children {
			n = min(n+size(ch.Class), maxPlayed+1)
		}
		seen[c] = n
		return n
	}
	for _, m := range j.Models {
		n = min(n+size(m.Root), maxPlayed+1)
	}
	return n <= maxPlayed
}
