package runtime

import (
	"context"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// TestGroupedMm trains with grouped products, of parts of 0, 1, 3 and 5 rows and of
// matrices in either order, and with the products of the parts one by one: both end in
// the same weights.
func TestGroupedMm(t *testing.T) {
	const head = `memplan: 1
torch: "2.14"
model:
  inputs: {x: [8], t: [6]}
  parameters:
    a: {shape: [8, 8], init: normal}
    w: {shape: [4, 8, 6], init: normal}
    v: {shape: [4, 6, 8], init: normal}
  layers:
    - {int: , inputs: [{arange: 4}], name: n}
    - {mul: [n, n], name: offs}
    - {matmul: [x, a], name: h}
    - {transpose: [-2, -1], inputs: v, name: u}
`
	const tail = `    - {add: [y, z]}
  loss: {mse_loss: {target: t}}
train: {batch_size: 9, optimizer: {SGD: {lr: 0.1}}}
device: {gpu: h100-80gb}
`
	parts := func(w, name string) string {
		return `    - {cat: 0, inputs: [{matmul: [{getitem: [h, "0:1"]}, {getitem: [` + w + `, "1"]}]}, {matmul: [{getitem: [h, "1:4"]}, {getitem: [` + w + `, "2"]}]}, {matmul: [{getitem: [h, "4:9"]}, {getitem: [` + w + `, "3"]}]}], name: ` + name + "}\n"
	}
	train := func(layers string) map[string][]float64 {
		s, err := spec.Parse("grouped.yaml", []byte(head+layers+tail), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := estimate.NewJob(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][]float64{}
		_, err = Run(context.Background(), j.Program, j.Machine.Env, Options{
			Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 3, Seed: 1, Poison: true,
			OnEnd: func(w *Weights) (err error) {
				for _, name := range w.Names() {
					if out[name], err = w.Read(name); err != nil {
						return err
					}
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := train("    - {_grouped_mm: , inputs: [h, w, offs], name: y}\n    - {_grouped_mm: , inputs: [h, u, offs], name: z}\n")
	want := train(parts("w", "y") + parts("u", "z"))
	if len(want) != 3 {
		t.Fatalf("%d parameters", len(want))
	}
	for name, v := range want {
		for i := range v {
			if d := math.Abs(got[name][i] - v[i]); !(d <= 1e-5*math.Max(1, math.Abs(v[i]))) {
				t.Fatalf("%s[%d] is %v, with the parts one by one %v", name, i, got[name][i], v[i])
			}
		}
	}
}
