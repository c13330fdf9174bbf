package advise

import (
	"context"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/estimate"
)

// SearchRanks is Search for a job whose ranks differ, of which the worst was run: a value fits if it does
// on all of them. The search is that of the worst rank; what it finds is simulated on all ranks, and where one
// needs more there, the search goes on below with that one.
func SearchRanks(ctx context.Context, r *estimate.Recipe, axis Axis, headroom float64, worst *estimate.Outcome) (*Found, error) {
	of := func(rank int, most int64) (*Found, error) {
		a, o := axis, worst.Ranks[rank]
		a.Max = min(a.Max, most)
		if a.From != nil {
			a.From = o
		}
		return Search(ctx, r, a, headroom, o.Job.RankKey())
	}
	probe := func(k int64) ([]estimate.Probed, error) {
		j, err := r.Job(estimate.Key{Path: axis.Key, Value: fmt.Sprint(k)})
		if err != nil {
			return nil, err
		}
		return estimate.ProbeRanks(j)
	}
	f, err := of(int(worst.Job.Stage()), axis.Max)
	for err == nil && f.Largest > 0 && ctx.Err() == nil {
		var all []estimate.Probed
		if all, err = probe(f.Largest); err != nil {
			break
		}
		tight := slices.ContainsFunc(all, func(p estimate.Probed) bool { return p.Tight })
		rank := slices.IndexFunc(all, func(p estimate.Probed) bool { return !p.Fits })
		if f.Tight = tight; rank < 0 {
			break
		}
		tries, plays := f.Tries, f.Plays
		if f, err = of(rank, f.Largest-axis.Step); err == nil {
			f.Tries, f.Plays, f.Bound = f.Tries+tries, f.Plays+plays, false
		}
	}
	for err == nil && f.Recommended > 0 && ctx.Err() == nil {
		var all []estimate.Probed
		if all, err = probe(f.Recommended); err != nil {
			break
		}
		rank := slices.IndexFunc(all, func(p estimate.Probed) bool { return !p.Leaves(headroom) })
		if rank < 0 {
			break
		}
		var g *Found
		if g, err = of(rank, f.Recommended-axis.Step); err == nil {
			f.Recommended = g.Recommended
		}
	}
	if err != nil {
		return nil, err
	}
	return f, ctx.Err()
}
