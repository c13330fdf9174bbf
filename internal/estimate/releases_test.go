package estimate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/optim"
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
// not take stays a composition.
func TestFusedRMSNorm(t *testing.T) {
	bf16, amp := fmt.Sprintf(rmsNorm, "bf16"), fmt.Sprintf(rmsNorm, "amp-bf16")
	same(t, "2.9", allocated(t, bf16, "layers.1", trace.Forward, "torch=2.9"), "_fused_rms_norm 16384", "_fused_rms_norm 1024")
	same(t, "2.9, backward", allocated(t, bf16, "layers.1", trace.Backward, "torch=2.9"), "FusedRmsNormBackward0 16384", "FusedRmsNormBackward0 64")
	parts := []string{"_to_copy 32768", "pow 32768", "mean 1024", "rsqrt 1024", "mul 32768"}
	same(t, "2.8", allocated(t, bf16, "layers.1", trace.Forward, "torch=2.8"), append(slices.Clone(parts), "_to_copy 16384", "mul 16384")...)
	same(t, "2.9, with a float32 weight", allocated(t, amp, "layers.1", trace.Forward, "torch=2.9"), append(slices.Clone(parts), "mul 32768", "_to_copy 16384")...)
	same(t, "2.8, with a float32 weight", allocated(t, amp, "layers.1", trace.Forward, "torch=2.8"), append(slices.Clone(parts), "_to_copy 16384", "mul 32768")...)
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
