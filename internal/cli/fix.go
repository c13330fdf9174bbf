package cli

import (
	"context"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/plan"
)

// fixing is what the command line asks of the search for changes that make a job
// fit. Without progress none is made.
type fixing struct {
	more, none bool
	progress   *progress
}

// shown is how many changes have their lines shown.
func (x *fixing) shown() int {
	if x.more {
		return 5
	}
	return 1
}

// run adds changes to the report: those that make the job fit if it does not or,
// if they were asked for, those that leave more room.
func (x *fixing) run(ctx context.Context, o *plan.Estimate) error {
	rep := o.Report
	if x.progress == nil || x.none || rep.Verdict.Fits && !x.more {
		return nil
	}
	defer x.progress.clear()
	found, err := o.Advise(ctx, plan.AdviceOptions{Longer: x.more, Progress: x.progress.tried})
	if err != nil {
		return err
	}
	if rep.Advice == nil {
		rep.Advice = &report.Advice{NotFitting: []int64{}}
	}
	rep.Advice.Changes, rep.Advice.Fix = found.Changes, &found.How
	return nil
}
