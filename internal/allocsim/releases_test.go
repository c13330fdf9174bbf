package allocsim

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/torchver"
)

// TestReleases: an option is refused in the release before the one that has it, and sizes
// of 20 MiB are allowed since 2.10.
func TestReleases(t *testing.T) {
	values := map[string]string{
		"per_process_memory_fraction": "0.5", "large_segment_size_mb": "40", "pinned_reserve_segment_size_mb": "40", "pinned_max_round_threshold_mb": "64",
		"pinned_max_cached_size_mb": "64", "throw_on_cudamalloc_oom": "False", "expandable_segments_reserve": "0.5", "expandable_segments_reserve_by_class": "[a:0.5]",
	}
	for _, o := range options {
		since, source := torchver.AllocatorOptionSince(o.name)
		if source == "" {
			continue
		}
		value, ok := values[o.name]
		if !ok {
			value = "True"
		}
		if _, err := ParseConfig(o.name+":"+value, since); err != nil {
			t.Errorf("%s in %v: %v", o.name, since, err)
		}
		since.Minor--
		if _, err := ParseConfig(o.name+":"+value, since); err == nil || !strings.Contains(err.Error(), "came with PyTorch") {
			t.Errorf("%s in %v: %v", o.name, since, err)
		}
	}
	for _, name := range []string{"max_split_size_mb:20", "max_non_split_rounding_mb:20"} {
		_, before := ParseConfig(name, torchver.Version{Major: 2, Minor: 9})
		if _, err := ParseConfig(name, torchver.Version{Major: 2, Minor: 10}); err != nil || before == nil {
			t.Errorf("%s: 2.9 %v, 2.10 %v", name, before, err)
		}
	}
}
