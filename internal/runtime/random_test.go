package runtime

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// TestUniform fills noise that is the gradient of a parameter of zeros, which then is less
// by it.
func TestUniform(t *testing.T) {
	const from, to = -0.5, 2.0
	s, err := spec.Parse("uniform.yaml", []byte(`memplan: 1
model:
  inputs: {x: [4]}
  parameters: {b: {shape: [4096], init: zeros}}
  layers:
    - {uniform_: {from: -0.5, to: 2}, inputs: [{zeros_like: , inputs: b}], name: noise}
    - {mul: [b, noise], name: out}
  loss: {sum: }
train: {batch_size: 1, optimizer: {SGD: {lr: 1.0}}}
`), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := estimate.NewJob(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	noise := func(seed uint64) (v []float64) {
		_, err = Run(context.Background(), j.Program, j.Machine.Env, Options{
			Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 1, Seed: seed, Poison: true,
			OnEnd: func(w *Weights) (err error) { v, err = w.Read("b"); return err },
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range v {
			v[i] = -v[i]
		}
		return v
	}
	v := noise(1)
	mean, square := 0.0, 0.0
	for _, x := range v {
		mean, square = mean+x/float64(len(v)), square+x*x/float64(len(v))
	}
	deviation := math.Sqrt(square - mean*mean)
	if slices.Min(v) < from || slices.Max(v) >= to || math.Abs(mean-0.75) > 0.05 || math.Abs(deviation-(to-from)/math.Sqrt(12)) > 0.03 {
		t.Errorf("numbers from %v to %v, mean %v, deviation %v", slices.Min(v), slices.Max(v), mean, deviation)
	}
	if slices.Equal(v, noise(2)) || !slices.Equal(v, noise(1)) {
		t.Error("numbers do not go by the seed")
	}
}
