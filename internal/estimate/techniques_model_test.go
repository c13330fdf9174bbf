package estimate

import (
	"strings"
	"testing"
)

// twoLinears is a model of 1024*512 + 512 weights in fc and 512*10 + 10 in head.
const twoLinears = `memplan: 1
model:
  inputs: {x: {shape: [1024]}, y: {shape: [], dtype: int64}}
  layers:
    - {Linear: 512, module: fc}
    - {Linear: 10, module: head}
  loss: {cross_entropy: {target: y}}
train: {batch_size: 4, optimizer: AdamW}
`

// TestModelTechniques writes out what techniques that change the model do to
// its parameters, gradients and optimizer state.
func TestModelTechniques(t *testing.T) {
	const (
		fc, head = 1024*512 + 512, 512*10 + 10
		blocks   = 1024 * 512 / 64 // of 64 weights, which share a maximum
	)
	for _, c := range []struct {
		technique              string
		parameters, trainable  int64
		bytes, gradients, adam int64 // Adam's state: two moments, and a step of four bytes for each tensor, on the CPU
		buffers                int64
	}{
		{"", fc + head, fc + head, 4 * (fc + head), 4 * (fc + head), 8 * (fc + head), 0},
		{"freeze: fc", fc + head, head, 4 * (fc + head), 4 * head, 8 * head, 0},
		{`freeze: {except: ["*.bias"]}`, fc + head, 512 + 10, 4 * (fc + head), 4 * 522, 8 * 522, 0},
		// r * (in + out) weights in an adapter; the last layer has none
		{"lora: {r: 8}", fc + head + 8*(1024+512), 8 * (1024 + 512), 4 * (fc + head + 8*1536), 4 * 8 * 1536, 8 * 8 * 1536, 0},
		{"lora: {r: 8, modules_to_save: [head]}", fc + 2*head + 8*1536, head + 8*1536, 4 * (fc + 2*head + 8*1536), 4 * (head + 8*1536), 8 * (head + 8*1536), 0},
		// half a byte a weight; a float32 a block, and sixteen values
		{"{quantize: {bits: 4}, lora: {r: 8}}", fc + head + 8*1536, 8 * 1536, 1024*512/2 + 4*(512+head+8*1536), 4 * 8 * 1536, 8 * 8 * 1536, 4*blocks + 64},
		// a byte a block, a float32 for each 256 of them, their mean, and the map of 256 float32
		{"{quantize: {bits: 4, double_quant: true}, lora: {r: 8}}", fc + head + 8*1536, 8 * 1536, 1024*512/2 + 4*(512+head+8*1536), 4 * 8 * 1536, 8 * 8 * 1536,
			blocks + 4*blocks/256 + 64 + 4 + 1024},
		// a byte a weight, a float32 a row
		{"{quantize: {bits: 8}, lora: {r: 8}}", fc + head + 8*1536, 8 * 1536, 1024*512 + 4*(512+head+8*1536), 4 * 8 * 1536, 8 * 8 * 1536, 4 * 512},
		// a mask as large as the weight
		{"prune: {amount: 0.5, modules: [fc]}", fc + head, fc + head, 4 * (fc + head), 4 * (fc + head), 8 * (fc + head), 4 * 1024 * 512},
		// half of fc's outputs, to which head adapts
		{"prune: {amount: 0.5, structured: true, modules: [fc]}", fc/2 + 256*10 + 10, fc/2 + 2570, 4 * (fc/2 + 2570), 4 * (fc/2 + 2570), 8 * (fc/2 + 2570), 0},
	} {
		text := twoLinears
		if inner, ok := strings.CutPrefix(c.technique, "{"); ok {
			text += strings.Replace(strings.TrimSuffix(inner, "}"), "}, lora", "}\nlora", 1) + "\n"
		} else {
			text += c.technique + "\n"
		}
		_, r := estimateText(t, text)
		got := [...]int64{
			r.Model.Parameters, r.Model.TrainableParameters,
			int64(r.Totals.ParametersBytes), int64(r.Totals.GradientsBytes), int64(r.Totals.OptimizerStateBytes), int64(r.Totals.BuffersBytes),
		}
		if want := [...]int64{c.parameters, c.trainable, c.bytes, c.gradients, c.adam, c.buffers}; got != want {
			t.Errorf("%s:\nparameters, trainable, bytes, gradients, state, buffers are %v, want %v", c.technique, got, want)
		}
	}
}
