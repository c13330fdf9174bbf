// Package cub says how much scratch algorithms of CUB, NVIDIA's library of parallel
// primitives, ask for: pure functions of how many items there are, how large they are and
// of the architecture. It knows nothing of operators or tensors.
//
// The formulas are those of CUB's dispatch layer. How many items a tile of a kernel has is
// chosen by the architecture; the tables were recorded with CUDA 12.4 on sm_70 to sm_90,
// and later architectures are taken to be as sm_90.
package cub

// Each temporary is aligned to 256 bytes, and so is their sum, by 255 spare bytes. An
// algorithm that needs nothing asks for 1 byte.
const (
	align = 256
	spare = 255
	empty = 1
)

const digitBits = 8 // of a key that one pass of a radix sort looks at

// padding is how many tile states a scan or a selection has before the first.
const padding = 32

// Tiles are how many bytes a word has and, for items of one word, how many of them
// one block sorts and the tiles of the kernels that sort and scan, in items.
type Tiles struct{ word, oneBlock, sort, uniqueByKey, scan int64 }

// Words64 are the tiles for words of 8 bytes.
func Words64(arch int) Tiles {
	switch {
	case arch < 80:
		return Tiles{8, 2304, 2816, 640, 896}
	case arch < 90:
		return Tiles{8, 2304, 3840, 640, 896}
	}
	return Tiles{8, 2304, 4608, 8960, 896}
}

// Words32 are the tiles for words of 4 bytes.
func Words32(arch int) Tiles {
	switch {
	case arch < 80:
		return Tiles{4, 4864, 11776, 704, 1920}
	case arch < 90:
		return Tiles{4, 4864, 6528, 704, 1920}
	}
	return Tiles{4, 4864, 6528, 7168, 1920}
}

// RadixSort is the scratch of DeviceRadixSort::SortPairs over n pairs of a word as
// key and one as value.
func (t Tiles) RadixSort(n int64) int64 { return t.pairs(n, t.word, t.word*digitBits) }

// SortBits is that of a sort of which so many bits of the keys count.
func (t Tiles) SortBits(n, bits int64) int64 { return t.pairs(n, t.word, bits) }

// pairs is the scratch of DeviceRadixSort::SortPairs over n pairs of a key and a word,
// of whose keys so many bits are sorted: second buffers for keys and values unless one
// pass does, a histogram of each pass, a counter, and the lookback of each tile. What
// fits one block needs none.
func (t Tiles) pairs(n, keySize, bits int64) int64 {
	const digits = 1 << digitBits
	if n <= t.oneBlock {
		return empty
	}
	passes := divUp(bits, digitBits)
	buffers := int64(0)
	if passes > 1 {
		buffers = roundUp(n*keySize) + roundUp(n*t.word)
	}
	return buffers + passes*digits*8 + align + divUp(n, t.sort)*digits*4 + spare
}

// SortPositions is the scratch of DeviceRadixSort::SortPairs over n keys and their
// positions, of 8 bytes, all bits of the keys being sorted.
func SortPositions(arch int, n, keySize int64) int64 {
	t := Words64(arch)
	if keySize == 4 {
		t.sort = mixedSort(arch)
	}
	return t.pairs(n, keySize, keySize*digitBits)
}

// mixedSort is the tile of a sort of 4-byte keys with 8-byte values.
func mixedSort(arch int) int64 {
	switch {
	case arch < 80:
		return 2816
	case arch < 90:
		return 3072
	}
	return 5376
}

// UniqueByKey is the scratch of DeviceSelect::UniqueByKey.
func (t Tiles) UniqueByKey(n int64) int64 {
	return roundUp(divUp(n, t.uniqueByKey)*2*t.word) + align + spare
}

// Scan is the scratch of DeviceScan over n words.
func (t Tiles) Scan(n int64) int64 {
	return roundUp((divUp(n, t.scan)+padding)*2*t.word) + spare
}

// halfScan is the tile of a scan of floating-point numbers of 2 bytes.
const halfScan = 3840

// ScanHalves is the scratch of DeviceScan over n floating-point numbers of 2 bytes.
// PyTorch's types are none of C++'s: a tile's status and its two sums lie in arrays of
// their own.
func ScanHalves(n int64) int64 {
	tiles := divUp(n, halfScan) + padding
	arrays := roundUp(tiles*4) + 2*roundUp(tiles*2) + spare
	return roundUp(arrays) + spare
}

// SumByKey is the scratch of DeviceScan::InclusiveSumByKey over n words of 4 bytes by keys of
// 4 bytes: the state of each tile, and the last key of each.
func SumByKey(arch int, n int64) int64 {
	const state, key = 16, 4
	tile := int64(2304)
	if arch >= 90 {
		tile = 4032
	}
	tiles := divUp(n, tile)
	return roundUp((tiles+padding)*state) + roundUp(tiles*key) + spare
}

// Sum is the scratch of DeviceReduce::Sum over n bools on a device with so many
// multiprocessors: nothing in one tile, else a partial sum of each block.
func Sum(sms int, n int64) int64 {
	const tile, blocks, partial = 4096, 10, 4 // blocks of a multiprocessor, bytes of a sum
	if n <= tile {
		return empty
	}
	return roundUp(int64(sms)*blocks*partial) + spare
}

// Flagged is the scratch of DeviceSelect::Flagged over n items.
func Flagged(arch int, n int64) int64 {
	tile := int64(640)
	switch {
	case arch >= 90:
		tile = 4224
	case arch == 80:
		tile = 2304
	}
	return selection(n, tile)
}

// Unique is the scratch of DeviceSelect::Unique over n words of so many bytes.
func Unique(arch int, word, n int64) int64 {
	long, short := int64(640), int64(1280)
	switch {
	case arch >= 90:
		long, short = 4224, 6528
	case arch == 80:
		long, short = 1920, 4608
	}
	if word == 4 {
		return selection(n, short)
	}
	return selection(n, long)
}

// selection is what the selections of n items need: 8 bytes a tile.
func selection(n, tile int64) int64 {
	const state = 8
	return roundUp((divUp(n, tile)+padding)*state) + spare
}

func divUp(a, b int64) int64 { return (a + b - 1) / b }

func roundUp(n int64) int64 { return divUp(n, align) * align }
