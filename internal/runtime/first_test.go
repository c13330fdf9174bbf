package runtime

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// TestFirstValues holds the first weights of Hugging Face models against those of
// transformers: their means and deviations, as testdata/numbers/first_values.py has written them.
func TestFirstValues(t *testing.T) {
	f, err := os.Open(needs.File(t, "numbers", "first_values.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var models map[string]struct {
		Config  json.RawMessage       `json:"config"`
		Weights map[string][3]float64 `json:"weights"` // elements, mean, deviation
	}
	if err := json.NewDecoder(z).Decode(&models); err != nil {
		t.Fatal(err)
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			text := "memplan: 1\nmodel: {hf: config.json, with: {seq: 8}}\ntrain: {batch_size: 1, optimizer: {SGD: {lr: 0.0}}}\n"
			if name == "vit" || name == "dinov2" {
				text = "memplan: 1\nmodel: {hf: config.json}\ntrain: {batch_size: 1, optimizer: {SGD: {lr: 0.0}}}\n"
			}
			s, err := spec.Parse("first.yaml", []byte(text), spec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			j, err := estimate.NewJob(s, func(string) ([]byte, error) { return m.Config, nil })
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			_, err = Run(context.Background(), j.Program, j.Machine.Env, Options{
				Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Steps: 1, Seed: 1,
				OnEnd: func(w *Weights) error {
					for _, name := range w.Names() {
						want, is := m.Weights[name]
						if !is {
							continue
						}
						v, err := w.Read(name)
						if err != nil {
							return err
						}
						compared++
						mean, deviation := deviationOf(v)
						// Both are random: of n elements a mean is off by 1 / √n of a deviation, a deviation by less.
						off := 6*math.Max(want[2], deviation)/math.Sqrt(float64(len(v))) + 1e-7
						if float64(len(v)) != want[0] || math.Abs(mean-want[1]) > off || math.Abs(deviation-want[2]) > off {
							t.Errorf("%s: %d elements of mean %.3g and deviation %.4g; transformers: %.0f of %.3g and %.4g", name, len(v), mean, deviation, want[0], want[1], want[2])
						}
					}
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if all := len(m.Weights); compared < all*2/3 { // some modules of presets have other names
				t.Errorf("%d weights of %d were found", compared, all)
			}
		})
	}
}

func deviationOf(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(deviation)
}
