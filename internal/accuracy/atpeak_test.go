package accuracy

import (
	"path/filepath"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// TestAtPeak checks on every recorded run in scope and every recorded program
// that the breakdown of the peak sums exactly to it.
func TestAtPeak(t *testing.T) {
	needs.Time(t, needs.Alone)
	gpus := map[string]string{"sm70": "v100-32gb", "sm75": "t4", "sm80": "a100-40gb", "sm86": "rtx-3090", "sm89": "rtx-4090", "sm90": "h100-80gb"}
	type job struct{ text, gpu string }
	texts := map[string]job{}
	recs, err := Load(needs.File(t, "truth"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if ok, _ := r.InScope(); ok {
			texts["truth "+r.Name] = job{r.Spec(), gpus[r.Config.Arch]}
		}
	}
	files, err := filepath.Glob(needs.File(t, "fuzz", "*.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		cases, err := ReadFuzz(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			texts[f+" "+c.Name] = job{c.Spec, gpus[c.Arch]}
		}
	}
	if len(texts) < 50 {
		t.Fatalf("only %d specs", len(texts))
	}
	for name, c := range texts {
		s, err := spec.Parse("case.yaml", []byte(c.text), spec.Options{Flags: []spec.Flag{
			{Flag: "--steps", Path: "train.steps", Value: "2"}, {Flag: "--gpu", Path: "device.gpu", Value: c.gpu, Text: true}, {Flag: "--torch", Path: "torch", Value: torchver.Recorded.String(), Text: true},
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		j, err := estimate.NewJob(s, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		o, err := estimate.Run(j)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := o.Report()
		var sum tensor.Bytes
		for _, p := range r.AtPeak.Shares() {
			sum += p.Bytes
		}
		if sum != r.Peak.AllocatedBytes {
			t.Errorf("%s: the breakdown sums to %d, the peak is %d", name, int64(sum), int64(r.Peak.AllocatedBytes))
		}
	}
}
