package aten

import (
	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Gemm4bitArgs are the shape of a weight of 4 bits.
type Gemm4bitArgs struct {
	Out, In int64
	Double  bool
	Rows    int64 // up to which the kernel reads the packed weight
}

// Gemm4bit is the product of input 0 and a packed weight whose maxima input 2 holds, with
// a bias or none. A kernel reads the packed weight if the input has few rows; else the
// weight is made in the input's type.
var Gemm4bit = define(op.Op{
	Name: "gemm_4bit", Eval: evalGemm4bit, Args: &Gemm4bitArgs{}, Composite: true, Run: func(c *op.Call) {
		a, x := c.Args.(*Gemm4bitArgs), c.In[0]
		if x.Numel() <= a.Rows*a.In {
			x = c.Do1(Contiguous, nil, x)
			c.Return(c.NewShape(x.DType, x.Size.Set(x.Rank()-1, a.Out).Slice()...))
			c.Drop(x)
			return
		}
		if a.Double { // the maxima, without and with their mean
			blocks := tensor.DivUp(a.Out*a.In, Block4bit)
			c.Local(c.NewShape(tensor.Float32, blocks))
			c.Local(c.NewShape(tensor.Float32, blocks))
		}
		w := c.Local(c.NewShape(x.DType, a.Out, a.In))
		c.Return(c.Do1(Linear, nil, x, w, c.Opt(3)))
	},
	Source: "bitsandbytes/backends/cuda/ops.py: gemm_4bit, _dequant_linear_fallback",
})

// evalGemm4bit computes both ways alike.
var evalGemm4bit = &op.Eval{Forward: func(m op.Machine, c *op.Call) error {
	return m.OnHost(func(a op.Arrays) {
		args := c.Args.(*Gemm4bitArgs)
		q := op.Noted[quantized4](m, c.In[1])
		n, k := int(args.Out), int(args.In)
		w := array.Dequantized4(a.Get(c.In[1]), q.code, q.scales, Block4bit, n*k)
		x, bias := a.Get(c.In[0]), a.Get(c.Opt(3))
		a.Put(c.Out[0], array.Each(int(c.Out[0].Numel()), func(i int) float64 {
			sum := 0.0
			for l := range k {
				sum += x[i/n*k+l] * w[i%n*k+l]
			}
			if bias != nil {
				sum += bias[i%n]
			}
			return sum
		}))
	})
}}

// FusedRows is up to how many rows of an input of type d gemm_4bit does without the
// whole weight of n rows and k columns (_gemm_4bit_use_custom_cuda, measured by its
// authors for each architecture). Tiles are 64 rows of the weight; what is compared with
// the multiprocessors is how often they fill the GPU.
func FusedRows(e *op.Env, d tensor.DType, n, k int64) int64 {
	const always = 4
	simt := int64(7) // where the kernel without tensor cores is the better one
	tiles, sms := tensor.DivUp(n, 64), int64(e.SMs)
	filled := func(times, of int64) bool { return tiles*of >= sms*times } // at least times/of of the GPU
	pick := func(is bool, yes, no int64) int64 {
		if is {
			return yes
		}
		return no
	}
	hbm := e.Arch == 80 || e.Arch/10 == 9
	if n*k >= 4<<20 && (e.Arch == 80 && tiles >= 48 && (k > n && !filled(3, 4) || k == n && !filled(3, 5)) ||
		e.Arch/10 == 9 && tiles >= 36 && !filled(3, 4) && (k > n || k == n && filled(3, 5))) {
		simt = 5
	}
	switch {
	case k%Block4bit != 0:
		return 0
	case d == tensor.Float32, e.Arch < 75, e.Arch == 75 && d != tensor.Float16:
		return 7
	case e.Arch == 87, e.Arch/10 == 11:
		return always
	case e.Arch/10 == 10:
		return pick(filled(3, 1), 32, pick(filled(1, 1) && k < n, 8, always))
	case n*k < 4<<20 && 2*k < n:
		switch {
		case e.Arch == 80:
			return pick(filled(1, 3), 512, 1536)
		case hbm:
			return pick(filled(1, 3), 320, 512)
		case e.Arch == 75:
			return pick(filled(3, 1) || k < 704, 320, pick(k >= 1024, 64, 96))
		}
		return pick(!filled(1, 1) && tiles*k > sms*320, 192, 320)
	case n*k < 4<<20:
		switch quarter := tiles*4 <= sms; {
		case e.Arch == 80 && quarter:
			return pick(k < n, 384, pick(tiles*8 <= sms, 32, 128))
		case e.Arch == 75 && !filled(1, 1):
			return 64
		case quarter:
			return pick(k < n || hbm, 32, 23)
		}
		return pick(tiles*2 <= sms, 16, always)
	case e.Arch == 75:
		return pick(filled(3, 1), pick(k < n, 128, 64), pick(tiles >= sms/2, 64, 32))
	case e.Arch == 80:
		switch {
		case filled(3, 1):
			return 128
		case filled(1, 1):
			return pick(k < n, 64, 32)
		case k >= 3*n && tiles*4 > sms, k == n && tiles >= 48 && !filled(3, 5):
			return simt
		case !filled(1, 2) && k <= n:
			return 128
		case !filled(1, 2) && filled(1, 3):
			return simt
		}
		return pick(tiles >= sms/2 && k < n, 128, 16)
	case e.Arch == 86:
		return pick(filled(1, 1), 128, pick(tiles >= sms/2, 64, 16))
	case hbm:
		switch {
		case filled(3, 1):
			return 64
		case filled(2, 1):
			return 48
		case filled(1, 1):
			return 32
		}
		return pick(tiles >= sms/2 && (k < n || filled(3, 4)), 16, simt)
	case e.Arch == 121 && filled(1, 1):
		return 256
	case e.Arch == 120:
		switch {
		case filled(3, 1):
			return 256
		case filled(2, 1):
			return 128
		case filled(4, 5):
			return pick(k >= n, 96, 64)
		case tiles >= sms/2:
			return pick(2*k >= n && tiles >= 128, 64, 8)
		}
		return pick(k > 2*n && tiles > 64, 16, 8)
	case filled(3, 1):
		return 256
	case filled(2, 1):
		return 128
	case filled(4, 5):
		switch {
		case k > 2*n, tiles >= 200:
			return 128
		case k >= n:
			return pick(sms >= 60, 128, 32)
		}
		return 64
	case tiles >= sms/2:
		return pick(k > 2*n, 64, pick(tiles >= 64, 8, 32))
	case k > n && tiles <= 48:
		return pick(k >= 3*n, 12, 10)
	}
	return pick(k > 2*n || tiles < 48, 16, 8)
}
