package cli

import (
	"fmt"

	"github.com/memplan/memplan/internal/data"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/runtime"
)

// trainingData opens the files that a spec names under data.source; nil if it
// names none, so that data are made up.
func trainingData(read func(name string, limit int64) ([]byte, error), j *estimate.Job, seed uint64) (runtime.Source, error) {
	if j.Data.Source == nil {
		return nil, nil
	}
	uses, err := runtime.Probe(j.Program, j.Machine.Env, nil)
	if err != nil {
		return nil, err
	}
	o := data.Options{
		Files: map[string]*data.File{}, Inputs: j.Program.Inputs, Bounds: uses.Bounds, Targets: uses.Targets,
		Batch: j.Program.Batch, Seed: seed, Pairs: j.Spec.Data.Tokenizer.V == "bpe",
	}
	for input, path := range j.Data.Source {
		text, err := read(path, data.MaxFile)
		if err != nil {
			return nil, fmt.Errorf("data.source: %w", err)
		}
		if o.Files[input], err = data.Read(path, text); err != nil {
			return nil, fmt.Errorf("data.source: %w", err)
		}
	}
	s, err := data.New(o)
	if err != nil {
		return nil, usagef("data.source: %w", err)
	}
	return data.NewPrefetch(s, j.Program.Inputs), nil
}
