package spec

import (
	"strings"
	"testing"
)

// TestSecondWords checks that what has two words or two forms means the same with both, and
// is printed with the first.
func TestSecondWords(t *testing.T) {
	const model = "memplan: 1\nmodel: {inputs: {x: [4]}, layers: [{Linear: 4}], loss: {mse_loss: x}}\n"
	print := func(text string, set ...string) string {
		s, err := Parse("a.yaml", []byte(model+text), Options{Set: set})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return ""
		}
		b, err := s.Explicit(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ one, other string }{
		{"train: {precision: bf16}", "train: {precision: bfloat16}"},
		{"train: {precision: fp16}", "train: {precision: Half}"},
		{"train: {precision: fp32}", "train: {precision: float32}"},
		{"train: {precision: amp-bf16}", "train: {precision: bf16-mixed}"},
		{"train: {precision: amp-fp16}", "train: {precision: amp-float16}"},
		{"train: {precision: amp-bf16}", "x-p: &p {precision: amp-bfloat16}\ntrain: {<<: *p}"},
		{"train: {grad_accumulation: 2}", "train: {gradient_accumulation_steps: 2}"},
		{"train: {clip_grad_norm: 1.0}", "train: {max_grad_norm: 1.0}"},
		{"train: {checkpoint: {modules: [layers.0]}}", "train: {gradient_checkpointing: {modules: [layers.0]}}"},
		{"mode: inference", "mode: inference_mode"},
		{"mode: train", "mode: training"},
		{"eval: {context: inference_mode}", "eval: {context: inference}"},
		{"lora: {r: 4, alpha: 8, targets: [q]}", "lora: {rank: 4, lora_alpha: 8, target_modules: [q]}"},
		{"quantize: {bits: 8, threshold: 5, except: [q]}", "quantize: {bits: 8, llm_int8_threshold: 5, llm_int8_skip_modules: [q]}"},
		{"parallel: {ddp: 8}", "ddp: {ranks: 8}"},
		{"parallel: {ddp: 8}", "ddp: 8"},
		{"parallel: {bucket_cap_mb: 50, ddp: 8, comm_hook: bf16_compress_hook}", "parallel: {bucket_cap_mb: 50}\nddp: {ranks: 8, comm_hook: bfloat16}"},
		{"parallel: {fsdp: 4, modules: [layers.0], param_dtype: bf16}", "fsdp: {ranks: 4, modules: [layers.0], param_dtype: bf16}"},
		{"parallel: {fsdp: 4, cpu_offload: true}", "parallel: {fsdp: {ranks: 4, cpu_offload: true}}"},
	} {
		if want, got := print(c.one), print(c.other); got != want {
			t.Errorf("%s is\n%s\nand not, as with %s,\n%s", c.other, got, c.one, want)
		}
	}
	for _, c := range []struct{ text, set, want string }{
		{"ddp: {ranks: 8}", "parallel.ddp=2", "ddp: 2"},
		{"parallel: {ddp: 8}", "ddp.ranks=2", "ddp: 2"},
		{"ddp: {ranks: 8}", "ddp.ranks=2", "ddp: 2"},
		{"train: {grad_accumulation: 2}", "train.gradient_accumulation_steps=3", "repeat: 3"},
		{"train: {gradient_accumulation_steps: 2}", "train.grad_accumulation=3", "repeat: 3"},
	} {
		if got := print(c.text, c.set); !strings.Contains(got, c.want) {
			t.Errorf("%s with --set %s has no %q:\n%s", c.text, c.set, c.want, got)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"train: {grad_accumulation: 2, gradient_accumulation_steps: 2}", "a.yaml:3:31: gradient_accumulation_steps and grad_accumulation are one key"},
		{"ddp: {ranks: 2}\nparallel: {ddp: 3}", "a.yaml:3:1: ddp is given twice, in parallel and by itself"},
		{"ddp: {bucket_cap_mb: 2}", "a.yaml:3:1: ddp needs ranks"},
		{"fsdp: {ranks: 2, bucket_cap_mb: 3}", `a.yaml:3:18: unknown key of fsdp "bucket_cap_mb"`},
		{"ddp: [8]", "ddp must be an integer, not a list"},
		{"parallel: 3\nddp: 8", "parallel must be a mapping"},
		{"train: {precision: tf32}", "write fp32, whose tensors TF32 leaves as they are"},
	} {
		if _, err := Parse("a.yaml", []byte(model+c.text), Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}
