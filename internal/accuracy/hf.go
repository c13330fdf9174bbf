package accuracy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// HFRecording is one recorded run of a model of Hugging Face's transformers;
// see testdata/truth-hf/README.md.
type HFRecording struct {
	Name   string         `json:"name"`
	Config HFConfig       `json:"config"`
	Steps  []RecordedStep `json:"steps"`
	Events trace.Recorded `json:"events"`
}

// HFConfig says what was run.
type HFConfig struct {
	Family     string          `json:"family"`
	Task       string          `json:"task"`
	Attention  string          `json:"attn"`
	HF         json.RawMessage `json:"hf"` // the model's config.json
	Batch      int64           `json:"batch"`
	Seq        int64           `json:"seq"`
	Target     int64           `json:"tgt_seq"`
	Image      int64           `json:"image"` // side of the images, if it is not the configuration's
	Choices    int64           `json:"choices"`
	Mask       string          `json:"mask"`
	Labels     string          `json:"labels"`
	Precision  string          `json:"precision"`
	Optimizer  string          `json:"optimizer"`
	Features   []string        `json:"features"`
	Arch       string          `json:"arch"`
	Loop       string          `json:"loop"`
	Input      string          `json:"input"`
	ZeroGrad   string          `json:"zero_grad"`
	Compat     string          `json:"compat"` // emulates an older transformers
	Accumulate int64           `json:"accumulate"`
	Liger      any             `json:"liger"` // true, or the keywords of apply_liger_kernel_to_TYPE
	Frozen     []string        `json:"frozen"`
	Images     int64           `json:"images"` // of a sample, in a model of text and images
}

// hfTasks maps the recordings' tasks to those of specs.
var hfTasks = map[string]string{"causal_lm": "causal-lm", "mlm": "masked-lm", "seqcls": "seq-cls", "seq2seq": "seq2seq-lm", "tokencls": "token-cls", "token_cls": "token-cls", "qa": "question-answering",
	"mc": "multiple-choice", "nsp": "next-sentence", "pretrain": "pretraining", "speech": "seq2seq-lm", "image": "image-cls",
	"contrastive": "contrastive", "segment": "image-seg", "audiocls": "seq-cls", "reconstruct": "pretraining"}

// LoadHF reads the recordings of a folder, sorted by name.
func LoadHF(dir string) ([]*HFRecording, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	var out []*HFRecording
	for _, f := range files {
		r := new(HFRecording)
		if err := readJSON(f, r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// skipped says what of the run memplan does not model; "" if it does.
func (r *HFRecording) skipped() string {
	c := r.Config
	switch {
	case optimizers[c.Optimizer] == "":
		return "optimizer " + c.Optimizer
	case c.Compat != "":
		return "transformers 5.12 patched to behave as " + c.Compat + " in part"
	}
	for _, f := range c.Features {
		if f != "clip" && f != "checkpoint" && f != "reentrant" {
			return f
		}
	}
	return ""
}

// Spec writes the recorded run as a spec, with the configuration in
// config.json.
func (r *HFRecording) Spec() string {
	c := r.Config
	with, liger := []string{"attn: " + c.Attention}, ""
	if c.Seq > 0 { // images have none
		with = append(with, fmt.Sprintf("seq: %d", c.Seq))
	}
	if c.Mask != "" {
		with = append(with, "mask: "+c.Mask)
	}
	if c.Image > 0 {
		with = append(with, fmt.Sprintf("input_size: %d", c.Image))
	}
	if c.Target > 0 {
		with = append(with, fmt.Sprintf("target_seq: %d", c.Target))
	}
	if (c.Task == "causal_lm" || c.Task == "mlm") && (c.Labels == "" || c.Labels == "same") {
		with = append(with, "shared_labels: true")
	}
	if c.Images > 0 {
		with = append(with, fmt.Sprintf("images: %d", c.Images))
	}
	if c.Choices > 0 {
		with = append(with, fmt.Sprintf("num_choices: %d", c.Choices))
	}
	if c.Liger != nil {
		text, _ := json.Marshal(c.Liger)
		liger = ", liger: " + string(text)
	}
	if c.Compat != "" {
		with = append(with, fmt.Sprintf("transformers: %q", c.Compat))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: %s\nmodel: {hf: config.json, task: %s, with: {%s}%s}\n", r.Name, hfTasks[c.Task], strings.Join(with, ", "), liger)
	if len(c.Frozen) > 0 {
		fmt.Fprintf(&b, "freeze: [%s]\n", strings.Join(c.Frozen, ", "))
	}
	fmt.Fprintf(&b, "train:\n  batch_size: %d\n  precision: %s\n  optimizer: %s\n", c.Batch, precisions[c.Precision], optimizers[c.Optimizer])
	if slices.Contains(c.Features, "checkpoint") {
		fmt.Fprintf(&b, "  checkpoint: {use_reentrant: %v}\n", slices.Contains(c.Features, "reentrant"))
	}
	if c.Loop == "flat" {
		b.WriteString("  loop: flat\n")
	}
	b.WriteString("step:\n")
	zero := func(at string) {
		if c.ZeroGrad == at {
			b.WriteString("  - zero_grad\n")
		}
	}
	zero("start")
	for k := range max(c.Accumulate, 1) {
		b.WriteString("  - batch\n  - {forward: {model: model}, name: out}\n  - {name: loss, inputs: \"out[-1]\"}\n")
		if c.Accumulate > 1 {
			outside := ""
			if strings.HasPrefix(c.Precision, "amp") {
				outside = ", autocast: false"
			}
			fmt.Fprintf(&b, "  - {div: %d, inputs: loss, name: loss%s}\n", c.Accumulate, outside)
		}
		if k == 0 {
			zero("before_backward")
		}
		b.WriteString("  - {backward: loss}\n")
	}
	if slices.Contains(c.Features, "clip") {
		b.WriteString("  - {clip_grad_norm: 1.0}\n")
	}
	b.WriteString("  - optimizer_step\n")
	zero("end")
	fmt.Fprintf(&b, "data: {input: %s}\n", c.Input)
	return b.String()
}

// Env is the device of the recording.
func (r *HFRecording) Env() op.Env { return ArchEnv(r.Config.Arch) }

// Compare holds the prediction against the recording.
func (r *HFRecording) Compare() *Case {
	c := &Case{Name: r.Name, Family: r.Config.Family, Precision: r.Config.Precision, Optimizer: r.Config.Optimizer, Arch: r.Config.Arch}
	if c.Skipped = r.skipped(); c.Skipped != "" {
		return c
	}
	c.files = func(string) ([]byte, error) { return r.Config.HF, nil }
	c.compare(r.Spec(), r.Env(), r.Events, r.Steps, true)
	return c
}
