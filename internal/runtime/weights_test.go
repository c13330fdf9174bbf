package runtime

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/tensor"
)

// tied is a table that two modules hold, under different names, and a loss with
// weights of its own.
const tied = `memplan: 1
model:
  inputs: {x: {shape: [3], dtype: int64}, y: {shape: [3], dtype: int64}}
  parameters: {table: {shape: [3, 4], init: ones}}
  layers:
    - {embedding: [x, table]}
    - {Linear: {out_features: 3, bias: false}, module: head, tie: {weight: table}}
    - {view: [-1, 3]}
  loss: {CrossEntropyLoss: {target: {view: [-1], inputs: y}, weight: [0.5, 1.0, 2.0]}}
train: {batch_size: 2, optimizer: {SGD: {lr: 0.0}}}
`

// TestWeights checks that weights are named as in Module.state_dict, where what is
// shared stands under each name and a loss has no place, and that they start as
// the class says that declares them.
func TestWeights(t *testing.T) {
	j, err := parsed("tied.yaml", tied)
	if err != nil {
		t.Fatal(err)
	}
	device := cpu.New(tensor.GiB)
	r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{
		Device: device, Config: j.Machine.Conf, Steps: 1, Poison: true,
		OnEnd: func(w *Weights) error {
			names := slices.Sorted(slices.Values(w.Names()))
			if want := []string{"head.weight", "table"}; !slices.Equal(names, want) {
				t.Errorf("weights %v, want %v", names, want)
			}
			for _, name := range names {
				v, err := w.Read(name)
				if err != nil || slices.Min(v) != 1 || slices.Max(v) != 1 {
					t.Errorf("%s is %v (%v), not ones", name, v, err)
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Steps[0].Loss; l < 1.09 || l > 1.1 { // ln 3: all classes are alike, whatever their weights
		t.Errorf("loss %v, not ln 3", l)
	}
}

// TestRefused checks that what a device does not run, or what would be computed
// otherwise than PyTorch does, is refused before anything runs.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{"layers: [{Linear: 4}, {BatchNorm1d: {momentum: null}}]", "operator native_batch_norm: a batch_norm with momentum None cannot be executed by memplan run yet"},
		{"layers: [{Linear: 4}, {add: [x, {arange: 4}]}]", "operator add of these tensors (kernel add: operand b is of type int64, not float64) cannot be executed by memplan run yet"},
		{"layers: [{Linear: 4}, {to: bfloat16}, {mul: 2}, {to: float64}]", "operator mul of bfloat16 on the CPU cannot be executed by memplan run yet"},
	} {
		j, err := parsed("refused.yaml", "memplan: 1\nmodel:\n  inputs: {x: {shape: [3]}, y: {shape: [], dtype: int64}}\n  "+c.spec+
			"\n  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 2, optimizer: SGD}\n")
		if err != nil {
			t.Error(err)
			continue
		}
		_, err = Probe(j.Program, j.Machine.Env, cpu.New(0))
		if not := (*UnsupportedError)(nil); !errors.As(err, &not) {
			t.Errorf("%s: %v is no UnsupportedError", c.spec, err)
			continue
		}
		if err.Error() != c.want {
			t.Errorf("%s:\n  got  %v\n  want %s", c.spec, err, c.want)
		}
	}
}
