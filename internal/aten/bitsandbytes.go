package aten

import (
	"fmt"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/cub"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// What bitsandbytes allocates (0.46 to 0.50): its kernels write into tensors
// that its Python code makes with torch.empty.

// Blocks of values that share a maximum: of 4-bit weights, and of those maxima
// when they are quantized in their turn.
const (
	Block4bit  = 64
	BlockOfMax = 256
)

// Quantize4bitArgs says how a weight is stored in four bits.
type Quantize4bitArgs struct {
	Type   string // nf4 or fp4
	Double bool   // the maxima are quantized, too
	First  bool   // the first such weight of the process, which makes the table of the maxima
	// Storage is the element type of the packed weight.
	Storage tensor.DType
}

// Quantize4bit is functional.quantize_4bit: the packed weight, the maxima of its
// blocks and the table of the sixteen values; with double quantization also
// their mean, the maxima of their blocks and a copy of the table, and then perhaps the
// table.
var Quantize4bit = define(op.Op{
	Name: "quantize_4bit", Eval: evalQuantize4bit, Args: &Quantize4bitArgs{}, Composite: true, Run: func(c *op.Call) {
		a, n := c.Args.(*Quantize4bitArgs), c.In[0].Numel()
		blocks := tensor.DivUp(n, Block4bit)
		absmax := c.NewShape(tensor.Float32, blocks)
		packed := c.NewShape(a.Storage, (n+1)/(2*a.Storage.Size()), 1)
		code := c.NewShape(tensor.Float32, 16) // scaled to its largest: data.div_(data.abs().max())
		abs := c.Do1(Abs, nil, code)
		largest := c.Do1(Max.Any, &ExtremeArgs{}, abs)
		c.Drop(abs, largest)
		if !a.Double {
			c.Return(packed, absmax, code)
			return
		}
		offset := c.Do1(Mean, &ReduceArgs{}, absmax)
		centred := c.Do1(Sub, &BinaryArgs{}, absmax, offset)
		var table *op.Tensor
		if a.First {
			table = c.NewShape(tensor.Float32, 256)
		}
		nested := c.NewShape(tensor.Float32, tensor.DivUp(blocks, BlockOfMax))
		quantized := c.NewShape(tensor.Uint8, blocks)
		own := c.NewShape(tensor.Float32, 256) // code.to(device, copy=True)
		c.Drop(centred, absmax)
		c.Return(packed, quantized, code, offset, nested, own)
		if a.First {
			c.Return(table)
		}
	},
	Source: "bitsandbytes/functional.py: quantize_4bit, quantize_blockwise, get_4bit_type",
})

// Dequantize4bitArgs are the shape and type of a weight before it was quantized.
type Dequantize4bitArgs struct {
	Out, In int64
	DType   tensor.DType
	Double  bool
}

// Dequantize4bit is functional.dequantize_4bit of a packed weight.
var Dequantize4bit = define(op.Op{
	Name: "dequantize_4bit", Eval: evalDequantize4bit, Args: &Dequantize4bitArgs{}, Composite: true, Run: func(c *op.Call) {
		a := c.Args.(*Dequantize4bitArgs)
		if a.Double { // the maxima
			c.Local(c.NewShape(tensor.Float32, tensor.DivUp(a.Out*a.In, Block4bit)))
		}
		c.Return(c.NewShape(a.DType, a.Out, a.In))
	},
	Source: "bitsandbytes/functional.py: dequantize_4bit, dequantize_blockwise",
})

// DequantizeNF4 is the same weight as Axolotl's fused kernels of LoRA have it: they
// allocate the result first.
var DequantizeNF4 = define(op.Op{
	Name: "nf4_dequantize", Eval: evalDequantize4bit, Args: &Dequantize4bitArgs{}, Composite: true, Run: func(c *op.Call) {
		a := c.Args.(*Dequantize4bitArgs)
		if !a.Double { // they leave it to bitsandbytes
			c.Return(c.Do1(Dequantize4bit, a, c.In...))
			return
		}
		out := c.NewShape(a.DType, a.Out, a.In)
		c.Local(c.NewShape(tensor.Float32, tensor.DivUp(a.Out*a.In, Block4bit)))
		c.Return(out)
	},
	Source: "axolotl/kernels/quantize.py: dequantize",
})

// Int8Quantize is functional.int8_vectorwise_quant of float16, with one scale a
// row.
var Int8Quantize = define(op.Op{
	Name: "int8_vectorwise_quant", Eval: evalInt8Quantize, Composite: true, Run: func(c *op.Call) {
		stats := c.NewShape(tensor.Float32, c.In[0].Numel()/max(c.In[0].Dim(-1), 1))
		c.Return(c.NewShape(tensor.Int8, c.In[0].Size.Slice()...), stats)
	},
	Source: "bitsandbytes/backends/cuda/ops.py: int8_vectorwise_quant",
})

// Int8Args say from which size on numbers are not quantized.
type Int8Args struct{ Threshold float64 }

// Int8Outliers does the same and looks for columns that hold larger values than
// a threshold: that there are some is taken for granted, and which are is the data's; the
// memory of none is counted.
var Int8Outliers = define(op.Op{
	Name: "int8_vectorwise_quant.threshold", Eval: evalInt8Outliers, Args: &Int8Args{}, Composite: true, Run: func(c *op.Call) {
		x := c.In[0]
		parts := c.Do(Int8Quantize, nil, x)
		abs := c.Do1(Abs, nil, x)
		large := c.NewShape(tensor.Bool, x.Size.Slice()...) // abs >= threshold
		c.Drop(abs)
		c.Drop(c.Do1(Any, &ReduceArgs{}, large))
		columns := c.Do1(Any, &ReduceArgs{Dim: []int64{0}}, large)
		count := c.NewShape(tensor.Int32) // argwhere
		c.Drop(c.NewShape(tensor.Uint8, cub.Sum(c.Env().SMs, columns.Numel())))
		c.Drop(c.NewShape(tensor.Uint8, cub.Flagged(c.Env().Arch, columns.Numel())))
		c.Drop(count, columns)
		if x.Numel() > x.Dim(-1) {
			c.Drop(c.NewShape(tensor.Int8)) // out_row[:, columns] = 0
		}
		c.Drop(large)
		c.Return(parts...)
	},
	NotModelled: "columns of inputs beyond LLM.int8()'s threshold, which are computed in 16 bit",
	Source:      "bitsandbytes/backends/cuda/ops.py: int8_vectorwise_quant",
})

// Int8Product is int8_scaled_mm of a quantized input and a quantized weight, in
// the type of input 2; the bias changes the result in place.
var Int8Product = define(op.Op{
	Name: "int8_scaled_mm", Eval: evalInt8Product, Composite: true, Run: func(c *op.Call) {
		x, w, like := c.In[0], c.In[1], c.In[2]
		size := x.Size.Set(x.Rank()-1, w.Dim(0)).Slice()
		sums := c.NewShape(tensor.Int32, size...)
		if x.Dim(-1)%4 != 0 { // cuBLASLt cannot; the product is computed in float32
			a := c.Do1(To, &ToCopyArgs{DType: tensor.Float32}, x)
			b := c.Do1(To, &ToCopyArgs{DType: tensor.Float32}, w)
			t := c.Do1(T, nil, b)
			c.Drop(b)
			y := c.Do1(Matmul, nil, a, t)
			c.Drop(a, t)
			i := c.Do1(To, &ToCopyArgs{DType: tensor.Int32}, y)
			c.Drop(y, i)
		}
		out := c.NewShape(tensor.Float16, size...)
		y := c.Do1(To, &ToCopyArgs{DType: like.DType}, out)
		c.Drop(out, sums)
		c.Return(y)
	},
	Source: "bitsandbytes/backends/default/ops.py: int8_scaled_mm; cuda/ops.py: int8_linear_matmul, int8_mm_dequant",
})

// Int8Dequantize is a weight of eight bits in the type of input 1:
// CB.to(dtype, copy=True).mul_(SCB.unsqueeze(1).mul(1 / 127)).
var Int8Dequantize = define(op.Op{
	Name: "int8_dequantize", Eval: evalInt8Dequantize, Run: func(c *op.Call) {
		w := c.NewShape(c.In[1].DType, c.In[0].Size.Slice()...)
		c.Drop(c.NewShape(tensor.Float32, c.In[0].Dim(0), 1))
		c.Return(w)
	},
	Source: "bitsandbytes/autograd/_functions.py: MatMul8bitLt.backward",
})

// Rows3 is a sequence of three dimensions as a matrix, anything else itself:
// bitsandbytes looks at those alone.
var Rows3 = define(op.Op{
	Name: "rows3", Composite: true, Run: func(c *op.Call) {
		x := c.In[0]
		if x.Rank() != 3 {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(Reshape, &ShapeArgs{Shape: []int64{x.Dim(0) * x.Dim(1), x.Dim(2)}}, x))
	},
})

// RowsOf is a matrix as the sequence whose rows it holds, if that has three
// dimensions.
var RowsOf = define(op.Op{
	Name: "rows_of", Composite: true, Run: func(c *op.Call) {
		y, x := c.In[0], c.In[1]
		if x.Rank() != 3 {
			c.ReturnSelf(0)
			return
		}
		c.Return(c.Do1(Reshape, &ShapeArgs{Shape: []int64{x.Dim(0), x.Dim(1), y.Dim(1)}}, y))
	},
})

// ViewRowsOf is y.view(*x.shape[:-1], -1), a view in any case.
var ViewRowsOf = define(op.Op{
	Name: "view_rows_of", Composite: true, Run: func(c *op.Call) {
		y, x := c.In[0], c.In[1]
		c.Return(c.Do1(View, &ShapeArgs{Shape: x.Size.Set(x.Rank()-1, y.Dim(-1)).Slice()}, y))
	},
})

// What bitsandbytes' kernels read beside their operands, such as the scales of a weight,
// is noted of the block of what was quantized.

// quantized4 is what is known of a block of numbers of 4 bits.
type quantized4 struct{ scales, code []float64 }

var evalQuantize4bit = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	if d := c.Out[0].DType; d != tensor.Uint8 {
		return fmt.Errorf("weights of 4 bits that are packed in %v cannot be computed with", d)
	}
	return m.OnHost(func(a op.Arrays) {
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
			a.Put(c.Out[5], table)
			if args.First {
				a.Put(c.Out[6], table)
			}
		} else {
			a.Put(c.Out[1], scales)
		}
		m.Note(c.Out[0], quantized4{scales, code})
	})
}}

