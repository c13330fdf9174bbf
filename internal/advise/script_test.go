package advise

import (
	"bytes"
	"slices"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/exporttorch"
)

// Each change is in the script that PyTorch is given, so that memplan run --backend torch
// confirms it.
func TestChangesInScript(t *testing.T) {
	script := func(j *estimate.Job) string {
		var b bytes.Buffer
		if err := exporttorch.Write(&b, j.Program, exporttorch.Options{AllocConf: j.Machine.ConfText, MemoryFraction: j.Machine.Fraction}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	seen := map[string]bool{}
	for _, c := range append(slices.Clone(jobs), []struct{ preset, gpu, keys string }{
		{"gpt", "t4", "data.device_prefetch=true train.ema={decay: 0.9} eval={batch_size: 64}"},
		{"gpt", "t4", "parallel.ddp=4"},
		{"gpt", "t4", "mode=inference train.batch_size=64"},
	}...) {
		r := with(t, c.preset, append(words(c.keys), "device.gpu="+c.gpu)...)
		b := base(t, r)
		before := script(b.Job)
		for _, group := range b.options(All()) {
			for _, o := range group {
				if seen[o.Change.ID] {
					continue
				}
				seen[o.Change.ID] = true
				j, err := r.Job(b.combine([]*Option{o}).keys()...)
				if err != nil {
					t.Errorf("%s: %v", o.ID(), err)
				} else if script(j) == before {
					t.Errorf("%s %s: the script with %s is the script without it", c.preset, c.keys, o.ID())
				}
			}
		}
	}
	for _, c := range All() {
		if !seen[c.ID] {
			t.Errorf("no job has options of %s", c.ID)
		}
	}
}
