package aten

import (
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// TestFusedRows compares limits with those of bitsandbytes 0.50: the largest number of
// rows for which _gemm_4bit_use_custom_cuda is true.
func TestFusedRows(t *testing.T) {
	for _, c := range []struct {
		arch, sms int
		d         tensor.DType
		n, k      int64
		want      int64
	}{
		{70, 80, tensor.Float16, 4096, 4096, 7},
		{75, 40, tensor.Float16, 4096, 4096, 64},
		{75, 40, tensor.BFloat16, 4096, 4096, 7},
		{80, 108, tensor.BFloat16, 4096, 4096, 5},
		{80, 108, tensor.BFloat16, 1376, 512, 1536},
		{80, 108, tensor.BFloat16, 512, 1376, 0},
		{80, 108, tensor.Float32, 14336, 4096, 7},
		{80, 108, tensor.BFloat16, 14336, 4096, 64},
		{86, 84, tensor.BFloat16, 11008, 4096, 128},
		{89, 128, tensor.BFloat16, 4096, 14336, 64},
		{90, 132, tensor.BFloat16, 14336, 4096, 32},
		{100, 148, tensor.BFloat16, 28672, 8192, 32},
		{120, 170, tensor.BFloat16, 14336, 4096, 64},
	} {
		if got := FusedRows(&op.Env{Arch: c.arch, SMs: c.sms}, c.d, c.n, c.k); got != c.want {
			t.Errorf("sm_%d with %d multiprocessors, %v, weight of %d x %d: %d rows, want %d", c.arch, c.sms, c.d, c.n, c.k, got, c.want)
		}
	}
}
