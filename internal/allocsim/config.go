package allocsim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Config holds the options of the allocator, as PYTORCH_CUDA_ALLOC_CONF sets
// them. The zero Config is PyTorch's default.
type Config struct {
	// MaxSplitSize is max_split_size_mb: larger free blocks are never split,
	// and serve only requests of about their size. Zero means no limit.
	MaxSplitSize tensor.Bytes
	// MaxNonSplitRounding is max_non_split_rounding_mb: how much larger than the
	// request an unsplittable block may be. Zero means LargeSegmentSize.
	MaxNonSplitRounding tensor.Bytes
	// RoundupPower2Divisions is roundup_power2_divisions: into how many parts the
	// span between two powers of two is divided, for sizes below 2 MiB, below 4
	// MiB, ..., from 32 GiB. 0 and 1 mean multiples of 512 bytes.
	RoundupPower2Divisions [numIntervals]int
	// GarbageCollectionThreshold is garbage_collection_threshold: the part of the
	// memory limit from which unused blocks are freed before the limit is hit.
	// Zero means never; it also takes a memory fraction to have effect.
	GarbageCollectionThreshold float64
	// ExpandableSegments is expandable_segments.
	ExpandableSegments bool
	// LargeSegmentSize is large_segment_size_mb: the segment from which requests
	// of 1 to 10 MiB are cut. Zero means 20 MiB.
	LargeSegmentSize tensor.Bytes
	// MemoryFraction is per_process_memory_fraction; nil means no limit.
	MemoryFraction *float64
	// NotModelled lists the options that were given, are valid and have no effect
	// on the device memory that this package models, in the order given.
	NotModelled []string
}

// withDefaults returns c with the sizes that zero stands for filled in.
func (c Config) withDefaults() Config {
	if c.LargeSegmentSize == 0 {
		c.LargeSegmentSize = largeBuffer
	}
	if c.MaxNonSplitRounding == 0 {
		c.MaxNonSplitRounding = c.LargeSegmentSize
	}
	if c.MaxSplitSize == 0 {
		c.MaxSplitSize = noSplitLimit
	}
	return c
}

// noSplitLimit stands for the SIZE_MAX that max_split_size is by default: no
// block reaches it.
const noSplitLimit tensor.Bytes = 1 << 62

// String returns the options that differ from PyTorch's defaults, in
// PYTORCH_CUDA_ALLOC_CONF syntax and in the order of the table of options.
// ParseConfig of the result gives c again, less what is not modelled.
func (c Config) String() string {
	var opts []string
	add := func(name, value string) { opts = append(opts, name+":"+value) }
	mib := func(b tensor.Bytes) string { return strconv.FormatInt(int64(b/tensor.MiB), 10) }
	float := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	if c.MaxSplitSize != 0 {
		add("max_split_size_mb", mib(c.MaxSplitSize))
	}
	if c.MaxNonSplitRounding != 0 {
		add("max_non_split_rounding_mb", mib(c.MaxNonSplitRounding))
	}
	if d := c.RoundupPower2Divisions; d != [numIntervals]int{} {
		add("roundup_power2_divisions", divisionsString(d[:]))
	}
	if c.GarbageCollectionThreshold != 0 {
		add("garbage_collection_threshold", float(c.GarbageCollectionThreshold))
	}
	if c.ExpandableSegments {
		add("expandable_segments", "True")
	}
	if c.LargeSegmentSize != 0 {
		add("large_segment_size_mb", mib(c.LargeSegmentSize))
	}
	if c.MemoryFraction != nil {
		add("per_process_memory_fraction", float(*c.MemoryFraction))
	}
	return strings.Join(opts, ",")
}

// divisionsString prints the scalar form where it can, otherwise a list that
// names every interval.
func divisionsString(d []int) string {
	if !slices.ContainsFunc(d, func(v int) bool { return v != d[0] }) {
		return strconv.Itoa(d[0])
	}
	var list []string
	for i, v := range d {
		list = append(list, fmt.Sprintf("%d:%d", 1<<i, v))
	}
	return "[" + strings.Join(list, ",") + "]"
}
