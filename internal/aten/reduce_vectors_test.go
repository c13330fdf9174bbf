package aten

import (
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// TestReductionVectors: later releases load 2 or 8 elements at once where 2.6 loads 4 or one, and do so for rows of
// 128. The blocks of short rows then have other shapes, but need no buffers, and those of long ones have the same.
func TestReductionVectors(t *testing.T) {
	env := &op.Env{SMs: 132, ThreadsPerSM: 2048}
	buffers := 0
	for _, rows := range []int64{1, 2, 3, 8, 31, 64, 500} {
		for n := int64(1); n < 1<<20; n += 1 + n/23 {
			in := &op.Tensor{Layout: tensor.Contiguous(tensor.D(rows, n)), DType: tensor.BFloat16}
			r := newReduction(in, []bool{rows == 1, true}, 4)
			want, semaphores := r.scratch(env, 4)
			if want > 0 {
				buffers++
			}
			for _, vt0 := range []int64{1, 2, 8} {
				if got, s := r.scratch(env, vt0); got != want || s != semaphores {
					t.Errorf("%d rows of %d: vectors of %d take %d and %d bytes, of 4 %d and %d", rows, n, vt0, got, s, want, semaphores)
				}
			}
		}
	}
	if buffers < 100 {
		t.Errorf("%d reductions with buffers", buffers)
	}
}
