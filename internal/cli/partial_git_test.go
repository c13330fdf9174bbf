package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a sparse checkout leaves out is neither gone nor another spec's old name, and
// what was asked for and is left out was not checked.
func TestSparseCheckout(t *testing.T) {
	const lenet = "memplan: 1\nmodel: {preset: lenet}\n"
	for _, form := range []string{"--no-sparse-index", "--sparse-index"} {
		t.Run(form, func(t *testing.T) {
			dir, git, memplan := owned(t, map[string]string{"specs/a.yaml": smallSpec, "specs/gone.yaml": lenet, "other/deep/b.yaml": hugeSpec,
				"other/deleted.yaml": lenet})
			git("rm", "-q", "specs/gone.yaml", "other/deleted.yaml")
			git("commit", "-q", "-m", "change")
			git("sparse-checkout", "set", "--cone", form, "specs")
			git("config", "index.skipHash", "true")
			writeFiles(t, dir, map[string]string{"specs/new.yaml": hugeSpec})
			git("add", "-A") // the index is written again
			out, _ := memplan("check", ".", "--against-git", "origin/main", "--rule", "MP001=off")
			for _, want := range []string{
				"specs/gone.yaml:1:1: note: the spec was there at origin/main, and is gone",
				"other/deleted.yaml:1:1: note: the spec was there at origin/main, and is gone",
				"note: the spec is new since origin/main",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "b.yaml") {
				t.Errorf("what is left out is told:\n%s", out)
			}
			for _, name := range []string{"other", "other/deep", "other/deep/b.yaml"} {
				if out, code := memplan("check", name, "--against-git", "origin/main"); code != exitUsage || !strings.Contains(out, "the file cannot be read") && !strings.Contains(out, "there is no file") {
					t.Errorf("%s: exit code %d\n%s", name, code, out)
				}
			}
		})
	}
}

// A clone that has not all texts, or not all folders, says what it could not compare.
func TestPartialClone(t *testing.T) {
	dir, git, _ := owned(t, map[string]string{"specs/a.yaml": smallSpec, "specs/gone.yaml": strings.Replace(smallSpec, "mlp", "lenet", 1), "hf/config.json": `{"model_type": "gpt2"}`,
		"hf/h.yaml": "memplan: 1\nmodel: {hf: config.json}\ntrain: {batch_size: 1}\ndevice: {gpu: t4}\n", "sub/deep/a.yaml": smallSpec})
	git("rm", "-q", "specs/gone.yaml")
	writeFiles(t, dir, map[string]string{"hf/config.json": `{"model_type": "gpt2", "n_layer": 2}`, "sub/deep/b.yaml": smallSpec})
	git("add", "-A")
	git("commit", "-q", "-m", "change")
	git("config", "uploadpack.allowFilter", "true")
	bin := t.TempDir()
	asMemplan(t, bin)
	for _, c := range []struct {
		filter, path string
		code         int
		want         string
	}{
		{"blob:none", "specs", 0, "specs/gone.yaml:1:1: note: the file was there at HEAD~1, and is gone; it cannot be compared: object not found (a partial clone has it only once it is fetched)"},
		{"blob:none", "hf", exitFailed, "hf/config.json: object not found (a partial clone has it only once it is fetched)"},
		{"tree:0", "specs", exitFailed, "object not found (a partial clone has it only once it is fetched)"},
		{"tree:1", "sub", exitFailed, "object not found (a partial clone has it only once it is fetched)"},
		{"tree:1", "specs/a.yaml", exitFailed, "object not found (a partial clone has it only once it is fetched)"},
	} {
		to := filepath.Join(t.TempDir(), "to")
		git("clone", "-q", "--filter="+c.filter, "file://"+dir, to)
		m := exec.Command(filepath.Join(bin, "memplan"), "check", c.path, "--against-git", "HEAD~1")
		m.Dir = to
		out, _ := m.CombinedOutput()
		if code := m.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%s, %s: exit code %d\n%s", c.filter, c.path, code, out)
		}
	}
}
