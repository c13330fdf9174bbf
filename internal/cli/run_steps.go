package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

// steps is what is done after each step of a training.
type steps struct {
	e        *execution
	s        *Streams
	ctx      context.Context // ends with a signal
	last     int
	progress *progress
	rep      *report.Run
	gpu      *foundGPU // nil: it is the CPU
	log      *os.File  // nil: there is none
	board    *board    // nil: there is none

	batch int64         // samples of one
	took  time.Duration // of the steps but for the first
	timed int           // how many these are
	evals time.Duration // of the evaluations so far
	every int64         // an evaluation after so many steps; 0: there is none
}

// evaluating is how long the evaluations after a step will take, as long as those before it.
func (t *steps) evaluating(step int) time.Duration {
	if n := len(t.rep.Evaluations); n > 0 && t.every > 0 {
		return t.evals / time.Duration(n) * time.Duration(int64(t.last)/t.every-int64(step)/t.every)
	}
	return 0
}

// step is a line of --log.
type step struct {
	Step      int          `json:"step"`
	Loss      *report.Loss `json:"loss,omitempty"` // null if it is infinite or NaN
	MS        float64      `json:"ms"`
	Allocated tensor.Bytes `json:"allocated_bytes"` // peaks so far
	Reserved  tensor.Bytes `json:"reserved_bytes"`
}

func (t *steps) done(q runtime.Progress) error {
	if q.Step != t.rep.Resumed+1 { // which warms up
		t.took += q.Took
		t.timed++
	}
	mean := q.Took
	if t.timed > 0 {
		mean = t.took / time.Duration(t.timed)
	}
	speed := ""
	if mean > 0 && t.batch > 0 {
		speed = fmt.Sprintf(", %.4g samples a second", float64(t.batch)/mean.Seconds())
	}
	left := mean*time.Duration(t.last-q.Step) + t.evaluating(q.Step)
	t.progress.log("step %d of %d: loss %.4g, %v%s, allocated %v, reserved %v, %v left",
		q.Step, t.last, q.Loss, q.Took.Round(time.Millisecond), speed, q.Allocated, q.Reserved, left.Round(time.Second))
	if t.gpu != nil {
		t.rep.Measured.DeviceBytes = max(t.rep.Measured.DeviceBytes, t.gpu.used())
	}
	if err := t.writeLog(q); err != nil {
		return err
	}
	if err := t.board.step(q, t.batch); err != nil {
		return err
	}
	if every := t.e.saveEvery; every > 0 {
		over := t.ctx.Err() != nil
		if over || q.Step%every == 0 || q.Step == t.last {
			if err := writeTo(t.s, t.e.save, q.Save); err != nil {
				return fmt.Errorf("--save: %w", err)
			}
		}
		if over {
			t.progress.clear()
			fmt.Fprintf(t.s.Err, "memplan: %s holds the run after step %d; --resume goes on with it\n", printable.File(t.e.save), q.Step)
			return t.ctx.Err()
		}
	}
	if q.HasLoss && math.IsNaN(q.Loss) {
		return fmt.Errorf("the loss is NaN in step %d", q.Step)
	}
	return nil
}

// evaluated keeps what an evaluation gave.
func (t *steps) evaluated(q runtime.Evaluation) error {
	r := report.RunEvaluation{Step: q.Step, Batches: q.Batches, Samples: q.Samples}
	if !math.IsNaN(q.Loss) || q.Scored > 0 {
		loss := report.Loss(q.Loss)
		r.Loss = &loss
	}
	if q.Scored > 0 {
		share := float64(q.Right) / float64(q.Scored)
		r.Accuracy, r.Predictions = &share, q.Scored
		if q.Tokens {
			perplexity := report.Loss(math.Exp(q.Surprise))
			r.Perplexity = &perplexity
		}
	}
	t.rep.Evaluations = append(t.rep.Evaluations, r)
	t.evals += q.Took
	if err := t.board.evaluation(&r); err != nil {
		return err
	}
	return t.logged(r)
}

// openLog begins the files of --log and --tensorboard, or goes on with those of the run that
// is resumed.
func (t *steps) openLog() (err error) {
	if t.board, err = openBoard(t.e.board, t.progress.now); err != nil {
		return fmt.Errorf("--tensorboard: %w", err)
	}
	if t.e.log == "" {
		return nil
	}
	how := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if t.rep.Resumed > 0 {
		how = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	if t.log, err = os.OpenFile(t.e.log, how, 0o666); err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	return nil
}

func (t *steps) writeLog(q runtime.Progress) error {
	if t.log == nil {
		return nil
	}
	line := step{Step: q.Step, MS: float64(q.Took.Microseconds()) / 1000, Allocated: q.Allocated, Reserved: q.Reserved}
	if loss := report.Loss(q.Loss); q.HasLoss {
		line.Loss = &loss
	}
	return t.logged(line)
}

// logged writes a line of --log.
func (t *steps) logged(line any) error {
	if t.log == nil {
		return nil
	}
	if err := json.NewEncoder(t.log).Encode(line); err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	return nil
}

func (t *steps) closeLog() error {
	err := t.board.close()
	if t.log == nil {
		return err
	}
	return errors.Join(err, t.log.Close())
}
