package cli

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
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

// exampleFiles are the files that examples name.
var exampleFiles = map[string]string{
	"qlora.yml":       "base_model: a/b\ndatasets: []\nmicro_batch_size: 2\nlearning_rate: 1e-4\n",
	"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\n",
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
			if c.Name() == "record" || c.Name() == "calibrate" { // need a Python with PyTorch; internal/record, record.txtar and calibrate.txtar test them
				continue
			}
			t.Run(strings.TrimSpace(line), func(t *testing.T) {
				dir := t.TempDir()
				for name, text := range exampleFiles {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				out, errs, code := run(t, line, dir)
				if code != 0 || out == "" && !strings.Contains(line, "--out-file") {
					t.Errorf("exit code %d, %d bytes of output\n%s", code, len(out), errs)
				}
			})
		}
	}
	walk(newRoot(System()))
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
