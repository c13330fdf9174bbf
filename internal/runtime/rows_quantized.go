package runtime

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// What bitsandbytes' kernels compute for quantized layers. What a kernel reads
// beside its operands, such as the scales of a weight, is looked up by the block of
// what was quantized.

// quantity is what is known of a block of quantized numbers.
type quantity struct {
	scales   []float64 // of each row, or block
	code     []float64 // of 4 bits
	outliers []int     // columns that are not quantized
}

// codes4bit are the values of 4 bits, scaled to 1
// (functional.get_4bit_type of bitsandbytes; nf4: Dettmers et al., QLoRA, 2023).
var codes4bit = map[string][]float64{
	"nf4": {-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
		0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1},
	"fp4": {0, 0.0625 / 12, 8.0 / 12, 12.0 / 12, 4.0 / 12, 6.0 / 12, 2.0 / 12, 3.0 / 12, 0, -0.0625 / 12, -8.0 / 12, -12.0 / 12, -4.0 / 12, -6.0 / 12, -2.0 / 12, -3.0 / 12},
}

// dynamicMap are the 256 values of 8 bits, sorted: a tree of exponents and
// fractions (functional.create_dynamic_map of bitsandbytes).
func dynamicMap(signed bool) []float64 {
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

// blocks calls f for each n numbers of v, the last ones perhaps fewer.
func blocks(v []float64, n int, f func(k int, block []float64)) {
	for k := 0; k*n < len(v); k++ {
		f(k, v[k*n:min(len(v), (k+1)*n)])
	}
}

// largest is the maximum of the sizes of numbers.
func largest(v []float64) float64 {
	most := 0.0
	for _, f := range v {
		most = max(most, math.Abs(f))
	}
	return most
}

// reciprocal is 1/v; 0 for 0.
func reciprocal(v float64) float64 {
	if v == 0 {
		return 0
	}
	return 1 / v
}

// quantized8 are numbers in blocks by a sorted code: the indices, and the scales of
// the blocks.
func quantized8(v, code []float64, block int) (indices, scales []float64) {
	indices = make([]float64, len(v))
	blocks(v, block, func(k int, b []float64) {
		scale := float64(float32(largest(b)))
		scales = append(scales, scale)
		for i, f := range b {
			indices[k*block+i] = float64(nearestSorted(code, f*reciprocal(scale)))
		}
	})
	return indices, scales
}

// dequantized8 does the opposite.
func dequantized8(indices, code, scales []float64, block int) []float64 {
	out := make([]float64, len(indices))
	for i, q := range indices {
		out[i] = code[int(q)] * scales[i/block]
	}
	return out
}

// quantizedRows are the operators of bitsandbytes.
var quantizedRows = map[*op.Op]row{
	op.Quantize4bit: asideRow(func(a *aside, c *op.Call) {
		args, w := c.Args.(*op.Quantize4bitArgs), a.get(c.In[0]).v
		code := codes4bit[args.Type]
		packed, scales := make([]float64, (len(w)+1)/2), []float64(nil)
		blocks(w, op.Block4bit, func(k int, b []float64) {
			scale := float64(float32(largest(b)))
			scales = append(scales, scale)
			for i, f := range b {
				at := k*op.Block4bit + i
				packed[at/2] += float64(nearestCode(code, f*reciprocal(scale)) << (4 * (1 - at%2))) // the first one in the upper half
			}
		})
		a.put(c.Out[0], packed)
		a.put(c.Out[2], code)
		if args.Double { // the maxima less their mean, in 8 bits
			mean := 0.0
			for _, s := range scales {
				mean += s / float64(len(scales))
			}
			mean = float64(float32(mean))
			for i := range scales {
				scales[i] -= mean
			}
			table := dynamicMap(true)
			indices, nested := quantized8(scales, table, op.BlockOfMax)
			scales = dequantized8(indices, table, nested, op.BlockOfMax)
			for i := range scales {
				scales[i] += mean
			}
			a.put(c.Out[1], indices)
			a.put(c.Out[3], []float64{mean})
			a.put(c.Out[4], nested)
			if args.First {
				a.put(c.Out[5], table)
			}
		} else {
			a.put(c.Out[1], scales)
		}
		a.x.known[engine.BlockOf(c.Out[0])] = quantity{scales: scales, code: code}
	}, nil),
	op.Dequantize4bit: asideRow(func(a *aside, c *op.Call) {
		q, packed := a.x.known[engine.BlockOf(c.In[0])], a.get(c.In[0]).v
		out := make([]float64, c.Out[0].Numel())
		for i := range out {
			at := int(packed[i/2]) >> (4 * (1 - i%2)) & 15
			out[i] = q.code[at] * q.scales[i/op.Block4bit]
		}
		a.put(c.Out[0], out)
	}, nil),
	op.Int8Quantize: asideRow(func(a *aside, c *op.Call) { quantizeRows(a, c, 0) }, nil),
	op.Int8Outliers: asideRow(func(a *aside, c *op.Call) { quantizeRows(a, c, c.Args.(*op.Int8Args).Threshold) }, nil),
	op.Int8Product:  asideRow(int8Product, nil),
	op.Int8Dequantize: asideRow(func(a *aside, c *op.Call) {
		w, q := a.get(c.In[0]), a.x.known[engine.BlockOf(c.In[0])]
		for i := range w.v {
			w.v[i] *= q.scales[i/w.size[len(w.size)-1]] / 127
		}
		a.put(c.Out[0], w.v)
	}, nil),
}

// quantizeRows scales each row so that its largest number is 127. Columns with a
// number beyond a threshold are left out; 0 is none.
func quantizeRows(a *aside, c *op.Call, threshold float64) {
	x := a.get(c.In[0])
	n := x.size[len(x.size)-1]
	var q quantity
	for j := range n {
		for i := j; threshold > 0 && i < len(x.v); i += n {
			if math.Abs(x.v[i]) >= threshold {
				q.outliers = append(q.outliers, j)
				break
			}
		}
	}
	blocks(x.v, n, func(_ int, row []float64) {
		scale := 0.0
		for _, f := range row {
			if threshold == 0 || math.Abs(f) < threshold {
				scale = max(scale, math.Abs(f))
			}
		}
		q.scales = append(q.scales, float64(float32(scale)))
		for i, f := range row {
			row[i] = math.RoundToEven(f * 127 * reciprocal(scale))
			if slices.Contains(q.outliers, i) {
				row[i] = 0
			}
		}
	})
	a.put(c.Out[0], x.v)
	a.put(c.Out[1], q.scales)
	a.x.known[engine.BlockOf(c.Out[0])] = q
}

// int8Product multiplies a quantized input by a quantized weight. Columns that were
// left out of the input, which operand 2 has as it was, are computed in 16 bits.
func int8Product(a *aside, c *op.Call) {
	x, w, whole, bias := a.get(c.In[0]), a.get(c.In[1]), a.get(c.In[2]), a.get(optional(c.In, 3))
	qx, qw := a.x.known[engine.BlockOf(c.In[0])], a.x.known[engine.BlockOf(c.In[1])]
	k, n := w.size[1], w.size[0]
	out := make([]float64, c.Out[0].Numel())
	for i := range out {
		row, column := i/n, i%n
		sum := 0.0
		for l := range k {
			sum += x.v[row*k+l] * w.v[column*k+l]
		}
		v := sum * qx.scales[row] * qw.scales[column] / (127 * 127)
		for _, l := range qx.outliers {
			v += whole.v[row*k+l] * w.v[column*k+l] * qw.scales[column] / 127
		}
		v = inFloat16(v)
		if bias != nil {
			v = inFloat16(v + bias.v[column])
		}
		out[i] = v
	}
	a.put(c.Out[0], out)
}

// inFloat16 rounds a number.
func inFloat16(v float64) float64 {
	return float64(tensor.FromFloat16(tensor.Float16Bits(float32(v))))
}
