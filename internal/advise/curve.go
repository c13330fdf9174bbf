package advise

import (
	"context"
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/report"
)

// CurveSizes are the batch sizes of a curve around the largest that fits: powers
// of two up to it, times the step between sizes that there are, itself, and two beyond.
func CurveSizes(largest, step int64) []int64 {
	out := []int64{}
	for b := step; b <= 2*max(largest, step); b *= 2 {
		out = append(out, b)
	}
	if largest > 0 && !slices.Contains(out, largest) {
		out = append(out, largest)
	}
	slices.Sort(out)
	return out
}

// Curve simulates a job at several batch sizes, on all cores. The error, if
// any, is that of the first size that cannot be simulated, or ctx's.
func Curve(ctx context.Context, r *estimate.Recipe, sizes []int64) ([]report.Point, error) {
	points, errs := make([]report.Point, len(sizes)), make([]error, len(sizes))
	parallel(len(sizes), func(i int) {
		if ctx.Err() != nil {
			return
		}
		j, err := r.Job(estimate.Key{Path: Batch.Key, Value: fmt.Sprint(sizes[i])})
		if err != nil {
			errs[i] = err
			return
		}
		o, err := estimate.Run(j)
		if err != nil {
			errs[i] = err
			return
		}
		rep := o.Report()
		points[i] = report.Point{
			BatchSize: sizes[i], AllocatedBytes: rep.Peak.AllocatedBytes, ReservedBytes: rep.Peak.ReservedBytes,
			DeviceBytes: rep.Peak.DeviceBytes, Result: rep.Verdict.Result,
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return points, nil
}
