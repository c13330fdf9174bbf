package accuracy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// FakeRecording is one recorded run with fake tensors; see
// testdata/truth-fake/README.md.
type FakeRecording struct {
	Name      string          `json:"name"`
	Family    string          `json:"family"`
	Model     FakeModel       `json:"model"`
	HF        json.RawMessage `json:"config"` // config.json of a model of transformers
	Batch     int64           `json:"batch"`
	Seq       int64           `json:"seq"`
	Img       int64           `json:"img"`
	Precision string          `json:"precision"`
	Optimizer map[string]any  `json:"optimizer"`
	Features  struct {
		Checkpoint any `json:"ckpt"`
		LoRA       *struct {
			Targets        []string
			R              int
			Alpha, Dropout float64
			DType          string
		} `json:"lora"`
		Inference  string  `json:"inference"`
		ZeroGrad   string  `json:"zero_grad"`
		Outputs    string  `json:"outputs"`
		Accumulate int     `json:"accum"`
		Clip       float64 `json:"clip"`
	} `json:"features"`
	Peaks []tensor.Bytes `json:"peaks"` // of each step; a block counts in multiples of 512 bytes
}

// FakeModel names the model of a run.
type FakeModel struct {
	Lib          string         `json:"lib"` // torchvision, transformers or custom
	Name         string         `json:"name"`
	Args         map[string]any `json:"args"`
	Task         string         `json:"task"`
	Attention    string         `json:"attn"`
	Mask         bool           `json:"mask"`
	ChannelsLast bool           `json:"channels_last"`
}

// fakeMisses says why peaks differ in the cases in which they do.
var fakeMisses = map[string]string{
	"gpt2-b1-t128-adagrad": "in step 1 the recording misses Adagrad's sums, which live since the optimizer's constructor and whose roots are taken " +
		"at the peak; it counts them from step 2 on, where the peaks are equal",
}

// LoadFake reads the recordings of a folder.
func LoadFake(dir string) ([]*FakeRecording, error) {
	var out []*FakeRecording
	err := readJSON(filepath.Join(dir, "cases.json.gz"), &out)
	return out, err
}

// fakeBlocks are the modules that were checkpointed in models of torchvision.
var fakeBlocks = map[string]string{"resnet50": "layers.?.*", "vit_b_16": "encoder.layers.*"}

// checkpoint is the key of train for what was checkpointed.
func (r *FakeRecording) checkpoint() string {
	switch kind, ckpt := r.Features.Checkpoint, r.Model.Args["ckpt"] == true; {
	case kind == "block":
		return fmt.Sprintf("  checkpoint: {modules: %q}\n", fakeBlocks[r.Model.Name])
	case kind != nil:
		return fmt.Sprintf("  checkpoint: {use_reentrant: %v}\n", kind == "reentrant")
	case ckpt:
		return "  checkpoint: true\n"
	}
	return ""
}

// Spec writes the recorded run as a spec.
func (r *FakeRecording) Spec() string {
	f := r.Features
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: %s\n", r.Name)
	if f.Inference != "" {
		fmt.Fprintf(&b, "mode: %s\n", f.Inference)
	}
	b.WriteString(r.model())
	fmt.Fprintf(&b, "train:\n  batch_size: %d\n  precision: %s\n  optimizer: %s\n", r.Batch, precisions[r.Precision], r.optimizer())
	if f.Accumulate > 1 {
		fmt.Fprintf(&b, "  grad_accumulation: %d\n", f.Accumulate)
	}
	if f.Clip > 0 {
		fmt.Fprintf(&b, "  clip_grad_norm: %g\n", f.Clip)
	}
	if r.Model.ChannelsLast {
		b.WriteString("  channels_last: true\n")
	}
	b.WriteString(r.checkpoint())
	if f.ZeroGrad == "after" {
		b.WriteString("  zero_grad: {at: after_step}\n")
	}
	if f.LoRA != nil {
		l := *f.LoRA
		fmt.Fprintf(&b, "lora: {targets: [%s], r: %d, alpha: %g, dropout: %g, dtype: %s}\n", strings.Join(l.Targets, ", "), l.R, l.Alpha, l.Dropout,
			map[string]string{"bf16": "bfloat16", "fp32": "float32"}[l.DType])
	}
	if f.Outputs == "loss" { // the rest of the model's output is freed before the backward pass
		b.WriteString("step:\n  - zero_grad\n  - batch\n  - {forward: {model: model}, name: out}\n  - {name: loss, inputs: \"out[-1]\"}\n" +
			"  - {del: out}\n  - {backward: loss}\n  - optimizer_step\n")
	}
	return b.String()
}

// optimizer is the optimizer as a spec names it.
func (r *FakeRecording) optimizer() string {
	args := map[string]any{"lr": 0.001}
	for k, v := range r.Optimizer {
		switch k {
		case "name":
		case "impl":
			args["foreach"] = v == "foreach"
			if v == "fused" {
				delete(args, "foreach")
				args["fused"] = true
			}
		default:
			args[k] = v
		}
	}
	return fmt.Sprintf("{%v: %s}", r.Optimizer["name"], yamlMap(args))
}

// Compare holds the predicted peaks against the recorded ones.
func (r *FakeRecording) Compare() *Case {
	c := &Case{Name: r.Name, Family: r.Family, Precision: r.Precision, Optimizer: fmt.Sprint(r.Optimizer["name"]), Arch: "sm80", PeaksOnly: true}
	env := ArchEnv(c.Arch)
	env.Torch, env.FakeTensors = torchver.Released, true
	p, err := predict(c.Name, r.Spec(), env, len(r.Peaks), func(string) ([]byte, error) { return r.HF, nil })
	if err != nil {
		c.Difference = "no prediction: " + err.Error()
		return c
	}
	c.Equal, c.Difference = true, fakeMisses[r.Name]
	for i, peak := range livePeaks(p.events, len(r.Peaks)) {
		c.Steps = append(c.Steps, StepPeaks{Allocated: peak, RecordedAllocated: r.Peaks[i]})
		if peak != r.Peaks[i] && c.Difference == "" {
			c.Difference = fmt.Sprintf("the peak of step %d is %d bytes, recorded %d", i+1, int64(peak), int64(r.Peaks[i]))
		}
	}
	return c
}

// livePeaks sums up the blocks that live, each rounded up to the allocator's
// 512 bytes, and returns the largest sum in each step.
func livePeaks(events []trace.Event, steps int) []tensor.Bytes {
	const block = 512
	peaks := make([]tensor.Bytes, steps)
	size := map[int32]tensor.Bytes{}
	var live tensor.Bytes
	for _, e := range events {
		switch e.Kind {
		case trace.Alloc:
			size[e.ID] = (e.Bytes + block - 1) / block * block
			live += size[e.ID]
		case trace.Free:
			live -= size[e.ID]
		}
		if i := int(e.Step) - 1; i >= 0 && i < steps {
			peaks[i] = max(peaks[i], live)
		}
	}
	return peaks
}
