package plan

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

// What a job comes to: Report.Verdict.Result.
const (
	Fits  = report.Fits
	Tight = report.Tight // only after cached memory is given back, which costs time
	OOM   = report.OOMs
)

// Report is what memplan estimate --format json prints: the verdict and its place,
// the peaks, of what they are made, the steps. JSON of it is a contract.
type Report = report.Report

// Estimate is a job that was played. It is for one goroutine at a time.
type Estimate struct {
	Report *Report

	job     *Job
	outcome *estimate.Outcome
}

// Recorded reports whether the job is a recording of a script, and whether other sizes of
// its batch follow from it, of which several were recorded.
func (e *Estimate) Recorded() (is, several bool) { return e.outcome.Job.Recorded() }

// Trace returns the allocations and frees that the report is of, as Job.Trace does.
func (e *Estimate) Trace() *Trace { return traceOf(e.outcome.Job, e.outcome.Played.Trace) }

// TraceToPeak is Trace or, if a peak or the request that fails is in a step that is like those before and was left
// out, the trace up to the end of that step.
func (e *Estimate) TraceToPeak() *Trace { return traceOf(e.outcome.Job, e.outcome.ToPeak()) }

// Search says what to vary to find the largest job that fits.
type Search struct {
	Key      string  // an integer param of the spec or of its preset, such as "seq"; "" or "batch": the batch size
	Step     int64   // only multiples of it are tried; 0 is 1
	Headroom float64 // share of the usable memory that the recommended value leaves free
}

// Found is the outcome of a Search.
type Found struct {
	Key         string  // that was varied, as a path: "train.batch_size"
	Largest     int64   // that fits, such that none of the next eight does; 0: none fits
	Tight       bool    // the largest fits only after cached memory is given back
	Recommended int64   // is round and leaves the headroom; 0: none does
	NotFitting  []int64 // that were tried, below Largest
	Unbounded   bool    // the search ended at the greatest value that there is
	Cut         bool    // the search ended as it had had its work: greater values may fit
	Refused     string  // why the model takes no greater value; "": it does
}

// KeyError says that a job has no such key to vary.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// Largest finds the largest batch, or value of another key, with which the job fits, on each
// rank where ranks differ.
func (e *Estimate) Largest(ctx context.Context, s Search) (*Found, error) {
	axis, err := advise.AxisOf(e.outcome, cmp.Or(s.Key, "batch"), max(s.Step, 1))
	if err != nil {
		return nil, &KeyError{s.Key, err}
	}
	r, ctx, done, err := e.job.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var f *advise.Found
	if e.outcome.Ranks == nil {
		f, err = advise.Search(ctx, r, axis, s.Headroom)
	} else {
		f, err = advise.SearchRanks(ctx, r, axis, s.Headroom, e.outcome)
	}
	if err != nil {
		return nil, err
	}
	return &Found{
		Key: axis.Key, Largest: f.Largest, Tight: f.Tight, Recommended: f.Recommended, NotFitting: append([]int64{}, f.Islands...),
		Unbounded: f.Bound, Cut: f.Cut, Refused: f.Refused,
	}, nil
}

// Point is the peak of one batch size.
type Point = report.Point

// Curve estimates powers of two of the batch size, up to beyond the largest that
// fits, and that.
func (e *Estimate) Curve(ctx context.Context, largest int64) ([]Point, error) {
	r, ctx, done, err := e.job.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return advise.Curve(ctx, r, advise.CurveSizes(largest, advise.BatchFrom(e.outcome).Step))
}

// Change is a set of changes of the spec and of the training script that belong
// together, what comes of them, and how to make them.
type Change = report.Change

// Simplest says how changes were looked for.
type Simplest = report.Fix

// Advice are changes: with which a job fits that does not, the simplest first, or that
// leave more room to one that does.
type Advice struct {
	Changes []Change
	How     Simplest
}

// AdviceOptions say how far to look.
type AdviceOptions struct {
	Longer bool // ten seconds of two cores, in place of a third of one
	// Progress is called now and then with the combinations that were simulated and
	// the proposals that were found; nil: it is not.
	Progress func(simulated, found int)
}

// Advise looks for changes that make the job fit or, where it does, leave more room.
func (e *Estimate) Advise(ctx context.Context, o AdviceOptions) (*Advice, error) {
	r, ctx, done, err := e.job.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	limits := advise.ByItself
	if o.Longer {
		limits = advise.Asked
	}
	if limits.Progress = o.Progress; o.Progress == nil {
		limits.Progress = func(int, int) {}
	}
	every := *r // of all ranks
	if key, ok := e.rank(); ok {
		r.Options.Flags = append(slices.Clone(r.Options.Flags), spec.Flag{Flag: "--set " + key.String(), Path: key.Path, Value: key.Value})
	}
	var found *advise.Fixes
	if e.Report.Verdict.Result == Fits {
		found, err = advise.Save(ctx, r, e.outcome, advise.All())
	} else {
		found, err = advise.Fix(ctx, r, e.outcome, advise.All(), limits)
	}
	if err != nil {
		return nil, err
	}
	a := &Advice{Changes: []Change{}, How: Simplest{Combinations: found.All, Simulated: found.Tried, Excluded: found.Known, Cut: found.Cut}}
	proposals := found.Proposals
	if found.Smallest != nil {
		proposals = append(proposals, found.Smallest)
	}
	for _, p := range proposals {
		if e.outcome.Ranks != nil { // what helps the worst of them may not help all
			o, err := ofAllRanks(&every, p.Keys)
			if err != nil {
				return nil, err
			}
			if p.Outcome.Fits() && !o.Fits() {
				continue
			}
			p.Outcome = o
		}
		a.Changes = append(a.Changes, e.change(r, p))
	}
	return a, nil
}

// ofAllRanks is the outcome of a job with some keys, over all of its ranks.
func ofAllRanks(r *estimate.Recipe, keys []estimate.Key) (*estimate.Outcome, error) {
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	return estimate.Run(j)
}

// rank is the key of the rank that the report is of, where ranks differ.
func (e *Estimate) rank() (estimate.Key, bool) {
	if e.outcome.Ranks == nil {
		return estimate.Key{}, false
	}
	return e.outcome.Job.RankKey(), true
}

// change words a proposal.
func (e *Estimate) change(r *estimate.Recipe, p *advise.Proposal) Change {
	rep := p.Outcome.Report()
	c := Change{
		PeakReservedBytes: rep.Peak.ReservedBytes, Fits: rep.Verdict.Fits, Result: rep.Verdict.Result, HeadroomBytes: rep.Verdict.HeadroomBytes,
		Cost: round(p.Cost), Cheapest: p.First, Slowdown: round(p.Slowdown), Numerics: p.Numerics().String(), Effort: p.Effort().String(),
		Arguments: advise.Arguments(r, p.Keys), SpecLines: advise.SpecLines(r, e.outcome.Job.Spec, p.Keys),
	}
	if rep.Host != nil {
		c.HostBytes = rep.Host.TotalBytes
	}
	var ids, code []string
	for _, x := range p.Options {
		ids, code = append(ids, x.ID()), append(code, x.Code)
		c.Parts = append(c.Parts, report.Part{ID: x.ID(), Text: x.Text, Numerics: x.Numerics().String(), Effort: x.Change.Effort.String(), Code: x.Code})
	}
	for _, k := range p.Keys {
		c.Set = append(c.Set, k.String())
	}
	c.Change, c.Code = strings.Join(ids, " + "), strings.Join(code, "\n")
	return c
}

// round leaves three decimals of what is a model's figure.
func round(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }
