package cpu

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
)

// wants fails unless an error says something.
func wants(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one that says %q", err, text)
	}
}

// TestMemory writes and reads segments, beyond which nothing can be touched.
func TestMemory(t *testing.T) {
	d := New(64*tensor.MiB, 20*tensor.MiB)
	if free, total := d.MemInfo(); free != 44*tensor.MiB || total != 64*tensor.MiB {
		t.Errorf("%v of %v are free", free, total)
	}
	a, err := d.Malloc(2 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Malloc(20 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	if now, peak := d.Reserved(); now != 22*tensor.MiB || peak != now {
		t.Errorf("%v reserved, at most %v", now, peak)
	}
	if data, err := d.segments.bytes(b, 1); err != nil || uintptr(unsafe.Pointer(&data[0]))%alignment != 0 {
		t.Errorf("memory at %p, %v is not aligned", data, err)
	}
	text := []byte("gradient")
	got := make([]byte, len(text))
	if err := errors.Join(d.Write(b+100, text), d.Read(got, b+100)); err != nil || string(got) != string(text) {
		t.Errorf("read %q, %v", got, err)
	}
	if err := errors.Join(d.Set(b+102, 3, 'x'), d.Read(got, b+100)); err != nil || string(got) != "grxxxent" {
		t.Errorf("read %q, %v", got, err)
	}
	wants(t, d.Write(b+allocsim.Address(20*tensor.MiB)-4, text), "outside of allocated memory")
	wants(t, d.Read(got, 1000), "outside of allocated memory")
	wants(t, d.Set(a-1, 2, 0), "outside of allocated memory")
	if _, err := d.Malloc(40 * tensor.MiB); !errors.Is(err, allocsim.ErrOutOfMemory) {
		t.Errorf("error %v instead of out of memory", err)
	}
	wants(t, d.Free(b, 2*tensor.MiB), "were not allocated as such")
	if err := d.Free(b, 20*tensor.MiB); err != nil {
		t.Error(err)
	}
	if now, peak := d.Reserved(); now != 2*tensor.MiB || peak != 22*tensor.MiB {
		t.Errorf("%v reserved, at most %v", now, peak)
	}
	wants(t, d.Close(), "2.00 MiB at 0x200000000000 are allocated still")
}

// TestExpandable maps parts of a reservation, of which only those can be used.
func TestExpandable(t *testing.T) {
	needs.System(t, "the reservation of addresses", "linux", "darwin")
	const granule = 2 * tensor.MiB
	d := New(8 * tensor.MiB)
	a, err := d.Reserve(16 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	at := func(n tensor.Bytes) allocsim.Address { return a + allocsim.Address(n) }
	wants(t, d.Write(a, []byte{1}), "outside of allocated memory")
	if err := errors.Join(d.Map(a, 2*granule, granule), d.Map(at(2*granule), granule, granule)); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(at(2*granule)-1, []byte{1, 2}); err != nil { // mapped one after the other
		t.Error(err)
	}
	wants(t, d.Map(at(granule), granule, granule), "mapped already")
	wants(t, d.Map(at(16*tensor.MiB), granule, granule), "not reserved")
	if err := d.Map(at(3*granule), 2*granule, granule); !errors.Is(err, allocsim.ErrOutOfMemory) {
		t.Errorf("error %v instead of out of memory", err)
	}
	wants(t, d.Write(at(3*granule), []byte{1}), "outside of allocated memory")
	if err := d.Unmap(at(granule), granule, granule); err != nil {
		t.Fatal(err)
	}
	wants(t, d.Unmap(at(granule), granule, granule), "not mapped")
	if now, peak := d.Reserved(); now != 2*granule || peak != 3*granule {
		t.Errorf("%v reserved, at most %v", now, peak)
	}
	wants(t, d.Write(at(granule), []byte{1}), "outside of allocated memory")
	if err := errors.Join(d.Write(a, []byte{1}), d.Write(at(2*granule), []byte{1})); err != nil {
		t.Error(err)
	}
	wants(t, d.Unreserve(a, 16*tensor.MiB), "mapped still")
	if err := errors.Join(d.Unmap(a, granule, granule), d.Unmap(at(2*granule), granule, granule), d.Unreserve(a, 16*tensor.MiB), d.Close()); err != nil {
		t.Error(err)
	}
	if now, _ := d.Reserved(); now != 0 {
		t.Errorf("%v reserved", now)
	}
	b, err := d.Reserve(8 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Map(b, granule, granule); err != nil {
		t.Error(err)
	}
	wants(t, d.Close(), "2.00 MiB at 0x200000000000 are mapped still")
	if _, err := New(0).Reserve(allocsim.Unbounded); err == nil {
		t.Error("16 PiB of address space are reserved")
	}
}

// TestOperands refuses calls that would touch memory which is not theirs, or
// that mix types.
func TestOperands(t *testing.T) {
	d := New(0)
	a, err := d.Malloc(2 * tensor.MiB)
	if err != nil {
		t.Fatal(err)
	}
	vector := func(at allocsim.Address, dtype tensor.DType, n, stride int64) kernel.Tensor {
		return kernel.Tensor{At: uint64(at), DType: dtype, Size: tensor.D(n), Stride: tensor.D(stride)}
	}
	const all = int64(2 * tensor.MiB / 4)
	for _, c := range []struct {
		y, a kernel.Tensor
		says string
	}{
		{vector(a, tensor.Float32, all, 1), vector(a, tensor.Float32, all, 1), ""},
		{vector(a, tensor.Float32, 0, 1), vector(0, tensor.Float32, 0, 1), ""},
		{vector(a, tensor.Float32, all, 1), vector(a+4, tensor.Float32, all, 1), "kernel neg: operand a: 2097152 bytes at 0x200000000004 lie outside of allocated memory"},
		{vector(a, tensor.Float32, all, 2), vector(a, tensor.Float32, all, 0), "outside of allocated memory"},
		{vector(a, tensor.Float32, 4, 1), vector(a+2, tensor.Float32, 4, 1), "is not a multiple of the 4 bytes of float32"},
		{vector(a, tensor.Float32, 4, 1), vector(a, tensor.Float32, 4, -1), "stride -1 is negative"},
		{vector(a, tensor.Float32, 4, 1), vector(a, tensor.Float64, 4, 1), ""},
		{vector(a, tensor.Int32, 4, 1), vector(a, tensor.Float32, 4, 1), "kernel neg: operand a is of type float32, not int32"},
		{vector(a, tensor.Float32, 4, 1), vector(a, tensor.Float32, 5, 1), "operand a has shape [5], not [4]"},
		{vector(a, tensor.Float32, 4, 1), vector(0, tensor.Float32, 4, 1), "operand a is absent"},
		{vector(a, tensor.BFloat16, 4, 1), vector(a, tensor.BFloat16, 4, 1), ""},
		{vector(a, tensor.Bool, 4, 1), vector(a, tensor.Bool, 4, 1), "kernel neg does not run on bool on the CPU"},
		{vector(a, tensor.Int64, 4, 1), vector(a, tensor.Int64, 4, 1), "kernel neg does not run on int64 on the CPU"},
	} {
		err := d.Launch(&kernel.Call{Kernel: kernel.Neg, T: []kernel.Tensor{c.y, c.a}})
		if c.says == "" && err != nil {
			t.Error(err)
		} else if c.says != "" {
			wants(t, err, c.says)
		}
	}
	if err := errors.Join(d.Free(a, 2*tensor.MiB), d.Close()); err != nil {
		t.Error(err)
	}
}

// supports reports whether a kernel runs on operands of a type: that of what it
// computes with, which is not the result of a comparison or an index.
func supports(k *kernel.Kernel, t tensor.DType) bool {
	return rowOf(k).run[t] != nil || t.IsFloating() && rowOf(k).run[tensor.Float32] != nil
}

// TestSupports checks what runs for which types: everything for float32 and
// float64, and what moves elements for all.
func TestSupports(t *testing.T) {
	for _, k := range kernel.All() {
		if !supports(k, tensor.Float32) || !supports(k, tensor.Float64) {
			t.Errorf("%s does not run on floating numbers", k.Name)
		}
	}
	for _, c := range []struct {
		k    *kernel.Kernel
		d    tensor.DType
		want bool
	}{
		{kernel.Fill, tensor.BFloat16, true}, {kernel.Copy, tensor.Float16, true}, {kernel.Where, tensor.Int8, true}, {kernel.Tril, tensor.Bool, true},
		{kernel.Add, tensor.Int64, true}, {kernel.Add, tensor.Bool, false}, {kernel.Mul, tensor.Bool, true}, {kernel.Eq, tensor.Int64, true},
		{kernel.Sum, tensor.Int64, true}, {kernel.Gemm, tensor.BFloat16, true}, {kernel.Exp, tensor.Float16, true}, {kernel.Exp, tensor.Int32, false},
	} {
		if got := supports(c.k, c.d); got != c.want {
			t.Errorf("%s on %v: %v", c.k.Name, c.d, got)
		}
	}
}
