package cub

import "testing"

// TestScratch holds what algorithms ask for, and where one needs nothing.
func TestScratch(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"a sort in one block", Words64(80).RadixSort(2304), 1},
		{"a sort of 4096 indices", Words64(80).RadixSort(4096), 84479},
		{"the same of 4 bytes", Words32(80).RadixSort(8192), 76287},
		{"a sort by 10 bits", Words64(80).SortBits(4096, 10), 72191},
		{"one pass", Words64(80).SortBits(4096, 8), 4607},
		{"keys of 4 bytes with positions", SortPositions(86, 8192, 4), 110079},
		{"a selection by key", Words64(80).UniqueByKey(4096), 767},
		{"a scan", Words64(80).Scan(1000), 1023},
		{"a scan of halves", ScanHalves(5000), 1279},
		{"sums by key", SumByKey(80, 36864), 1279},
		{"sums by key of another tile", SumByKey(80, 36865), 1535},
		{"sums by key in two steps", SumByKey(86, 110593), 2047},
		{"sums by key on sm_90", SumByKey(90, 3000000), 15871},
		{"a sum in one tile", Sum(108, 4096), 1},
		{"a sum", Sum(108, 4097), 4607},
		{"flags", Flagged(80, 10000), 767},
		{"different words", Unique(80, 8, 10000), 767},
	} {
		if c.got != c.want {
			t.Errorf("%s takes %d bytes, not %d", c.name, c.got, c.want)
		}
	}
}
