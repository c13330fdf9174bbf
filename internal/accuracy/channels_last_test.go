package accuracy

import (
	"fmt"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// TestChannelsLast holds the peaks of CNNs in both formats against those that PyTorch's
// allocator had; the loss of the recorded script is not known.
func TestChannelsLast(t *testing.T) {
	needs.Time(t, needs.Alone)
	presets := map[string]string{
		"resnet50": "resnet, with: {depth: 50}", "vgg11": "vgg, with: {depth: 11}", "mobilenet_v2": "mobilenet_v2", "densenet121": "densenet",
		"efficientnet_b0": "efficientnet", "convnext_tiny": "convnext", "mnasnet1_0": "mnasnet",
	}
	precisions := map[string]string{"fp32": "fp32", "amp": "amp-bf16", "bf16": "bf16"}
	rows := needs.Rows(t, "measured", "channels_last.csv")
	if len(rows) != 21 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		for i, last := range []bool{false, true} {
			text := fmt.Sprintf("memplan: 1\nmodel: {preset: %s}\ntrain: {batch_size: 16, precision: %s, channels_last: %v, optimizer: {SGD: {momentum: 0.9}}}\n",
				presets[row[0]], precisions[row[1]], last)
			p, err := predict("cnn", text, ArchEnv("sm90"), 3, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := allocsim.Replay(p.events, allocsim.ReplayOptions{Config: p.conf})
			if err != nil {
				t.Fatal(err)
			}
			var recorded tensor.Bytes
			if _, err := fmt.Sscan(row[2+2*i], &recorded); err != nil {
				t.Fatal(err)
			}
			if off := math.Abs(Percent(res.PeakAllocated.Allocated, recorded)); off > 0.5 {
				t.Errorf("%s %s, channels last %v: the peak is off by %.2f %%", row[0], row[1], last, off)
			}
		}
	}
}
