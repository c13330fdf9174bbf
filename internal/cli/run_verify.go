package cli

import (
	"context"
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/data"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

// verifySteps is how many steps --verify computes again: the loss of the first is of the
// forward pass, that of the second also of a backward pass and of the optimizer. Where
// training diverges, each step more makes ten to a hundred times as much of what is rounded.
const verifySteps = 2

// verifyWithin is how far losses may be from those in float64, as a share of them: what
// rounding makes of a few steps, not of many.
var verifyWithin = map[string]float64{"fp32": 1e-4, "amp-bf16": 0.03, "amp-fp16": 0.01}

// reference computes the first steps of a job in float64, on the CPU, from the same weights
// and data, and returns their losses.
func (e *execution) reference(ctx context.Context, r *estimate.Recipe, keys []estimate.Key, o runtime.Options, set *data.Set) ([]float64, error) {
	j, err := r.Job(keys...)
	if err != nil {
		return nil, err
	}
	if verifyWithin[j.Spec.Train.Precision.V] == 0 || j.Program.DType != tensor.Float32 {
		return nil, usagef("--verify: the model is in %v; it is for models in float32, with autocast or without", j.Program.DType)
	}
	program.AsFloat64(j.Program)
	device := cpu.New(0)
	o.Device, o.Steps, o.Single = device, min(o.Steps, verifySteps), true
	o.OnStep, o.OnEval, o.OnEnd, o.Now = nil, nil, nil, nil
	if set != nil {
		o.Source = set.Training()
	}
	res, err := runtime.Run(ctx, j.Program, j.Machine.Env, o)
	if err == nil {
		err = device.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("--verify: in float64: %w", err)
	}
	var out []float64
	for _, s := range res.Steps {
		if s.HasLoss {
			out = append(out, s.Loss)
		}
	}
	return out, nil
}

// verified compares losses with those in float64.
func verified(losses []report.Loss, reference []float64, precision string) *report.RunVerify {
	v := &report.RunVerify{Allowed: verifyWithin[precision], Within: len(reference) > 0 && len(losses) >= len(reference)}
	for i, want := range reference[:min(len(reference), len(losses))] {
		v.Reference = append(v.Reference, report.Loss(want))
		far := math.Abs(float64(losses[i])-want) / max(math.Abs(want), 1e-6)
		if !(far <= v.Allowed) {
			v.Within = false
		}
		v.Largest = report.Loss(max(float64(v.Largest), far))
	}
	v.Steps = len(v.Reference)
	return v
}
