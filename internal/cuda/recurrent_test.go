//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/tensor"
)

// TestRecurrent trains recurrent layers of sizes that no block divides, in all ways in which
// they are stacked, on the GPU and on the CPU: losses and weights are the same but for
// rounding, and nothing is computed in host memory. In bfloat16 PyTorch runs them step by step.
func TestRecurrent(t *testing.T) {
	d := open(t)
	for _, c := range []struct {
		layer, precision string
		atMost           float64 // of losses and weights
	}{
		{"LSTM: {hidden_size: 37, num_layers: 2, bidirectional: true, batch_first: true, dropout: 0.3}", "fp32", 1e-5},
		{"LSTM: {hidden_size: 21, proj_size: 5, num_layers: 2, bidirectional: true}", "fp32", 1e-5},
		{"GRU: {hidden_size: 19, num_layers: 3, bidirectional: true, batch_first: true, dropout: 0.3}", "fp32", 1e-5},
		{"GRU: {hidden_size: 67, bias: false}", "fp32", 1e-5},
		{"RNN: {hidden_size: 35, num_layers: 2, bidirectional: true, dropout: 0.3}", "fp32", 1e-5},
		{"RNN: {hidden_size: 13, nonlinearity: relu, batch_first: true}", "fp32", 1e-5},
		{"LSTM: {hidden_size: 37, num_layers: 2}", "fp16", 0x1p-7},
		{"LSTM: {hidden_size: 37, num_layers: 2}", "bf16", 0x1p-5},
		{"GRU: {hidden_size: 37, bidirectional: true}", "bf16", 0x1p-5},
	} {
		t.Run(c.layer+" "+c.precision, func(t *testing.T) {
			text := fmt.Sprintf(`memplan: 1
model:
  inputs: {x: {shape: [4, 9]}, y: {shape: [4, 3]}}
  layers:
  - {Linear: 11}
  - {%s, pick: 0}
  - {Linear: 3}
  loss: {MSELoss: {target: y}}
train: {batch_size: 3, precision: %s, optimizer: {SGD: {lr: 0.1}}}
eval: {every: 1, batches: 1}
device: {gpu: a100-40gb}
`, c.layer, c.precision)
			j, err := (&estimate.Recipe{Path: "recurrent", Text: []byte(text)}).Job()
			if err != nil {
				t.Fatal(err)
			}
			want, weights, err := trained(j, cpu.New(tensor.GiB), 2)
			if err != nil {
				t.Fatal(err)
			}
			got, gotWeights, err := trained(j, d, 2)
			if err != nil {
				t.Fatal(err)
			}
			if on := got.HostOperators; len(on) > 0 {
				t.Errorf("computed in host memory are %q", on)
			}
			difference, norm := errorOf(gotWeights, weights)
			if len(gotWeights) != len(weights) || !(difference <= c.atMost*norm) || norm == 0 {
				t.Errorf("weights differ by %.2g of %.2g", difference, norm)
			}
			for i := range want.Steps {
				if a, b := got.Steps[i].Loss, want.Steps[i].Loss; !(math.Abs(a-b) <= c.atMost*math.Abs(b)) {
					t.Errorf("step %d: loss %v, on the CPU %v", i, a, b)
				}
			}
			t.Logf("weights differ by %.1e", difference/norm)
		})
	}
}
