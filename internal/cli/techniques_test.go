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
	{"Several GPUs: DDP", "Each GPU has a replica of the model and its own batch. Gradients are reduced in buckets. The buckets are copies of the gradients, unless gradient_as_bucket_view makes the gradients views of the buckets.", gpt, []variant{
		{args: set("parallel={ddp: 8}"), gpu: ">"},
		{args: set("parallel={ddp: 8, gradient_as_bucket_view: true}")},
		{args: append([]string{"--batch-size", "1"}, set("parallel={ddp: 8}")...), gpu: "<"}}},
	{"Several GPUs: sharding", "Each GPU has a shard of the optimizer's state (ZeRO 1), or of the optimizer's state, the parameters and the gradients (FSDP2).", append(gpt, set("parallel={ddp: 8, gradient_as_bucket_view: true}")...), []variant{
		{args: set("parallel={ddp: 8, gradient_as_bucket_view: true, zero: 1}"), gpu: "<"},
		{args: set("parallel={fsdp: 8}"), gpu: "<"},
		{args: set("parallel={fsdp: 8, param_dtype: bfloat16, reduce_dtype: float32}"), gpu: "<"},
		{args: set("parallel={fsdp: 8, reshard_after_forward: false}"), gpu: "<"},
		{args: set("parallel={fsdp: 8, cpu_offload: true}"), gpu: "<"}}},
	{"Several GPUs: a pipeline", "Each GPU has some of the layers, and runs microbatches. The figures are those of the GPU that reserves most. The last stage keeps the logits of all microbatches, and returns them as one tensor.", append(gpt, set("params.tied=false")...), []variant{
		{args: set("pp={ranks: 4, split: [blocks.3, blocks.6, blocks.9], microbatches: 4, schedule: gpipe}"), gpu: "<"},
		{args: set("pp={ranks: 4, split: [blocks.3, blocks.6, blocks.9], microbatches: 4}"), gpu: "<"},
		{args: set("pp={ranks: 4, split: [blocks.3, blocks.6, blocks.9], microbatches: 8}"), gpu: "<"}}},
	{"Batch size", "Activations grow with the batch size; parameters and optimizer state do not.", gpt, []variant{{args: []string{"--batch-size", "4"}, gpu: "<"}, {args: []string{"--batch-size", "16"}, gpu: ">"}}},
	{"Gradient accumulation", "The effective batch size stays 8. Gradients are kept during the forward passes.", gpt, []variant{
		{args: append([]string{"--batch-size", "2"}, set("train.grad_accumulation=4")...), gpu: "<"}}},
	{"Mixed precision (autocast)", "Activations halve, but 16-bit copies of the weights are added. A model that is mostly weights needs more memory than in fp32.", gpt, []variant{
		{args: []string{"--precision", "amp-bf16"}, gpu: "<"}}},
	{"Mixed precision of a model that is mostly weights", "", []string{"preset:mlp", "--gpu", "a100-40gb", "--set", "params.sizes=[8192, 8192, 8192]", "--optimizer", "SGD"}, []variant{
		{args: []string{"--precision", "amp-bf16"}, gpu: ">"}}},
	{"GradScaler and clipping", "", gpt, []variant{
		{args: []string{"--precision", "amp-fp16"}, gpu: "<"},
		{args: append([]string{"--precision", "amp-fp16"}, set("train.clip_grad_norm=1.0")...), gpu: "<"},
		{args: set("train.clip_grad_value=1.0"), gpu: ""}}},
	{"The whole model in 16 bit", "", gpt, []variant{{args: []string{"--precision", "bf16"}, gpu: "<"}, {args: []string{"--precision", "fp16"}, gpu: "<"}}},
	{"Quantization", "8-bit optimizers have a smaller state. Quantized weights are frozen; here LoRA adapters are trained on them.", gpt, []variant{
		{args: []string{"--optimizer", "AdamW8bit"}, gpu: "<"}, {args: []string{"--optimizer", "PagedAdamW8bit"}, gpu: "<"},
		{args: set("lora={r: 8}", "quantize={bits: 8}"), gpu: "<"}, {args: set("lora={r: 8}", "quantize={bits: 4}"), gpu: "<"}}},
	{"Pruning", "The masks of pruning take memory. Only structured pruning makes tensors smaller.", resnet, []variant{
		{args: set("prune={amount: 0.5}"), gpu: ">"}, {args: set(`prune={amount: 0.5, structured: true, modules: ["layers.*.conv1"]}`), gpu: "<"}}},
	{"Knowledge distillation", "The teacher adds its parameters, but no saved tensors: it runs under no_grad.", resnet, []variant{{args: set("teacher={preset: resnet, with: {depth: 50}}"), gpu: ">"}}},
	{"Activation checkpointing", "The backward pass computes activations again: of every block, of every second block, of every block except the results of its matrix products, and of every block with the reentrant implementation.", gpt, []variant{
		{args: set(`train.checkpoint={modules: ["blocks.*"]}`), gpu: "<"}, {args: set(`train.checkpoint={modules: ["blocks.*"], every: 2}`), gpu: "<"},
		{args: set(`train.checkpoint={modules: ["blocks.*"], save: [mm, addmm]}`), gpu: "<"}, {args: set(`train.checkpoint={modules: ["blocks.*"], use_reentrant: true}`), gpu: "<"}}},
	{"Attention", "Attention that is written as matrix products saves a score for each pair of tokens. F.scaled_dot_product_attention does the same if no fused kernel supports its inputs, for example a mask with a head dimension of 100. A warning then says why, and how much memory the scores take.", gpt, []variant{{args: set("params.manual=true"), gpu: ">"}}},
	{"A loss in chunks", "The logits of a language model and the tensors of its loss are computed for one part of the sequence at a time. The backward pass computes each part again.", gpt, []variant{
		{args: set("params.loss_chunks=4"), gpu: "<"}, {args: set("params.loss_chunks=16"), gpu: "<"}}},
	{"checkpoint_sequential", "", []string{"preset:vgg", "--gpu", "a100-40gb"}, []variant{{args: set("train.checkpoint={modules: [features], segments: 4}"), gpu: "<"}}},
	{"Evaluation and inference", "Without gradients no tensors are saved. In a training job, an evaluation with larger batches can set the peak.", gpt, []variant{
		{args: set("mode=inference"), gpu: "<"}, {args: set("eval={batch_size: 32}"), gpu: ">"}}},
	{"zero_grad", "Gradients that are cleared after the forward pass, or filled with zeros instead of dropped, take memory during the forward pass.", gpt, []variant{
		{args: set("train.zero_grad={at: before_backward}"), gpu: ""}, {args: set("train.zero_grad={at: after_step}"), gpu: ""},
		{args: set("train.zero_grad={set_to_none: false}"), gpu: ">"}}},
	{"Keeping tensors: a leak", "", []string{"preset:gpt", "--gpu", "rtx-3060", "--batch-size", "4"}, []variant{
		{args: set("train.keep=out"), verdict: "a leak"}, {args: set("train.keep={of: loss, item: true}"), gpu: "="}, {args: set("train.keep={of: out, detach: true, to: cpu}"), gpu: "=", verdict: "host memory keeps growing"}}},
	{"empty_cache", "Reserved memory is smaller after empty_cache; the peak of a step hardly changes.", gpt, []variant{{args: set("train.empty_cache={every: 1}")}}},
	{"Options of the allocator", "The options change which segments serve a request. Allocated memory differs by the remainders of blocks that are not split off.", []string{"preset:resnet", "--gpu", "rtx-3060", "--batch-size", "256"}, []variant{
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
	{"Optimizers", "Optimizers differ in their state and in the temporaries of `optimizer.step()`.", gpt, []variant{
		{args: []string{"--optimizer", "SGD"}, gpu: "<"}, {args: []string{"--optimizer", "{SGD: {momentum: 0.9}}"}, gpu: "<"}, {args: []string{"--optimizer", "{AdamW: {fused: true}}"}, gpu: ""},
		{args: []string{"--optimizer", "{AdamW: {foreach: false}}"}, gpu: ""}, {args: []string{"--optimizer", "Adafactor"}, gpu: "<"}, {args: []string{"--optimizer", "Lion"}, gpu: "<"},
		{args: set("train.optimizer_in_backward=true"), gpu: ""}}},
	{"Augmentation", "Each worker transforms its samples one by one.", loader, []variant{
		{args: set("data.dataset={samples: 1000, sample: {shape: [3, 500, 375]}}", "data.transforms={resize: {shape: [3, 256, 256]}, crop: {shape: [3, 224, 224]}, to_float: {dtype: float32}}"), gpu: "=", host: ">"}}},
	{"Freezing layers", "", resnet, []variant{{args: set(`freeze=["conv1", "bn1", "layers.*"]`), gpu: "<"}}},
	{"LoRA", "", gpt, []variant{{args: set("lora={r: 8}"), gpu: "<"}, {args: append(set("lora={r: 8}"), "--precision", "bf16"), gpu: "<"}}},
	{"An average of the weights", "", gpt, []variant{{args: set("train.ema={decay: 0.999}"), gpu: ">"}, {args: set("train.ema={decay: 0.999, device: cpu}"), gpu: "", host: ">"}}},
}

const techniquesHead = `# What helps, in figures

A test writes this page from memplan's own predictions (` + "`go test ./internal/cli -run TestTechniques -update`" + `). The first line of each table is a
job; every further line is the same job with one change. *allocated* and *reserved* are peaks on the GPU. *host* is the peak of host memory; in it,
the sizes of processes are assumed.
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
