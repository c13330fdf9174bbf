package accuracy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/torchver"
)

// optimizers maps the recordings' names to spec text.
var optimizers = map[string]string{
	"sgd":               "{SGD: {lr: 0.01}}",
	"sgd_momentum":      "{SGD: {lr: 0.01, momentum: 0.9}}",
	"sgd_nesterov_wd":   "{SGD: {lr: 0.01, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}}",
	"sgd_foreach_off":   "{SGD: {lr: 0.01, momentum: 0.9, foreach: false}}",
	"adam":              "{Adam: {lr: 1.0e-3}}",
	"adam_amsgrad":      "{Adam: {lr: 1.0e-3, amsgrad: true}}",
	"adam_fused":        "{Adam: {lr: 1.0e-3, fused: true}}",
	"adamw":             "{AdamW: {lr: 1.0e-3}}",
	"adamw_foreach_off": "{AdamW: {lr: 1.0e-3, foreach: false}}",
	"adamw_fused":       "{AdamW: {lr: 1.0e-3, fused: true}}",
	"adagrad":           "{Adagrad: {lr: 0.01}}",
	"rmsprop":           "{RMSprop: {lr: 0.01}}",
	"adafactor":         "{Adafactor: {lr: 0.01}}",
	"adadelta":          "Adadelta",
	"nadam":             "NAdam",
	"adamax":            "Adamax",

	"hf_adafactor":              "{transformers.Adafactor: {lr: 0.001, relative_step: false, scale_parameter: false}}",
	"rmsprop_momentum_centered": "{RMSprop: {lr: 0.01, momentum: 0.9, centered: true}}",
}

// precisions maps the recordings' names to those of train.precision.
var precisions = map[string]string{"fp32": "fp32", "bf16": "bf16", "pure_bf16": "bf16", "pure_fp16": "fp16", "amp_bf16": "amp-bf16", "amp_fp16": "amp-fp16"}

// preset is a preset with params that every recording of a model has.
type preset struct {
	name string
	with map[string]any
}

// presets maps the recordings' models to presets, torchvision those of
// torchvision.models, which args name as net.
var (
	presets = map[string]preset{
		"mlp": {name: "mlp"}, "lenet": {name: "lenet"}, "gpt": {name: "gpt"}, "bert": {name: "bert"},
		"mha": {name: "mha"}, "lstm": {name: "lstm"}, "vit": {name: "vit"}, "llama": {name: "llama"}, "unet": {name: "unet"},
		"vgg": {"vgg", map[string]any{"flat": true}}, "resnet": {"resnet", map[string]any{"nested": true}},
	}
	torchvision = map[string]preset{
		"alexnet":       {name: "alexnet"},
		"vgg11":         {"vgg", map[string]any{"depth": 11}},
		"resnet18":      {"resnet", map[string]any{"depth": 18}},
		"squeezenet1_1": {"squeezenet", map[string]any{"version": 1.1}},
		"mobilenet_v2":  {name: "mobilenet_v2"},
	}
)

// preset finds the preset of the recorded model and its params.
func (c *Config) preset() preset {
	p := presets[c.Model]
	args := c.Args
	if c.Model == "tv" {
		net, _ := c.Args["net"].(string)
		p, args = torchvision[net], nil
	}
	with := map[string]any{}
	for _, m := range []map[string]any{p.with, args} {
		for k, v := range m {
			with[k] = v
		}
	}
	delete(with, "ckpt") // a feature
	return preset{p.name, with}
}

// InScope reports whether memplan models everything that a recording did, and
// if not, what is missing.
func (r *Recording) InScope() (bool, string) {
	c := r.Config
	switch {
	case c.preset().name == "":
		return false, "model " + c.Model
	case c.Optimizer != "none" && optimizers[c.Optimizer] == "":
		return false, "optimizer " + c.Optimizer
	}
	return true, ""
}

// Spec writes the recorded run as a spec.
func (r *Recording) Spec() string {
	c := r.Config
	var b strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: %s\n", r.Name)
	if r.has("inference") {
		mode := "no_grad"
		if r.has("inference_mode") {
			mode = "inference"
		}
		fmt.Fprintf(&b, "mode: %s\n", mode)
	}
	p := c.preset()
	fmt.Fprintf(&b, "model:\n  preset: %s\n  with: %s\n", p.name, yamlMap(p.with))
	fmt.Fprintf(&b, "train:\n  batch_size: %d\n  precision: %s\n", c.Batch, precisions[c.Precision])
	if o := optimizers[c.Optimizer]; o != "" {
		fmt.Fprintf(&b, "  optimizer: %s\n", o)
	}
	if c.Accumulate > 1 {
		fmt.Fprintf(&b, "  grad_accumulation: %d\n", c.Accumulate)
	}
	if r.has("clip") {
		b.WriteString("  clip_grad_norm: 1.0\n")
	}
	if r.has("checkpoint") {
		b.WriteString("  checkpoint: true\n")
	}
	if r.has("checkpoint_sequential") {
		fmt.Fprintf(&b, "  checkpoint: {segments: %d}\n", c.Segments)
	}
	fmt.Fprintf(&b, "  zero_grad: {at: after_step, set_to_none: %v}\n", !r.has("zero_grad_keep"))
	if c.Loop == "flat" {
		b.WriteString("  loop: flat\n")
	}
	input := c.Input
	if input == "" {
		input = "static"
	}
	fmt.Fprintf(&b, "data: {input: %s}\n", input)
	if c.AllocConf != "" {
		fmt.Fprintf(&b, "device: {alloc_conf: %q}\n", c.AllocConf)
	}
	return b.String()
}

// yamlMap writes a map on one line, sorted by its keys.
func yamlMap(m map[string]any) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+": "+yamlValue(m[k]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func yamlValue(v any) string {
	switch v := v.(type) {
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = yamlValue(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
	}
	return fmt.Sprint(v)
}

// archs are the GPUs on which the recordings were made: compute capability,
// multiprocessors, threads of each.
var archs = map[string][3]int{
	"sm70": {70, 80, 2048}, "sm75": {75, 40, 1024}, "sm80": {80, 108, 2048}, "sm86": {86, 82, 1536}, "sm89": {89, 128, 1536}, "sm90": {90, 132, 2048},
}

// Env is the device and version of the recording.
func (r *Recording) Env() op.Env { return ArchEnv(r.Config.Arch) }

// ArchEnv is the device on which an architecture was recorded. NVIDIA's libraries
// were stubs there, so that the RNN spaces of cuDNN have the stub's sizes.
func ArchEnv(arch string) op.Env {
	a := archs[arch]
	return op.Env{Arch: a[0], SMs: a[1], ThreadsPerSM: a[2], Torch: torchver.Recorded, StubCudnn: true}
}
