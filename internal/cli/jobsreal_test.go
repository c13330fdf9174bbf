package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// mixed is the end of PyTorch's message about two types.
var mixed = regexp.MustCompile(`same dtype, but got (\w+) and (\w+)$`)

// dtypes are the names that PyTorch gives types in its messages.
var dtypes = map[string]string{"Float": "float32", "Half": "float16", "BFloat16": "bfloat16"}

// TestJobsReal compares the peaks of job files with those of their programs,
// to the byte. A recording says why, where memplan does not plan it so, and what fails where
// it fails.
func TestJobsReal(t *testing.T) {
	needs.Time(t, needs.Alone)
	paths, err := filepath.Glob(filepath.Join(needs.File(t, "jobs-real"), "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no recordings", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var rec struct {
				Job       string          `json:"job"`
				Set       []string        `json:"set"` // what the file does not say
				Config    json.RawMessage `json:"config"`
				Allocated int64           `json:"peak_allocated"`
				Reserved  int64           `json:"peak_reserved"`
				Differs   string          `json:"differs"`
				Fails     *struct {
					Module string `json:"module"`
					Error  string `json:"error"`
				} `json:"fails"`
				Steps []struct {
					Allocated int64 `json:"peak_allocated"`
					Reserved  int64 `json:"peak_reserved"`
				} `json:"steps"`
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &rec); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for name, data := range map[string]string{"job.yml": rec.Job, "config.json": string(rec.Config)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			line := "memplan estimate job.yml --model-config config.json --quick --gpu a100-80gb --torch 2.6 --format json"
			for _, s := range rec.Set {
				line += " --set " + s
			}
			out, errs, code := run(t, line, dir)
			if f := rec.Fails; f != nil {
				m := mixed.FindStringSubmatch(f.Error)
				if m == nil {
					t.Fatalf("%q names no types", f.Error)
				}
				types := fmt.Sprintf("takes tensors of one dtype, not %s and %s,", dtypes[m[1]], dtypes[m[2]])
				if code == 0 || !strings.Contains(errs, f.Module) || !strings.Contains(errs, types) {
					t.Errorf("want a failure in %s: %s\ngot %s", f.Module, f.Error, errs)
				}
				return
			}
			if code != 0 {
				t.Fatal(errs)
			}
			var got struct {
				Peak struct {
					Allocated int64 `json:"allocated_bytes"`
					Reserved  int64 `json:"reserved_bytes"`
				} `json:"peak"`
				Steps []struct {
					Allocated int64 `json:"peak_allocated_bytes"`
					Reserved  int64 `json:"peak_reserved_bytes"`
				} `json:"steps"`
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			equal := got.Peak.Allocated == rec.Allocated && got.Peak.Reserved == rec.Reserved
			for i, s := range rec.Steps {
				// memplan counts an evaluation to the step before it, the recording to the one after.
				equal = equal && len(got.Steps) > i && (i == 0 || got.Steps[i].Allocated == s.Allocated && got.Steps[i].Reserved == s.Reserved)
			}
			switch {
			case equal && rec.Differs != "":
				t.Errorf("equal, though the recording says that it differs: %s", rec.Differs)
			case !equal && rec.Differs == "":
				t.Errorf("allocated %d, reserved %d; recorded %d, %d", got.Peak.Allocated, got.Peak.Reserved, rec.Allocated, rec.Reserved)
			}
		})
	}
}
