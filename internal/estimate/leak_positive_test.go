package estimate

import (
	"testing"

	"github.com/memplan/memplan/internal/needs"
)

// TestLeakPositive holds that a leak leaves more than it found, also where the blocks that
// the allocator gives for it are smaller by chance.
func TestLeakPositive(t *testing.T) {
	needs.Time(t, needs.Alone)
	const text = "memplan: 1\nmodel: {preset: resnet}\ntrain: {batch_size: 4, optimizer: AdamW, keep: {of: out, in: outs, detach: true}}\ndevice: {gpu: a100-80gb}\n"
	o, r := estimateText(t, text)
	if l := r.Verdict.Leak; l == nil || l.Bytes < o.Played.Growth {
		t.Errorf("%+v, though live blocks grow by %v", l, o.Played.Growth)
	}
}
