package spec

import (
	"fmt"
	"testing"
)

// Keys of train set the arguments of a trainer that mean the same, or none.
func TestTrainerSettings(t *testing.T) {
	errs := new(Errors)
	root := readYAML([]byte("trainer: {hf: {learning_rate: 0.01}}"), errs)
	if root == nil {
		t.Fatal(errs.Err())
	}
	for _, c := range []struct{ path, value, want string }{
		{"device.gpu", "t4", "[{device.gpu t4}]"},
		{"train.batch_size", "4", "[{trainer.hf.per_device_train_batch_size 4}]"},
		{"train.optimizer", "AdamW", "[{trainer.hf.optim adamw_torch}]"},
		{"train.optimizer", "{AdamW: {fused: false}}", "[{trainer.hf.optim adamw_torch}]"},
		{"train.optimizer", "{AdamW: {lr: 0.01, betas: [0.9, 0.99], eps: 1e-08, weight_decay: 0.1, fused: true}}",
			"[{trainer.hf.optim adamw_torch_fused} {trainer.hf.adam_beta2 0.99} {trainer.hf.weight_decay 0.1}]"},
		{"train.optimizer", "{SGD: {momentum: 0.9, nesterov: true}}", "[{trainer.hf.optim sgd} {trainer.hf.optim_args momentum=0.9,nesterov=true}]"},
		{"train.optimizer", "{AdamW8bit: {embeddings_32bit: true}}", "[{trainer.hf.optim adamw_bnb_8bit}]"},
		{"train.optimizer", "{AdamW8bit: {embeddings_32bit: false}}", ""},
		{"train.optimizer", "{AdamW: {foreach: false}}", ""},
		{"train.optimizer", "{AdamW: {lr: [0.1]}}", ""},
		{"train.optimizer", "{Adam: {}}", ""},
		{"train.optimizer", "[", ""},
	} {
		got := ""
		if settings, ok := trainerSettings(root, c.path, c.value); ok {
			got = fmt.Sprint(settings)
		}
		if got != c.want {
			t.Errorf("%s=%s sets %s, not %s", c.path, c.value, got, c.want)
		}
	}
}

// An optimizer beside the arguments is what changes.
func TestTrainerOptimizer(t *testing.T) {
	errs := new(Errors)
	root := readYAML([]byte("trainer: {hf: {}, optimizer_cls_and_kwargs: SGD}"), errs)
	if got, ok := trainerSettings(root, "train.optimizer", "{AdamW: {lr: 0.1}}"); !ok || fmt.Sprint(got) != "[{trainer.optimizer_cls_and_kwargs {AdamW: {lr: 0.1}}}]" {
		t.Error(got, ok)
	}
}

// Those of other loops, of which lightning leaves some to train.
func TestLoopSettings(t *testing.T) {
	for _, c := range []struct{ trainer, path, value, want string }{
		{"litgpt", "train.batch_size", "4", "[{trainer.litgpt.train.micro_batch_size 4}]"},
		{"litgpt", "train.batch_size", "17", "[{trainer.litgpt.train.micro_batch_size 17} {trainer.litgpt.train.global_batch_size 17}]"},
		{"litgpt", "train.precision", "bfloat16", "[{trainer.litgpt.precision bf16-true}]"},
		{"litgpt", "train.grad_accumulation", "2", ""},
		{"litgpt", "train.checkpoint", "true", ""},
		{"torchtitan", "train.batch_size", "4", "[{trainer.torchtitan.training.local_batch_size 4}]"},
		{"torchtitan", "train.precision", "fp32", "[{trainer.torchtitan.training.mixed_precision_param float32}]"},
		{"torchtitan", "train.precision", "bf16", ""},
		{"torchtitan", "train.checkpoint", "true", "[{trainer.torchtitan.activation_checkpoint.mode full}]"},
		{"torchtitan", "train.grad_accumulation", "2", ""},
		{"lightning", "train.batch_size", "4", "[{train.batch_size 4}]"},
		{"lightning", "train.optimizer", "{AdamW: {fused: true}}", "[{train.optimizer {AdamW: {fused: true}}}]"},
		{"lightning", "train.grad_accumulation", "2", "[{trainer.lightning.accumulate_grad_batches 2}]"},
		{"lightning", "train.precision", "amp-fp16", "[{trainer.lightning.precision 16-mixed}]"},
		{"lightning", "train.ema", "true", ""},
	} {
		root := readYAML([]byte("trainer: {"+c.trainer+": {}}"), new(Errors))
		got := ""
		if settings, ok := trainerSettings(root, c.path, c.value); ok {
			got = fmt.Sprint(settings)
		}
		if got != c.want {
			t.Errorf("%s: %s=%s sets %s, not %s", c.trainer, c.path, c.value, got, c.want)
		}
	}
}

// An override takes the place of an argument, however its key is written.
func TestOverrideOfArgument(t *testing.T) {
	const path = "trainer.litgpt.train.micro_batch_size"
	for _, given := range []string{"train.micro_batch_size: 2", "train: {micro_batch_size: 2}", ""} {
		s, err := Parse("a.yaml", []byte("memplan: 1\nmodel: {preset: litgpt}\ntrainer: {litgpt: {"+given+"}}\n"), Options{Set: []string{path + "=3"}})
		if err != nil {
			t.Fatalf("%q: %v", given, err)
		}
		if n := s.Trainer.Args().Int("train.micro_batch_size"); n != 3 {
			t.Errorf("%q: the batch has %d samples, not 3", given, n)
		}
		if v := s.Given(path); v == nil || v.Int != 3 {
			t.Errorf("%q: %s is %v", given, path, v)
		}
	}
}

// A batch in smaller parts has the samples of all GPUs still.
func TestMicrobatchSettings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"model: {preset: litgpt}\ntrainer: {litgpt: {train: {micro_batch_size: 4}}}\n", "[{trainer.litgpt.train.micro_batch_size 2} {trainer.litgpt.train.global_batch_size 16}]"},
		{"model: {preset: torchtitan}\ntrainer: {torchtitan: {}}\n", "[{trainer.torchtitan.training.local_batch_size 2} {trainer.torchtitan.training.global_batch_size 16}]"},
		{"model: {preset: torchtitan}\ntrainer: {torchtitan: {}}\nparallel: {fsdp: 4}\n", "[{trainer.torchtitan.training.local_batch_size 2} {trainer.torchtitan.training.global_batch_size 64}]"},
		{"model: {hf: config.json}\ntrainer: {hf: {}}\n", "[{trainer.hf.per_device_train_batch_size 2} {trainer.hf.gradient_accumulation_steps 8}]"},
	} {
		s, err := Parse("a.yaml", []byte("memplan: 1\n"+c.text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		ss, ok := s.TrainerSettings(Setting{"train.batch_size", "2"}, Setting{"train.grad_accumulation", "8"})
		if got := fmt.Sprint(ss); !ok || got != c.want {
			t.Errorf("%q: set are %s, not %s", c.text, got, c.want)
		}
	}
}
