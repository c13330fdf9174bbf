package estimate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// allocated lists what a module's operators allocate in the first step's phase, as their
// names and bytes.
func allocated(t *testing.T, text, layer string, phase trace.Phase, set ...string) []string {
	t.Helper()
	o, _ := estimateText(t, text, set...)
	tr := o.Played.Trace
	var out []string
	for _, e := range tr.Events {
		if e.Kind == trace.Alloc && e.Step == 1 && e.Phase == phase && strings.HasPrefix(tr.Layers[e.Layer], layer) {
			out = append(out, fmt.Sprintf("%s %d", tr.Ops[e.Op], e.Bytes))
		}
	}
	return out
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s allocates %q, want %q", what, got, want)
	}
}

const rmsNorm = `memplan: 1
model: {inputs: {x: [64, 8]}, layers: [{Linear: 32}, {RMSNorm: 32}], loss: mean}
train: {batch_size: 4, precision: %s}
`

// TestFusedRMSNorm: one kernel allocates its result and a number for each row; what it does
// not take stays a composition. Since 2.12 autocast leaves nothing of that.
func TestFusedRMSNorm(t *testing.T) {
	bf16, amp := fmt.Sprintf(rmsNorm, "bf16"), fmt.Sprintf(rmsNorm, "amp-bf16")
	same(t, "2.9", allocated(t, bf16, "layers.1", trace.Forward, "torch=2.9"), "_fused_rms_norm 16384", "_fused_rms_norm 1024")
	same(t, "2.9, backward", allocated(t, bf16, "layers.1", trace.Backward, "torch=2.9"), "FusedRmsNormBackward0 16384", "FusedRmsNormBackward0 64")
	parts := []string{"_to_copy 32768", "pow 32768", "mean 1024", "rsqrt 1024", "mul 32768"}
	same(t, "2.8", allocated(t, bf16, "layers.1", trace.Forward, "torch=2.8"), append(slices.Clone(parts), "_to_copy 16384", "mul 16384")...)
	same(t, "2.9, with a float32 weight", allocated(t, amp, "layers.1", trace.Forward, "torch=2.9"), append(slices.Clone(parts), "mul 32768", "_to_copy 16384")...)
	same(t, "2.12, with a float32 weight", allocated(t, amp, "layers.1", trace.Forward, "torch=2.12"), "_to_copy 32768", "_fused_rms_norm 32768", "_fused_rms_norm 1024")
	same(t, "2.8, with a float32 weight", allocated(t, amp, "layers.1", trace.Forward, "torch=2.8"), append(slices.Clone(parts), "_to_copy 16384", "mul 32768")...)
}

// TestGroupNormReleases: of channels_last images 2.13 saves the copy that it normalizes, 2.14
// copies in each pass for the kernel alone, and 2.15 does not copy.
func TestGroupNormReleases(t *testing.T) {
	const text = `memplan: 1
model: {inputs: {x: [3, 4, 4]}, layers: [{Conv2d: [3, 8, 1]}, {GroupNorm: [2, 8]}, SiLU], loss: mean}
train: {batch_size: 2, channels_last: true}
`
	norm, images := func(bytes ...int) (out []string) {
		for _, n := range bytes {
			out = append(out, fmt.Sprintf("native_group_norm %d", n))
		}
		return out
	}, 1024
	for _, c := range []struct {
		torch   string
		forward []string
		copies  int // in the backward pass: of the input, of the gradient
		c1      bool
	}{
		{"2.13", append([]string{"clone 1024"}, norm(images, 16, 16, 64, 64)...), 0, true},
		{"2.14", norm(images, 16, 16, images, 64, 64), 1, true},
		{"2.15", norm(images, 16, 16, 64, 64), 1, false},
	} {
		same(t, c.torch, allocated(t, text, "layers.1", trace.Forward, "torch="+c.torch), c.forward...)
		var backward []string
		bytes := append(slices.Repeat([]int{images}, c.copies), images, 32, 32, 64, 64, 16, 16)
		if c.c1 {
			bytes = append(bytes, 64)
		}
		for _, n := range bytes {
			backward = append(backward, fmt.Sprintf("NativeGroupNormBackward0 %d", n))
		}
		same(t, c.torch+", backward", allocated(t, text, "layers.1", trace.Backward, "torch="+c.torch), backward...)
	}
}

