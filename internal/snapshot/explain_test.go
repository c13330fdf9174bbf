package snapshot

import (
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// TestExplain holds the sums of explanations, and what the two recordings that ran out of memory say.
func TestExplain(t *testing.T) {
	all := readAll(t)
	for name, s := range all {
		for i := range s.Devices {
			x, err := s.Devices[i].Explain()
			if err != nil {
				t.Fatal(err)
			}
			var held, stuck tensor.Bytes
			for _, h := range x.Holders {
				held += h.Bytes
			}
			for _, f := range x.Stuck {
				stuck += f.Cached
			}
			if held != x.Allocated || x.Allocated+x.Cached.Bytes != x.Reserved || stuck != x.Cached.Bytes-x.Cached.Whole || x.Requested > x.Allocated {
				t.Errorf("%s: held %v, stuck %v of %+v", name, held, stuck, x)
			}
		}
	}
	for _, c := range []struct {
		name, where         string
		tried, free, cached tensor.Bytes // as PyTorch's messages say
		expandable          bool         // would have helped
	}{
		{"oom", "make.py:25 step: cross_entropy", 314 * tensor.MiB, 20 * tensor.MiB, 192_507_904, false}, // 183.59 MiB
		{"fragoom", "make.py:90 <module>", 332 * tensor.MiB, 188 * tensor.MiB, 356 * tensor.MiB, true},
	} {
		d := &all[c.name].Devices[0]
		x, err := d.Explain()
		if err != nil {
			t.Fatal(err)
		}
		f := x.Failure
		if f == nil || x.Moment != "oom" || f.Where.String() != c.where || f.Bytes.CeilTo(2*tensor.MiB) != c.tried || f.Free != c.free || x.Cached.Bytes != c.cached {
			t.Errorf("%s: %+v, cached %v", c.name, f, x.Cached.Bytes)
			continue
		}
		trials, err := d.Trials(Circumstances{Torch: torchver.Recorded}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !trials[0].OOM || trials[1].OOM || trials[1].Capacity <= f.Available || trials[2].Name != "expandable_segments:True" || trials[2].OOM == c.expandable {
			t.Errorf("%s: %+v", c.name, trials)
		}
	}
}
