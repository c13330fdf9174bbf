package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// texts reads specs that are given by their texts.
func texts(all map[string]string) func(string) (*estimate.Recipe, error) {
	return func(path string) (*estimate.Recipe, error) {
		return &estimate.Recipe{Path: path, Text: []byte(all[path])}, nil
	}
}

const (
	good = "memplan: 1\nmodel: {preset: mlp}\n"
	huge = "memplan: 1\nmodel: {preset: mlp}\ntrain: {grad_accumulation: 20000}\n"
)

// A spec that meets a limit is a finding; the others are checked.
func TestUnfinished(t *testing.T) {
	for _, rules := range []string{"", "fail_on: never"} {
		o := &Options{Specs: []string{"a.yaml", "b.yaml", "c.yaml"}, Config: config(t, rules), Recipe: texts(map[string]string{"a.yaml": good, "b.yaml": huge, "c.yaml": good}),
			Budget: limit.NewGuard(limit.Limits{Memory: 16 * tensor.MiB}).Budget}
		r, err := Check(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Unfinished != 1 || r.Unread != 1 || !r.Failed || r.Specs[0].Fits == nil || r.Specs[1].Fits != nil || r.Specs[2].Fits == nil {
			t.Errorf("%+v", r)
		}
		if f := r.Specs[1].Findings; len(f) != 1 || f[0].Rule != "MP015" || f[0].Severity != Error || !strings.Contains(f[0].Message, "--max-memory") {
			t.Errorf("%+v", f)
		}
		for _, f := range Formats.All() {
			if text := render(t, f.Name, r); len(text) == 0 {
				t.Errorf("%s is empty", f.Name)
			}
		}
	}
	if _, _, err := ruleSetting("MP015", "off"); err == nil {
		t.Error("the rule can be turned off")
	}
}

// So is one of an earlier commit.
func TestUnfinishedBefore(t *testing.T) {
	o := &Options{Specs: []string{"a.yaml"}, Config: config(t, ""), Recipe: texts(map[string]string{"a.yaml": good}), Against: "main",
		Before: func(path string, _ []byte) (*estimate.Recipe, error) {
			return texts(map[string]string{path: huge})(path)
		},
		Budget: limit.NewGuard(limit.Limits{Memory: 16 * tensor.MiB}).Budget}
	r, err := Check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Unfinished != 1 || !slices.ContainsFunc(r.Specs[0].Findings, func(f Finding) bool { return f.Rule == "MP015" && strings.Contains(f.Message, "as of main") }) {
		t.Errorf("%+v", r.Specs)
	}
}

// What a check does not come to in time is said of each spec.
func TestWhole(t *testing.T) {
	o := &Options{Specs: []string{"a.yaml", "b.yaml"}, Config: config(t, ""), Recipe: texts(map[string]string{"a.yaml": good, "b.yaml": good}),
		Budget: limit.NewGuard(limit.Limits{}).Budget, Time: time.Nanosecond}
	r, err := Check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Unfinished != 2 || len(r.Specs) != 2 || !strings.Contains(r.Specs[0].Findings[0].Message, "the check as a whole") {
		t.Errorf("%+v", r)
	}
}

func TestTooMany(t *testing.T) {
	var paths []string
	for i := range 101 {
		paths = append(paths, fmt.Sprintf("%03d.yaml", i))
	}
	o := &Options{Specs: paths, Config: config(t, "devices: ["+strings.Repeat("t4, ", 100)+"]"), Recipe: func(path string) (*estimate.Recipe, error) { return texts(map[string]string{path: good})(path) }}
	if _, err := Check(context.Background(), o); !errors.As(err, new(TooMany)) {
		t.Errorf("%v", err)
	}
}

// Limits of a configuration are told at their places.
func TestManyGlobs(t *testing.T) {
	for text, want := range map[string]string{
		"exclude: [" + strings.Repeat("a, ", maxGlobs+1) + "]": "at most 1000 globs",
		"exclude: [" + strings.Repeat("*", maxGlob+1) + "]":    "no longer than 250 bytes",
	} {
		if _, err := ParseConfig("c.yaml", t.TempDir(), []byte(strings.ReplaceAll(text, "[*", "['*")+"\n"), nil); err == nil {
			t.Errorf("%.40s is taken", text)
		} else if strings.Contains(text, "a,") && !strings.Contains(err.Error(), want) {
			t.Errorf("%.200v", err)
		}
	}
}

// A baseline of many entries is looked up, not searched, and tells some of what is
// gone, at its places.
func TestManyEntries(t *testing.T) {
	const n = 20_000
	path := filepath.Join(t.TempDir(), "base.json")
	b := &Baseline{Version: BaselineVersion, Entries: []Entry{}}
	for i := range n {
		b.Entries = append(b.Entries, Entry{Spec: fmt.Sprintf("s%05d.yaml", i), Result: "FITS"})
	}
	text, err := b.Text()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err = ReadBaseline(path, text); err != nil {
		t.Fatal(err)
	}
	for i := range b.Entries {
		if j, ok := b.index[[2]string{b.Entries[i].Spec, ""}]; !ok || j != i {
			t.Fatalf("entry %d is found at %d", i, j)
		}
	}
	o := &Options{Config: config(t, ""), Baseline: b}
	gone := o.gone()
	if len(gone) != maxGone+1 || gone[maxGone].Message != "and of more specs that are gone" {
		t.Fatalf("%d findings", len(gone))
	}
	for i, f := range gone[:maxGone] {
		at := posOf(string(text), strings.Index(string(text), fmt.Sprintf(`"spec": "s%05d.yaml"`, i)))
		if f.Line != at.Line || f.Column != at.Col {
			t.Fatalf("%s at %d:%d, want %v", f.Message, f.Line, f.Column, at)
		}
	}
}
