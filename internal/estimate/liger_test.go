package estimate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/specs"
)

// ligerGiven are blocks that give y.backward(dy) its gradient.
const ligerGiven = `
  given:
    kind: autograd
    inputs: [y, dy]
    save: [dy]
    layers: [{return: {zeros: {size: []}}}]
    backward: given_backward
  given_backward:
    kind: function
    inputs: [grad, dy]
    layers: [{return: [dy, null]}]
`

// ligerMLP is the step of the benchmarks of layers.
const ligerMLP = `  - {forward: {model: net}, name: y}
  - {randn_like: , inputs: y, name: dy}
  - {block: given, inputs: [y, dy], name: loss}
  - {backward: {of: loss, retain_graph: true}}
  - {del: [y, loss, dy]}
`

// TestLigerBenchmark holds operators against the peaks that Liger's benchmark measured on
// an A100 (benchmark/data/all_benchmark_data.csv in its repository).
func TestLigerBenchmark(t *testing.T) {
	text, err := specs.Preset("hf/liger")
	if err != nil {
		t.Fatal(err)
	}
	_, blocks, _ := strings.Cut(string(text), "  blocks:\n")
	blocks = strings.ReplaceAll("\n"+blocks, "\n  ", "\n") // from model: to the spec
	rows := needs.Rows(t, "measured", "liger", "operators.csv")
	mlp := "{inputs: {z: {shape: [1]}}, parameters: {x: {shape: [%d, %s, 4096]}}, modules: {mlp: {block: LigerSwiGLUMLP}}, layers: [{return: {call: mlp, inputs: x}}]}"
	for _, row := range rows {
		kernel, x := row[0], row[1]
		net, step, precision := "", ligerMLP, "bf16"
		switch kernel {
		case "swiglu":
			net = fmt.Sprintf(mlp, 4, x)
		case "geglu":
			net = fmt.Sprintf(mlp, 8, x)
		case "cross_entropy":
			net = fmt.Sprintf("{inputs: {z: {shape: [1]}}, parameters: {x: {shape: [16384, %s]}}, buffers: {t: {shape: [16384], dtype: int64}}, layers: [{return: {block: LigerCrossEntropyFunction, inputs: [x, t]}}]}", x)
			step, precision = "  - {forward: {model: net}, name: loss}\n  - {backward: loss}\n  - {del: loss}\n", "fp32"
		}
		_, r := estimateText(t, fmt.Sprintf(`memplan: 1
params: {hidden_size: 4096, intermediate_size: 11008, mlp_bias: false, liger_in_place: true}
blocks:%s%s
models:
  net: %s
optimizers: {opt: {optimizer: SGD, models: [net]}}
step:
%strain: {batch_size: 1, precision: %s}
device: {gpu: a100-80gb}
`, blocks, ligerGiven, net, step, precision))
		want, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		got := float64(r.Peak.AllocatedBytes) / (1 << 20)
		if e := 100 * (got - want) / want; math.Abs(e) > 0.001 {
			t.Errorf("%s of %s: %.3f MiB, measured %.3f MiB: %+.4f %%", kernel, x, got, want, e)
		}
	}
}
