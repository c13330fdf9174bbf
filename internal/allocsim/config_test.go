package allocsim

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// TestConfigString parses what String prints. The grammar itself is in
// testdata/notebooks/config.
func TestConfigString(t *testing.T) {
	forSeeds(t, 200, func(t *testing.T, r *rand.Rand) {
		c := randomConfig(r)
		got, err := ParseConfig(c.String(), torchver.Newest)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("ParseConfig(%q) = %+v, %v; want %+v", c, got, err, c)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{
		"", "max_split_size_mb:128", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],expandable_segments:True",
		"garbage_collection_threshold:0.8,", " backend : native ", "max_split_size_mb:128:", "a:[", "[]:,", "\xff:1",
		"expandable_segments_reserve_by_class:[a:0.5,b:40G]", "large_segment_size_mb:40,max_split_size_mb:30",
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, newest bool) {
		v := torchver.Recorded
		if newest {
			v = torchver.Newest
		}
		c, err := ParseConfig(s, v)
		if err != nil {
			var e *ConfigError
			if !errors.As(err, &e) || e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(s) || e.Error() == "" {
				t.Errorf("ParseConfig(%q): bad error %#v", s, err)
			}
			return
		}
		c.NotModelled = nil
		again, err := ParseConfig(c.String(), torchver.Newest)
		if err != nil || again.String() != c.String() {
			t.Errorf("ParseConfig(%q) prints as %q, which parses to %q, %v", s, c, again, err)
		}
		if _, err := New(c, NewVirtualDriver(0), Options{}); err != nil {
			t.Errorf("New(%q): %v", c, err)
		}
	})
}

// TestShown holds what messages say of requests: the segment that was asked for.
func TestShown(t *testing.T) {
	for _, c := range []struct{ asked, shown tensor.Bytes }{
		{4, 2 << 20}, {1 << 20, 2 << 20}, {1<<20 + 1, 20 << 20}, {8 << 20, 20 << 20}, {10 << 20, 10 << 20}, {73 << 20, 74 << 20},
	} {
		if got := new(Config).Shown(c.asked); got != c.shown {
			t.Errorf("%v: %v, want %v", c.asked, got, c.shown)
		}
	}
}
