package cli

import (
	"fmt"

	"github.com/memplan/memplan/internal/data"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
)

// trainingData opens the files that a spec names under data; nil if it names none, so that
// data are made up.
func trainingData(read func(name string, limit int64) ([]byte, error), j *estimate.Job, seed uint64) (*data.Set, error) {
	d := &j.Data
	if d.Source == nil {
		return nil, nil
	}
	uses, err := runtime.Probe(j.Program, j.Machine.Env, nil)
	if err != nil {
		return nil, err
	}
	opened := map[string]*data.File{}
	open := func(key string, paths map[string][]string) (data.Files, error) {
		if paths == nil {
			return nil, nil
		}
		out := data.Files{}
		for input, list := range paths {
			for _, path := range list {
				if opened[path] == nil {
					text, err := read(path, data.MaxFile)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", key, err)
					}
					if opened[path], err = data.Read(path, text); err != nil {
						return nil, fmt.Errorf("%s: %w", key, err)
					}
				}
				out[input] = append(out[input], opened[path])
			}
		}
		return out, nil
	}
	files, err := open("data.source", d.Source)
	if err != nil {
		return nil, err
	}
	validation, err := open("data.validation", d.Validation)
	if err != nil {
		return nil, err
	}
	set, err := data.New(data.Options{
		Files: files, Validation: validation, Share: d.Share, Inputs: j.Program.Inputs, Bounds: uses.Bounds, Targets: uses.Targets,
		Batch: j.Program.Batch, Seed: seed, InOrder: d.InOrder, Pairs: j.Spec.Data.Tokenizer.V == "bpe",
	})
	if err != nil {
		return nil, usagef("data.source: %w", err)
	}
	return set, nil
}

// evaluated are the batches of a set that evaluations take, nil if there are none, and what
// there is to say of them.
func evaluated(j *estimate.Job, set *data.Set, rep *report.Run) (runtime.Source, error) {
	e := j.Program.Eval
	if e == nil || !j.Program.OwnBatches() {
		return nil, nil
	}
	batch := e.Inputs[0].Size[0]
	v := set.Validation(batch)
	if v == nil {
		rep.Add(note.EvaluatedOn.New("evaluations go over the data that are trained on; data.validation says others"))
		return set.Again(batch), nil
	}
	rep.Data.Validation = v.Samples()
	if n := e.Batches * batch; n > v.Samples() {
		return nil, usagef("data.validation has %d samples; an evaluation takes %d, eval.batches of eval.batch_size", v.Samples(), n)
	}
	return v, nil
}
