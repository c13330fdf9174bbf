package accuracy

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// LeftOut is how the table of convolution workspaces does on a family of models
// if everything in it that was chosen by measured runs is chosen by those of all
// other families.
type LeftOut struct {
	Family string
	Choice string    // the table that the other runs choose, against the one in use
	Errors []float64 // of the family's runs with it, in percent of what was measured
}

// The choices.
const (
	choseSame    = "the same"
	choseLeanest = "undecided: the one with least in it"
	choseOther   = "another"
)

// workspaceTables are the tables to choose from. The first is without any
// workspace: among tables that fit the same the one with less in it comes first.
func workspaceTables() []cudnn.ConvWorkspaces {
	gatherings := []cudnn.Gathering{{}}
	for _, times := range []tensor.Bytes{4, 8, 12} {
		for _, most := range []tensor.Bytes{320 * tensor.MiB, 640 * tensor.MiB, 1280 * tensor.MiB, math.MaxInt64} {
			for _, arch := range []int{86, 0} {
				gatherings = append(gatherings, cudnn.Gathering{Times: times, Most: most, Arch: arch})
			}
		}
	}
	none, all := cudnn.ConvertsNothing, cudnn.ConvertsAll
	var out []cudnn.ConvWorkspaces
	for _, pointwise := range []cudnn.Conversion{none, all} {
		for _, grouped := range []cudnn.Conversion{none, all} {
			for _, dense := range []cudnn.Conversion{none, all} {
				for _, forward := range []cudnn.Conversion{none, cudnn.ConvertsRead, all} {
					for _, g := range gatherings {
						t := cudnn.TF32Workspaces
						t.Kinds[cudnn.ConvDense] = [3]cudnn.Conversion{forward, dense, dense}
						t.Kinds[cudnn.ConvGrouped] = [3]cudnn.Conversion{none, grouped, grouped}
						t.Kinds[cudnn.ConvPointwise] = [3]cudnn.Conversion{none, pointwise, pointwise}
						t.Gathers = g
						out = append(out, t)
					}
				}
			}
		}
	}
	return out
}

// leaveOut leaves each family of the convolutional networks out in turn.
func leaveOut(dir string) ([]LeftOut, error) {
	runs, err := LoadXMem(dir)
	if err != nil {
		return nil, err
	}
	tables := workspaceTables()
	own := slices.Index(tables, cudnn.TF32Workspaces)
	if own < 0 {
		return nil, fmt.Errorf("the table in use is not among those to choose from")
	}
	families := map[string][]int{} // indices into errs
	var errs [][]float64           // of each run, with each table
	for _, r := range runs {
		if r.Kind != "cnn" || r.OOM {
			continue
		}
		e, err := r.errorsWith(tables)
		if err != nil {
			return nil, err
		}
		families[r.Model] = append(families[r.Model], len(errs))
		errs = append(errs, e)
	}
	// fit sums the errors with a table over all runs but a family's.
	fit := func(table int, without string) float64 {
		var sum float64
		for i := range errs {
			if !slices.Contains(families[without], i) {
				sum += math.Abs(errs[i][table])
			}
		}
		return sum
	}
	var out []LeftOut
	for _, family := range slices.Sorted(maps.Keys(families)) {
		best := 0
		for k := range tables {
			if fit(k, family) < fit(best, family)-1e-9 {
				best = k
			}
		}
		l := LeftOut{Family: family, Choice: choseSame}
		for _, i := range families[family] {
			l.Errors = append(l.Errors, errs[i][best])
			switch {
			case fit(own, family) > fit(best, family)+1e-9:
				l.Choice = choseOther
			case errs[i][best] != errs[i][own] && l.Choice == choseSame:
				l.Choice = choseLeanest
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// errorsWith predicts the run with each table. Tables that expect the same of its
// convolutions are played once.
func (r *XMemRun) errorsWith(tables []cudnn.ConvWorkspaces) ([]float64, error) {
	s, err := spec.Parse("measured.yaml", []byte(r.Spec()), spec.Options{Set: []string{"torch=" + torchver.Recorded.String()}})
	if err != nil {
		return nil, err
	}
	j, err := estimate.NewJob(s, nil)
	if err != nil {
		return nil, err
	}
	env := j.Machine.Env
	env.CudnnWorkspace.Model = true
	play := func(t *cudnn.ConvWorkspaces) (*engine.Played, error) {
		env.CudnnWorkspace.TF32 = t
		return engine.Play(j.Program, env, nil, 3)
	}
	p, err := play(&tables[0])
	if err != nil {
		return nil, err
	}
	seen := map[cudnn.ConvCall]bool{}
	var distinct []cudnn.ConvCall
	for _, c := range p.Workspaces.Calls {
		if !seen[c.ConvCall] {
			seen[c.ConvCall] = true
			distinct = append(distinct, c.ConvCall)
		}
	}
	known := map[string]float64{}
	var out []float64
	for i := range tables {
		var sizes []tensor.Bytes
		for _, c := range distinct {
			sizes = append(sizes, tables[i].Workspace(c, env.Arch))
		}
		key := fmt.Sprint(sizes)
		if _, ok := known[key]; !ok {
			p, err := play(&tables[i])
			if err != nil {
				return nil, err
			}
			res, err := allocsim.Replay(p.Trace.Events, allocsim.ReplayOptions{})
			if err != nil {
				return nil, err
			}
			known[key] = Percent(res.PeakReserved.Reserved, r.Peak)
		}
		out = append(out, known[key])
	}
	return out, nil
}
