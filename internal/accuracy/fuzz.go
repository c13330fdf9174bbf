package accuracy

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// FuzzCase is a random spec with what real PyTorch allocated when it ran the
// script that the spec means.
type FuzzCase struct {
	Name   string                     `json:"name"`
	Arch   string                     `json:"arch"`
	Torch  string                     `json:"torch"`
	Spec   string                     `json:"spec"`
	Events map[string][]RecordedEvent `json:"events"`
	Steps  []RecordedStep             `json:"steps"`
}

// MarshalJSON writes an event as UnmarshalJSON reads it.
func (e RecordedEvent) MarshalJSON() ([]byte, error) {
	if e.ID <= 0 {
		return json.Marshal(e.ID)
	}
	return json.Marshal([2]int64{e.ID, int64(e.Bytes)})
}

// CompareFuzz returns the first difference between prediction and recording,
// "" if there is none.
func CompareFuzz(c *FuzzCase) (string, error) {
	s, err := spec.Parse(c.Name+".yaml", []byte(c.Spec), spec.Options{})
	if err != nil {
		return "", err
	}
	env := ArchEnv(c.Arch)
	g, err := graph.Build(s, graph.Options{Env: env, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return "", err
	}
	p, err := engine.Play(g.Job, env, nil, len(c.Steps))
	if err != nil {
		return "", err
	}
	return difference(c.Events, p.Trace.Events, false), nil
}

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
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var cases []*FuzzCase
	if err := json.NewDecoder(z).Decode(&cases); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cases, nil
}
