package array

import (
	"math"
	"slices"
	"testing"
)

// TestDynamicMap checks the values of 8 bits: fractions between 0.1 and 1 in 64
// parts (128 without a sign), and half as many for each power of ten below.
func TestDynamicMap(t *testing.T) {
	signed, unsigned := DynamicMap(true), DynamicMap(false)
	for _, c := range []struct {
		of   []float64
		at   int
		want float64
	}{
		{signed, 0, -(0.1 + 0.9*63.5/64)}, {signed, 126, -0.55e-6}, {signed, 127, 0}, {signed, 128, 0.55e-6}, {signed, 255, 1}, {signed, 254, 0.1 + 0.9*63.5/64},
		{unsigned, 0, 0}, {unsigned, 1, 0.325e-6}, {unsigned, 2, 0.775e-6}, {unsigned, 254, 0.1 + 0.9*127.5/128}, {unsigned, 255, 1},
	} {
		if len(c.of) != 256 || math.Abs(c.of[c.at]-c.want) > 1e-12 {
			t.Errorf("value %d of %d is %v, not %v", c.at, len(c.of), c.of[c.at], c.want)
		}
	}
	got, scales := Quantized8([]float64{2, -1, 0.5, 0, 3, -3}, signed, 4)
	want := []float64{2, -2 * (0.1 + 0.9*28.5/64), 2 * (0.1 + 0.9*10.5/64), 0, 3, -3 * (0.1 + 0.9*63.5/64)}
	if !slices.Equal(scales, []float64{2, 3}) {
		t.Errorf("scales %v", scales)
	}
	for i, v := range Dequantized8(got, signed, scales, 4) {
		if math.Abs(v-want[i]) > 1e-12 {
			t.Errorf("number %d comes back as %v, not %v", i, v, want[i])
		}
	}
}

// TestQuantized4 checks that values of the code come back, and which half of a byte is
// first.
func TestQuantized4(t *testing.T) {
	code := Codes4bit["nf4"]
	v := []float64{2 * code[15], 2 * code[0], 2 * code[9]}
	packed, scales := Quantized4(v, code, 64)
	if !slices.Equal(packed, []float64{15 << 4, 9 << 4}) || !slices.Equal(scales, []float64{2}) {
		t.Errorf("packed %v, scales %v", packed, scales)
	}
	if got := Dequantized4(packed, code, scales, 64, 3); !slices.Equal(got, v) {
		t.Errorf("%v comes back as %v", v, got)
	}
}

// TestInt8 multiplies rows with a column beyond the threshold by a quantized weight.
func TestInt8(t *testing.T) {
	whole := []float64{1, -2, 8, 0.5, 1, -9}
	x := &Array{Size: []int{2, 3}, V: slices.Clone(whole)}
	q := x.QuantizedRows(6)
	if !slices.Equal(q.Outliers, []int{2}) || !slices.Equal(q.Scales, []float64{2, 1}) || !slices.Equal(q.V, []float64{64, -127, 0, 64, 127, 0}) {
		t.Errorf("%v, scales %v, outliers %v", q.V, q.Scales, q.Outliers)
	}
	w := (&Array{Size: []int{1, 3}, V: []float64{1, 1, 1}}).QuantizedRows(0)
	if got := w.DequantizedRows(3); !slices.Equal(got, []float64{1, 1, 1}) {
		t.Errorf("the weight comes back as %v", got)
	}
	got := q.Times(w, 3, whole, []float64{10}, func(v float64) float64 { return math.Round(v) })
	if !slices.Equal(got, []float64{17, 3}) { // 64*2/127 - 2 + 8, 64/127 + 1 - 9, rounded, and the bias
		t.Errorf("the product is %v", got)
	}
}

// TestNestedScales: scales come back as their mean and what they differ from it.
func TestNestedScales(t *testing.T) {
	code := DynamicMap(true)
	indices, nested, mean := NestedScales([]float64{1, 3, 2, 6}, code, 2) // less 3: -2 and 0, -1 and 3
	if mean != 3 || !slices.Equal(nested, []float64{2, 3}) || indices[0] != 0 || indices[1] != 127 || indices[3] != 255 {
		t.Errorf("indices %v by %v, mean %v", indices, nested, mean)
	}
	for i, v := range Dequantized8(indices, code, nested, 2) {
		if want := []float64{-2, 0, -1, 3}[i]; math.Abs(v-want) > 0.02 {
			t.Errorf("scale %d comes back as %v more than the mean, not %v", i, v, want)
		}
	}
}
