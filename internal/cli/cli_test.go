package cli

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/memplan/memplan/internal/needs"
)

var update = flag.Bool("update", false, "rewrite the expected outputs of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"memplan": func() { os.Exit(Main(os.Args[1:], System())) }})
}

// TestScripts runs testdata/script/<command>_<topic>.txtar.
func TestScripts(t *testing.T) {
	dir := needs.File(t, "script")
	var files []string
	if testing.Short() { // those in which several things happen at the same time
		for _, name := range []string{"check_rules", "estimate_advise", "run"} {
			files = append(files, filepath.Join(dir, name+".txtar"))
		}
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, Files: files, UpdateScripts: *update, RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			root, err := filepath.Abs("../..")
			e.Setenv("ROOT", root)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": expectCode},
		Condition: func(what string) (bool, error) {
			tool, is := strings.CutPrefix(what, "lacks:")
			if !is {
				return false, errors.New("unknown")
			}
			return needs.Missing(tool)
		},
	})
}

// expectCode is "code N COMMAND ...": the command must exit with N.
func expectCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND ...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// run runs a command line in this process; memplan's own words alone, joined by
// pipes.
func run(t *testing.T, line, dir string) (out, errs string, code int) {
	t.Helper()
	t.Chdir(dir)
	for _, part := range strings.Split(line, " | ") {
		args := strings.Fields(part)
		if len(args) == 0 || args[0] != "memplan" {
			t.Fatalf("%q is not a memplan command", part)
		}
		var stdout, stderr bytes.Buffer
		s := &Streams{In: strings.NewReader(out), Out: &stdout, Err: &stderr, Env: func(string) (string, bool) { return "", false }}
		code = Main(args[1:], s)
		out, errs = stdout.String(), errs+stderr.String()
		if code != 0 {
			break
		}
	}
	return out, errs, code
}

// TestExamples runs the examples of every command's help. Each command that
// does something has two.
func TestExamples(t *testing.T) {
	needs.Time(t, needs.Alone)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub)
			}
		}
		lines := strings.Split(strings.TrimSpace(c.Example), "\n")
		if len(lines) < 2 {
			t.Errorf("%s has %d examples, want 2", c.CommandPath(), len(lines))
		}
		for _, line := range lines {
			t.Run(strings.TrimSpace(line), func(t *testing.T) {
				out, errs, code := run(t, line, t.TempDir())
				if code != 0 || out == "" && !strings.Contains(line, "--out-file") {
					t.Errorf("exit code %d, %d bytes of output\n%s", code, len(out), errs)
				}
			})
		}
	}
	walk(newRoot(System()))
}

// TestREADME runs the specs and the memplan commands of the README, and checks
// that what it shows of outputs is what comes.
func TestREADME(t *testing.T) {
	needs.Time(t, needs.Alone)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	specs := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		specs++
		name := filepath.Join(dir, "spec.yaml")
		if specs == 1 {
			name = filepath.Join(dir, "tiny.yaml")
		}
		if err := os.WriteFile(name, []byte(m[1]), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, errs, code := run(t, "memplan estimate "+name, "."); code != 0 {
			t.Errorf("README's spec %d: exit code %d\n%s", specs, code, errs)
		}
	}
	if specs < 3 {
		t.Errorf("found %d specs in the README", specs)
	}
	for name, text := range map[string]string{
		"train.log": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 39.49 GiB of which 0 bytes is free.\n",
		"my.yaml":   "memplan: 1\nmodel: {preset: mlp}\n",
		"lab.yaml":  "- {name: lab-card, memory: 20GiB, arch: 8.9, sms: 60}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shell := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllString(string(text), -1)
	for _, line := range regexp.MustCompile(`(?m)^memplan [^#\n]*`).FindAllString(strings.Join(shell, ""), -1) {
		if _, errs, code := run(t, strings.TrimSpace(line), dir); code != 0 {
			t.Errorf("README: %s: exit code %d\n%s", line, code, errs)
		}
	}
	blocks := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	shown := []string{ // what prints each of them, but for a mistake
		"estimate",
		"estimate --gpu rtx-4090,a100-40gb,h100",
		"estimate --gpu rtx-4090 --batch-curve",
		"estimate preset:resnet --gpu rtx-4090 --batch-size 64 --search img:32",
		"",
		"run preset:lenet --backend cpu --steps 10 --batch-size 64 --set train.optimizer=Adam",
	}
	if len(blocks) != len(shown) {
		t.Fatalf("found %d outputs in the README, want %d", len(blocks), len(shown))
	}
	mistake := ""
	for i, command := range shown {
		if command == "" {
			mistake = strings.TrimSuffix(blocks[i][1], "\n")
			continue
		}
		if !strings.Contains(string(text), "memplan "+command+" ") && !strings.Contains(string(text), "memplan "+command+"\n") {
			t.Errorf("README does not have the command: memplan %s", command)
		}
		out, _, _ := run(t, "memplan "+command, dir)
		for line := range strings.Lines(blocks[i][1]) {
			if line != "...\n" && !strings.Contains(out, line) {
				t.Errorf("README shows a line that memplan %s does not print: %s", command, line)
			}
		}
	}
	tiny, err := os.ReadFile(filepath.Join(dir, "tiny.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(tiny), "Conv2d", "Conv2D", 1)
	if err := os.WriteFile(filepath.Join(dir, "tiny.yaml"), []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	_, errs, code := run(t, "memplan estimate tiny.yaml", dir)
	if code != exitUsage || !strings.HasPrefix(errs, mistake) {
		t.Errorf("README shows\n%s\nand memplan prints (%d)\n%s", mistake, code, errs)
	}
}

// TestPanic checks that Main survives a panic.
func TestPanic(t *testing.T) {
	var errs bytes.Buffer
	s := &Streams{In: strings.NewReader(""), Out: panicWriter{}, Err: &errs, Env: os.LookupEnv}
	if code := Main([]string{"version"}, s); code != exitFailed || !strings.Contains(errs.String(), "internal error: written to") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

type panicWriter struct{}

func (panicWriter) Write([]byte) (int, error) { panic("written to") }