var evalDequantize4bit = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	return m.OnHost(func(a op.Arrays) {
		q := op.Noted[quantized4](m, c.In[0])
		a.Put(c.Out[0], array.Dequantized4(a.Get(c.In[0]), q.code, q.scales, Block4bit, int(c.Out[0].Numel())))
	})
}}

// int8Of is a tensor of 8 bits, as it was quantized.
func int8Of(m op.Machine, a op.Arrays, t *op.Tensor) *array.Int8 {
	q := op.Noted[array.Int8](m, t)
	q.V = a.Get(t)
	return &q
}

// quantizeRows scales each row so that its largest number is 127.
func quantizeRows(m op.Machine, c *op.Call, threshold float64) error {
	return m.OnHost(func(a op.Arrays) {
		q := a.Array(c.In[0]).QuantizedRows(threshold)
		a.Put(c.Out[0], q.V)
		a.Put(c.Out[1], q.Scales)
		m.Note(c.Out[0], array.Int8{Scales: q.Scales, Outliers: q.Outliers})
	})
}

var (
	evalInt8Quantize = &op.Eval{Forward: func(m op.Machine, c *op.Call) error { return quantizeRows(m, c, 0) }}
	evalInt8Outliers = &op.Eval{Forward: func(m op.Machine, c *op.Call) error { return quantizeRows(m, c, c.Args.(*Int8Args).Threshold) }}
)

// evalInt8Product computes columns that were left out of the input, which input 2 has as
// it was, in 16 bits.
var evalInt8Product = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	return m.OnHost(func(a op.Arrays) {
		x, w := int8Of(m, a, c.In[0]), int8Of(m, a, c.In[1])
		a.Put(c.Out[0], x.Times(w, int(c.In[1].Dim(1)), a.Get(c.In[2]), a.Get(c.Opt(3)), func(v float64) float64 {
			return float64(tensor.FromFloat16(tensor.Float16Bits(float32(v))))
		}))
	})
}}

var evalInt8Dequantize = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	return m.OnHost(func(a op.Arrays) { a.Put(c.Out[0], int8Of(m, a, c.In[0]).DequantizedRows(int(c.In[0].Dim(-1)))) })
}}
