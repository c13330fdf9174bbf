package accuracy

import (
	"compress/gzip"
	"encoding/json"
	"os"

	"github.com/memplan/memplan/internal/trace"
)

// FuzzCase is a random spec with what real PyTorch allocated when it ran the
// script that the spec means.
type FuzzCase struct {
	Name   string                           `json:"name"`
	Arch   string                           `json:"arch"`
	Torch  string                           `json:"torch"`
	Spec   string                           `json:"spec"`
	Events map[string][]trace.RecordedEvent `json:"events"`
	Steps  []RecordedStep                   `json:"steps"`
}

// CompareFuzz returns the first difference between prediction and recording,
// "" if there is none: of the events, then of the peaks.
func CompareFuzz(f *FuzzCase) (string, error) { return f.Compare().Unequal(), nil }

// WriteFuzz writes cases as one gzipped JSON list.
func WriteFuzz(path string, cases []*FuzzCase) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(cases); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

// ReadFuzz reads what WriteFuzz wrote.
func ReadFuzz(path string) ([]*FuzzCase, error) {
	var cases []*FuzzCase
	return cases, readJSON(path, &cases)
}
