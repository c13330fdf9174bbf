//go:build cuda

package cuda

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

var _ runtime.Device = (*Device)(nil)

// absent skips a test for want of a GPU and of the emulator that stands for one;
// where MEMPLAN_LIBCUDA names a driver, as in make cuda-test, it fails.
func absent(t testing.TB, why error) {
	t.Helper()
	if os.Getenv("MEMPLAN_LIBCUDA") != "" {
		t.Fatalf("the driver that MEMPLAN_LIBCUDA names: %v", why)
	}
	t.Skip("no GPU, and no emulator (make cuda-test): ", why)
}

// open opens the first GPU, or the emulator that stands for it, or skips.
func open(t testing.TB) *Device {
	t.Helper()
	if _, why := Available(); why != nil {
		absent(t, why)
	}
	d, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// runs is how many calls of each kernel are drawn; MEMPLAN_CUDA_RUNS says more.
func runs() int {
	if n, err := strconv.Atoi(os.Getenv("MEMPLAN_CUDA_RUNS")); err == nil {
		return n
	}
	return 2
}

// check runs a call twice: it gives what it must, and the same bits again.
func check(t *testing.T, d *Device, c *kerneltest.Case) {
	t.Helper()
	got, err := c.Run(d)
	if err == nil {
		err = c.Compare(got)
	}
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	again, err := c.Run(d)
	if err != nil {
		t.Fatalf("%v, again: %v", c, err)
	}
	for i := range got {
		if !bytes.Equal(got[i].Storage, again[i].Storage) {
			t.Errorf("%v: operand %s has other bits the second time", c, c.Kernel.Tensors[i])
		}
	}
}

var floating = []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}

func testKernel(t *testing.T, d *Device, k *kernel.Kernel) {
	for _, dtype := range floating {
		t.Run(k.Name+"/"+dtype.String(), func(t *testing.T) {
			rng := seeded(k.Name + dtype.String())
			for range runs() {
				c := kerneltest.Random(k, dtype, rng, 2048)
				if k == kernel.AttentionGrad && dtype.IsHalf() {
					c.Factor *= 1 << 14 // the sum of g*y is of the y that was rounded to half precision
				}
				check(t, d, c)
			}
		})
	}
}

func TestKernels(t *testing.T) {
	d := open(t)
	for _, k := range kernel.All() {
		testKernel(t, d, k)
	}
	for _, c := range cases(t) {
		check(t, d, c)
	}
}

// TestWays runs the kernels that are launched in several ways in those that only
// large operands take.
func TestWays(t *testing.T) {
	d := open(t)
	for _, enough := range []int64{1, 256} {
		small(t, enough)
		for _, k := range []*kernel.Kernel{kernel.Sum, kernel.Max, kernel.SumSquares, kernel.MSE, kernel.BCE, kernel.Gemm, kernel.Conv,
			kernel.ConvInputGrad, kernel.ConvWeightGrad, kernel.LayerNormGrad, kernel.RMSNormGrad} {
			testKernel(t, d, k)
		}
		for _, c := range cases(t) {
			if k := c.Kernel; k == kernel.Sum || k == kernel.Max || k == kernel.Gemm {
				check(t, d, c)
			}
		}
	}
}
