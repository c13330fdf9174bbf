package cpu

import (
	"math"
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/kernel/kerneltest"
	"github.com/memplan/memplan/internal/tensor"
)

// TestWidened runs every kernel on the 16-bit types.
func TestWidened(t *testing.T) {
	d := New(0)
	for _, k := range kernel.All() {
		for _, dtype := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			for seed := range 8 {
				c := kerneltest.Random(k, dtype, source(t, seed), 512)
				if k == kernel.AttentionGrad || k == kernel.AttentionMaskGrad { // takes sums over the keys from the result, which is rounded
					c.Factor *= 100
				}
				got, err := c.Run(d)
				if err == nil {
					err = c.Compare(got)
				}
				if err != nil {
					t.Fatalf("%v: %v", c, err)
				}
			}
		}
	}
}

// TestMixed adds numbers of several types, which are computed in the widest.
func TestMixed(t *testing.T) {
	d := New(0)
	at, err := d.Malloc(2 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	put := func(offset uint64, dtype tensor.DType, v ...float64) kernel.Tensor {
		x := kernel.Tensor{At: uint64(at) + offset, DType: dtype, Size: tensor.D(int64(len(v))), Stride: tensor.D(1)}
		if err := d.Write(at+allocsim.Address(offset), tensor.Encode(dtype, v)); err != nil {
			t.Fatal(err)
		}
		return x
	}
	a, b, y := put(0, tensor.Float64, 1.0/3, 2), put(512, tensor.Float32, 0.25, 0.5), put(1024, tensor.Float64, 0, 0)
	if err := d.Launch(&kernel.Call{Kernel: kernel.Add, T: []kernel.Tensor{y, a, b}, F: []float64{1}}); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 16)
	if err := d.Read(data, at+1024); err != nil {
		t.Fatal(err)
	}
	if got := tensor.Decode(tensor.Float64, data); math.Abs(got[0]-(1.0/3+0.25)) > 1e-15 || got[1] != 2.5 {
		t.Errorf("the sum is %v", got)
	}
	if err := d.Free(at, 2*tensor.MiB); err != nil {
		t.Error(err)
	}
}
