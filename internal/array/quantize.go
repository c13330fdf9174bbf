package array

import (
	"math"
	"slices"
)

// What bitsandbytes' kernels compute for layers and states of optimizers that are
// quantized.

// Codes4bit are the values of 4 bits, scaled to 1
// (functional.get_4bit_type of bitsandbytes; nf4: Dettmers et al., QLoRA, 2023).
var Codes4bit = map[string][]float64{
	"nf4": {-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
		0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1},
	"fp4": {0, 0.0625 / 12, 8.0 / 12, 12.0 / 12, 4.0 / 12, 6.0 / 12, 2.0 / 12, 3.0 / 12, 0, -0.0625 / 12, -8.0 / 12, -12.0 / 12, -4.0 / 12, -6.0 / 12, -2.0 / 12, -3.0 / 12},
}

// DynamicMap are the 256 values of 8 bits, sorted: a tree of exponents and
// fractions (functional.create_dynamic_map of bitsandbytes).
func DynamicMap(signed bool) []float64 {
	out := []float64{0, 1}
	for i := range 7 {
		items, exponent := 1<<i, math.Pow(10, float64(i-6))
		if !signed {
			items *= 2
		}
		for k := range items { // between the boundaries of [0.1, 1] in as many parts
			mean := 0.1 + 0.9*(float64(k)+0.5)/float64(items)
			out = append(out, exponent*mean)
			if signed {
				out = append(out, -exponent*mean)
			}
		}
	}
	slices.Sort(out)
	return out
}

// nearestCode is the index of the value of a code next to v.
func nearestCode(code []float64, v float64) int {
	best := 0
	for i, c := range code {
		if math.Abs(c-v) < math.Abs(code[best]-v) {
			best = i
		}
	}
	return best
}

// nearestSorted is nearestCode in a code that is sorted.
func nearestSorted(code []float64, v float64) int {
	i, _ := slices.BinarySearch(code, v)
	if i == len(code) || i > 0 && v-code[i-1] <= code[i]-v {
		i--
	}
	return i
}

// largest is the maximum of the sizes of numbers, in float32.
func largest(v []float64) float64 {
	most := 0.0
	for _, f := range v {
		most = max(most, math.Abs(f))
	}
	return float64(float32(most))
}

// reciprocal is 1/v; 0 for 0.
func reciprocal(v float64) float64 {
	if v == 0 {
		return 0
	}
	return 1 / v
}

// Quantized8 are numbers in blocks by a sorted code: the indices, and the scales of
// the blocks.
func Quantized8(v, code []float64, block int) (indices, scales []float64) {
	indices = make([]float64, len(v))
	Blocks(v, block, func(k int, b []float64) {
		scale := largest(b)
		scales = append(scales, scale)
		for i, f := range b {
			indices[k*block+i] = float64(nearestSorted(code, f*reciprocal(scale)))
		}
	})
	return indices, scales
}

// Dequantized8 does the opposite.
func Dequantized8(indices, code, scales []float64, block int) []float64 {
	return Each(len(indices), func(i int) float64 { return code[int(indices[i])] * scales[i/block] })
}

// Quantized4 are numbers in blocks by a code of 16 values: the indices, two in a byte
// with the first one in the upper half, and the scales of the blocks.
func Quantized4(v, code []float64, block int) (packed, scales []float64) {
	packed = make([]float64, (len(v)+1)/2)
	Blocks(v, block, func(k int, b []float64) {
		scale := largest(b)
		scales = append(scales, scale)
		for i, f := range b {
			at := k*block + i
			packed[at/2] += float64(nearestCode(code, f*reciprocal(scale)) << (4 * (1 - at%2)))
		}
	})
	return packed, scales
}

// Dequantized4 are n numbers of them.
func Dequantized4(packed, code, scales []float64, block, n int) []float64 {
	return Each(n, func(i int) float64 {
		return code[int(packed[i/2])>>(4*(1-i%2))&15] * scales[i/block]
	})
}

// NestedScales are scales as double quantization keeps them: less their mean, in 8 bits by
// a code.
func NestedScales(scales, code []float64, block int) (indices, nested []float64, mean float64) {
	for _, s := range scales {
		mean += s / float64(len(scales))
	}
	mean = float64(float32(mean))
	indices, nested = Quantized8(Each(len(scales), func(i int) float64 { return scales[i] - mean }), code, block)
	return indices, nested, mean
}

// Int8 are rows whose largest numbers are 127. Columns that are outliers are left out.
type Int8 struct {
	V        []float64
	Scales   []float64 // of the rows
	Outliers []int
}

// QuantizedRows scales each row. Columns with a number beyond a threshold are outliers; 0
// is none. It changes the array.
func (a *Array) QuantizedRows(threshold float64) *Int8 {
	n := a.Size[len(a.Size)-1]
	q := &Int8{V: a.V}
	for j := range n {
		for i := j; threshold > 0 && i < len(a.V); i += n {
			if math.Abs(a.V[i]) >= threshold {
				q.Outliers = append(q.Outliers, j)
				break
			}
		}
	}
	Blocks(a.V, n, func(_ int, row []float64) {
		scale := 0.0
		for _, f := range row {
			if threshold == 0 || math.Abs(f) < threshold {
				scale = max(scale, math.Abs(f))
			}
		}
		q.Scales = append(q.Scales, float64(float32(scale)))
		for i, f := range row {
			row[i] = math.RoundToEven(f * 127 * reciprocal(scale))
			if slices.Contains(q.Outliers, i) {
				row[i] = 0
			}
		}
	})
	return q
}

// DequantizedRows are the numbers that rows of n were.
func (q *Int8) DequantizedRows(n int) []float64 {
	return Each(len(q.V), func(i int) float64 { return q.V[i] * (q.Scales[i/n] / 127) })
}

// Times multiplies rows of k numbers by a weight whose rows are quantized, too. Columns
// that were left out, which whole has as they were, are computed in the type to which
// round brings numbers, and so are results and the bias, which may be nil.
func (q *Int8) Times(w *Int8, k int, whole, bias []float64, round func(v float64) float64) []float64 {
	n := len(w.Scales)
	return Each(len(q.Scales)*n, func(i int) float64 {
		row, column := i/n, i%n
		sum := 0.0
		for l := range k {
			sum += q.V[row*k+l] * w.V[column*k+l]
		}
		v := sum * q.Scales[row] * w.Scales[column] / (127 * 127)
		for _, l := range q.Outliers {
			v += whole[row*k+l] * w.V[column*k+l] * w.Scales[column] / 127
		}
		v = round(v)
		if bias != nil {
			v = round(v + bias[column])
		}
		return v
	})
}
