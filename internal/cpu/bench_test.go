package cpu

import (
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// BenchmarkGemm multiplies square matrices, the second one as it is or
// transposed.
func BenchmarkGemm(b *testing.B) {
	for _, n := range []int64{64, 256, 1024} {
		for _, turned := range []bool{false, true} {
			b.Run(fmt.Sprintf("n=%d/transposed=%v", n, turned), func(b *testing.B) {
				d := New(0)
				var t []kernel.Tensor
				for i := range 3 {
					at, err := d.Malloc(tensor.Bytes(n * n * 4))
					if err != nil {
						b.Fatal(err)
					}
					k := kernel.Tensor{At: uint64(at), DType: tensor.Float32, Size: tensor.D(1, n, n), Stride: tensor.D(n*n, n, 1)}
					if i == 2 && turned {
						k.Stride = tensor.D(n*n, 1, n)
					}
					t = append(t, k)
				}
				c := &kernel.Call{Kernel: kernel.Gemm, T: append(t, kernel.Tensor{}), F: []float64{1, 0}}
				for b.Loop() {
					if err := d.Launch(c); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(2*n*n*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
