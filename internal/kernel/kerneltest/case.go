package kerneltest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Device is what a call is run on: a part of runtime.Device.
type Device interface {
	Malloc(n tensor.Bytes) (allocsim.Address, error)
	Free(a allocsim.Address, n tensor.Bytes) error
	Write(to allocsim.Address, from []byte) error
	Read(to []byte, from allocsim.Address) error
	Launch(c *kernel.Call) error
	Synchronize() error
}

// Case is a call with its operands.
type Case struct {
	Kernel *kernel.Kernel
	T      []Array // in place: two have the same storage
	I      []int64
	F      []float64
	// Factor is the error that is allowed, in units of the distance from 1 to the
	// next number of the accumulation type, relative to an element or to the
	// numbers that it is the sum of.
	Factor float64
}

// String says what the call is, for tests that fail.
func (c *Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(", c.Kernel.Name)
	for i := range c.T {
		t := &c.T[i]
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strings.TrimSuffix(c.Kernel.Tensors[i], "?"))
		if t.Absent() {
			b.WriteString(" absent")
			continue
		}
		fmt.Fprintf(&b, " %v %v strides %v", t.DType, t.Size, t.Stride)
	}
	for i, v := range c.I {
		fmt.Fprintf(&b, ", %s=%d", c.Kernel.Ints[i], v)
	}
	for i, v := range c.F {
		fmt.Fprintf(&b, ", %s=%v", c.Kernel.Floats[i], v)
	}
	return b.String() + ")"
}

// canary lies between operands on the device.
const (
	canary = 256
	poison = 0xff // of every type that is read before it is written a NaN or an index out of range
)

// Run runs the call and returns the operands as they are then. Memory around
// operands that changed is an error.
func (c *Case) Run(d Device) (out []Array, err error) {
	arena := bytes.Repeat([]byte{poison}, canary)
	at := make([]int, len(c.T))
	for i := range c.T {
		at[i] = len(arena)
		if j := slices.IndexFunc(c.T[:i], c.T[i].shares); j >= 0 {
			at[i] = at[j]
			continue
		}
		arena = append(arena, c.T[i].Storage...)
		arena = append(arena, bytes.Repeat([]byte{poison}, canary+(-len(c.T[i].Storage)&(canary-1)))...)
	}
	n := tensor.Bytes(len(arena))
	base, err := d.Malloc(n)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := d.Free(base, n); err == nil {
			err = e
		}
	}()
	if err := d.Write(base, arena); err != nil {
		return nil, err
	}
	call := &kernel.Call{Kernel: c.Kernel, I: c.I, F: c.F}
	for i := range c.T {
		t := &c.T[i]
		k := kernel.Tensor{DType: t.DType, Size: t.Size, Stride: t.Stride}
		if !t.Absent() {
			k.At = uint64(base) + uint64(at[i]) + uint64(t.Offset*t.DType.Size())
		}
		call.T = append(call.T, k)
	}
	if err := call.Check(); err != nil {
		return nil, err
	}
	if err := d.Launch(call); err != nil {
		return nil, err
	}
	if err := d.Synchronize(); err != nil {
		return nil, err
	}
	if err := d.Read(arena, base); err != nil {
		return nil, err
	}
	out = slices.Clone(c.T)
	for i := range out {
		if s := c.T[i].Storage; s != nil {
			out[i].Storage = bytes.Clone(arena[at[i] : at[i]+len(s)])
		}
	}
	for i := range out { // what is left is what lies between
		copy(arena[at[i]:], bytes.Repeat([]byte{poison}, len(out[i].Storage)))
	}
	if i := slices.IndexFunc(arena, func(b byte) bool { return b != poison }); i >= 0 {
		return nil, fmt.Errorf("byte %d, which is of no operand, was written", i)
	}
	return out, nil
}

// Compare checks what Run returned against what the kernel must give.
func (c *Case) Compare(got []Array) error {
	want := c.expect()
	for i := range c.T {
		a, g := c.result(i, c.T[i]), c.result(i, got[i])
		t, name := &a, strings.TrimSuffix(c.Kernel.Tensors[i], "?")
		if t.Absent() {
			continue
		}
		if !c.Kernel.Writes(i) {
			if !bytes.Equal(t.Storage, got[i].Storage) && !slices.ContainsFunc(c.T[:c.Kernel.Outputs], t.shares) {
				return fmt.Errorf("operand %s, which is only read, changed", name)
			}
			continue
		}
		inside := make([]bool, len(t.Storage))
		have, err := g.Values(), error(nil)
		t.places(func(n int, at int64) {
			for b := range t.DType.Size() {
				inside[at+b] = true
			}
			if allowed := c.allowed(t.DType, want[i].v[n], want[i].scale[n]); err == nil && !near(have[n], want[i].v[n], allowed) && !overflows(t.DType, have[n], want[i].v[n]) {
				err = fmt.Errorf("%s: element %d of %d is %v, not %v; a difference of %.3g is allowed", name, n, len(have), have[n], want[i].v[n], allowed)
			}
		})
		if err != nil {
			return err
		}
		for b := range inside {
			if !inside[b] && t.Storage[b] != got[i].Storage[b] {
				return fmt.Errorf("%s: byte %d, between its elements, was written", name, b)
			}
		}
	}
	return nil
}

// result is operand i as it is compared: of a reduction without the dimensions
// that are reduced.
func (c *Case) result(i int, a Array) Array {
	if i == 0 && c.Kernel.Kind == kernel.Reduce {
		return a.once()
	}
	return a
}

// overflows reports whether got is the infinity that a number is in a type that
// does not reach as far.
func overflows(d tensor.DType, got, want float64) bool {
	if !d.IsFloating() {
		return false
	}
	data := make([]byte, d.Size())
	d.Put(data, want)
	return math.IsInf(got, 0) && d.Number(data) == got
}

// near reports whether numbers are equal but for a difference.
func near(got, want, allowed float64) bool {
	switch {
	case math.IsNaN(want):
		return math.IsNaN(got)
	case math.IsInf(want, 0):
		return got == want
	}
	return math.Abs(got-want) <= allowed
}

// floats are, of the floating types, the distance from 1 to the next number and
// the smallest number with all digits, below which devices may give 0.
var floats = map[tensor.DType]struct{ epsilon, tiny float64 }{
	tensor.Float64:  {0x1p-52, 0x1p-1022},
	tensor.Float32:  {0x1p-23, 0x1p-126},
	tensor.BFloat16: {0x1p-7, 0x1p-126},
	tensor.Float16:  {0x1p-10, 0x1p-14},
}

// allowed is the difference from want that an element of a type may have: that
// of the accumulation and, of a smaller type, that of rounding.
func (c *Case) allowed(d tensor.DType, want, scale float64) float64 {
	f, floating := floats[d]
	if !floating {
		return 0
	}
	out := c.Factor*floats[d.Accumulate()].epsilon*max(math.Abs(want), scale) + f.tiny
	if d.IsHalf() {
		out += f.epsilon * math.Abs(want)
	}
	return out
}
