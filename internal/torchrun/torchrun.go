// Package torchrun runs the exported script of a job in the user's own PyTorch
// and reads what its CUDA allocator did, event by event. It is how a prediction
// is confirmed by the real thing.
package torchrun

import (
	"bytes"
	"context"
	_ "embed" // the script below
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

//go:embed confirm.py
var confirm string

// StandIn is a Python module for scripts of jobs on several GPUs, by which one
// process stands for the first of them.
//
//go:embed standin.py
var StandIn string

// Python is a command that runs Python, with its arguments.
type Python []string

// Error says that Python or PyTorch could not do what they were asked.
type Error struct {
	Command string
	Err     error
	Output  string // of the command, the end of it
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %v", e.Command, e.Err)
	if e.Output != "" {
		s += "\n" + e.Output
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Device is the first GPU that PyTorch finds, and how many there are.
type Device struct {
	Torch  string       `json:"torch"`
	Name   string       `json:"name"`
	Arch   int          `json:"arch"` // compute capability × 10
	SMs    int          `json:"sms"`
	Memory tensor.Bytes `json:"memory"`
	Count  int64        `json:"count"`
	Error  string       `json:"error"`
}

// Find asks for the GPU and the version of PyTorch.
func (p Python) Find(ctx context.Context) (*Device, error) {
	out, err := p.run(ctx, os.Environ(), "-c", confirm)
	if err != nil {
		return nil, err
	}
	var d Device
	if err := json.Unmarshal(lastLine(out), &d); err != nil {
		return nil, &Error{Command: p.String(), Err: errors.New("is this a Python? It did not say what GPU there is")}
	}
	if d.Error != "" {
		return nil, &Error{Command: p.String(), Err: fmt.Errorf("%s (PyTorch %s)", d.Error, d.Torch)}
	}
	return &d, nil
}

// Step is what one step of a recording gave.
type Step struct {
	PeakAllocated tensor.Bytes `json:"peak_allocated_bytes"`
	PeakReserved  tensor.Bytes `json:"peak_reserved_bytes"`
	MS            float64      `json:"ms"`
}

// Recording is what PyTorch did.
type Recording struct {
	Events  trace.Recorded `json:"events"` // setup, step1, step2, ...
	Steps   []Step         `json:"steps"`
	Error   string         `json:"error"` // that ended the script, such as out of memory
	Device  tensor.Bytes   `json:"device_bytes"`
	Context tensor.Bytes   `json:"context_bytes"`
}

// Job is a script, and what it is run with.
type Job struct {
	Script    []byte // of package exporttorch
	Ranks     int64  // processes that it is for; 0 or 1: one GPU
	AllocConf string // PYTORCH_CUDA_ALLOC_CONF; "" is PyTorch's default, whatever the user's environment says
}

// Record runs a job on so many GPUs. With a GPU for each process, torchrun starts them all, and each
// gives a recording, or one that failed gives the only one; otherwise one process
// stands for the first of them.
func (p Python) Record(ctx context.Context, job Job, gpus int64) ([]*Recording, error) {
	ranks := job.Ranks
	dir, err := os.MkdirTemp("", "memplan-run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path, out, own := filepath.Join(dir, "job.py"), filepath.Join(dir, "out.json"), filepath.Join(dir, "confirm.py")
	for name, text := range map[string][]byte{path: job.Script, own: []byte(confirm), filepath.Join(dir, "standin.py"): []byte(StandIn)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return nil, err
		}
	}
	args, outs := []string{own, path, out}, []string{out}
	switch {
	case ranks == 0:
	case ranks > gpus:
		args = append(args, strconv.FormatInt(ranks, 10))
	default:
		args = append([]string{"-m", "torch.distributed.run", "--standalone", fmt.Sprintf("--nproc-per-node=%d", ranks)}, args...)
		outs = outs[:0]
		for r := range ranks {
			outs = append(outs, fmt.Sprintf("%s.%d", out, r))
		}
	}
	_, failed := p.run(ctx, environment(job.AllocConf), args...)
	if failed != nil && (len(outs) == 1 || ctx.Err() != nil) {
		return nil, failed
	}
	var recs []*Recording
	for _, name := range outs {
		r, err := read(name)
		switch {
		case failed != nil && err == nil && r.Error != "": // this process failed; torchrun has ended the others
			return []*Recording{r}, nil
		case failed != nil: // it may have been ended before it wrote
		case err != nil:
			return nil, &Error{Command: p.String(), Err: err}
		}
		recs = append(recs, r)
	}
	if failed != nil {
		return nil, failed
	}
	return recs, nil
}

// read reads what confirm.py wrote.
func read(path string) (*Recording, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Recording
	return &r, json.Unmarshal(text, &r)
}

func (p Python) String() string { return strings.Join(p, " ") }

// patience is how long an interrupted Python may take to end; it is less than
// what memplan itself takes when it is interrupted.
const patience = 150 * time.Millisecond

// maxOutput is how much of what a failed command printed is shown.
const maxOutput = 2000

// environment is the user's, but for the options of the allocator.
func environment(conf string) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return name == torchver.AllocConf || name == torchver.AllocConfNew
	})
	if conf != "" {
		env = append(env, torchver.AllocConf+"="+conf)
	}
	return env
}

func (p Python) run(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p[0], append(p[1:len(p):len(p)], args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, env
	apart(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text := strings.TrimSpace(stderr.String())
		if strings.Contains(text, "No module named 'torch'") {
			return nil, &Error{Command: p.String(), Err: errors.New("this Python has no PyTorch; name one that has")}
		}
		if len(text) > maxOutput {
			text = "… " + text[len(text)-maxOutput:]
		}
		return nil, &Error{p.String(), err, text}
	}
	return stdout.Bytes(), nil
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		return b[i+1:]
	}
	return b
}
