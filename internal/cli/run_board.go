package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tfevents"
)

// board is the event file of a run for TensorBoard; nil writes nothing.
type board struct {
	file *os.File
	w    *tfevents.Writer
	now  func() time.Time
}

// openBoard makes an event file in a folder, which is made, too; "" is none.
func openBoard(folder string, now func() time.Time) (*board, error) {
	if folder == "" {
		return nil, nil
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	began := now()
	file, err := os.OpenFile(filepath.Join(folder, tfevents.Name(began, fmt.Sprintf("memplan.%d", os.Getpid()))), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	w, err := tfevents.NewWriter(file, began)
	return &board{file, w, now}, err
}

func (b *board) write(step int, list []tfevents.Scalar) error {
	if err := b.w.Write(b.now(), int64(step), list...); err != nil {
		return fmt.Errorf("--tensorboard: %w", err)
	}
	return nil
}

// step writes what a step of so many samples gave.
func (b *board) step(q runtime.Progress, samples int64) error {
	if b == nil {
		return nil
	}
	var list []tfevents.Scalar
	if q.HasLoss {
		list = append(list, tfevents.Scalar{Tag: "loss/train", Value: q.Loss})
	}
	if s := q.Took.Seconds(); s > 0 {
		list = append(list, tfevents.Scalar{Tag: "speed/step_ms", Value: 1000 * s}, tfevents.Scalar{Tag: "speed/samples_per_second", Value: float64(samples) / s})
	}
	return b.write(q.Step, append(list,
		tfevents.Scalar{Tag: "memory/peak_allocated_bytes", Value: float64(q.Allocated)}, tfevents.Scalar{Tag: "memory/peak_reserved_bytes", Value: float64(q.Reserved)}))
}

// evaluation writes what an evaluation gave.
func (b *board) evaluation(e *report.RunEvaluation) error {
	if b == nil {
		return nil
	}
	var list []tfevents.Scalar
	if e.Loss != nil {
		list = append(list, tfevents.Scalar{Tag: "loss/evaluation", Value: float64(*e.Loss)})
	}
	if e.Accuracy != nil {
		list = append(list, tfevents.Scalar{Tag: "evaluation/accuracy", Value: *e.Accuracy})
	}
	if e.Perplexity != nil {
		list = append(list, tfevents.Scalar{Tag: "evaluation/perplexity", Value: float64(*e.Perplexity)})
	}
	return b.write(e.Step, list)
}

func (b *board) close() error {
	if b == nil {
		return nil
	}
	return b.file.Close()
}
