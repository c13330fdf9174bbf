package record

import (
	"context"
	_ "embed" // the recorder
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// recorder pretends a GPU, and writes what a script does with it.
//
//go:embed recorder.py
var recorder string

// finder waits for the script's import of PyTorch.
//
//go:embed finder.py
var finder string

// history is loaded in its place where there is a GPU and the script is to use it.
//
//go:embed real.py
var history string

// Script is what Python loads before the user's script, as one file: the recorder, or what keeps the history of a real GPU.
func Script(real bool) string {
	if real {
		return finder + "\n\n" + history
	}
	return finder + "\n\n" + recorder
}

// Device is the GPU that a script is to believe in.
type Device struct {
	Key    string         `json:"key"` // in memplan's table
	Name   string         `json:"name"`
	Arch   string         `json:"arch"` // as sm90
	SMs    int64          `json:"sms"`
	Memory tensor.Bytes   `json:"memory"`
	Cudnn  map[string]int `json:"cudnn"` // of the wheels of each release
}

// Start says how a command is recorded.
type Start struct {
	Command []string // of the user: python train.py, torchrun, a script with #!
	Dir     string   // where it runs; "" is here
	Real    bool     // on the GPU that there is: the allocator's own history
	Steps   int64    // of an optimizer, after which it is stopped
	Device  Device
	Batch   map[string]int64 // which values the recording was made with, as it says itself
	Answers map[string]any   // to what the script reads back, by "file:line", or "item", "all", "assert", "rows", "equal"
	Out     string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Run runs the command, whose recording is then in the file Out. An error of
// *exec.ExitError is the command's own; there may be a recording up to where it failed.
func (s *Start) Run(ctx context.Context) error {
	if len(s.Command) == 0 {
		return errors.New("no command is given: memplan record -- python train.py")
	}
	dir, err := os.MkdirTemp("", "memplan-record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(Script(s.Real)), 0o600); err != nil {
		return err
	}
	out, err := filepath.Abs(s.Out)
	if err != nil {
		return err
	}
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	options, err := json.Marshal(map[string]any{
		"out": out, "steps": s.Steps, "gpu": s.Device, "batch": orEmpty(s.Batch), "answers": orEmpty(s.Answers), "claim": filepath.Join(dir, "claimed"),
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Dir, s.Stdin, s.Stdout, s.Stderr
	cmd.Env = environment(os.Environ(), dir, string(options), s.Real)
	failed := cmd.Run()
	if _, err := os.Stat(out); err != nil && failed == nil {
		return fmt.Errorf("%s ended without putting anything on the GPU: nothing was recorded", strings.Join(s.Command, " "))
	}
	return failed
}

// environment is that of a command that the recorder in a folder is to reach, and
// in which no GPU is found unless it is to be used.
func environment(env []string, dir, options string, real bool) []string {
	path := dir
	var out []string
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case "PYTHONPATH":
			if value != "" {
				path += string(os.PathListSeparator) + value
			}
		case "MEMPLAN_RECORD":
		case "CUDA_VISIBLE_DEVICES":
			if real {
				out = append(out, e)
			}
		default:
			out = append(out, e)
		}
	}
	if !real {
		out = append(out, "CUDA_VISIBLE_DEVICES=")
	}
	return append(out, "PYTHONPATH="+path, "MEMPLAN_RECORD="+options)
}

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}
