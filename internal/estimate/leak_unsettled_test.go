package estimate

import (
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
)

// TestLeakUnsettled holds that a leak says no more than was simulated: where what runs
// rarely keeps steps from settling, it is not followed until the job dies, and the report
// says so.
func TestLeakUnsettled(t *testing.T) {
	text := everyStep + "  - optimizer_step\n  - zero_grad\n  - {empty_cache: , every: 600}\n  - {keep: {of: out, in: outs, detach: true}}\n" +
		"train: {batch_size: 3000, optimizer: AdamW}\ndevice: {gpu: a100-80gb}\n"
	o, r := estimateText(t, text)
	if !r.Verdict.Fits || o.Played.Settled {
		return // it was followed
	}
	if !slices.ContainsFunc(r.Notes, func(n note.Note) bool { return n.Code == note.Unsettled }) {
		t.Errorf("%v, though it runs out of memory in step 6714: %q", r.Verdict.Result, r.Warnings)
	}
}

// TestLeakLast holds that a leak is followed for the work that is left when all else
// that is asked of a job was done.
func TestLeakLast(t *testing.T) {
	r := recipeOf(strings.Replace(everyStep, "layers: [", "layers: [{Linear: 300, repeat: 300}, ", 1) + "  - optimizer_step\n  - zero_grad\n  - {keep: {of: out, in: outs, detach: true}}\n" +
		"train: {batch_size: 30, optimizer: AdamW}\ndevice: {gpu: a100-80gb}\n")
	work := func(units int64, do func(j *Job) error) int64 {
		b := limit.New(t.Context(), limit.Limits{Work: units})
		defer b.Close()
		r.Budget = b
		j, err := r.Job()
		if err == nil {
			err = do(j)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Work()
	}
	played := work(limit.CheckWork, func(j *Job) error { _, err := Play(j); return err })
	once := work(limit.CheckWork, func(j *Job) error { _, err := Probe(j); return err }) - played
	work(played+7*once, func(j *Job) error {
		o, err := Run(j)
		if err == nil && o.OnGPU.Turns == 0 {
			t.Error("the leak is not followed")
		}
		return err
	})
}
