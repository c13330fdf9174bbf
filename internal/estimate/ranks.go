package estimate

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
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
func (j *Job) RankKey() Key { return j.stageKey(j.Stage()) }

// Stage is the number of the process that is planned among those that do different things.
func (j *Job) Stage() int64 {
	p := &j.Program.Parallel
	return p.Planned() * p.Stages() / p.Processes()
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

// ofStage is the job of another process of a pipeline. Megatron's is elaborated, as its stages are models of their own.
func (j *Job) ofStage(stage int64) (*Job, error) {
	if j.Program.Parallel.Pipeline == nil {
		return j.recipe.Job(j.stageKey(stage))
	}
	of, r := *j, *j.recipe
	r.Options.Flags = append(slices.Clone(r.Options.Flags), j.stageKey(stage).flag())
	of.Program, of.recipe, of.replayer = j.Program.OfRank(stage), &r, new(allocsim.Replayer)
	return &of, nil
}

// distinct tells of each rank which one, itself or one before it, does the same. Megatron's are not compared.
func (j *Job) distinct() (like []int64, err error) {
	if j.Program.Parallel.Pipeline == nil {
		for i := range j.Program.Parallel.Stages() {
			like = append(like, i)
		}
		return like, nil
	}
	defer j.metered(&err)()
	if err := engine.InferStages(j.meter, j.Program.OfRank(j.Program.Parallel.Pipeline.Ranks-1), j.Machine.Env); err != nil {
		return nil, err
	}
	return j.Program.DistinctRanks(), nil
}

// onRanks does something with the job of each rank that does what no rank before it does, on all
// cores. It returns which one each rank is like, and the first error.
func (j *Job) onRanks(do func(rank int64, of *Job) error) ([]int64, error) {
	like, err := j.distinct()
	if err != nil {
		return nil, err
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(like)))
	errs := make([]error, len(distinct))
	pool.Do(len(distinct), func(i int) {
		of, err := j.ofStage(distinct[i])
		if err == nil {
			err = do(distinct[i], of)
		}
		errs[i] = err
	})
	return like, cmp.Or(errs...)
}

// runRanks runs the job of each rank, of those that do the same once. The outcome is that of the first
// one that runs out of memory, else of the one that reserves most.
func runRanks(j *Job) (*Outcome, error) {
	all := make([]*Outcome, j.Program.Parallel.Stages())
	like, err := j.onRanks(func(rank int64, of *Job) (err error) {
		all[rank], err = runOne(of)
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
	all := make([]Probed, j.Program.Parallel.Stages())
	like, err := j.onRanks(func(rank int64, of *Job) (err error) {
		all[rank], err = Probe(of)
		return err
	})
	for i, k := range like {
		all[i] = all[k]
	}
	return all, err
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
	for i, of := range o.Ranks {
		free := of.Free
		result := [...]string{report.Fits, report.Tight, report.OOMs}[of.severity()]
		r.Ranks = append(r.Ranks, report.Rank{
			Rank: int64(i) * (p.Processes() / p.Stages()), Parameters: of.Played.Totals.Parameters, PeakAllocatedBytes: free.PeakAllocated.Allocated, PeakReservedBytes: free.PeakReserved.Reserved,
			HeadroomBytes: of.Job.Machine.Usable() - free.PeakReserved.Reserved, Result: result,
		})
	}
}
