package op

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/tensor"
)

// What bitsandbytes' kernels read beside their operands, such as the scales of a weight,
// is noted of the block of what was quantized.

// quantized4 is what is known of a block of numbers of 4 bits.
type quantized4 struct{ scales, code []float64 }

var evalQuantize4bit = &Eval{Forward: func(m Machine, c *Call) error {
	return m.Aside(func(a Arrays) {
		args := c.Args.(*Quantize4bitArgs)
		code := array.Codes4bit[args.Type]
		packed, scales := array.Quantized4(a.Get(c.In[0]), code, Block4bit)
		a.Put(c.Out[0], packed)
		a.Put(c.Out[2], code)
		if args.Double {
			table := array.DynamicMap(true)
			indices, nested, mean := array.NestedScales(scales, table, BlockOfMax)
			for i, v := range array.Dequantized8(indices, table, nested, BlockOfMax) {
				scales[i] = v + mean
			}
			a.Put(c.Out[1], indices)
			a.Put(c.Out[3], []float64{mean})
			a.Put(c.Out[4], nested)
			if args.First {
				a.Put(c.Out[5], table)
			}
		} else {
			a.Put(c.Out[1], scales)
		}
		m.Note(c.Out[0], quantized4{scales, code})
	})
}}

var evalDequantize4bit = &Eval{Forward: func(m Machine, c *Call) error {
	return m.Aside(func(a Arrays) {
		q := noted[quantized4](m, c.In[0])
		a.Put(c.Out[0], array.Dequantized4(a.Get(c.In[0]), q.code, q.scales, Block4bit, int(c.Out[0].Numel())))
	})
}}

// int8Of is a tensor of 8 bits, as it was quantized.
func int8Of(m Machine, a Arrays, t *Tensor) *array.Int8 {
	q := noted[array.Int8](m, t)
	q.V = a.Get(t)
	return &q
}

// quantizeRows scales each row so that its largest number is 127.
func quantizeRows(m Machine, c *Call, threshold float64) error {
	return m.Aside(func(a Arrays) {
		q := a.Array(c.In[0]).QuantizedRows(threshold)
		a.Put(c.Out[0], q.V)
		a.Put(c.Out[1], q.Scales)
		m.Note(c.Out[0], array.Int8{Scales: q.Scales, Outliers: q.Outliers})
	})
}

var (
	evalInt8Quantize = &Eval{Forward: func(m Machine, c *Call) error { return quantizeRows(m, c, 0) }}
	evalInt8Outliers = &Eval{Forward: func(m Machine, c *Call) error { return quantizeRows(m, c, c.Args.(*Int8Args).Threshold) }}
)

// evalInt8Product computes columns that were left out of the input, which input 2 has as
// it was, in 16 bits.
var evalInt8Product = &Eval{Forward: func(m Machine, c *Call) error {
	return m.Aside(func(a Arrays) {
		x, w := int8Of(m, a, c.In[0]), int8Of(m, a, c.In[1])
		a.Put(c.Out[0], x.Times(w, int(c.In[1].Dim(1)), a.Get(c.In[2]), a.Get(c.Opt(3)), func(v float64) float64 {
			return float64(tensor.FromFloat16(tensor.Float16Bits(float32(v))))
		}))
	})
}}

var evalInt8Dequantize = &Eval{Forward: func(m Machine, c *Call) error {
	return m.Aside(func(a Arrays) { a.Put(c.Out[0], int8Of(m, a, c.In[0]).DequantizedRows(int(c.In[0].Dim(-1)))) })
}}
