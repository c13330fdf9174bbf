package runtime

import (
	"context"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// counting gives batches of targets that count on, and of numbers that say class 0.
type counting struct{ classes int64 }

func (c counting) Values(n int, in program.Input) ([]byte, error) {
	v := make([]float64, tensor.D(in.Size...).Numel())
	inner := int64(1)
	for _, s := range in.Size[min(2, len(in.Size)):] {
		inner *= s
	}
	for i := range v {
		switch k := int64(i); {
		case in.DType == tensor.Int64:
			v[i] = float64((k + int64(n)) % c.classes)
		case k/inner%c.classes == 0:
			v[i] = 1
		}
	}
	return tensor.Encode(in.DType, v), nil
}

// TestScores: a model that says class 0 is right where that is the target; what is ignored
// does not count. Each evaluation begins with the first of its batches.
func TestScores(t *testing.T) {
	for _, c := range []struct {
		name, loss    string
		images        bool
		scored, right int64
	}{
		{"rows", "{cross_entropy: {target: y}}", false, 8, 3},
		{"ignored", "{cross_entropy: {target: y, ignore_index: 1}}", false, 5, 3},
		{"images", "{cross_entropy: {target: y}}", true, 32, 11},
		{"several", "[{cross_entropy: {input: out, target: y}, name: a}, {cross_entropy: {input: out, target: y}, name: b}, {add: [a, b], name: loss}]", false, 0, 0},
		{"distances", "{mse_loss: {target: x}}", false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := "[3]", "[]"
			if c.images {
				x, y = "[3, 2, 2]", "[2, 2]"
			}
			parsed, err := spec.Parse("scores.yaml", []byte("memplan: 1\nmodel:\n  inputs: {x: {shape: "+x+"}, y: {shape: "+y+", dtype: int64}}\n"+
				"  parameters: {w: [1]}\n  layers: [{add: [x, {mul: [w, 0.0]}]}]\n"+
				"  loss: "+c.loss+"\ntrain: {batch_size: 3, optimizer: {SGD: {lr: 0.0}}}\neval: {every: 2, at_start: true, batch_size: 4, batches: 2}\n"), spec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			j, err := estimate.NewJob(parsed, nil)
			if err != nil {
				t.Fatal(err)
			}
			device := cpu.New(tensor.GiB)
			defer device.Close()
			r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: device, Config: j.Machine.Conf, Steps: 4, Source: counting{3}, Validation: counting{3}})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Evals) != 3 {
				t.Fatalf("%d evaluations", len(r.Evals))
			}
			for i, e := range r.Evals {
				if e.Step != 2*i || e.Batches != 2 || e.Samples != 8 || e.Loss != r.Evals[0].Loss || e.Tokens {
					t.Errorf("%+v", e)
				}
				if e.Scored != c.scored || e.Right != c.right {
					t.Errorf("%d of %d predictions are right, not %d of %d", e.Right, e.Scored, c.right, c.scored)
				}
				if c.scored > 0 && c.name != "ignored" && !(math.Abs(e.Surprise-e.Loss) < 1e-6) {
					t.Errorf("-log p is %v, the loss %v", e.Surprise, e.Loss)
				}
			}
		})
	}
}
