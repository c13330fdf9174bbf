package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// technique is a thing that users do about memory: a job, and the same job with
// something changed.
type technique struct {
	title, note string
	job         []string // arguments of estimate
	rows        []variant
}

// variant is a change, and what it must do to the peak of allocated memory on
// the GPU or to the machine's own: "<" or ">" or "=" or "" (not compared).
type variant struct {
	args      []string
	gpu, host string
	verdict   string // words that the verdict's reason or warnings must have
}

func set(keys ...string) []string {
	var out []string
	for _, k := range keys {
		out = append(out, "--set", k)
	}
	return out
}

var (
	gpt    = []string{"preset:gpt", "--gpu", "a100-40gb"}
	resnet = []string{"preset:resnet", "--gpu", "a100-40gb"}
	loader = []string{"preset:resnet", "--gpu", "a100-40gb", "--set", "data={loader: {num_workers: 4}}"}
)

var techniques = []technique{
	{"Several GPUs: DDP", "Each GPU has the whole model and a batch of its own; the buckets in which gradients are reduced are a copy of them, unless these are views.", gpt, []variant{
		{args: set("parallel={ddp: 8}"), gpu: ">"},
		{args: set("parallel={ddp: 8, gradient_as_bucket_view: true}")},
		{args: append([]string{"--batch-size", "1"}, set("parallel={ddp: 8}")...), gpu: "<"}}},
	{"Several GPUs: sharding", "Each GPU has a part of the optimizer's state (ZeRO 1), or of parameters and gradients, too (FSDP2).", append(gpt, set("parallel={ddp: 8, gradient_as_bucket_view: true}")...), []variant{
		{args: set("parallel={ddp: 8, gradient_as_bucket_view: true, zero: 1}"), gpu: "<"},
		{args: set("parallel={fsdp: 8}"), gpu: "<"},
		{args: set("parallel={fsdp: 8, param_dtype: bfloat16, reduce_dtype: float32}"), gpu: "<"},
		{args: set("parallel={fsdp: 8, reshard_after_forward: false}"), gpu: "<"},
		{args: set("parallel={fsdp: 8, cpu_offload: true}"), gpu: "<"}}},
	{"Batch size", "Activations grow with it; parameters and their state do not.", gpt, []variant{{args: []string{"--batch-size", "4"}, gpu: "<"}, {args: []string{"--batch-size", "16"}, gpu: ">"}}},
	{"Gradient accumulation", "The effective batch stays 8; gradients live through the forward passes.", gpt, []variant{
		{args: append([]string{"--batch-size", "2"}, set("train.grad_accumulation=4")...), gpu: "<"}}},
	{"Mixed precision (autocast)", "Activations halve, but the copies of weights in 16 bit come on top: a model of weights rather than activations needs more.", gpt, []variant{
		{args: []string{"--precision", "amp-bf16"}, gpu: "<"}}},
	{"Mixed precision of a model that is mostly weights", "", []string{"preset:mlp", "--gpu", "a100-40gb", "--set", "params.sizes=[8192, 8192, 8192]", "--optimizer", "SGD"}, []variant{
		{args: []string{"--precision", "amp-bf16"}, gpu: ">"}}},
	{"GradScaler and clipping", "", gpt, []variant{
		{args: []string{"--precision", "amp-fp16"}, gpu: "<"},
		{args: append([]string{"--precision", "amp-fp16"}, set("train.clip_grad_norm=1.0")...), gpu: "<"},
		{args: set("train.clip_grad_value=1.0"), gpu: ""}}},
	{"The whole model in 16 bit", "", gpt, []variant{{args: []string{"--precision", "bf16"}, gpu: "<"}, {args: []string{"--precision", "fp16"}, gpu: "<"}}},
	{"Quantization", "8-bit optimizers shrink the state; quantized weights are for frozen models, here with LoRA.", gpt, []variant{
		{args: []string{"--optimizer", "AdamW8bit"}, gpu: "<"}, {args: []string{"--optimizer", "PagedAdamW8bit"}, gpu: "<"},
		{args: set("lora={r: 8}", "quantize={bits: 8}"), gpu: "<"}, {args: set("lora={r: 8}", "quantize={bits: 4}"), gpu: "<"}}},
	{"Pruning", "Masks cost memory; only structured pruning makes tensors smaller.", resnet, []variant{
		{args: set("prune={amount: 0.5}"), gpu: ">"}, {args: set(`prune={amount: 0.5, structured: true, modules: ["layers.*.conv1"]}`), gpu: "<"}}},
	{"Knowledge distillation", "The teacher adds its parameters and no saved tensors.", resnet, []variant{{args: set("teacher={preset: resnet, with: {depth: 50}}"), gpu: ">"}}},
	{"Activation checkpointing", "Recomputation in the backward pass: every block, every second one, all but the results of matrix products.", gpt, []variant{
		{args: set(`train.checkpoint={modules: ["blocks.*"]}`), gpu: "<"}, {args: set(`train.checkpoint={modules: ["blocks.*"], every: 2}`), gpu: "<"},
		{args: set(`train.checkpoint={modules: ["blocks.*"], save: [mm, addmm]}`), gpu: "<"}, {args: set(`train.checkpoint={modules: ["blocks.*"], use_reentrant: true}`), gpu: "<"}}},
	{"Attention", "Written out in matrix products it keeps scores for each pair of tokens. So does F.scaled_dot_product_attention where no fused kernel takes what it is given, such as a mask with heads of 100 numbers: a warning says why, and how much that is.", gpt, []variant{{args: set("params.manual=true"), gpu: ">"}}},
	{"A loss in chunks", "The logits of a language model, and what the loss makes of them, for a part of the sequence at a time; each part is computed again in the backward pass.", gpt, []variant{
		{args: set("params.loss_chunks=4"), gpu: "<"}, {args: set("params.loss_chunks=16"), gpu: "<"}}},
	{"checkpoint_sequential", "", []string{"preset:vgg", "--gpu", "a100-40gb"}, []variant{{args: set("train.checkpoint={modules: [features], segments: 4}"), gpu: "<"}}},
	{"Evaluation and inference", "Without gradients nothing is saved; an evaluation on larger batches can be the peak of a training job.", gpt, []variant{
		{args: set("mode=inference"), gpu: "<"}, {args: set("eval={batch_size: 32}"), gpu: ">"}}},
	{"zero_grad", "Gradients that are cleared late, or kept as zeros, live through the forward pass.", gpt, []variant{
		{args: set("train.zero_grad={at: before_backward}"), gpu: ""}, {args: set("train.zero_grad={at: after_step}"), gpu: ""},
		{args: set("train.zero_grad={set_to_none: false}"), gpu: ">"}}},
	{"Keeping tensors: a leak", "", []string{"preset:gpt", "--gpu", "rtx-3060", "--batch-size", "4"}, []variant{
		{args: set("train.keep=out"), verdict: "a leak"}, {args: set("train.keep={of: loss, item: true}"), gpu: "="}, {args: set("train.keep={of: out, detach: true, to: cpu}"), gpu: "=", verdict: "host memory keeps growing"}}},
	{"empty_cache", "What is reserved falls after it; the peak of a step hardly changes.", gpt, []variant{{args: set("train.empty_cache={every: 1}")}}},
	{"Options of the allocator", "They change how requests fall into segments; allocated differs by what is not split off.", []string{"preset:resnet", "--gpu", "rtx-3060", "--batch-size", "256"}, []variant{
		{args: []string{"--alloc-conf", "expandable_segments:True"}}, {args: []string{"--alloc-conf", "max_split_size_mb:128"}},
		{args: []string{"--alloc-conf", "roundup_power2_divisions:4"}, gpu: ""}}},
	{"The data set in memory", "", loader, []variant{
		{args: set("data.dataset={samples: 50000, in_memory: true, sample: {shape: [3, 256, 256]}}"), gpu: "=", host: ">"},
		{args: set("data.dataset={samples: 50000, in_memory: true, python_objects: true, sample: {shape: [3, 256, 256]}}"), gpu: "=", host: ">"}}},
	{"The data loader", "", loader, []variant{
		{args: set("data.loader.num_workers=8"), gpu: "=", host: ">"}, {args: set("data.loader.prefetch_factor=4"), gpu: "=", host: ">"}, {args: set("data.loader.pin_memory=true"), gpu: "=", host: ">"}}},
	{"The next batch on the GPU", "", resnet, []variant{{args: set("data.device_prefetch=true"), gpu: ">"}}},
	{"Offloading to the CPU", "", gpt, []variant{
		{args: set("offload={optimizer: true}"), gpu: "<", host: ">"}, {args: set("offload={activations: true}"), gpu: "<", host: ">"}, {args: set("offload={parameters: true}"), gpu: "<", host: ">"}}},
	{"Optimizers", "Of SGD, Adam and their implementations: state and temporaries of the step.", gpt, []variant{
		{args: []string{"--optimizer", "SGD"}, gpu: "<"}, {args: []string{"--optimizer", "{SGD: {momentum: 0.9}}"}, gpu: "<"}, {args: []string{"--optimizer", "{AdamW: {fused: true}}"}, gpu: ""},
		{args: []string{"--optimizer", "{AdamW: {foreach: false}}"}, gpu: ""}, {args: []string{"--optimizer", "Adafactor"}, gpu: "<"}, {args: []string{"--optimizer", "Lion"}, gpu: "<"},
		{args: set("train.optimizer_in_backward=true"), gpu: ""}}},
	{"Augmentation", "Samples are transformed one by one in each worker.", loader, []variant{
		{args: set("data.dataset={samples: 1000, sample: {shape: [3, 500, 375]}}", "data.transforms={resize: {shape: [3, 256, 256]}, crop: {shape: [3, 224, 224]}, to_float: {dtype: float32}}"), gpu: "=", host: ">"}}},
	{"Freezing layers", "", resnet, []variant{{args: set(`freeze=["conv1", "bn1", "layers.*"]`), gpu: "<"}}},
	{"LoRA", "", gpt, []variant{{args: set("lora={r: 8}"), gpu: "<"}, {args: append(set("lora={r: 8}"), "--precision", "bf16"), gpu: "<"}}},
	{"An average of the weights", "", gpt, []variant{{args: set("train.ema={decay: 0.999}"), gpu: ">"}, {args: set("train.ema={decay: 0.999, device: cpu}"), gpu: "", host: ">"}}},
}