// TestLayerNormPartialSums: of 65,537 rows of 64 elements, the gradients are summed in 2,049
// parts, of which the kernel of sum makes one, with its scratch.
func TestLayerNormPartialSums(t *testing.T) {
	const text = `memplan: 1
model: {inputs: {x: [64]}, layers: [{Linear: 64}, {LayerNorm: 64}], loss: mean}
train: {batch_size: %d}
`
	empty := []string{"NativeLayerNormBackward0 16777472", "NativeLayerNormBackward0 256", "NativeLayerNormBackward0 256"}
	many := fmt.Sprintf(text, 65537)
	same(t, "2.7", allocated(t, many, "layers.1", trace.Backward, "torch=2.7"), empty...)
	same(t, "2.8", allocated(t, many, "layers.1", trace.Backward, "torch=2.8"),
		append(slices.Clone(empty), "NativeLayerNormBackward0 524544", "NativeLayerNormBackward0 524544",
			"NativeLayerNormBackward0 256", "NativeLayerNormBackward0 278528", "NativeLayerNormBackward0 4",
			"NativeLayerNormBackward0 256", "NativeLayerNormBackward0 278528", "NativeLayerNormBackward0 4")...)
	few := allocated(t, fmt.Sprintf(text, 65536), "layers.1", trace.Backward, "torch=2.8")
	same(t, "2.8, of 65,536 rows", few, "NativeLayerNormBackward0 16777216", "NativeLayerNormBackward0 256", "NativeLayerNormBackward0 256")
}

// TestFlashState: since 2.7 two tensors of random numbers are on the GPU.
func TestFlashState(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: [64, 4, 32]}
  layers:
    - {Linear: 32, name: h}
    - {scaled_dot_product_attention: [h, h, h]}
  loss: mean
train: {batch_size: 2, precision: bf16}
`
	old, now := allocated(t, text, "", trace.Forward, "torch=2.6"), allocated(t, text, "", trace.Forward, "torch=2.7")
	for i, want := range []string{"_scaled_dot_product_flash_attention 16", "_scaled_dot_product_flash_attention 8"} {
		if slices.Contains(old, want) || !slices.Contains(now, want) {
			t.Errorf("%d: 2.6 allocates %q, 2.7 %q", i, old, now)
		}
	}
}

// TestTrainerReleases: a Trainer that names no optimizer has the fused one since 2.8.
func TestTrainerReleases(t *testing.T) {
	const text = "memplan: 1\nmodel: {hf: config.json, task: causal-lm, with: {seq: 8}}\ntrainer: {hf: {}}\n"
	for torch, want := range map[string]bool{"2.7": false, "2.8": true} {
		r := &Recipe{Path: "test.yaml", Text: []byte(text), ReadFile: func(string) ([]byte, error) {
			return []byte(`{"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 64}`), nil
		}}
		j, err := r.Job(Key{"torch", torch})
		if err != nil {
			t.Fatal(err)
		}
		if got := optim.IsFused(j.Program.Optimizers[0].Args); got != want {
			t.Errorf("%s: fused %v", torch, got)
		}
	}
}

// TestConv3dByColumns: of 2.9 alone, half precision makes columns of 27 * 8 * 8 * 8 * 8 elements.
func TestConv3dByColumns(t *testing.T) {
	const text = `memplan: 1
model: {inputs: {x: [8, 8, 8, 8]}, layers: [{Conv3d: {in_channels: 8, out_channels: 8, kernel_size: %d, padding: %d}}], loss: mean}
train: {batch_size: 2, precision: %s}
`
	for _, c := range []struct {
		torch, precision string
		kernel           int
		columns          bool
	}{
		{"2.8", "bf16", 3, false}, {"2.9", "bf16", 3, true}, {"2.9", "fp16", 3, true}, {"2.9", "fp32", 3, false}, {"2.9", "bf16", 1, false}, {"2.10", "bf16", 3, false},
	} {
		got := allocated(t, fmt.Sprintf(text, c.kernel, c.kernel/2, c.precision), "layers.0", trace.Forward, "torch="+c.torch)
		if slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " 221184") }) != c.columns {
			t.Errorf("%s, %s, kernel %d: %q", c.torch, c.precision, c.kernel, got)
		}
	}
}

// TestKeptLtWorkspace: cuBLASLt's workspace is one of each call until 2.8, stays in 2.9 and
// 2.10, and is cuBLAS's own since 2.11.
func TestKeptLtWorkspace(t *testing.T) {
	const text = `memplan: 1
device: {gpu: a100-80gb}
model: {inputs: {x: [32]}, layers: [{Linear: 32}, {Linear: 64}], loss: mean}
train: {batch_size: 64}
`
	const handle, lt = "addmm 8519680", "addmm 1048576"
	for torch, want := range map[string][]string{
		"2.8":  {"addmm 8192", lt, handle, "addmm 16384", lt},
		"2.9":  {"addmm 8192", handle, lt, "addmm 16384"},
		"2.10": {"addmm 8192", handle, lt, "addmm 16384"},
		"2.11": {"addmm 8192", handle, "addmm 16384"},
	} {
		same(t, torch, allocated(t, text, "layers.", trace.Forward, "torch="+torch), want...)
	}
	kept, freed := peakOf(t, text, "torch=2.9"), peakOf(t, text, "torch=2.11")
	if kept != freed+1<<20 {
		t.Errorf("2.9 allocates %d bytes at its peak, 2.11 %d", kept, freed)
	}
}

