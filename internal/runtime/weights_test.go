package runtime

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/kernel"
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

// narrow is a device without kernels for bfloat16.
type narrow struct{ *cpu.Device }

func (narrow) Check(c *kernel.Call) error {
	for i := range c.T {
		if c.T[i].DType == tensor.BFloat16 {
			return &kernel.UnsupportedError{Kernel: c.Kernel, DType: tensor.BFloat16, Device: "a narrow device"}
		}
	}
	return nil
}

// TestRefused checks that what a device does not run is refused before anything
// runs, with the line of the spec.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{"layers: [{Linear: 4}, {to: bfloat16}, {mul: 2}, {to: float64}]", "refused.yaml:4: operator _to_copy of bfloat16 on a narrow device cannot be executed by memplan run yet"},
		{"layers: [{Linear: 4}]\nparallel: {ddp: 2}", "a job of 2 processes cannot be executed by memplan run yet"},
	} {
		layers, more, _ := strings.Cut(c.spec, "\n")
		j, err := parsed("refused.yaml", "memplan: 1\nmodel:\n  inputs: {x: {shape: [3]}, y: {shape: [], dtype: int64}}\n  "+layers+
			"\n  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 2, optimizer: SGD}\n"+more+"\n")
		if err != nil {
			t.Error(err)
			continue
		}
		_, err = Probe(j.Program, j.Machine.Env, narrow{cpu.New(0)})
		if not := (*UnsupportedError)(nil); !errors.As(err, &not) {
			t.Errorf("%s: %v is no UnsupportedError", c.spec, err)
			continue
		}
		if err.Error() != c.want {
			t.Errorf("%s:\n  got  %v\n  want %s", c.spec, err, c.want)
		}
	}
}

// TestInitialAttention: of nn.MultiheadAttention, the projections start within the
// bounds that reset_parameters gives them, and reach towards them; biases start as
// zeros.
func TestInitialAttention(t *testing.T) {
	j, err := parsed("attention.yaml", `memplan: 1
model:
  inputs: {x: {shape: [3, 32]}, y: {shape: [], dtype: int64}}
  layers:
    - {MultiheadAttention: {num_heads: 2, batch_first: true}, inputs: [x, x, x], pick: 0}
    - {getitem: ":, 0"}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 2, optimizer: {SGD: {lr: 0.0}}}
`)
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[string]float64{"in_proj_weight": math.Sqrt(6.0 / (96 + 32)), "in_proj_bias": 0, "out_proj.weight": 1 / math.Sqrt(32), "out_proj.bias": 0}
	_, err = Run(context.Background(), j.Program, j.Machine.Env, Options{
		Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 1,
		OnEnd: func(w *Weights) error {
			for _, name := range w.Names() {
				v, err := w.Read(name)
				if err != nil {
					return err
				}
				param := strings.TrimPrefix(name, "layers.0.")
				bound, known := bounds[param]
				if lo, hi := slices.Min(v), slices.Max(v); !known || lo < -bound || hi > bound || hi < 0.95*bound || lo > -0.95*bound {
					t.Errorf("%s lies from %v to %v, the bound is %v", name, lo, hi, bound)
				}
				delete(bounds, param)
			}
			return nil
		},
	})
	if err != nil || len(bounds) > 0 {
		t.Errorf("%v; not seen: %v", err, bounds)
	}
}

// The row of a table whose index is padding starts as zeros, and no other does
// (_fill_padding_idx_with_zero of torch.nn.Embedding and EmbeddingBag).
func TestInitialPadding(t *testing.T) {
	j, err := parsed("padding.yaml", `memplan: 1
model:
  inputs: {x: {shape: [3], dtype: int64}, y: {shape: [], dtype: int64}}
  layers:
    - {Embedding: {num_embeddings: 6, embedding_dim: 4, padding_idx: -2}, name: a}
    - {Embedding: {num_embeddings: 6, embedding_dim: 4}, inputs: x, name: b}
    - {EmbeddingBag: {num_embeddings: 6, embedding_dim: 4, padding_idx: 1}, inputs: x, name: c}
    - {add: [{sum: 1, inputs: a}, {sum: 1, inputs: b}]}
    - {add: c}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 2, optimizer: {SGD: {lr: 0.0}}}
`)
	if err != nil {
		t.Fatal(err)
	}
	padding := map[string]int{"layers.0.weight": 4, "layers.1.weight": -1, "layers.2.weight": 1}
	_, err = Run(context.Background(), j.Program, j.Machine.Env, Options{
		Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 1,
		OnEnd: func(w *Weights) error {
			for name, row := range padding {
				v, err := w.Read(name)
				if err != nil {
					return err
				}
				for i := range 6 {
					if zeros := slices.Max(v[4*i:4*i+4]) == 0 && slices.Min(v[4*i:4*i+4]) == 0; zeros != (i == row) {
						t.Errorf("%s: row %d is %v", name, i, v[4*i:4*i+4])
					}
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Error(err)
	}
}
