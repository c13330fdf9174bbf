package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/memplan/memplan/internal/data"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

// torchDataMost bounds the files of batches that a script in PyTorch reads.
const torchDataMost = 16 * tensor.GiB

// torchData writes the batches that the steps of a job take of a data set to files of a
// folder, as the backends of memplan's own take them, and says where they are.
func torchData(folder string, j *estimate.Job, set *data.Set, steps int64, rep *report.Run) (map[string]exporttorch.Batches, error) {
	out := map[string]exporttorch.Batches{}
	left := torchDataMost
	t := set.Training()
	rep.Data = &report.RunData{Samples: t.Samples()}
	normal, _ := takes(j.Program.Step)
	count := 1 + steps*normal // one is loaded ahead
	if f := j.Program.Before; f != nil {
		n, _ := takes(f)
		count += n
	}
	if j.Program.Static {
		count = 1
	}
	err := writeBatches(out, exporttorch.NextBatch, folder, t, j.Program.Inputs, 0, count, &left)
	e := j.Program.Eval
	if err != nil || e == nil || !j.Program.OwnBatches() {
		return out, err
	}
	v, err := evaluated(j, set, rep)
	if err != nil {
		return nil, err
	}
	normal, last := takes(e.Fn)
	if normal > 0 {
		err = writeBatches(out, exporttorch.NextEvalBatch, folder, v, e.Inputs, 0, normal*e.Batches, &left)
	}
	if err == nil && last > 0 {
		err = writeBatches(out, exporttorch.NextLastEvalBatch, folder, v, e.Last.Inputs, normal*e.Batches, last*e.Batches, &left)
	}
	return out, err
}

// takes is how many batches the statements of a function take, and how many of the size of
// the last of an evaluation.
func takes(f *program.Func) (normal, last int64) {
	for _, s := range f.Statements() {
		switch {
		case s.Kind == program.Batch && s.Last:
			last++
		case s.Kind == program.Batch:
			normal++
		}
	}
	return normal, last
}

// writeBatches writes so many batches of a source, from one on, for a function of the script.
func writeBatches(out map[string]exporttorch.Batches, function, folder string, from runtime.Source, inputs []program.Input, first, count int64, left *tensor.Bytes) error {
	b := exporttorch.Batches{Count: count, Files: map[string]string{}}
	for i, in := range inputs {
		n, err := tensor.MulBytes(append([]int64{count, in.DType.Size()}, in.Size...)...)
		if *left -= n; err != nil || *left < 0 {
			return usagef("data.source: the batches that PyTorch reads take more than %v in files; --steps says fewer", torchDataMost)
		}
		path := filepath.Join(folder, fmt.Sprintf("%s.%d", function, i))
		if err := writeInput(path, from, in, first, count); err != nil {
			return fmt.Errorf("data.source: %w", err)
		}
		b.Files[in.Name] = path
	}
	out[function] = b
	return nil
}

func writeInput(path string, from runtime.Source, in program.Input, first, count int64) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	defer func() { err = errors.Join(err, w.Flush(), file.Close()) }()
	for n := range count {
		v, err := from.Values(int(first+n), in)
		if err != nil {
			return err
		}
		if _, err := w.Write(v); err != nil {
			return err
		}
	}
	return nil
}
