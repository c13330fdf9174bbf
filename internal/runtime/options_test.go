package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// small is a model that all options of training suit.
const small = `memplan: 1
torch: "2.9"
model:
  inputs: {x: {shape: [5]}, y: {shape: [], dtype: int64}}
  layers: [{Linear: 64}, Tanh, {Linear: 70}, LayerNorm, SiLU, {Linear: 4}]
  loss: {CrossEntropyLoss: {target: y}}
train: {batch_size: 6, %s}
%s`

// ways are the options of training beside optimizers: keys of train, and other
// sections.
var ways = []struct{ name, train, more string }{
	{"fp32", "", ""},
	{"bf16", "precision: bf16", ""},
	{"fp16", "precision: fp16", ""},
	{"amp-bf16", "precision: amp-bf16", ""},
	{"amp-fp16", "precision: amp-fp16", ""},
	{"accumulation", "grad_accumulation: 2", ""},
	{"clip by norm", "clip_grad_norm: 0.5", ""},
	{"clip by value", "clip_grad_value: 0.5", ""},
	{"scaler and clip", "precision: amp-fp16, clip_grad_norm: 0.5, grad_accumulation: 2", ""},
	{"zero_grad to zeros", "zero_grad: {set_to_none: false}", ""},
	{"empty_cache", "empty_cache: {every: 1}", ""},
	{"flat loop", "loop: flat", ""},
	{"optimizer in backward", "optimizer_in_backward: true", ""},
	{"checkpoint", "checkpoint: [layers.0, layers.2]", ""},
	{"deterministic", "deterministic: true", ""},
	{"keep", "keep: [loss]", ""},
	{"ema", "ema: {decay: 0.9}", ""},
	{"ema on the CPU", "ema: {decay: 0.9, device: cpu}", ""},
	{"prefetch", "", "data: {device_prefetch: true}"},
	{"static input", "", "data: {input: static}"},
	{"offload activations", "", "offload: {activations: true}"},
	{"offload optimizer", "", "offload: {optimizer: true}"},
	{"offload gradients", "", "offload: {optimizer: true, gradients: true, pin_memory: true}"},
	{"offload parameters", "", "offload: {parameters: true}"},
	{"eval", "", "eval: {every: 1, batches: 2}"},
	{"freeze", "", "freeze: [layers.0]"},
	{"lora", "", "lora: {r: 2}"},
	{"lora with a module", "", "lora: {r: 2, bias: lora_only, modules_to_save: [layers.5]}"},
	{"lora with dropout", "", "lora: {r: 2, dropout: 0.1}"},
	{"masks", "", "prune: {amount: 0.3}"},
	{"pruned channels", "", "prune: {amount: 0.3, structured: true, modules: [layers.0]}"},
	{"4 bits", "", "quantize: {bits: 4}"},
	{"4 bits twice", "", "quantize: {bits: 4, type: fp4, double_quant: true}\nlora: {r: 2}"},
	{"8 bits", "", "quantize: {bits: 8}\nlora: {r: 2}"},
	{"several GPUs", "", "parallel: {ddp: 2}"},
}

// runs trains a job for two steps with every block poisoned, and reports what
// failed.
func runs(name, text string) error {
	s, err := spec.Parse(name+".yaml", []byte(text), spec.Options{})
	if err != nil {
		return err
	}
	j, err := estimate.NewJob(s, nil)
	if err != nil {
		return err
	}
	device := cpu.New(tensor.GiB)
	r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: device, Config: j.Machine.Conf, Steps: 2, Seed: 1, Poison: true})
	for _, p := range r.Steps {
		if !p.HasLoss || math.IsNaN(p.Loss) || math.IsInf(p.Loss, 0) {
			err = errors.Join(err, fmt.Errorf("loss %v in step %d", p.Loss, p.Step))
		}
	}
	return errors.Join(err, device.Close())
}

// TestWays runs two steps of a small job with each option, or shows how it is
// refused.
func TestWays(t *testing.T) {
	refused := map[string]string{"several GPUs": "a job of 2 processes cannot be executed"}
	for _, w := range ways {
		err := runs(w.name, fmt.Sprintf(small, strings.TrimPrefix(w.train+", optimizer: {AdamW: {lr: 0.01}}", ", "), w.more+"\n"))
		if why := refused[w.name]; why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: %v, expected %q", w.name, err, why)
		}
	}
}

// TestOptimizers runs two steps with each optimizer in each of its
// implementations, on the device and on the CPU.
func TestOptimizers(t *testing.T) {
	const planned = "cannot be executed" // what torchao's states hold is planned alone
	refused := map[string]string{        // the others by the spec already, on any backend
		"SparseAdam": "SparseAdam refuses dense gradients", "Muon": "only matrices can be trained by Muon",
		"torchao.AdamW8bit": planned, "torchao.AdamW4bit": planned, "torchao.AdamWFp8": planned,
	}
	for _, name := range optim.Names() {
		row := optim.Lookup(name)
		args := []string{""}
		for _, a := range []string{"foreach", "fused", "capturable", "maximize", "amsgrad"} {
			if row.Signature().Find(a) != nil {
				args = append(args, a+": true")
			}
		}
		for _, a := range append(args, "foreach: false") {
			if a == "foreach: false" && row.Signature().Find("foreach") == nil {
				continue
			}
			for _, more := range []string{"", "offload: {optimizer: true}"} {
				if more != "" && (row.CheckCPU(row.Args) != nil || row.GPUOnly || strings.HasPrefix(a, "capturable") || strings.HasPrefix(a, "fused")) {
					continue
				}
				if refused[name] == planned && strings.HasPrefix(a, "amsgrad") {
					continue // the package refuses it
				}
				what := fmt.Sprintf("{%s: {%s}}", name, a)
				err := runs(name, fmt.Sprintf(small, "optimizer: "+what, more+"\n"))
				switch why := refused[name]; {
				case why != "" && err != nil && strings.Contains(err.Error(), why):
				case err != nil && strings.Contains(err.Error(), "cannot be executed"), why != "":
					t.Errorf("%s %s: %v, expected %q", what, more, err, why)
				case err != nil && (strings.Contains(err.Error(), "amsgrad") || strings.Contains(err.Error(), "fused")): // PyTorch, or the package, refuses it
				case err != nil:
					t.Errorf("%s %s: %v", what, more, err)
				}
			}
		}
	}
	if err := runs("muon", "memplan: 1\ntorch: \"2.9\"\nmodel:\n  inputs: {x: {shape: [5]}, y: {shape: [], dtype: int64}}\n"+
		"  layers: [{Linear: {out_features: 8, bias: false}}, ReLU, {Linear: {out_features: 4, bias: false}}]\n  loss: {cross_entropy: {target: y}}\n"+
		"train: {batch_size: 6, optimizer: Muon}\n"); err != nil {
		t.Error(err)
	}
}