func peakOf(t *testing.T, text string, set ...string) int64 {
	t.Helper()
	_, r := estimateText(t, text, set...)
	return int64(r.Peak.AllocatedBytes)
}

// TestEinsumSwaps: the result of 2.9 lies in order, so that a view of it is no copy.
func TestEinsumSwaps(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: [8, 16]}
  layers:
    - {Linear: 16, name: h}
    - {einsum: ["bij,bkj->bki", h, x], name: y}
    - {reshape: [y, [-1, 64]], name: z}
  loss: mean
train: {batch_size: 4}
`
	old, now := allocated(t, text, "", trace.Forward, "torch=2.8"), allocated(t, text, "", trace.Forward, "torch=2.9")
	same(t, "2.8", old[3:], "bmm 1024", "clone 1024", "mean 4")
	same(t, "2.9", now[3:], "bmm 1024", "mean 4")
}

// TestTensordotOfAll: what is summed up whole is no matrix product since 2.8.
func TestTensordotOfAll(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: [8, 16]}
  layers:
    - {Linear: 16, name: h}
    - {transpose: [x, 1, %d], name: p}
    - {transpose: [h, 1, %d], name: q}
    - {tensordot: [q, p, 3], name: z}
  loss: mean
train: {batch_size: 4}
`
	for torch, want := range map[string][2][]string{
		"2.7": {{"mm 4", "mean 4"}, {"clone 2048", "clone 2048", "mm 4", "mean 4"}},
		"2.8": {{"dot 4", "mean 4"}, {"mul 2048", "sum 4", "mean 4"}},
	} {
		for i, with := range []int{1, 2} {
			got := allocated(t, fmt.Sprintf(text, with, with), "", trace.Forward, "torch="+torch)
			same(t, torch, got[3:], want[i]...)
		}
	}
}

// TestTopkBuffers: of 400 rows of 65,536 elements, ranks and bits are there twice since 2.9.
func TestTopkBuffers(t *testing.T) {
	const text = `memplan: 1
device: {gpu: a100-80gb}
model:
  inputs: {x: [32]}
  layers:
    - {Linear: 65536, name: h}
    - {topk: [h, 8], pick: 0}
  loss: mean
train: {batch_size: 400}
`
	old, now := allocated(t, text, "", trace.Forward, "torch=2.8"), allocated(t, text, "", trace.Forward, "torch=2.9")
	same(t, "2.8", old[5:9], "topk 1600", "topk 1600", "topk 1600", "topk 1600")
	same(t, "2.9", now[5:9], "topk 1600", "topk 1600", "topk 3200", "topk 3200")
}

// TestRecordedRMSNorm: a gradient through the kernel that is differentiated again is made of
// operators, as PyTorch 2.14 was seen to make it.
func TestRecordedRMSNorm(t *testing.T) {
	const text = `memplan: 1
model: {inputs: {x: [6, 8]}, layers: [{RMSNorm: 8}]}
train: {batch_size: 4, precision: %s}
step:
  - zero_grad
  - {requires_grad_: x, name: v}
  - {sum: [{forward: {inputs: v}}], name: s}
  - {grad: {outputs: s, inputs: v, create_graph: true}, pick: 0, name: g}
  - {sum: [{mul: [g, g]}], name: loss}
  - backward: loss
`
	for precision, want := range map[string][]string{
		"fp32": {
			"pow 96", "mul 768", "mul 768", "sum 96", "mul 768", "div 768", "mul 768", "mul 768", "sub 768",
			"ones_like 4", "mul.Tensor 768", "mul.Tensor 768", "SubBackward0 768", "mul.Tensor 768", "mul.Tensor 768", "sum 96", "mul.Tensor 768", "mul.Tensor 768", "sum 96",
			"mul.Scalar 768", "mul.Tensor 768", "mul.Tensor 768", "sum 96", "mul.Tensor 768", "mul.Tensor 768", "mul.Tensor 768", "sum 32", "PowBackward0 96", "mul.Scalar 96", "mul.Tensor 96",
			"pow 96", "mul 768", "div 768", "neg 768", "mul 768", // of the number for each row
		},
		"bf16": {
			"pow 96", "mul 384", "mul 384", "sum 48", "mul 768", "div 768", "mul 768", "mul 768", "sub 768", "_to_copy 384",
			"ones_like 2", "mul.Tensor 384", "mul.Tensor 384", "_to_copy 768", "SubBackward0 768", "mul.Tensor 768", "mul.Tensor 768", "sum 96", "_to_copy 384", "mul.Tensor 768", "mul.Tensor 768", "sum 96", "_to_copy 48",
			"mul.Scalar 768", "mul.Tensor 768", "mul.Tensor 768", "_to_copy 384", "sum 96", "mul.Tensor 384", "mul.Tensor 384", "mul.Tensor 384", "sum 16", "PowBackward0 96", "mul.Scalar 96", "mul.Tensor 96",
			"pow 96", "mul 768", "div 768", "neg 768", "mul 768", "_to_copy 384",
		},
	} {
		same(t, precision, allocated(t, fmt.Sprintf(text, precision), "", trace.Backward, "torch=2.14"), want...)
	}
}

