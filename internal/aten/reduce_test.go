package aten

import "testing"

// A reduction of more elements than 32 bits count is split where there is
// something to split, whatever its strides.
func TestParts(t *testing.T) {
	for _, r := range []*reduction{
		{shape: []int64{51553764297, 1}, in: []int64{0, 2}, out: []int64{0, 2}, numel: 51553764297, numOutput: 1},
		{shape: []int64{1, 1 << 33}, in: []int64{0, 0}, out: []int64{4, 0}, numel: 1 << 33, numOutput: 1},
		{shape: []int64{1 << 20, 1 << 14}, in: []int64{4, 4 << 20}, out: []int64{0, 4}, numel: 1 << 34, numOutput: 1 << 14},
	} {
		total := int64(0)
		for _, p := range r.parts() {
			if p.numel > 1<<31-1 || p.numel < 1 {
				t.Errorf("a part of %d elements", p.numel)
			}
			total += p.numel
		}
		if total != r.numel {
			t.Errorf("parts of %d elements of %d", total, r.numel)
		}
	}
}
