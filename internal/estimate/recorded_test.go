package estimate

import (
	"os"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/record"
	"github.com/memplan/memplan/internal/spec"
)

// recordings reads a file of testdata.
func recordings(t *testing.T, name string) []*record.Recording {
	t.Helper()
	data, err := os.ReadFile(needs.File(t, "record", name))
	if err != nil {
		t.Fatal(err)
	}
	all, err := record.Read(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func recordedOutcome(t *testing.T, all []*record.Recording, keys ...Key) *Outcome {
	t.Helper()
	r, err := NewRecordings(all)
	if err != nil {
		t.Fatal(err)
	}
	recipe := &Recipe{Path: "net.rec.gz", Text: r.Text("net.rec.gz"), Recorded: r, Options: spec.Options{}}
	j, err := recipe.Job(keys...)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestRecordedBatch derives the size of a batch that was recorded from three others.
func TestRecordedBatch(t *testing.T) {
	all := recordings(t, "net_batches.rec.gz")
	if len(all) != 4 {
		t.Fatalf("%d recordings", len(all))
	}
	for i, left := range all {
		var others []*record.Recording
		for k, r := range all {
			if k != i {
				others = append(others, r)
			}
		}
		size := Key{"train.batch_size", map[int64]string{8: "8", 16: "16", 32: "32", 64: "64"}[batch(left)]}
		for _, gpu := range []Key{{"device.gpu", "rtx-3060"}, {"device.gpu", "h100-80gb"}} {
			want, got := recordedOutcome(t, []*record.Recording{left}, gpu).Report(), recordedOutcome(t, others, size, gpu).Report()
			if got.Peak.AllocatedBytes != want.Peak.AllocatedBytes || got.Peak.ReservedBytes != want.Peak.ReservedBytes {
				t.Errorf("%s of batch %s: %v allocated, %v reserved, recorded %v and %v", gpu.Value, size.Value, got.Peak.AllocatedBytes, got.Peak.ReservedBytes, want.Peak.AllocatedBytes, want.Peak.ReservedBytes)
			}
			if got.AtPeak != want.AtPeak || got.Totals != want.Totals {
				t.Errorf("%s of batch %s: %+v, recorded %+v", gpu.Value, size.Value, got.AtPeak, want.AtPeak)
			}
		}
	}
}

// TestRecordedSteps says of steps that are alike that they are.
func TestRecordedSteps(t *testing.T) {
	o := recordedOutcome(t, recordings(t, "mlp.rec.gz"))
	if o.Played.Steady != 2 || len(o.Played.Loops) != 1 || o.OnGPU.Turns == 0 {
		t.Errorf("steady from step %d, %d loops, %d turns", o.Played.Steady, len(o.Played.Loops), o.OnGPU.Turns)
	}
}
