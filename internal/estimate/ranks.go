package estimate

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
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

// ofRank is the job of another rank.
func (j *Job) ofRank(rank int64) *Job {
	of, r := *j, *j.recipe
	r.Options.Flags = append(slices.Clone(r.Options.Flags), RankKey(rank).flag())
	of.Program, of.recipe, of.replayer = j.Program.OfRank(rank), &r, new(allocsim.Replayer)
	return &of
}

// distinct tells of each rank which one, itself or one before it, does the same.
func (j *Job) distinct() (like []int64, err error) {
	defer j.metered(&err)()
	if err := engine.InferStages(j.meter, j.Program.OfRank(j.Program.Parallel.Pipeline.Ranks-1), j.Machine.Env); err != nil {
		return nil, err
	}
	return j.Program.DistinctRanks(), nil
}

// onRanks does something with the job of each rank that does what no rank before it does, on all
// cores. It returns which one each rank is like, and the first error.
func (j *Job) onRanks(do func(of *Job) error) ([]int64, error) {
	like, err := j.distinct()
	if err != nil {
		return nil, err
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(like)))
	errs := make([]error, len(distinct))
	pool.Do(len(distinct), func(i int) { errs[i] = do(j.ofRank(distinct[i])) })
	return like, cmp.Or(errs...)
}

// runRanks runs the job of each rank, of those that do the same once. The outcome is that of the first
// one that runs out of memory, else of the one that reserves most.
func runRanks(j *Job) (*Outcome, error) {
	all := make([]*Outcome, j.Program.Parallel.Pipeline.Ranks)
	like, err := j.onRanks(func(of *Job) (err error) {
		all[of.Program.Parallel.Pipeline.Rank], err = runOne(of)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, k := range like {
		all[i] = all[k]
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

// ProbeRanks is Probe of each rank of a job whose ranks differ.
func ProbeRanks(j *Job) ([]Probed, error) {
	all := make([]Probed, j.Program.Parallel.Pipeline.Ranks)
	like, err := j.onRanks(func(of *Job) (err error) {
		all[of.Program.Parallel.Pipeline.Rank], err = Probe(of)
		return err
	})
	for i, k := range like {
		all[i] = all[k]
	}
	return all, err
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
