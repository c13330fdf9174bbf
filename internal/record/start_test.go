package record

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/torchver"
)

// site is a sitecustomize that the user has.
const site = "import os\nos.environ['OTHER_SITE'] = 'ran'\n"

func started(t *testing.T, script string) (string, error) {
	t.Helper()
	return startedBy(t, needs.Tool(t, "python3"), t.TempDir(), script)
}

func startedBy(t *testing.T, python, dir, script string) (string, error) {
	t.Helper()
	file := filepath.Join(dir, "train.py")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s := &Start{
		Command: []string{python, file, "--lr", "1"}, Dir: dir, Steps: 2, Out: filepath.Join(dir, "out.rec"), Stdout: &out, Stderr: &out,
		Device: Device{Name: "NVIDIA H100 80GB HBM3", Arch: "sm90", SMs: 132, Memory: 80 << 30},
	}
	err := s.Run(t.Context())
	return out.String(), err
}

// A script that puts nothing on the GPU leaves no recording, which is said; its
// arguments, its output and the sitecustomize that it had are its own.
func TestStartNothing(t *testing.T) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "sitecustomize.py"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", other)
	t.Setenv("CUDA_VISIBLE_DEVICES", "3")
	out, err := started(t, "import os, sys\nprint(sys.argv[1:], os.environ['OTHER_SITE'], repr(os.environ['CUDA_VISIBLE_DEVICES']))\n")
	if err == nil || !strings.Contains(err.Error(), "nothing was recorded") {
		t.Errorf("error %v, want that nothing was recorded", err)
	}
	if want := "['--lr', '1'] ran ''\n"; out != want {
		t.Errorf("the script wrote %q, want %q", out, want)
	}
}

// The exit code of the command is the error.
func TestStartFails(t *testing.T) {
	_, err := started(t, "raise SystemExit(3)\n")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("error %v, want exit code 3", err)
	}
	if err := (&Start{Out: "x"}).Run(t.Context()); err == nil {
		t.Error("no command was taken")
	}
}

var withTorch = flag.String("record-python", "", "command that runs Python with PyTorch")

func python(t *testing.T) string {
	if *withTorch == "" {
		t.Skip("needs -record-python, a command that runs Python with PyTorch: TestPlay holds what it recorded")
	}
	return *withTorch
}

// TestStartRecords runs two steps of a layer in a PyTorch, whatever its release and build, is
// stopped after them, and plays what was recorded.
func TestStartRecords(t *testing.T) {
	dir := t.TempDir()
	out, err := startedBy(t, python(t), dir, `import torch
m = torch.nn.Linear(4, 2).to("cuda")
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(9):
    o.zero_grad()
    m(torch.ones(3, 4, device="cuda")).sum().backward()
    print(i)
    o.step()
`)
	if err != nil {
		t.Fatal(err, out)
	}
	if out != "0\n1\n" {
		t.Errorf("the script wrote %q, want two steps", out)
	}
	env := machines["sm90"]
	env.Torch = torchver.Recorded
	p, err := Play(nil, read(t, filepath.Join(dir, "out.rec"))[0], env)
	if err != nil {
		t.Fatal(err)
	}
	if p.Steps != 2 || p.Parameters != 10 || len(p.Doubts) > 0 {
		t.Errorf("%d steps of %d parameters, in doubt %v", p.Steps, p.Parameters, p.Doubts)
	}
}

// TestStartViews holds how tensors lie that were made other views of their storage in place.
func TestStartViews(t *testing.T) {
	out, err := startedBy(t, python(t), t.TempDir(), `import torch
x = torch.randn(3, 4, 5, device="cuda", requires_grad=True)
y = x * 2
y.transpose_(0, 1)
y.sum().backward()
print(tuple(y.shape), y.stride(), tuple(x.grad.shape))
a = torch.empty(4, 6, device="cuda")[1:]
a.t_().unsqueeze_(0)
print(tuple(a.shape), a.stride(), a.storage_offset())
a.squeeze_(0).as_strided_((2, 2), (1, 1))
print(tuple(a.shape), a.storage_offset())
a.as_strided_((2,), (1,), 3)
print(tuple(a.shape), a.storage_offset())
for kind in torch.nn.GRU, torch.nn.LSTM: # whose results are turned so, where cuDNN does not take them
    m = kind(5, 7, batch_first=True).to("cuda", torch.bfloat16)
    z = m(torch.randn(3, 4, 5, device="cuda", dtype=torch.bfloat16))[0]
    z.sum().backward()
    print(tuple(z.shape))
`)
	if err != nil {
		t.Fatal(err, out)
	}
	if want := "(4, 3, 5) (5, 20, 1) (3, 4, 5)\n(1, 6, 3) (6, 1, 6) 6\n(2, 2) 6\n(2,) 3\n(3, 4, 7)\n(3, 4, 7)\n"; out != want {
		t.Errorf("the script wrote %q, want %q", out, want)
	}
}
