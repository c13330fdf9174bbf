//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/memplan/memplan/internal/gate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/report"
)

// slow is a spec that takes many seconds to play.
const slow = "memplan: 1\nmodel:\n  inputs: {x: {shape: [4]}}\n  layers: [{layers: [{Linear: 4, repeat: 400}], repeat: 400}]\n  loss: [mean]\n"

// built is the command, for tests that need a process of its own.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memplan")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/memplan").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestInterrupt sends a signal to commands that are computing or waiting, with more
// to do or to wait for than a test has time: they end, with the exit code of the
// signal, and leave no file.
func TestInterrupt(t *testing.T) {
	needs.Time(t, "builds the binary and waits; nothing in it runs at the same time as something else")
	memplan := built(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"slow.yaml": slow, "python": "#!/bin/sh\nsleep 1000 &\necho $! > child\nwait\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprintf("s%d.yaml", i)), []byte(slow), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"estimate slow.yaml",
		"estimate preset:gpt --set params.layers=48 --advise --gpu t4 --batch-size 512 --format json",
		"check many --report junit=out.xml",
		"simulate -",
		"explain -",
		"estimate -",
		"run preset:gpt --backend cpu --steps 1000 --save weights",
		"run preset:mlp --backend torch --python ./python",
		"export trace slow.yaml --out-file trace.json",
		"schema --desugar -",
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(line+" "+sig.String(), func(t *testing.T) {
				var c *exec.Cmd
				var errs bytes.Buffer
				for wait := 400 * time.Millisecond; ; wait *= 4 {
					c = interruptAfter(t, dir, wait, sig, &errs, memplan, strings.Fields(line)...)
					if !c.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
						break
					} // the machine is slow, and the process had not begun to listen
				}
				if code := c.ProcessState.ExitCode(); code != exitSignal+int(sig) {
					t.Errorf("exit code %d\n%s", code, errs.String())
				}
				if !strings.HasSuffix(errs.String(), interrupted+"\n") {
					t.Errorf("stderr: %s", errs.String())
				}
			})
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "child")); err != nil {
		t.Error(err)
	} else if pid, _ := strconv.Atoi(strings.TrimSpace(string(text))); !gone(pid) {
		t.Errorf("process %d of Python lives on", pid)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		switch e.Name() {
		case "slow.yaml", "python", "child", "many":
		default:
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

// interruptAfter starts a program whose input does not end and sends it a signal
// after a while, of which it ends although it has work for much longer.
func interruptAfter(t *testing.T, dir string, wait time.Duration, sig syscall.Signal, errs *bytes.Buffer, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = dir
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	errs.Reset()
	c.Stderr = errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(wait)
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	return c
}

// gone waits until a process is no more, or nobody has asked for its end.
func gone(pid int) bool {
	for range 3000 {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return true
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && bytes.Contains(stat, []byte(") Z ")) {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// full fails as a disk does that is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestFullOutput runs every command, in every format, where nothing can be written.
func TestFullOutput(t *testing.T) {
	spec := filepath.Join(t.TempDir(), "tiny.yaml")
	if err := os.WriteFile(spec, []byte("memplan: 1\nmodel: {preset: mlp}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rep := filepath.Join(t.TempDir(), "r.json")
	file, err := os.Create(rep)
	if err != nil {
		t.Fatal(err)
	}
	if code := Main([]string{"estimate", spec, "--quick", "--format", "json"}, &Streams{In: strings.NewReader(""), Out: file, Err: io.Discard, Env: os.LookupEnv}); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	file.Close()
	lines := []string{
		"", "--help", "--version", "help", "help estimate", "estimate --help", "version", "version --format json", "schema", "schema --desugar " + spec,
		"completion bash", "completion zsh", "completion fish", "completion powershell", "__complete estimate --gpu ",
		"list presets", "list devices", "list rules --format json", "explain MP001", "explain MP001 --format json", "explain LOG", "explain LOG --format json",
		"export torch " + spec, "export trace " + spec, "export trace " + spec + " --text", "simulate -", "simulate - --map", "simulate - --series", "simulate - --format json",
		"run " + spec + " --backend cpu --steps 1", "run " + spec + " --backend cpu --steps 1 --format json",
		"estimate " + spec + " --gpu t4,a100-40gb --quick",
	}
	for _, f := range report.Formats.Names() {
		lines = append(lines, "estimate "+spec+" --quick --format "+f)
	}
	for _, f := range gate.Formats.Names() {
		lines = append(lines, "check "+spec+" --format "+f)
	}
	for _, f := range report.DiffFormats.All() {
		lines = append(lines, "diff "+rep+" "+spec+" --format "+f.Name)
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 39.49 GiB of which 0 bytes is free.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const trace = `{"events": [["a", 1, 512], ["f", 1]]}`
	run := func(line string, out io.Writer) (int, string) {
		var errs bytes.Buffer
		s := &Streams{In: strings.NewReader(trace), Out: out, Err: &errs, Env: func(string) (string, bool) { return "", false }}
		return Main(strings.Fields(strings.ReplaceAll(line, "LOG", log)), s), errs.String()
	}
	for _, line := range lines {
		var out bytes.Buffer
		if code, errs := run(line, &out); code != exitOK || out.Len() == 0 {
			t.Errorf("%q: exit code %d, %d bytes\n%s", line, code, out.Len(), errs)
			continue
		}
		if code, errs := run(line, full{}); code != exitFailed || !strings.Contains(errs, syscall.ENOSPC.Error()) {
			t.Errorf("%q on a full disk: exit code %d, %q", line, code, errs)
		}
	}
}
