//go:build cuda

package cuda

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/runtime"
	"github.com/memplan/memplan/internal/tensor"
)

var _ runtime.Device = (*Device)(nil)

// absent skips a test for want of a GPU and of the emulator that stands for one;
// where MEMPLAN_LIBCUDA names a driver, as in make cuda-test, it fails.
func absent(t testing.TB, why error) {
	t.Helper()
	if os.Getenv(libraryVariable) != "" {
		t.Fatalf("the driver that MEMPLAN_LIBCUDA names: %v", why)
	}
	needs.Lacks(t, fmt.Sprintf("a GPU, or the emulated one (make cuda-test): %v", why))
}

// onEmulator skips a test of failures on a GPU, which does not fail on demand.
// Where MEMPLAN_LIBCUDA names a driver, it must be the emulated one.
func onEmulator(t testing.TB, d *Device) {
	t.Helper()
	switch {
	case d.Name() == "emulated GPU":
	case os.Getenv(libraryVariable) != "":
		t.Fatalf("the driver that %s names has a %s, not the emulated GPU", libraryVariable, d.Name())
	default:
		needs.Lacks(t, "the emulated GPU (make cuda-test), which fails on demand; this is a "+d.Name())
	}
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

func testKernel(t *testing.T, d *Device, k *kernel.Kernel) {
	for _, dtype := range floating {
		t.Run(k.Name+"/"+dtype.String(), func(t *testing.T) {
			rng := seeded(k.Name + dtype.String())
			for range runs() {
				c := kerneltest.Random(k, dtype, rng, 2048)
				c.Factor *= rounded(k, dtype)
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
	for _, c := range cases() {
		check(t, d, c)
	}
}

// TestWays runs reductions in the ways that only large operands take.
func TestWays(t *testing.T) {
	d := open(t)
	for _, enough := range []int64{1, 256} {
		small(t, enough)
		for _, k := range []*kernel.Kernel{kernel.Sum, kernel.Max, kernel.Norm, kernel.MSE, kernel.BCE, kernel.LayerNormGrad, kernel.RMSNormGrad} {
			testKernel(t, d, k)
		}
		for _, c := range cases() {
			if k := c.Kernel; k == kernel.Sum || k == kernel.Max {
				check(t, d, c)
			}
		}
	}
}

// TestProducts runs products in all ways in which they can be computed: by tiles of
// each size, whole and in parts, with tensor cores and without, which on GPUs before
// 8.0 is the way of bfloat16.
func TestProducts(t *testing.T) {
	t.Setenv("MEMPLAN_EMULATOR_CAPABILITY", "8")
	d := open(t)
	for _, d.is.sms = range []int64{1, 256} {
		small(t, d.is.sms)
		eachTile(func(cases []*kerneltest.Case) {
			for _, c := range cases {
				check(t, d, c)
			}
		})
	}
	for _, old := range []bool{false, true} {
		for _, d.is.sms = range []int64{1, 256} {
			small(t, d.is.sms)
			if old {
				d.is.capability = 70
			}
			for _, c := range products(t) {
				if !old || c.T[2].DType == tensor.BFloat16 {
					check(t, d, c)
				}
			}
			for _, k := range []*kernel.Kernel{kernel.Gemm, kernel.Conv, kernel.ConvInputGrad, kernel.ConvWeightGrad, kernel.Attention, kernel.AttentionGrad} {
				testKernel(t, d, k)
			}
		}
	}
}
