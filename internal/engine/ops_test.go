package engine

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// opRecording is one entry of testdata/ops: what a single operator allocated
// and freed in its forward and backward pass on real PyTorch.
type opRecording struct {
	Forward, Backward []string
	Error             string
}

func readOps(t *testing.T, arch string) map[string]opRecording {
	t.Helper()
	f, err := os.Open(needs.File(t, "ops", arch+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Ops map[string]opRecording }
	if err := json.NewDecoder(z).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.Ops
}

// probe is one operator of the recordings, as the forward pass of a model.
type probe struct {
	name   string
	batch  int
	inputs string // shapes without the batch dimension; floating ones require gradients unless their name ends in 0
	layers string
	rest   string // of the model
}

// Shapes of the recordings' inputs.
const (
	seq   = "x: [128, 256]"
	image = "x: [64, 32, 32]"
	qkv64 = "q: [8, 128, 64], k: [8, 128, 64], v: [8, 128, 64]"
	pair  = "x: [128, 256], y: [128, 256]"
	pair0 = "x: [128, 256], y0: [128, 256]"
)

// probes lists the operators in scope, as the recordings name them.
var probes = []probe{
	{"linear_bias", 4, seq, "Linear: 1024", ""},
	{"linear_nobias", 4, seq, "Linear: {out_features: 1024, bias: false}", ""},
	{"linear2d_bias", 512, "x: [256]", "Linear: 1024", ""},
	{"matmul_2d", 256, "x: [256], y: [256]", "matmul: [x, y]", ""},
	{"bmm", 4, "x: [8, 128, 32], y: [8, 128, 32]", "matmul: [x, {transpose: [-1, -2], inputs: y}]", ""},
	{"layernorm", 4, seq, "LayerNorm", ""},
	{"groupnorm", 4, image, "GroupNorm: 8", ""},
	{"batchnorm2d", 4, image, "BatchNorm2d", ""},
	{"conv2d_bias", 4, image, "Conv2d: {out_channels: 64, kernel_size: 3, padding: 1}", ""},
	{"conv2d_nobias", 4, image, "Conv2d: {out_channels: 64, kernel_size: 3, padding: 1, bias: false}", ""},
	{"conv2d_depthwise", 4, image, "Conv2d: {out_channels: 64, kernel_size: 3, padding: 1, groups: 64}", ""},
	{"convtranspose2d", 4, image, "ConvTranspose2d: {out_channels: 32, kernel_size: 2, stride: 2}", ""},
	{"conv1d", 4, "x: [64, 1024]", "Conv1d: {out_channels: 64, kernel_size: 3, padding: 1}", ""},
	{"relu", 4, seq, "relu", ""},
	{"gelu", 4, seq, "gelu", ""},
	{"gelu_tanh", 4, seq, "gelu: tanh", ""},
	{"silu", 4, seq, "silu", ""},
	{"sigmoid", 4, seq, "sigmoid", ""},
	{"tanh", 4, seq, "tanh", ""},
	{"leaky_relu", 4, seq, "leaky_relu", ""},
	{"elu", 4, seq, "elu", ""},
	{"softplus", 4, seq, "softplus", ""},
	{"mish", 4, seq, "mish", ""},
	{"hardswish", 4, seq, "hardswish", ""},
	{"softmax", 4, seq, "softmax: -1", ""},
	{"log_softmax", 4, seq, "log_softmax: -1", ""},
	{"exp", 4, seq, "exp", ""},
	{"mean", 4, seq, "mean", ""},
	{"sum_dim", 4, seq, "sum: -1", ""},
	{"square", 4, seq, "mul: [x, x]", ""},
	{"add_scalar", 4, seq, "add: 1", ""},
	{"pow2", 4, seq, "pow: 2", ""},
	{"rsqrt", 4, seq, "rsqrt", ""},
	{"float", 4, seq, "float", ""},
	{"contig_t", 4, seq, "contiguous: , inputs: [{transpose: [1, 2], inputs: x}]", ""},
	{"chunk_cat", 4, seq, "{chunk: [2, -1], name: [a, b]}, {cat: {tensors: [b, a], dim: -1}}", ""},
	{"dropout", 4, seq, "dropout: 0.1", ""},
	{"clone", 4, seq, "clone", ""},
	{"masked_fill", 4, seq, "masked_fill: {mask: {gt: 0, inputs: x}, value: 0.0}", ""},
	{"add", 4, pair, "add: [x, y]", ""},
	{"mul", 4, pair, "mul: [x, y]", ""},
	{"mul_bcast", 4, seq, "mul: [x, w]", "parameters: {w: [256]}"},
	{"div", 4, pair, "div: [x, y]", ""},
	{"maxpool2d", 4, image, "MaxPool2d: 2", ""},
	{"avgpool2d", 4, image, "AvgPool2d: 2", ""},
	{"adaptiveavg1", 4, image, "AdaptiveAvgPool2d: 1", ""},
	{"adaptiveavg7", 4, image, "AdaptiveAvgPool2d: 7", ""},
	{"pad", 4, image, "pad: {pad: [1, 1, 1, 1]}", ""},
	{"embedding", 4, "x: {shape: [128], dtype: int64}", "Embedding: [1000, 256]", ""},
	{"cross_entropy", 512, "x: [1000], y: {shape: [], dtype: int64}", "cross_entropy: [x, y]", ""},
	{"cross_entropy_smooth", 512, "x: [1000], y: {shape: [], dtype: int64}", "cross_entropy: {input: x, target: y, label_smoothing: 0.1}", ""},
	{"l1", 4, pair0, "l1_loss: [x, y0]", ""},
	{"bce_logits", 4, pair0, "binary_cross_entropy_with_logits: [x, y0]", ""},
	{"kl_div", 4, pair0, "kl_div: {input: x, target: y0, reduction: batchmean}", ""},
	{"mse", 4, pair0, "mse_loss: [x, y0]", ""},
	{"smooth_l1", 4, pair0, "smooth_l1_loss: [x, y0]", ""},
	{"sdpa_hd64", 4, qkv64, "scaled_dot_product_attention: [q, k, v]", ""},
	{"sdpa_hd64_drop", 4, qkv64, "scaled_dot_product_attention: {dropout_p: 0.1}, inputs: [q, k, v]", ""},
	{"sdpa_hd64_causal", 4, qkv64, "scaled_dot_product_attention: {is_causal: true}, inputs: [q, k, v]", ""},
	{"sdpa_hd64_causal_drop", 4, qkv64, "scaled_dot_product_attention: {dropout_p: 0.1, is_causal: true}, inputs: [q, k, v]", ""},
	{"sdpa_hd40", 4, "q: [8, 128, 40], k: [8, 128, 40], v: [8, 128, 40]", "scaled_dot_product_attention: [q, k, v]", ""},
	{"sdpa_hd128_t1000", 4, "q: [8, 1000, 128], k: [8, 1000, 128], v: [8, 1000, 128]",
		"scaled_dot_product_attention: {is_causal: true}, inputs: [q, k, v]", ""},
	{"sdpa_mask", 4, qkv64, "scaled_dot_product_attention: {attn_mask: m}, inputs: [q, k, v]", "buffers: {m: [128, 128]}"},
	{"sdpa_boolmask", 4, qkv64, "scaled_dot_product_attention: {attn_mask: m}, inputs: [q, k, v]", "buffers: {m: {shape: [128, 128], dtype: bool}}"},
	{"mha_weights", 4, seq, "MultiheadAttention: {num_heads: 8, batch_first: true}, inputs: [x, x, x], pick: 0", ""},
	{"mha_noweights", 4, seq, "MultiheadAttention: {num_heads: 8, batch_first: true, need_weights: false}, inputs: [x, x, x], pick: 0", ""},
	{"encoderlayer", 4, seq, "TransformerEncoderLayer: {nhead: 8, dim_feedforward: 1024, batch_first: true}", ""},
	{"rmsnorm_module", 4, seq, "RMSNorm", ""},
	{"glu", 4, seq, "glu", ""},
	{"where", 4, seq, "where: {condition: {gt: 0, inputs: x}, input: x, other: 0.0}", ""},
	{"norm", 4, seq, "norm", ""},
	{"var", 4, seq, "var: -1", ""},
	{"max_dim", 4, seq, "max: -1, pick: 0", ""},
	{"topk", 4, seq, "topk: 8, pick: 0", ""},
	{"sort", 4, seq, "sort: -1, pick: 0", ""},
	{"cumsum", 4, seq, "cumsum: -1", ""},
	{"normalize", 4, seq, "normalize: {dim: -1}", ""},
	{"logsumexp", 4, seq, "logsumexp: -1", ""},
	{"repeat_interleave", 4, seq, "repeat_interleave: [2, 1]", ""},
	{"index_select", 4, seq, "index: {self: x, index: {zeros: {size: [64], dtype: int64}}, dim: 1}", ""},
	{"interp_bilinear", 4, image, "interpolate: {scale_factor: 2, mode: bilinear}", ""},
	{"interp_nearest", 4, image, "interpolate: {scale_factor: 2}", ""},
	{"pixel_shuffle", 4, image, "pixel_shuffle: 2", ""},
	{"decoderlayer", 4, pair, "TransformerDecoderLayer: {nhead: 8, dim_feedforward: 1024, batch_first: true}, inputs: [x, y]", ""},
	{"gru_cell", 4, "x: [256], h: [256]", "GRUCell: 256, inputs: [x, h]", ""},
	{"lstm_cell", 4, "x: [256], h: [256], c: [256]", "LSTMCell: 256, inputs: [x, [h, c]], pick: 0", ""},
}

// autocastProbes are recorded under torch.autocast, whose cache is cleared when
// the forward pass ends.
var autocastProbes = []probe{
	{"linear_bias", 4, seq, "Linear: 1024", ""},
	{"linear_linear", 4, seq, "{Sequential: [{Linear: 1024}, {Linear: 256}]}", ""},
	{"conv2d_bias", 4, image, "Conv2d: {out_channels: 64, kernel_size: 3, padding: 1}", ""},
	{"layernorm_of_linear", 4, seq, "{Sequential: [{Linear: 256}, LayerNorm]}", ""},
	{"ce_of_linear", 512, "x: [256], y: {shape: [], dtype: int64}", "{cross_entropy: [{Linear: 1000, inputs: x}, y]}", ""},
	{"softmax_of_matmul", 4, "x: [8, 128, 32], y: [8, 128, 32]", "{softmax: -1, inputs: [{matmul: [x, {transpose: [-1, -2], inputs: y}]}]}", ""},
	{"encoderlayer", 4, seq, "TransformerEncoderLayer: {nhead: 8, dim_feedforward: 1024, batch_first: true}", ""},
}

// outOfScope names the recorded operators that memplan does not have yet, with
// the reason.
var outOfScope = map[string]string{
	"sdpa_math_causal": "a choice of attention kernels by context manager",
}

var opArchs = []struct {
	name               string
	arch, sms, threads int
}{
	{"sm70", 70, 80, 2048}, {"sm75", 75, 40, 1024}, {"sm80", 80, 108, 2048}, {"sm86", 86, 82, 1536}, {"sm90", 90, 132, 2048},
}

// render lists events as the recordings do: "+bytes" and "-bytes".
func render(tr *trace.Trace, from int) []string {
	size := map[int32]tensor.Bytes{}
	var out []string
	for i, e := range tr.Events {
		switch e.Kind {
		case trace.Alloc:
			size[e.ID] = e.Bytes
			if i >= from {
				out = append(out, fmt.Sprintf("+%d", e.Bytes))
			}
		case trace.Free:
			if i >= from {
				out = append(out, fmt.Sprintf("-%d", size[e.ID]))
			}
		}
	}
	return out
}

// listed joins events, with the frees of each run in the order of their sizes:
// autocast's cache is freed in no particular order.
func listed(events []string) string {
	events = slices.Clone(events)
	for i := 0; i < len(events); i++ {
		j := i
		for j < len(events) && events[j][0] == '-' {
			j++
		}
		slices.Sort(events[i:j])
		i = j
	}
	return strings.Join(events, " ")
}

// TestOps holds every operator in scope against what real PyTorch allocated in
// its forward and backward pass, on five architectures in three types. None may
// be wrong; few may be refused. Every recorded operator must be in scope or in
// outOfScope.
func TestOps(t *testing.T) {
	type precision struct{ suffix, name string }
	suites := []struct {
		probes     []probe
		precisions []precision
	}{
		{probes, []precision{{"_f32", "fp32"}, {"_bf16", "bf16"}, {"_f16", "fp16"}}},
		{autocastProbes, []precision{{"_amp_bf16", "amp-bf16"}, {"_amp_f16", "amp-fp16"}}},
	}
	for _, a := range opArchs {
		recorded := readOps(t, a.name)
		known := map[string]bool{}
		equal := 0
		for _, suite := range suites {
			for _, pr := range suite.probes {
				for _, p := range suite.precisions {
					name := pr.name + p.suffix
					rec, ok := recorded[name]
					if !ok || rec.Error != "" {
						t.Fatalf("%s: no recording of %s", a.name, name)
					}
					known[name] = true
					err := pr.compare(op.Env{Arch: a.arch, SMs: a.sms, ThreadsPerSM: a.threads, Torch: torchver.Recorded}, p.name, rec)
					switch {
					case err == nil:
						equal++
					case strings.Contains(err.Error(), "is not modelled for GPUs before"):
						t.Logf("%s %s is refused: %v", a.name, name, err)
					default:
						t.Errorf("%s %s: %v", a.name, name, err)
					}
				}
			}
		}
		for n := range recorded {
			base, _, _ := strings.Cut(n, "_f32")
			base = strings.TrimSuffix(strings.TrimSuffix(base, "_bf16"), "_f16")
			if _, out := outOfScope[base]; !out && !known[n] {
				t.Errorf("%s: recorded operator %s is neither in scope nor named as out of it", a.name, n)
			}
		}
		for n := range outOfScope {
			if _, ok := recorded[n+"_f32"]; !ok || known[n+"_f32"] {
				t.Errorf("%s: out of scope is %s, which is not recorded or has a probe", a.name, n)
			}
		}
		if 100*equal < 97*len(recorded) {
			t.Errorf("%s: %d of %d recorded operators are equal", a.name, equal, len(recorded))
		}
		t.Logf("%s: %d of %d recorded operators are equal", a.name, equal, len(recorded))
	}
}

// compare plays the operator as a model and holds its events against the
// recording.
func (pr *probe) compare(env op.Env, precision string, rec opRecording) (err error) {
	layers := pr.layers
	if !strings.HasPrefix(layers, "{") {
		layers = "{" + layers + "}"
		if !strings.Contains(layers, ":") {
			layers = pr.layers
		}
	}
	text := fmt.Sprintf("memplan: 1\nmodel:\n  inputs: {%s}\n  layers: [%s]\n  loss: {sum: }\n", pr.inputs, layers)
	if !strings.HasPrefix(pr.rest, "parameters:") { // for the optimizer, which needs one
		text += "  parameters: {unused: [1]}\n"
	}
	if pr.rest != "" {
		text += "  " + pr.rest + "\n"
	}
	text += fmt.Sprintf("train: {batch_size: %d, precision: %s}\n", pr.batch, precision)
	s, err := spec.Parse(pr.name, []byte(text), spec.Options{})
	if err != nil {
		return err
	}
	g, err := graph.Build(s, graph.Options{Env: env})
	if err != nil {
		return err
	}
	env.GradMode, env.Training = true, true
	j := &job{Interp: python.New(env, nil), prog: g.Job, models: map[string]*python.Module{}}
	j.setup()
	// The recordings settle the cuBLAS workspaces first: that of a backward pass, too.
	j.BlasHandle()
	leaf := j.Leaf(trace.Inputs, tensor.Float32, true, 1)
	autograd.Of(leaf).Ready = func(*autograd.Object) { j.BlasHandle() }
	j.Backward(leaf, nil, false)
	j.EnterAutocast(tensor.BFloat16) // which looks whether there is bfloat16
	j.ExitAutocast()
	var args []python.Value
	for _, in := range g.Job.Inputs {
		grad := in.DType.IsFloating() && !strings.HasSuffix(in.Name, "0")
		args = append(args, python.Value{T: j.Leaf(trace.Inputs, in.DType, grad, in.Size...)})
	}
	for _, a := range args {
		j.Hold(a) // the caller's own reference
	}
	from := len(j.Trace().Events)
	j.autocast(true)
	out := j.CallModule(j.models["model"], nil, args).T
	j.autocast(false)
	if got, want := listed(render(j.Trace(), from)), listed(rec.Forward); got != want {
		return fmt.Errorf("forward\n got %s\nwant %s", got, want)
	}
	grad := j.New(out.LikeDense(), out.DType)
	from = len(j.Trace().Events)
	j.Backward(out, j.Keep(grad), false)
	if got, want := listed(render(j.Trace(), from)), listed(rec.Backward); got != want {
		return fmt.Errorf("backward\n got %s\nwant %s", got, want)
	}
	return nil
}
