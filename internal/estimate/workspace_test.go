package estimate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// convSpec is a job with one convolution of 8 channels, 2 x 8 x 10 x 10 in
// float32 before and 2 x out x 10 x 10 after it, behind a pointwise one.
const convSpec = `
memplan: 1
model:
  inputs:
    x: {shape: [8, 10, 10]}
    y: {shape: [], dtype: int64}
  layers:
    - Conv2d: {out_channels: 8, kernel_size: 1}
    - %s
    - AdaptiveAvgPool2d: 1
    - Flatten
  loss: {cross_entropy: {target: y}}
train: {batch_size: 2}
device: {gpu: rtx-3060}
`

// workspacesOf are the sizes of a step's workspaces, in order.
func workspacesOf(o *Outcome) []tensor.Bytes {
	var out []tensor.Bytes
	for _, i := range o.Played.Workspaces.Events {
		if e := &o.Played.Trace.Events[i]; e.Step == 1 {
			out = append(out, e.Bytes)
		}
	}
	return out
}

func TestConvWorkspaces(t *testing.T) {
	const (
		x = 2 * 8 * 10 * 10 * 4  // images of 8 channels
		y = 2 * 16 * 10 * 10 * 4 // of 16
		w = 16 * 8 * 9 * 4       // a filter of 3 x 3
	)
	const first = 2*x + 8*8*4 // of the pointwise one
	of := func(w tensor.Bytes) []tensor.Bytes {
		return []tensor.Bytes{first, x + w + y, x + w + y, x + w + y, first}
	}
	for _, c := range []struct {
		name, layer string
		set         []string
		want        []tensor.Bytes // forward, gradients of images and filter
	}{
		{"dense", "Conv2d: {out_channels: 16, kernel_size: 3, padding: 1}", nil, of(w)},
		{"pointwise", "Conv2d: {out_channels: 16, kernel_size: 1}", nil, of(w / 9)},
		{"grouped", "Conv2d: {out_channels: 16, kernel_size: 3, padding: 1, groups: 2}", nil, of(w / 2)},
		{"depthwise", "Conv2d: {out_channels: 16, kernel_size: 3, padding: 1, groups: 8}", nil, []tensor.Bytes{first, first}},
		{"transposed", "ConvTranspose2d: {out_channels: 16, kernel_size: 3, padding: 1}", nil, of(w)},
		{"without tensor cores", "Conv2d: {out_channels: 16, kernel_size: 3, padding: 1}", []string{"device.gpu=t4"}, nil},
		{"of a given size", "Conv2d: {out_channels: 16, kernel_size: 1}", []string{"device.cudnn_workspace=5KiB"}, []tensor.Bytes{5120, 5120, 5120, 5120, 5120}},
		{"none", "Conv2d: {out_channels: 16, kernel_size: 3, padding: 1}", []string{"device.cudnn_workspace=none"}, nil},
	} {
		o, r := estimateText(t, fmt.Sprintf(convSpec, c.layer), append([]string{"device.cudnn_workspace=model"}, c.set...)...)
		if got := workspacesOf(o); !slices.Equal(got, c.want) {
			t.Errorf("%s: workspaces of %v, want %v", c.name, got, c.want)
		}
		if u := r.Uncertainty; u.CudnnWorkspaceBytes < first || c.want != nil && u.CudnnWorkspaceExpectedBytes != slices.Max(c.want) {
			t.Errorf("%s: %v is counted and %v possible", c.name, u.CudnnWorkspaceExpectedBytes, u.CudnnWorkspaceBytes)
		}
	}
}

// TestWorkspaceIsTransient: a workspace is a block of its own category that
// nothing comes between.
func TestWorkspaceIsTransient(t *testing.T) {
	o, _ := estimateText(t, fmt.Sprintf(convSpec, "Conv2d: {out_channels: 16, kernel_size: 3}"))
	tr := o.Played.Trace
	for _, i := range o.Played.Workspaces.Events {
		a, f := tr.Events[i], tr.Events[i+1]
		if a.Kind != trace.Alloc || f.Kind != trace.Free || a.ID != f.ID || tr.Categories[a.ID] != trace.Workspace {
			t.Errorf("events %d and %d are %+v and %+v", i, i+1, a, f)
		}
	}
}

// TestWorkspaceMayFail: on a device on which workspaces alone do not fit, the
// job runs with other plans.
func TestWorkspaceMayFail(t *testing.T) {
	text := fmt.Sprintf(convSpec, "Conv2d: {out_channels: 16, kernel_size: 3}")
	o, r := estimateText(t, text, "device.cudnn_workspace=20GiB")
	if !r.Verdict.Fits || len(o.OnGPU.OOMs) > 0 {
		t.Errorf("verdict %s: %s", r.Verdict.Result, r.Verdict.Reason)
	}
	if r.Peak.ReservedBytes < 20*tensor.GiB || r.Peak.ReservedBareBytes > tensor.GiB {
		t.Errorf("%v are reserved, %v without workspaces", r.Peak.ReservedBytes, r.Peak.ReservedBareBytes)
	}
}

// TestReservedInterval: what the interval is with each choice.
func TestReservedInterval(t *testing.T) {
	text := fmt.Sprintf(convSpec, "Conv2d: {out_channels: 16, kernel_size: 3}")
	for _, c := range []struct {
		set            string
		below, reaches bool // the interval begins below and ends above the peak
	}{
		{"device.cudnn_workspace=model", true, true},
		{"device.cudnn_workspace=none", true, true},
		{"device.cudnn_workspace=1GiB", true, false},
	} {
		_, r := estimateText(t, text, c.set)
		u, p := r.Uncertainty, r.Peak.ReservedBytes
		if (u.ReservedLowBytes < p) != c.below || (u.ReservedHighBytes > p) != c.reaches {
			t.Errorf("%s: %v lies between %v and %v", c.set, p, u.ReservedLowBytes, u.ReservedHighBytes)
		}
	}
	_, r := estimateText(t, "memplan: 1\nmodel: {preset: mlp}\n")
	if u := r.Uncertainty; u.ReservedLowBytes != r.Peak.ReservedBytes || u.ReservedHighBytes != r.Peak.ReservedBytes {
		t.Errorf("without convolutions %v lies between %v and %v", r.Peak.ReservedBytes, u.ReservedLowBytes, u.ReservedHighBytes)
	}
}
