package lengths

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Samples{
		"12\n7\n":              {12, 7},
		"# tokens\n512 2\n3,1": {512, 512, 3},
		"5\t0\r\n 9 \r\n":      {9},
	} {
		if got, err := Parse([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                     "line 1: there are no lengths",
		"4\n\nx":               `line 3: "x" is no length; allowed are whole numbers from 1`,
		"0":                    `line 1: "0" is no length; allowed are whole numbers from 1`,
		"1 2 3":                "line 1: has 3 numbers; allowed are a length, or a length and how many samples have it",
		"8 -1":                 `line 1: "-1" is no number of samples; allowed are whole numbers from 0`,
		"8 4194305":            "line 1: more than 4194304 samples; a histogram with smaller numbers has the same shape",
		"99999999999":          `line 1: "99999999999" is no length; allowed are whole numbers from 1`,
		"3 1\n4 2 # ok\n5 0.5": `line 3: "0.5" is no number of samples; allowed are whole numbers from 0`,
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func TestPad(t *testing.T) {
	for _, c := range []struct {
		c          Collator
		from, want int64
	}{{Collator{}, 13, 13}, {Collator{Multiple: 8}, 13, 16}, {Collator{Max: 10}, 13, 10}, {Collator{Max: 10, Multiple: 8}, 13, 16}, {Collator{Multiple: 8}, 16, 16}} {
		if got := c.c.Pad(c.from); got != c.want {
			t.Errorf("%+v of %d: %d, want %d", c.c, c.from, got, c.want)
		}
	}
}

// TestSampler: an epoch has each sample once, the next one again, in another order; the
// seed decides which.
func TestSampler(t *testing.T) {
	samples := make(Samples, 1000)
	for i := range samples {
		samples[i] = int32(i + 1)
	}
	draw := func(seed uint64) []int64 {
		s := NewSampler(samples, seed)
		var out []int64
		for range 2000 {
			out = append(out, s.Next())
		}
		return out
	}
	a := draw(1)
	if !slices.Equal(a, draw(1)) || slices.Equal(a, draw(2)) {
		t.Error("the seed does not decide the order")
	}
	for _, epoch := range [][]int64{a[:1000], a[1000:]} {
		if slices.IsSorted(epoch) {
			t.Error("an epoch is not shuffled")
		}
		sorted := slices.Sorted(slices.Values(epoch))
		for i, v := range sorted {
			if v != int64(i+1) {
				t.Fatalf("an epoch has %d in the place of %d", v, i+1)
			}
		}
	}
}

// TestGrouped: groups are sorted, the longest sample of all comes first, and batches
// differ less than those that are not grouped.
func TestGrouped(t *testing.T) {
	samples := make(Samples, 4000)
	for i := range samples {
		samples[i] = int32(i + 1)
	}
	padding := func(grouped bool) (sum int64) {
		s := NewSampler(samples, 7)
		s.Batch, s.Grouped = 8, grouped
		for i := range 500 {
			n := s.Next()
			if i == 0 && grouped && n != 4000 {
				t.Errorf("the first batch is as long as %d, not as the longest sample", n)
			}
			sum += n * 8
		}
		return sum - 4000*4001/2
	}
	if g, r := padding(true), padding(false); g*10 > r {
		t.Errorf("padding %d grouped, %d at random", g, r)
	}
}
