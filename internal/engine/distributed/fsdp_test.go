package distributed

import "testing"

// TestSplitCopyTable counts by hand what split_with_sizes_copy packs: addresses of
// both sides, sizes and sums for each split, and a number for each block.
func TestSplitCopyTable(t *testing.T) {
	for _, c := range []struct {
		name   string
		sizes  []int64
		chunks int64
		want   int64
	}{
		// 1 + 1 + 8 + 1 + 8 + 1 blocks of 2048 bytes; 3 for each split, 7 sums
		{"a block of an MLP", []int64{64, 64, 16384, 256, 16384, 64}, 4, 20 + 3*6 + 7},
		// 1000 blocks in each of 8 chunks are 3 times what 108 multiprocessors run
		// twice over (3456): two chunks a block, two rounds in each: 500 blocks
		{"more than a device runs at once", []int64{2048 * 1000}, 8, 500 + 3 + 2},
		{"one element", []int64{4}, 1, 1 + 3 + 2},
	} {
		if got := splitCopyTable(c.sizes, c.chunks, 108, 2048); got != c.want {
			t.Errorf("%s: %d elements, want %d", c.name, got, c.want)
		}
	}
}

// TestChunkCatTable counts what _chunk_cat packs: addresses, two sums, three
// sizes for each tensor, and a number for each block.
func TestChunkCatTable(t *testing.T) {
	if got, want := chunkCatTable([]int64{64, 64, 16384, 256, 16384, 64}), int64(20+6+7+7+3*6); got != want {
		t.Errorf("%d elements, want %d", got, want)
	}
}
