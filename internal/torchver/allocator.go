package torchver

// AllocConf is the environment variable with the options of CUDA's allocator that
// every release reads, though 2.9 warns that it is deprecated.
const AllocConf = "PYTORCH_CUDA_ALLOC_CONF"

// AllocConfNew is its name for all kinds of devices, which messages of 2.9 advise
// already.
const AllocConfNew = "PYTORCH_ALLOC_CONF"

// AllocConfNewSince is the first release whose CUDA allocator reads AllocConfNew.
//
// CUDAAllocatorConfig of 2.9 reads the old name alone (issue 183387, of 2.9.1): its
// rebuild, PR 150312, which read both, was reverted by PR 161628 and landed again
// with PR 165135 (October 2025). If both are set, the old one counts.
var AllocConfNewSince = Version{2, 10}

// allocatorOptions lists the options of PYTORCH_CUDA_ALLOC_CONF that are
// younger than Oldest: the release line that first has the option, and the
// pull request that added it. The release is the first one branched after the
// pull request was merged, except where the source says otherwise.
var allocatorOptions = []struct {
	name   string
	since  Version
	source string
}{
	{"graph_capture_record_stream_reuse", Version{2, 9}, "PR 158352"},
	{"per_process_memory_fraction", Version{2, 10}, "PR 161035"},
	{"pinned_reserve_segment_size_mb", Version{2, 10}, "PR 164501"},
	{"large_segment_size_mb", Version{2, 11}, "PR 172056"},
	{"pinned_max_round_threshold_mb", Version{2, 12}, "PR 171662"},
	{"pinned_max_cached_size_mb", Version{2, 12}, "PR 171662"},
	{"throw_on_cudamalloc_oom", Version{2, 12}, "PR 179473"},
	{"expandable_segments_reserve", Version{2, 15}, "PR 192269"},
	{"expandable_segments_reserve_by_class", Version{2, 15}, "PR 192269"},
	{"pinned_free_catch_all", Version{2, 15}, "CUDAAllocatorConfig.cpp of mid-2026"},
}

// AllocatorOptionSince returns the first release that has the named option of
// PYTORCH_CUDA_ALLOC_CONF, and the pull request that added it. For options that
// Oldest has already, and for names that are no options at all, it returns
// Oldest and "".
func AllocatorOptionSince(name string) (since Version, source string) {
	for _, o := range allocatorOptions {
		if o.name == name {
			return o.since, o.source
		}
	}
	return Oldest, ""
}

// AllocatorSizesInclusive reports whether max_split_size_mb and
// max_non_split_rounding_mb may equal the size of a large segment (20 MiB).
// Before, they must exceed it.
//
// The bound became inclusive when CUDAAllocatorConfig was rebuilt on
// AcceleratorAllocatorConfig: PR 150312, reverted by PR 161628, landed again
// with PR 165135 (October 2025).
func (v Version) AllocatorSizesInclusive() bool { return v.AtLeast(Version{2, 10}) }
