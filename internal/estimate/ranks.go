package estimate

import (
	"cmp"
	"strconv"

	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/report"
)

// rankKey is the key of a spec that says which process is planned.
const rankKey = "parallel.rank"

// RankKey is the key with which a job is that of a rank.
func RankKey(rank int64) Key { return Key{rankKey, strconv.FormatInt(rank, 10)} }

// differ reports whether the processes of a job do different things, and the spec does not say
// which one is planned.
func (j *Job) differ() bool {
	return j.Program.Parallel.Pipeline != nil && !j.Spec.Parallel.Rank.Set && j.recipe != nil
}

// runRanks runs the job of each rank. The outcome is that of the first one that runs out of memory, else
// of the one that reserves most.
func runRanks(j *Job) (*Outcome, error) {
	n := int(j.Program.Parallel.Ranks)
	all, errs := make([]*Outcome, n), make([]error, n)
	pool.Do(n, func(i int) {
		of, err := j.recipe.Job(RankKey(int64(i)))
		if err == nil {
			all[i], err = Run(of)
		}
		errs[i] = err
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	worst := all[0]
	for _, o := range all[1:] {
		if cmp.Or(cmp.Compare(o.severity(), worst.severity()), cmp.Compare(o.Free.PeakReserved.Reserved, worst.Free.PeakReserved.Reserved),
			cmp.Compare(o.Free.PeakAllocated.Allocated, worst.Free.PeakAllocated.Allocated)) > 0 {
			worst = o
		}
	}
	worst.Ranks = all
	return worst, nil
}

// severity orders verdicts: OOM is more than TIGHT, and that more than FITS.
func (o *Outcome) severity() int {
	switch {
	case !o.Fits():
		return 2
	case o.Job.Machine.tight(o.OnGPU, o.Free.PeakReserved.Reserved):
		return 1
	}
	return 0
}

// ranks is the table of what each rank needs.
func (o *Outcome) ranks(r *report.Report) {
	pl := o.Job.Program.Parallel.Pipeline
	if pl == nil {
		return
	}
	r.Train.Microbatches = pl.Microbatches
	rank := pl.Rank
	r.Train.Rank = &rank
	for i, of := range o.Ranks {
		free := of.Free
		result := [...]string{report.Fits, report.Tight, report.OOMs}[of.severity()]
		r.Ranks = append(r.Ranks, report.Rank{
			Rank: int64(i), Parameters: of.Played.Totals.Parameters, PeakAllocatedBytes: free.PeakAllocated.Allocated, PeakReservedBytes: free.PeakReserved.Reserved,
			HeadroomBytes: of.Job.Machine.Usable() - free.PeakReserved.Reserved, Result: result,
		})
	}
}
