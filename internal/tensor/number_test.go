package tensor

import (
	"math"
	"testing"
)

// TestHalves checks that every value of the 16-bit floating types is read and
// written as itself, and that numbers between two go to the nearest, ties to
// the one whose last bit is 0.
func TestHalves(t *testing.T) {
	for _, h := range []struct {
		d    DType
		bits func(float32) uint16
		from func(uint16) float32
	}{{Float16, Float16Bits, FromFloat16}, {BFloat16, BFloat16Bits, FromBFloat16}} {
		for b := range 1 << 16 {
			f := h.from(uint16(b))
			if f != f {
				if g := h.from(h.bits(f)); g == g {
					t.Fatalf("%v %#x is a NaN, written as %v", h.d, b, g)
				}
				continue
			}
			if got := h.bits(f); got != uint16(b) {
				t.Fatalf("%v %#x is %v, written as %#x", h.d, b, f, got)
			}
			next := h.from(uint16(b) + 1)
			if math.IsInf(float64(f), 0) || math.IsInf(float64(next), 0) || next != next {
				continue
			}
			mid := float32((float64(f) + float64(next)) / 2)
			even := uint16(b) + uint16(b)&1
			if got := h.bits(mid); got != even {
				t.Fatalf("%v: %v lies between %#x and the next, and becomes %#x", h.d, mid, b, got)
			}
			if got := h.bits(math.Nextafter32(mid, f)); got != uint16(b) {
				t.Fatalf("%v: just nearer to %#x becomes %#x", h.d, b, got)
			}
		}
	}
	if got := Float16Bits(65520); got != 0x7c00 {
		t.Errorf("65520 as float16 is %#x, not infinity", got)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		d        DType
		in, want float64
	}{
		{Float64, 0.1, 0.1}, {Float32, 0.1, float64(float32(0.1))}, {BFloat16, 1.01, 1.0078125}, {Float16, 0.1, 0.0999755859375},
		{Int64, -3.7, -3}, {Int32, -3.7, -3}, {Int16, -2, -2}, {Int8, -128, -128}, {Uint8, 255, 255}, {Uint8, -1, 255}, {Bool, 0.5, 1}, {Bool, 0, 0},
	} {
		b := make([]byte, c.d.Size())
		c.d.Put(b, c.in)
		if got := c.d.Number(b); got != c.want {
			t.Errorf("%v as %v is %v, not %v", c.in, c.d, got, c.want)
		}
	}
}