// TestFSDPReleases: since 2.8 the root frees what it gathered if it is told to; since 2.9 one
// rank copies its parameters without a buffer.
func TestFSDPReleases(t *testing.T) {
	const text = `memplan: 1
device: {gpu: a100-80gb}
model: {inputs: {x: [256]}, layers: [{Linear: {out_features: 256, bias: false}}, {Linear: {out_features: 1024, bias: false}}], loss: mean}
parallel: {fsdp: %d, modules: [layers.0]%s}
train: {batch_size: 4}
`
	gathered := func(ranks int, said, torch string) (n int) {
		for _, e := range append(allocated(t, fmt.Sprintf(text, ranks, said), "", trace.Forward, "torch="+torch), allocated(t, fmt.Sprintf(text, ranks, said), "", trace.Backward, "torch="+torch)...) {
			if strings.HasSuffix(e, " 1048576") {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		ranks       int
		said, torch string
		want        int
	}{
		{2, "", "2.14", 4}, {2, ", reshard_after_forward: true", "2.7", 4}, {2, ", reshard_after_forward: true", "2.8", 6},
		{2, ", reshard_after_forward: true, reshard_last: true", "2.8", 4},
		{1, "", "2.8", 5}, {1, "", "2.9", 4},
	} {
		if got := gathered(c.ranks, c.said, c.torch); got != c.want {
			t.Errorf("%+v: %d blocks of the root's weight", c, got)
		}
	}
}

// TestTensorParallelReleases: distribute_tensor copies no state of random numbers since 2.7, and the first fake tensor takes
// none of one element since 2.12. Norms of parts are added before the norm of all since 2.9.
func TestTensorParallelReleases(t *testing.T) {
	const text = `memplan: 1
model:
  inputs: {x: [16, 96]}
  layers:
    - {LayerNorm: {normalized_shape: 96, bias: false}, name: h, module: norm}
    - {Linear: {out_features: 64, bias: false}, module: up}
    - {Linear: {out_features: 96, bias: false}, module: down}
  loss: mean
train: {batch_size: 4, precision: amp-bf16, clip_grad_norm: 1.0}
parallel:
  tp: 2
  plan: {norm: sequence, up: {colwise: {input_layouts: shard(1)}}, down: rowwise}
`
	for _, c := range []struct {
		torch                  string
		seeds, fakes           int
		scalars, parts, weight int // what the clipping allocates, of 4, 12 and 384 bytes
		before                 int // scalars before the gradient of 384 bytes is added over the ranks
	}{{"2.6", 1, 1, 11, 2, 1, 11}, {"2.7", 0, 1, 11, 2, 1, 11}, {"2.9", 0, 1, 9, 5, 1, 0}, {"2.12", 0, 0, 9, 5, 1, 0}} {
		before := 0
		o, _ := estimateText(t, text, "torch="+c.torch)
		sizes := map[trace.Phase]map[tensor.Bytes]int{trace.Setup: {}, trace.Backward: {}, trace.Clip: {}}
		for _, e := range o.Played.Trace.Events {
			if n := sizes[e.Phase]; n != nil && e.Kind == trace.Alloc && e.Step <= 1 {
				n[e.Bytes]++
				if e.Phase == trace.Clip && e.Bytes == 384 {
					before = n[4]
				}
			}
		}
		setup, backward, clip := sizes[trace.Setup], sizes[trace.Backward], sizes[trace.Clip]
		if setup[16] != c.seeds || backward[4] != c.fakes || clip[4] != c.scalars || clip[12] != c.parts || clip[384] != c.weight || before != c.before {
			t.Errorf("%s: setup %v, backward %v, clip %v, %d before the sum", c.torch, setup, backward, clip, before)
		}
	}
}
