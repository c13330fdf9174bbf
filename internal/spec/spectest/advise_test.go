//go:build unix

package spectest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/memplan/memplan/internal/advise"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// maxAdvised bounds the events of the jobs for which changes are looked for.
const maxAdvised = 3000

// advised looks for the largest batch and for changes, on a GPU that is too small
// for the mutant and on its own; it reports whether the mutant is one to do so for.
func (m *mutant) advised() (did bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	ctx := context.Background()
	r := m.recipe()
	j, err := r.Job()
	if err != nil {
		return false, nil
	}
	o, err := estimate.Run(j)
	if err != nil || len(o.Played.Trace.Events) > maxAdvised {
		return false, nil
	}
	limits := advise.Limits{Proposals: 2, Events: 100_000}
	if _, err := advise.Save(ctx, r, o, advise.All()); err != nil {
		return true, err
	}
	if _, err := advise.Search(ctx, r, advise.Batch, 0.05); err != nil && !errors.As(err, new(*spec.Errors)) {
		return true, err
	}
	small := max(o.Free.PeakReserved.Reserved/2, tensor.MiB)
	r.Options.Flags = append(r.Options.Flags, spec.Flag{Flag: "--memory", Path: "device.memory", Value: fmt.Sprintf("%dB", small), Text: true},
		spec.Flag{Flag: "--context", Path: "device.context", Value: "0", Text: true})
	if j, err = r.Job(); err != nil {
		return true, proper(err)
	}
	if o, err = estimate.Run(j); err != nil {
		return true, proper(err)
	}
	found, err := advise.Fix(ctx, r, o, advise.All(), limits)
	if err != nil {
		return true, err
	}
	for _, p := range found.Proposals {
		advise.SpecLines(r, j.Spec, p.Keys)
		advise.Arguments(r, p.Keys)
	}
	return true, nil
}

// TestAdvised looks for changes of mutants.
func TestAdvised(t *testing.T) {
	needs.Time(t, "plays each mutant many times")
	b := newBreeder(t)
	n := 4
	if *count > 0 {
		n = *count
	}
	for seed := *first; n > 0; seed++ {
		m, name := b.seeded(seed)
		if m == nil {
			continue
		}
		did, err := m.advised()
		if err != nil {
			t.Errorf("mutant %d of %s: %v\n%s", seed, name, err, m)
		}
		if did {
			n--
		}
	}
}
