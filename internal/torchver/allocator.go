package torchver

import (
	"fmt"
)

// AllocConf is the environment variable with the options of CUDA's allocator that
// every release reads, though 2.9 warns that it is deprecated.
const AllocConf = "PYTORCH_CUDA_ALLOC_CONF"

// AllocConfNew is its name for all kinds of devices, which messages of 2.9 advise
// already.
const AllocConfNew = "PYTORCH_ALLOC_CONF"

var (
	// ReadsAllocConfNew: if both names are set, the old one counts.
	ReadsAllocConfNew = change(Change{
		Since: Version{2, 10}, Area: caching,
		What:   "`" + AllocConfNew + "` is read. 2.9.0 and 2.9.1 advise it and read the old name alone.",
		Source: "PR 165135 (October 2025), which lands PR 150312 again after PR 161628 had reverted it; issue 183387, of 2.9.1",
		Held:   "internal/oom TestFixesNameWhatIsRead",
	})
	// AllocatorSizesInclusive: max_split_size_mb and max_non_split_rounding_mb may
	// equal the size of a large segment.
	AllocatorSizesInclusive = change(Change{
		Since: Version{2, 10}, Area: caching,
		What:   "`max_split_size_mb` and `max_non_split_rounding_mb` may equal the size of a large segment (20 MiB); before, they must exceed it.",
		Source: "PR 165135: CUDAAllocatorConfig is built on AcceleratorAllocatorConfig",
		Held:   "internal/allocsim TestReleases",
	})
	_ = change(Change{
		Since: Version{2, 15}, Area: caching,
		What:   "`garbage_collection_threshold` needs a memory fraction below 1; before, any that was set.",
		Source: "CUDACachingAllocator.cpp of the main branch of mid-2026", Left: "A fraction of exactly 1 collects as before.",
	})
	_ = change(Change{
		Since: Version{2, 15}, Area: caching,
		What:   "Memory pools are asked before caches are released.",
		Source: "CUDACachingAllocator.cpp of the main branch of mid-2026", Left: "No spec can say a pool.",
	})
)

// An allocatorOption is an option of PYTORCH_CUDA_ALLOC_CONF that is younger than
// Oldest. The release is the first one branched after the pull request was
// merged, except where the source says otherwise.
type allocatorOption struct {
	name string
	*Change
}

func option(name string, since Version, source string) allocatorOption {
	return allocatorOption{name, change(Change{
		Since: since, Area: caching, What: fmt.Sprintf("Option `%s` of `%s`.", name, AllocConf), Source: source, Held: "internal/allocsim TestReleases",
	})}
}

var allocatorOptions = []allocatorOption{
	option("graph_capture_record_stream_reuse", Version{2, 9}, "PR 158352"),
	option("per_process_memory_fraction", Version{2, 10}, "PR 161035"),
	option("pinned_reserve_segment_size_mb", Version{2, 10}, "PR 164501"),
	option("large_segment_size_mb", Version{2, 11}, "PR 172056"),
	option("pinned_max_round_threshold_mb", Version{2, 12}, "PR 171662"),
	option("pinned_max_cached_size_mb", Version{2, 12}, "PR 171662"),
	option("throw_on_cudamalloc_oom", Version{2, 12}, "PR 179473"),
	option("pinned_free_catch_all", Version{2, 14}, "c10/cuda/CUDAAllocatorConfig.h of 2.14.1; a release after 2.9 may have it already"),
	option("expandable_segments_reserve", Version{2, 15}, "PR 192269"),
	option("expandable_segments_reserve_by_class", Version{2, 15}, "PR 192269"),
}

// AllocatorOptionSince returns the first release that has the named option of
// PYTORCH_CUDA_ALLOC_CONF, and the pull request that added it. For options that
// Oldest has already, and for names that are no options at all, it returns
// Oldest and "".
func AllocatorOptionSince(name string) (since Version, source string) {
	for _, o := range allocatorOptions {
		if o.name == name {
			return o.Since, o.Source
		}
	}
	return Oldest, ""
}