const techniquesHead = `# What helps, in figures

Written by a test from memplan's own predictions (` + "`go test ./internal/cli -run TestTechniques -update`" + `), so that it stays true. Each table
begins with a job; every further line is the same job with something changed. *allocated* and *reserved* are peaks on the GPU, *host* is
host memory, whose processes are assumed.
`

// TestTechniques estimates every technique before and after, checks that each
// does what it is known for, and that docs/techniques.md says so.
func TestTechniques(t *testing.T) {
	needs.Time(t, needs.Alone)
	var doc strings.Builder
	doc.WriteString(techniquesHead)
	for _, q := range techniques {
		base := estimated(t, q.job)
		fmt.Fprintf(&doc, "\n## %s\n\n", q.title)
		if q.note != "" {
			fmt.Fprintf(&doc, "%s\n\n", q.note)
		}
		doc.WriteString("| `memplan estimate` | allocated | reserved | host | verdict |\n|---|---|---|---|---|\n")
		line := func(args []string, r *report.Report) {
			words := make([]string, len(args))
			for i, a := range args {
				if words[i] = a; strings.ContainsAny(a, " {}[]*\"") {
					words[i] = "'" + a + "'"
				}
			}
			verdict := r.Verdict.Result
			if l := r.Verdict.Leak; l != nil {
				verdict += fmt.Sprintf(", a leak of %v a step", l.Bytes)
			}
			if x := r.Verdict.OOM; x != nil {
				verdict += fmt.Sprintf(" in step %d", x.Step)
			}
			fmt.Fprintf(&doc, "| `%s` | %v | %v | %v | %s |\n", strings.Join(words, " "), r.Peak.AllocatedBytes, r.Peak.ReservedBytes, r.Host.TotalBytes, verdict)
		}
		line(q.job, base)
		for _, v := range q.rows {
			r := estimated(t, append(append([]string{}, q.job...), v.args...))
			line(append([]string{"…"}, v.args...), r)
			what := q.title + " " + strings.Join(v.args, " ")
			compare(t, what+": allocated", v.gpu, r.Peak.AllocatedBytes, base.Peak.AllocatedBytes)
			compare(t, what+": host", v.host, r.Host.TotalBytes, base.Host.TotalBytes)
			if all := r.Verdict.Reason + strings.Join(r.Warnings, " "); !strings.Contains(all, v.verdict) {
				t.Errorf("%s: %q does not say %q", what, all, v.verdict)
			}
		}
	}
	const path = "../../docs/techniques.md"
	if *update {
		if err := os.WriteFile(path, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(path)
	if err != nil || string(was) != doc.String() {
		t.Errorf("docs/techniques.md is stale (%v): run go test ./internal/cli -run TestTechniques -update, and read the difference", err)
	}
}

// estimated runs memplan estimate and reads its JSON.
func estimated(t *testing.T, args []string) *report.Report {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Main(append([]string{"estimate", "--quick", "--format", "json"}, args...), &Streams{In: &bytes.Buffer{}, Out: &stdout, Err: &stderr, Env: os.LookupEnv})
	var r report.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); code != 0 || err != nil {
		t.Fatalf("estimate %q: exit code %d, %v\n%s", args, code, err, stderr.String())
	}
	if len(r.NotModelled) > 0 {
		for _, n := range r.NotModelled {
			if strings.HasPrefix(n, "train.") || strings.HasPrefix(n, "data.") || strings.HasPrefix(n, "offload") || strings.HasPrefix(n, "lora") || strings.HasPrefix(n, "quantize") {
				t.Errorf("estimate %q: not modelled: %s", args, n)
			}
		}
	}
	return &r
}

func compare(t *testing.T, what, want string, got, base tensor.Bytes) {
	t.Helper()
	if ok := map[string]bool{"": true, "<": got < base, ">": got > base, "=": got == base}[want]; !ok {
		t.Errorf("%s %v, base %v, want %s", what, got, base, want)
	}
}
