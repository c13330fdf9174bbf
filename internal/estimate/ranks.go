package estimate

import (
	"cmp"
	"strconv"

	"github.com/memplan/memplan/internal/pool"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

// stageKey is the key with which a job is that of a process with a stage of its pipeline.
func (j *Job) stageKey(stage int64) Key {
	path := "parallel.rank"
	if j.Program.Parallel.Megatron != nil {
		path = "trainer.megatron." + spec.PipelineRank
	}
	return Key{path, strconv.FormatInt(stage, 10)}
}

// RankKey is the key with which a job is that of the process that is planned.
func (j *Job) RankKey() Key {
	p := &j.Program.Parallel
	return j.stageKey(p.Planned() * p.Stages() / p.Processes())
}

// differ reports whether the processes of a job do different things, and the spec does not say
// which one is planned.
func (j *Job) differ() bool {
	if j.Program.Parallel.Stages() == 0 || j.recipe == nil {
		return false
	}
	if j.Program.Parallel.Megatron != nil {
		return !j.Spec.Trainer.Args().Has(spec.PipelineRank)
	}
	return !j.Spec.Parallel.Rank.Set
}

// runRanks runs the job of each rank. The outcome is that of the first one that runs out of memory, else
// of the one that reserves most.
func runRanks(j *Job) (*Outcome, error) {
	n := int(j.Program.Parallel.Stages())
	all, errs := make([]*Outcome, n), make([]error, n)
	pool.Do(n, func(i int) {
		of, err := j.recipe.Job(j.stageKey(int64(i)))
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

// ranks is how many processes there are; 0: the job is on one GPU.
func (j *Job) ranks() int64 {
	if p := &j.Program.Parallel; p.Ranks > 0 || p.Processes() > 1 {
		return p.Processes()
	}
	return 0
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
	p := &o.Job.Program.Parallel
	if p.Stages() == 0 {
		return
	}
	if p.Pipeline != nil {
		r.Train.Microbatches = p.Pipeline.Microbatches
	}
	rank := p.Planned()
	r.Train.Rank = &rank
	for _, of := range o.Ranks {
		free := of.Free
		result := [...]string{report.Fits, report.Tight, report.OOMs}[of.severity()]
		r.Ranks = append(r.Ranks, report.Rank{
			Rank: of.Job.Program.Parallel.Planned(), Parameters: of.Played.Totals.Parameters, PeakAllocatedBytes: free.PeakAllocated.Allocated, PeakReservedBytes: free.PeakReserved.Reserved,
			HeadroomBytes: of.Job.Machine.Usable() - free.PeakReserved.Reserved, Result: result,
		})
	}
}
