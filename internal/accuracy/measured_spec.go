package accuracy

import (
	"fmt"
	"strings"
)

// xMemGPUs maps NVML's names to rows of the table of GPUs.
var xMemGPUs = map[string]string{"NVIDIA GeForce RTX 3060": "rtx-3060", "NVIDIA GeForce RTX 4060": "rtx-4060"}

// xMemModels maps the models of the runs to what a spec calls them. A model of
// transformers is its configuration on the hub.
var xMemModels = map[string]struct {
	preset, with string // of torchvision
	hf, task     string // config.json and task of transformers
}{
	"VGG19":        {preset: "vgg", with: "depth: 19"},
	"ResNet101":    {preset: "resnet", with: "depth: 101"},
	"MobileNetV2":  {preset: "mobilenet_v2"},
	"MnasNet":      {preset: "mnasnet", with: "classes: 10"},
	"RegNetX400MF": {preset: "regnet", with: "net: x_400mf"},

	"openai-community/gpt2": {hf: `{"model_type": "gpt2"}`, task: "causal-lm"},
	"distilbert/distilgpt2": {hf: `{"model_type": "gpt2", "n_layer": 6}`, task: "causal-lm"},
	"facebook/opt-125m":     {hf: `{"model_type": "opt"}`, task: "causal-lm"},
	"facebook/opt-350m": {hf: `{"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
		"word_embed_proj_dim": 512, "do_layer_norm_before": false}`, task: "causal-lm"},
	"T5-small": {hf: `{"model_type": "t5"}`, task: "seq2seq-lm"},
	"t5-base":  {hf: `{"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}`, task: "seq2seq-lm"},
}

// Spec writes the run as a spec, with its configuration in config.json. The
// loop is that of xMem's trainers (perf_estimator/trainer/train_loop.py): the
// batch of the step before dies when the loop fetches the next one from the
// host, outputs and loss live until they are bound again.
func (r *XMemRun) Spec() string {
	m := xMemModels[r.Model]
	var b strings.Builder
	b.WriteString("memplan: 1\n")
	batch, output := "x, y", "outputs"
	if m.preset != "" {
		with := "img: 86"
		if m.with != "" {
			with += ", " + m.with
		}
		fmt.Fprintf(&b, "model: {preset: %s, with: {%s}}\n", m.preset, with)
	} else {
		with := `seq: 128, mask: padded, transformers: "4.51"`
		if m.task == "seq2seq-lm" {
			with += ", target_seq: 128"
		}
		if strings.Contains(m.hf, `"t5"`) {
			with += ", attn: eager"
		}
		batch = "input_ids, labels, attention_mask"
		fmt.Fprintf(&b, "model: {hf: config.json, task: %s, with: {%s}}\n", m.task, with)
	}
	fmt.Fprintf(&b, "train: {batch_size: %d, optimizer: {%s: {lr: 1.0e-3}}, loop: flat, steps: 4}\n", r.Batch, r.Optim)
	b.WriteString("step:\n")
	zero := func(at bool) {
		if at {
			b.WriteString("  - zero_grad\n")
		}
	}
	_ = batch
	start := r.ZeroGrad == "0"
	zero(start)
	fmt.Fprintf(&b, "  - batch\n  - {forward: {model: model}, name: %s}\n", output)
	if m.preset != "" {
		fmt.Fprintf(&b, "  - {cross_entropy: [%s, y], name: loss}\n", output)
	} else {
		fmt.Fprintf(&b, "  - {name: loss, inputs: \"%s[-1]\"}\n", output)
	}
	zero(!start)
	b.WriteString("  - {backward: loss}\n  - optimizer_step\n")
	for _, n := range strings.Split(batch, ", ") {
		fmt.Fprintf(&b, "  - {del: %s}\n", n)
	}
	fmt.Fprintf(&b, "device: {gpu: %s, memory: %dB}\n", xMemGPUs[r.GPU], int64(r.Total))
	return b.String()
}
