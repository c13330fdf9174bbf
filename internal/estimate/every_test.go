package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// A step written out, in which the optimizer steps in every n-th step. The first
// batches are not needed any more when it does.
const (
	everyHead = "memplan: 1\nmodel:\n  inputs: {x: [300], y: {shape: [], dtype: int64}}\n  layers: [{Linear: 700}, ReLU, {Linear: 900}]\n"
	everyStep = everyHead + `step:
  - batch
  - {forward: {model: model}, name: out}
  - {cross_entropy: [out, y], name: loss}
  - {backward: loss}
`
	everyOpt = "  - {optimizer_step: , every: N}\n  - {zero_grad: , every: N}\n"
)

// everyJobs are jobs in which something runs in every n-th step.
var everyJobs = []struct{ name, text string }{
	{"sgd", everyStep + everyOpt + "train: {batch_size: 900, optimizer: {SGD: {momentum: 0.9}}}\n"},
	{"adamw that zeroes each step", everyStep + "  - {optimizer_step: , every: N}\n  - zero_grad\ntrain: {batch_size: 900, optimizer: AdamW}\n"},
	{"gradients that stay", everyStep + "  - {optimizer_step: , every: N}\n  - {zero_grad: {set_to_none: false}, every: N}\ntrain: {batch_size: 400, optimizer: {AdamW: {foreach: false}}}\n"},
	{"amp-fp16", everyStep + everyOpt + "train: {batch_size: 900, optimizer: Adam, precision: amp-fp16}\n"},
	{"clipping", everyStep + "  - {clip_grad_norm: 1.0, every: N}\n" + everyOpt + "train: {batch_size: 100, optimizer: AdamW}\n"},
	{"flat", everyStep + everyOpt + "train: {batch_size: 900, optimizer: AdamW, loop: flat}\n"},
	{"keep each step", everyStep + everyOpt + "  - {keep: {of: out, in: outs, detach: true}}\ntrain: {batch_size: 300, optimizer: AdamW}\ndevice: {memory: 700MiB}\n"},
	{"keep rarely", everyStep + "  - optimizer_step\n  - zero_grad\n  - {keep: {of: out, in: outs, detach: true}, every: N}\ntrain: {batch_size: 300, optimizer: AdamW}\ndevice: {memory: 600MiB}\n"},
	{"warm optimizer", everyStep + everyOpt + "train: {batch_size: 50, optimizer: RAdam}\n"},
	{"every second step, too", everyStep + everyOpt + "  - {empty_cache: , every: 2}\ntrain: {batch_size: 900, optimizer: AdamW}\n"},
	{"every seventh step, too", everyStep + "  - {zero_grad: , every: 7}\n  - {optimizer_step: , every: N}\ntrain: {batch_size: 900, optimizer: AdamW}\n"},
	{"evaluation", everyHead + "  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 300, optimizer: AdamW}\neval: {every: N, batch_size: 2000, batches: 2, keep: out}\n"},
	{"evaluation and accumulation", everyHead + "  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 300, optimizer: AdamW, grad_accumulation: 2, loop: flat}\neval: {every: N, batch_size: 500}\n"},
	{"empty_cache", everyHead + "  loss: {cross_entropy: {target: y}}\ntrain: {batch_size: 900, optimizer: AdamW, empty_cache: {every: N}}\n"},
	{"checkpointing", strings.Replace(everyStep, "layers: [{Linear: 700}, ReLU, {Linear: 900}]", "layers: [{Linear: 700}, ReLU, {Linear: 700}, ReLU, {Linear: 900}]", 1) +
		everyOpt + "train: {batch_size: 900, optimizer: AdamW, checkpoint: {segments: 2}}\n"},
	{"two optimizers", `memplan: 1
models:
  g: {inputs: {z: [100]}, layers: [{Linear: 800}, ReLU, {Linear: 300}]}
  d: {inputs: {x: [300]}, layers: [{Linear: 500}, ReLU, {Linear: 1}]}
optimizers:
  og: {models: g, optimizer: Adam}
  od: {models: d, optimizer: AdamW}
step:
  - batch
  - {forward: {model: g, inputs: z}, name: fake}
  - {forward: {model: d, inputs: fake}, name: score}
  - {mean: , inputs: score, name: loss}
  - {backward: loss}
  - {optimizer_step: og, every: 3}
  - {optimizer_step: od, every: N}
  - {zero_grad: og, every: 3}
  - {zero_grad: od, every: N}
train: {batch_size: 400}
`},
	{"gpt", everyModel("gpt", "layers: 1, d: 64, heads: 2, vocab: 300, seq: 32") + `  - {cross_entropy: {input: {view: [-1, 300], inputs: out}, target: {view: [-1], inputs: y}}, name: loss}
` + everyUpdate},
	{"resnet", everyModel("resnet", "img: 32, classes: 10, stages: [1, 1, 1, 1]") + "  - {cross_entropy: [out, y], name: loss}\n" + everyUpdate},
}

