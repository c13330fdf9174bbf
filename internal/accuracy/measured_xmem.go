package accuracy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// XMemRun is one run of testdata/measured/xmem.csv.gz.
type XMemRun struct {
	Kind   string // cnn or transformer
	Model  string // as torchvision or the hub names it
	Optim  string // class of torch.optim
	Batch  int64
	GPU    string // as NVML names it
	Total  tensor.Bytes
	Peak   tensor.Bytes
	OOM    bool // the run ran out of memory: Peak is no peak
	Others map[string]tensor.Bytes
}

// otherEstimators are those that said something of xMem's runs, and their columns.
var otherEstimators = []struct{ name, column string }{
	{"xMem", "xmem_est_bytes"}, {"DNNMem", "dnnmem_est_bytes"}, {"SchedTune", "schedtune_est_bytes"}, {"LLMem", "llmem_est_bytes"},
}

// LoadXMem reads the runs.
func LoadXMem(dir string) ([]*XMemRun, error) {
	rows, err := readCSV(dir, "xmem.csv.gz")
	if err != nil {
		return nil, err
	}
	var out []*XMemRun
	for _, r := range rows {
		run := &XMemRun{
			Kind: r["family"], Model: r["model"], Optim: r["optimizer"], GPU: r["gpu"], OOM: r["real_oom"] == "True",
			Total: csvBytes(r["gpu_total_bytes"]), Peak: csvBytes(r["measured_nvml_peak_bytes"]), Others: map[string]tensor.Bytes{},
		}
		if run.Batch, err = strconv.ParseInt(r["batch"], 10, 64); err != nil {
			return nil, fmt.Errorf("xmem.csv.gz: %w", err)
		}
		for _, e := range otherEstimators {
			if b := csvBytes(r[e.column]); b > 0 {
				run.Others[e.name] = b
			}
		}
		out = append(out, run)
	}
	return out, nil
}

// xMemGPUs maps NVML's names to those of the table of GPUs.
var xMemGPUs = map[string]string{"NVIDIA GeForce RTX 3060": "rtx-3060", "NVIDIA GeForce RTX 4060": "rtx-4060"}

// xMemModel is what a spec calls a model.
type xMemModel struct {
	preset, with string // of torchvision
	hf           string // config.json of transformers, as on the hub
	task, params string
}

var xMemModels = map[string]xMemModel{
	"VGG19":        {preset: "vgg", with: "depth: 19"},
	"ResNet101":    {preset: "resnet", with: "depth: 101"},
	"MobileNetV2":  {preset: "mobilenet_v2", with: "classes: 1000"},
	"MnasNet":      {preset: "mnasnet", with: "classes: 10"},
	"RegNetX400MF": {preset: "regnet", with: "net: x_400mf"},

	"openai-community/gpt2": {hf: `{"model_type": "gpt2"}`, task: "causal-lm"},
	"distilbert/distilgpt2": {hf: `{"model_type": "gpt2", "n_layer": 6}`, task: "causal-lm"},
	"facebook/opt-125m":     {hf: `{"model_type": "opt"}`, task: "causal-lm"},
	"facebook/opt-350m": {hf: `{"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
		"word_embed_proj_dim": 512, "do_layer_norm_before": false}`, task: "causal-lm"},
	"T5-small": {hf: `{"model_type": "t5"}`, task: "seq2seq-lm", params: ", attn: eager, target_seq: 128"},
	"t5-base": {hf: `{"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}`, task: "seq2seq-lm",
		params: ", attn: eager, target_seq: 128"},
}

// Spec writes the run as a spec, with its configuration in config.json. The
// loops are those of xMem's train_loop.py. The column zero_grad_mode_effective
// is inferred and not followed for language models: the version of xMem that
// trains them calls zero_grad at the start of the step unless told otherwise.
func (r *XMemRun) Spec() string {
	m := xMemModels[r.Model]
	var b strings.Builder
	b.WriteString("memplan: 1\n")
	if m.preset != "" {
		fmt.Fprintf(&b, "model: {preset: %s, with: {img: 86, %s}}\n", m.preset, m.with)
		b.WriteString("step:\n  - batch\n  - {forward: {model: model}, name: outputs}\n  - {cross_entropy: [outputs, y], name: loss}\n  - zero_grad\n")
	} else {
		fmt.Fprintf(&b, "model: {hf: config.json, task: %s, with: {seq: 128, mask: padded, transformers: \"4.51\"%s}}\n", m.task, m.params)
		b.WriteString("step:\n  - zero_grad\n  - batch\n  - {forward: {model: model}, name: outputs}\n  - {name: loss, inputs: \"outputs[-1]\"}\n")
	}
	b.WriteString("  - {backward: loss}\n  - optimizer_step\n")
	for _, name := range r.inputs() { // the loop fetches the next batch under these names
		fmt.Fprintf(&b, "  - {del: %s}\n", name)
	}
	fmt.Fprintf(&b, "train: {batch_size: %d, optimizer: {%s: {lr: 1.0e-3}}, loop: flat, steps: 4}\n", r.Batch, r.Optim)
	fmt.Fprintf(&b, "device: {gpu: %s, memory: %dB}\n", xMemGPUs[r.GPU], int64(r.Total))
	return b.String()
}

// inputs are the names of a batch.
func (r *XMemRun) inputs() []string {
	if r.Kind == "cnn" {
		return []string{"x", "y"}
	}
	return []string{"input_ids", "labels", "attention_mask"}
}

// Compare holds the prediction against what was measured.
func (r *XMemRun) Compare() *Measured {
	m := &Measured{Name: fmt.Sprintf("%s, batch %d, %s", r.Model, r.Batch, r.Optim), Suite: suiteTransformers, Family: r.Model, GPU: xMemGPUs[r.GPU], Peak: r.Peak, Others: r.Others}
	if r.Kind == "cnn" {
		m.Suite = suiteCNNs
	}
	if r.OOM {
		m.Skipped = "the run ran out of memory"
		return m
	}
	o, err := outcome(r.Spec(), func(string) ([]byte, error) { return []byte(xMemModels[r.Model].hf), nil })
	if err != nil {
		m.Failed = err.Error()
		return m
	}
	m.predictPeak(o)
	return m
}
