package torchrun

import (
	"context"
	_ "embed" // the script below
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/memplan/memplan/internal/tensor"
)

//go:embed calibrate.py
var calibrate string

// Measured is the CUDA context of a PyTorch process on the first GPU that it finds.
type Measured struct {
	Device
	CUDA    string       `json:"cuda"`    // release that PyTorch was built with
	Loading string       `json:"loading"` // CUDA_MODULE_LOADING
	Bare    tensor.Bytes `json:"bare"`    // before anything ran
	Loaded  tensor.Bytes `json:"loaded"`  // after training steps
}

// Calibrate measures the context.
func (p Python) Calibrate(ctx context.Context) (*Measured, error) {
	dir, err := os.MkdirTemp("", "memplan-calibrate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "calibrate.py")
	if err := os.WriteFile(path, []byte(calibrate), 0o600); err != nil {
		return nil, err
	}
	out, err := p.run(ctx, os.Environ(), path)
	if err != nil {
		return nil, err
	}
	var m Measured
	switch err := json.Unmarshal(lastLine(out), &m); {
	case err != nil:
		return nil, &Error{Command: p.String(), Err: errors.New("is this a Python? It did not say what a context takes")}
	case m.Error != "":
		return nil, &Error{Command: p.String(), Err: fmt.Errorf("%s (PyTorch %s)", m.Error, m.Torch)}
	case m.Bare <= 0 || m.Loaded < m.Bare || m.Loaded >= m.Memory:
		return nil, &Error{Command: p.String(), Err: fmt.Errorf("contexts of %v and %v are none: other processes on the GPU came or went while it was measured; try again when it is idle", m.Bare, m.Loaded)}
	}
	return &m, nil
}