// everyModel is a step with a preset's model, up to the loss.
func everyModel(name, with string) string {
	return fmt.Sprintf("memplan: 1\nmodels: {m: {preset: %s, with: {%s}}}\noptimizers: {o: {models: m, optimizer: AdamW}}\ntrain: {batch_size: 2}\n", name, with) +
		"step:\n  - batch\n  - {forward: {model: m}, name: out}\n"
}

const everyUpdate = "  - {backward: loss}\n  - {optimizer_step: o, every: N}\n  - {zero_grad: o, every: N}\n"

// TestEvery holds jobs in which something runs in every n-th step against the
// same jobs with all steps played: the peaks, the verdict and the step in which a
// smaller device kills them. What is reserved may still grow after the steps that are
// written out.
func TestEvery(t *testing.T) {
	for _, c := range everyJobs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for n := 2; n <= 200; n++ {
				if needs.Race && n > 3 { // jobs run side by side in these already
					break
				}
				large := strings.Contains(c.text, "preset")
				if n > 5 && (testing.Short() && n%64 != 0 || large && n%50 != 0) || n > 40 && n%8 > 1 && !large {
					continue
				}
				everyNth(t, strings.ReplaceAll(c.text, "every: N", fmt.Sprint("every: ", n)), n)
			}
		})
	}
}

func everyNth(t *testing.T, text string, n int) {
	t.Helper()
	left, r := estimateText(t, text)
	steps := max(3*n+10, r.Peak.Step+1)                                           // the allocator may place blocks otherwise for a while
	if strings.Contains(text, "every: 7") || strings.Contains(text, "every: 3") { // all comes round later
		steps = min(1000, 7*n+10)
	}
	full, all := estimateText(t, text, fmt.Sprintf("train.steps=%d", steps))
	if p := left.Played; p.Steady == 0 || !p.Settled {
		t.Fatalf("every: %d: not settled after %d steps", n, p.Steps)
	}
	if a, b := r.Peak, all.Peak; left.Played.Growth == 0 && (a.AllocatedBytes != b.AllocatedBytes || a.ReservedBytes != b.ReservedBytes || a.Step != b.Step || a.Op != b.Op) {
		t.Errorf("every: %d: %+v; played out %+v", n, a, b)
	}
	for _, less := range []tensor.Bytes{2, 20} {
		m := *left.Job.Machine
		m.Total = m.Context + all.Peak.ReservedBytes - less*tensor.MiB
		smaller := *left.Job
		smaller.Machine = &m
		a, err := smaller.replay(left.Played, true)
		if err != nil {
			t.Fatal(err)
		}
		b, err := smaller.replay(full.Played, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.OOMs) == 0 && len(a.OOMs) > 0 && int64(left.Played.Trace.Events[a.OOMs[0].Event].Step)+a.OOMs[0].Ahead > int64(steps) {
			continue // it dies later than is written out
		}
		if len(b.OOMs) == 0 && left.Played.Growth > 0 {
			continue
		}
		if diesIn(left.Played, a) != diesIn(full.Played, b) || m.tight(a, left.Free.PeakReserved.Reserved) != m.tight(b, full.Free.PeakReserved.Reserved) {
			t.Errorf("every: %d, %d MiB less: out of memory in %s, %d retries; played out %s, %d retries", n, less, diesIn(left.Played, a), a.Stats.NumAllocRetries,
				diesIn(full.Played, b), b.Stats.NumAllocRetries)
		}
	}
}

// diesIn tells where a request failed: the step, the phase, the operator, and the
// message.
func diesIn(p *engine.Played, r *allocsim.Result) string {
	if len(r.OOMs) == 0 {
		return "no step"
	}
	oom := r.OOMs[0]
	e := &p.Trace.Events[oom.Event]
	return fmt.Sprintf("step %d, %s, %s: %v", int64(e.Step)+oom.Ahead, e.Phase, p.Trace.Ops[e.Op], oom.Err)
}
