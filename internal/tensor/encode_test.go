package tensor

import (
	"math"
	"testing"
)

// TestEncode checks that numbers survive in every type that can hold them, and
// how 16-bit types round: to nearest, ties to even.
func TestEncode(t *testing.T) {
	for d := range numDTypes {
		for _, v := range []float64{0, 1} {
			if got := Decode(d, Encode(d, []float64{v}))[0]; got != v {
				t.Errorf("%v: %v becomes %v", d, v, got)
			}
		}
	}
	for _, c := range []struct {
		d       DType
		v, want float64
	}{
		{BFloat16, 1 + 1.0/256, 1},
		{BFloat16, 1 + 3.0/256, 1 + 4.0/256},
		{BFloat16, math.Inf(-1), math.Inf(-1)},
		{Float16, 1 + 1.0/2048, 1},
		{Float16, 1 + 3.0/2048, 1 + 4.0/2048},
		{Float16, 65504, 65504},
		{Float16, 65519, 65504},
		{Float16, 65520, math.Inf(1)},
		{Float16, 1.0 / (1 << 24), 1.0 / (1 << 24)},
		{Float16, -3.0 / (1 << 25), -2.0 / (1 << 24)},
		{Float16, 1.0/(1<<14) - 1.0/(1<<26), 1.0 / (1 << 14)},
		{Int64, -5, -5},
		{Int8, -128, -128},
	} {
		if got := Decode(c.d, Encode(c.d, []float64{c.v}))[0]; got != c.want {
			t.Errorf("%v: %v becomes %v, not %v", c.d, c.v, got, c.want)
		}
	}
	for _, d := range []DType{Float16, BFloat16, Float32} {
		if got := Decode(d, Encode(d, []float64{math.NaN()}))[0]; !math.IsNaN(got) {
			t.Errorf("%v: not a number becomes %v", d, got)
		}
	}
	for h := range 1 << 16 { // every number of 16 bits is its own
		b := []byte{byte(h), byte(h >> 8)}
		v := Decode(Float16, b)
		if math.IsNaN(v[0]) {
			continue
		}
		if got := Encode(Float16, v); got[0] != b[0] || got[1] != b[1] {
			t.Fatalf("%#04x is %v, which becomes %#x", h, v[0], got)
		}
	}
}
