package cli

import (
	"context"
	"strings"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/report"
)

// fixing is what the command line asks of the search for changes that make a job
// fit. Without progress none is made.
type fixing struct {
	more, none bool
	progress   *progress
}

// The limits of the search: one that nobody asked for takes a third of a second on two
// cores, the other ten.
var (
	fixByItself = advise.Limits{Proposals: 3, Events: 300_000}
	fixAsked    = advise.Limits{Proposals: 5, Events: 10_000_000}
)

// shown is how many changes have their lines shown.
func (x *fixing) shown() int {
	if x.more {
		return fixAsked.Proposals
	}
	return 1
}

// run adds changes to the report: those that make the job fit if it does not or,
// if they were asked for, those that leave more room.
func (x *fixing) run(ctx context.Context, r *estimate.Recipe, o *estimate.Outcome, rep *report.Report) error {
	if x.progress == nil || x.none || rep.Verdict.Fits && !x.more {
		return nil
	}
	limits := fixByItself
	if x.more {
		limits = fixAsked
	}
	limits.Progress = x.progress.tried
	defer x.progress.clear()
	find := func() (*advise.Fixes, error) { return advise.Fix(ctx, r, o, advise.All(), limits) }
	if rep.Verdict.Result == report.Fits {
		find = func() (*advise.Fixes, error) { return advise.Save(ctx, r, o, advise.All()) }
	}
	found, err := find()
	if err != nil {
		return err
	}
	a := rep.Advice
	if a == nil {
		a = &report.Advice{NotFitting: []int64{}, Changes: []report.Change{}}
		rep.Advice = a
	}
	a.Fix = &report.Fix{Combinations: found.All, Simulated: found.Tried, Excluded: found.Known, Cut: found.Cut}
	for _, p := range found.Proposals {
		a.Changes = append(a.Changes, changeOf(r, o, p))
	}
	if p := found.Smallest; p != nil {
		a.Changes = append(a.Changes, changeOf(r, o, p))
	}
	return nil
}

// changeOf words a proposal for a job that was run.
func changeOf(r *estimate.Recipe, o *estimate.Outcome, p *advise.Proposal) report.Change {
	rep := p.Outcome.Report()
	c := report.Change{
		PeakReservedBytes: rep.Peak.ReservedBytes, Fits: rep.Verdict.Fits, Result: rep.Verdict.Result, HeadroomBytes: rep.Verdict.HeadroomBytes,
		Cost: round(p.Cost), Cheapest: p.First, Slowdown: round(p.Slowdown), Numerics: p.Numerics().String(), Effort: p.Effort().String(),
		Arguments: advise.Arguments(r, p.Keys), SpecLines: advise.SpecLines(r, o.Job.Spec, p.Keys),
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
