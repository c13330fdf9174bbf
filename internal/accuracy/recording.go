// Package accuracy holds memplan's predictions against recordings of real
// PyTorch: event by event, and by their peaks.
package accuracy

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Recording is one recorded run; see testdata/truth/README.md.
type Recording struct {
	Name   string
	Config Config
	Steps  []RecordedStep
	Setup  map[string]RecordedMark
	Events trace.Recorded
	Final  map[string]int64
	Params int64 `json:"param_count"`
}

// Config says what was run.
type Config struct {
	Name       string
	Model      string
	Args       map[string]any
	Batch      int64
	Precision  string
	Optimizer  string
	Features   []string
	Arch       string
	Accumulate int64
	Segments   int64 // of checkpoint_sequential
	Loop       string
	Input      string
	AllocConf  string `json:"alloc_conf"`
	StepCount  int    `json:"steps"`
}

// RecordedStep holds the peaks of a step.
type RecordedStep struct {
	PeakAllocated tensor.Bytes `json:"peak_allocated"`
	PeakReserved  tensor.Bytes `json:"peak_reserved"`
	EndAllocated  tensor.Bytes `json:"end_allocated"`
	EndReserved   tensor.Bytes `json:"end_reserved"`
}

// RecordedMark is one mark of the setup.
type RecordedMark struct {
	PeakAllocated tensor.Bytes `json:"peak_allocated"`
	PeakReserved  tensor.Bytes `json:"peak_reserved"`
}

// Load reads the recordings of a folder, sorted by name.
func Load(dir string) ([]*Recording, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	var out []*Recording
	for _, f := range files {
		r, err := LoadFile(f)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// LoadFile reads one recording.
func LoadFile(path string) (*Recording, error) {
	r := new(Recording)
	return r, readJSON(path, r)
}

// readJSON decodes a file of JSON that is compressed with gzip.
func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(z, 256<<20)).Decode(v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Family is the model of a recording's name: gpts of gpts_b4_clip.
func (r *Recording) Family() string {
	f, _, _ := strings.Cut(r.Name, "_b")
	return f
}

func (r *Recording) has(feature string) bool {
	for _, f := range r.Config.Features {
		if f == feature {
			return true
		}
	}
	return false
}
