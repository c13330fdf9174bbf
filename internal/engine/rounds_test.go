package engine_test

import (
	"reflect"
	"testing"

	"github.com/memplan/memplan/internal/engine"
)

const (
	accumulated = "memplan: 1\nmodel:\n  inputs: {x: [64], y: {shape: [], dtype: int64}}\n  layers: [{Linear: 256}, GELU, {Dropout: 0.1}, {Linear: 10}]\n  loss: {cross_entropy: {target: y}}\n"
	convolved   = "memplan: 1\nmodel:\n  inputs: {x: [3, 32, 32], y: {shape: [], dtype: int64}}\n  layers: [{Conv2d: {out_channels: 16, kernel_size: 3}}, {BatchNorm2d: }, ReLU, Flatten, {Linear: 10}]\n  loss: {cross_entropy: {target: y}}\n"

	fetched = accumulated + `train: {batch_size: 8, optimizer: AdamW}
step:
  - fetched = []
  - repeat: 6
    layers:
      - {batch: {tuple: true}, name: ahead}
      - fetched.append(ahead)
`
	pass = `      - {forward: {model: model}, name: out}
      - {cross_entropy: [out, y], name: loss}
      - backward: loss
`
	end = "  - optimizer_step\n  - zero_grad\n"
)

// TestRounds plays jobs with each of their microbatches and with some left out: what is
// recorded is the same.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		steps, out int // the steps that are played, 0: until they are alike; rounds that are left out
	}{
		{"accumulation", accumulated + "train: {batch_size: 8, optimizer: AdamW, grad_accumulation: 6}\n", 0, 3 + 4 + 5},
		{"two microbatches", accumulated + "train: {batch_size: 8, grad_accumulation: 2}\n", 0, 0},
		{"three microbatches", accumulated + "train: {batch_size: 8, grad_accumulation: 3}\n", 3, 0 + 1 + 2},
		{"gradients stay", accumulated + "train: {batch_size: 8, optimizer: {SGD: {momentum: 0.9}}, grad_accumulation: 5, zero_grad: never}\n", 4, 2 + 3 + 4 + 4},
		{"clipped, in half precision", accumulated + "train: {batch_size: 8, precision: amp-fp16, grad_accumulation: 5, clip_grad_norm: 1.0}\n", 3, 2 + 3 + 4},
		{"autocast", accumulated + "train: {batch_size: 8, precision: amp-bf16, grad_accumulation: 5}\n", 3, 2 + 3 + 4},
		{"a sum is kept", accumulated + "train: {batch_size: 8, grad_accumulation: 5, keep: [{of: loss, detach: true, sum: true, in: total}]}\n", 3, 2 + 3 + 4},
		{"losses are kept", accumulated + "train: {batch_size: 8, grad_accumulation: 5, keep: [loss]}\n", 3, 2 + 3 + 4},
		{"convolutions", convolved + "train: {batch_size: 8, grad_accumulation: 5}\n", 3, 2 + 3 + 4},
		{"static input", accumulated + "data: {input: static}\ntrain: {batch_size: 8, grad_accumulation: 5}\n", 3, 2 + 3 + 4},
		{"flat loop", accumulated + "train: {batch_size: 8, loop: flat, grad_accumulation: 5}\n", 3, 2 + 3 + 4},
		{"optimizer on the host", accumulated + "offload: {optimizer: true}\ntrain: {batch_size: 8, grad_accumulation: 5}\n", 3, 0},
		{"fetched before", fetched + "  - del: ahead\n  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${i}]\"}}\n" + pass + end, 3, 3 + 4 + 5},
		{"a name holds the last", fetched + "  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${i}]\"}}\n" + pass + end, 3, 0},
		{"a name holds one", fetched + "  - del: ahead\n  - held = fetched[4]\n  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${i}]\"}}\n" + pass + end, 3, 0},
		{"each loss is kept", fetched + "  - del: ahead\n  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${i}]\"}}\n" + pass + "      - keep: {of: loss, in: losses}\n" + end, 3, 0},
		{"each loss is added", fetched + "  - del: ahead\n  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${i}]\"}}\n" + pass + "      - keep: {of: loss, detach: true, sum: true, in: total}\n" + end, 3, 3 + 4 + 5},
		{"a list grows", fetched + "  - del: ahead\n  - outs = []\n  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${i}]\"}}\n" + pass + "      - outs.append(out)\n" + end, 3, 0},
		{"other sizes", accumulated + "train: {batch_size: 8}\nstep:\n  - xs = []\n  - repeat: 4\n    layers:\n      - {rand: [8, 64], name: r}\n      - xs.append(r)\n  - repeat: 2\n    layers:\n      - {rand: [16, 64], name: r}\n      - xs.append(r)\n  - del: r\n  - repeat: {n: 6, as: i}\n    layers:\n      - {forward: {inputs: \"xs[${i}]\"}, name: out}\n      - {mean: out, name: loss}\n      - backward: loss\n" + end, 3, 0},
		{"backwards", fetched + "  - del: ahead\n  - repeat: {n: 6, as: i}\n    layers:\n      - {batch: {of: \"fetched[${5 - i}]\"}}\n" + pass + end, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := build(t, c.spec)
			all, n, err := engine.PlayRounds(job, a100, c.steps, false)
			if err != nil || n != 0 {
				t.Fatal(n, err)
			}
			some, n, err := engine.PlayRounds(job, a100, c.steps, true)
			if err != nil {
				t.Fatal(err)
			}
			if n != c.out {
				t.Errorf("%d rounds were left out, not %d", n, c.out)
			}
			some.Rows, some.Derived = all.Rows, all.Derived // which have functions
			if !reflect.DeepEqual(all, some) {
				t.Error("what is recorded is not the same")
			}
		})
	}
}
