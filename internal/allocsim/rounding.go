package allocsim

import (
	"math/bits"

	"github.com/memplan/memplan/internal/tensor"
)

// The constants of CUDACachingAllocator.cpp (2.6), under its names.
const (
	minBlockSize  = 512                   // kMinBlockSize: sizes are multiples of it
	smallSize     = tensor.MiB            // kSmallSize: rounded sizes up to it live in the small pool
	smallBuffer   = 2 * tensor.MiB        // kSmallBuffer: a segment of the small pool
	largeBuffer   = 20 * tensor.MiB       // kLargeBuffer: a segment for 1 to 10 MiB; large_segment_size_mb since 2.11
	minLargeAlloc = 10 * tensor.MiB       // kMinLargeAlloc: from here on a segment serves one request
	roundLarge    = 2 * tensor.MiB        // kRoundLarge: such segments are multiples of it
	oneExabyte    = tensor.Bytes(1) << 60 // requests from here on fail without a look at the device
	numIntervals  = 16                    // kRoundUpPowerOfTwoIntervals: 1 MiB to 64 GiB, by powers of two
)

// The two pools of a stream.
const (
	smallPool = iota
	largePool
	numPools
)

// poolFor returns the pool of a rounded size.
func poolFor(size tensor.Bytes) int {
	if size <= smallSize {
		return smallPool
	}
	return largePool
}

// roundSize returns the size of the block that serves a request of n > 0
// bytes, before any decision not to split: a multiple of 512, by way of
// roundup_power2_divisions where that is set for n.
func (c *Config) roundSize(n tensor.Bytes) tensor.Bytes {
	if n < minBlockSize {
		return minBlockSize
	}
	d := tensor.Bytes(c.RoundupPower2Divisions[interval(n)])
	if d > 1 && n > minBlockSize*d {
		return roundPower2Division(n, d)
	}
	return (n + minBlockSize - 1) &^ (minBlockSize - 1)
}

// interval returns the index of n in roundup_power2_divisions. Everything
// below 2 MiB shares the first interval, everything from 32 GiB the last.
func interval(n tensor.Bytes) int {
	return min(max(bits.Len64(uint64(n>>20))-1, 0), numIntervals-1)
}

// roundPower2Division divides the span from the power of two below n to the one
// above into d parts (a power of two) and rounds n up to the end of its part.
// Since n > 512·d, a part is at least 512 bytes.
func roundPower2Division(n, d tensor.Bytes) tensor.Bytes {
	floor := tensor.Bytes(1) << (bits.Len64(uint64(n)) - 1)
	part := floor / d
	return (n + part - 1) &^ (part - 1)
}

// Shown is what a message says that a request of n bytes tried to allocate.
func (c *Config) Shown(n tensor.Bytes) tensor.Bytes {
	d := c.withDefaults()
	return d.segmentSize(d.roundSize(n))
}

// segmentSize returns the bytes asked of cudaMalloc when no cached block can
// serve a rounded size. It is also what "Tried to allocate" prints.
func (c *Config) segmentSize(size tensor.Bytes) tensor.Bytes {
	switch {
	case size <= smallSize:
		return smallBuffer
	case size < minLargeAlloc:
		return c.LargeSegmentSize
	}
	return size.CeilTo(roundLarge)
}
