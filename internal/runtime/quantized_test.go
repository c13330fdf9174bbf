package runtime

import (
	"context"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// onesSource is a source of ones.
type onesSource struct{}

func (onesSource) Values(_ int, in program.Input) ([]byte, error) {
	v := make([]float64, tensor.D(in.Size...).Numel())
	for i := range v {
		v[i] = 1
	}
	return tensor.Encode(in.DType, v), nil
}

// TestQuantizedLayers computes the loss of a layer whose weight is stored in 4 or 8
// bits from what is stored.
func TestQuantizedLayers(t *testing.T) {
	const in, out = 40, 8
	for _, c := range []struct {
		quantize string
		weight   func(read func(name string) []float64) []float64
		within   float64
	}{
		{"{bits: 4, type: nf4, double_quant: false, compute_dtype: float32}", func(read func(string) []float64) []float64 {
			packed, scales, code := read("weight"), read("absmax"), read("code")
			w := make([]float64, in*out)
			for i := range w {
				bits := int(packed[i/2])
				if i%2 == 0 {
					bits >>= 4
				}
				w[i] = code[bits&15] * scales[i/64]
			}
			return w
		}, 1e-5},
		{"{bits: 4, type: fp4, double_quant: true, compute_dtype: float32}", func(read func(string) []float64) []float64 {
			packed, maxima, code, offset, nested := read("weight"), read("absmax"), read("code"), read("offset"), read("nested_absmax")
			w, table := make([]float64, in*out), array.DynamicMap(true)
			for i := range w {
				bits := int(packed[i/2])
				if i%2 == 0 {
					bits >>= 4
				}
				w[i] = code[bits&15] * (table[int(maxima[i/64])]*nested[0] + offset[0])
			}
			return w
		}, 1e-5},
		// The input, all ones, is 127 in 8 bits; the product is rounded to float16.
		{"{bits: 8, threshold: 0.0}", func(read func(string) []float64) []float64 {
			w, scales := read("weight"), read("SCB")
			for i := range w {
				w[i] *= scales[i/in] / 127
			}
			return w
		}, 2e-3},
	} {
		s, err := spec.Parse("q.yaml", []byte("memplan: 1\nmodel:\n  inputs: {x: {shape: [40]}, y: {shape: [1]}}\n"+
			"  layers: [{Linear: {out_features: 8, bias: false}}, {Linear: 1}]\n  loss: {mse_loss: {target: y}}\n"+
			"quantize: "+c.quantize[:len(c.quantize)-1]+", modules: [layers.0]}\n"+
			"train: {batch_size: 2, optimizer: {SGD: {lr: 0.0}}}\n"), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j, err := estimate.NewJob(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		loss := 0.0
		r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{
			Device: cpu.New(tensor.GiB), Config: j.Machine.Conf, Source: onesSource{}, Steps: 1, Seed: 3, Poison: true,
			OnEnd: func(w *Weights) error {
				read := func(name string) []float64 {
					v, err := w.Read(name)
					if err != nil {
						t.Errorf("%s: %v; there are %v", c.quantize, err, w.Names())
					}
					return v
				}
				first := c.weight(func(name string) []float64 { return read("layers.0." + name) })
				second, y := read("layers.1.weight"), read("layers.1.bias")[0]
				for o := range out {
					sum := 0.0
					for i := range in {
						sum += first[o*in+i]
					}
					y += second[o] * sum
				}
				loss = (y - 1) * (y - 1)
				return nil
			},
		})
		if err != nil {
			t.Errorf("%s: %v", c.quantize, err)
			continue
		}
		if got := r.Steps[0].Loss; loss == 0 || math.Abs(got-loss) > c.within*math.Max(1, loss) {
			t.Errorf("%s: loss %v, what is stored says %v", c.quantize, got, loss)
		}
	}
}
