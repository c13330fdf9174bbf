package aten

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// square is a power.
var square = define(op.Op{
	Name: "square", Sig: "torch.square(input)", Composite: true, Run: func(c *op.Call) {
		c.Return(c.Do1(PowScalar, &PowArgs{Exponent: op.Number{Set: true, Value: 2}}, c.In[0]))
	},
})

// PowArgs is the exponent of pow where it is a number.
type PowArgs struct {
	Exponent op.Number `arg:"exponent"`
}

// Pow chooses among the powers with a number and that of two tensors.
var Pow = define(op.Op{
	Name: "pow.any", Sig: "torch.pow(input, exponent: operand)", Args: &PowArgs{}, Composite: true, Run: func(c *op.Call) {
		if c.Opt(1) != nil {
			c.Return(c.Do1(PowTensor, nil, c.In...))
			return
		}
		c.Return(c.Do1(PowScalar, c.Args, c.In[0]))
	},
})

// PowScalar is x ** number.
var PowScalar = define(op.Op{
	Name: "pow", Args: &PowArgs{}, Cast: op.CastFP32, Run: func(c *op.Call) {
		convertedMap(c, weak(c.In[0].DType, c.Args.(*PowArgs).Exponent))
	},
	Save: []op.Save{op.In(0)}, Node: "PowBackward0", Grad: gradPow,
	Eval:   op.Mapped(kernel.PowScalar, kernel.PowScalarGrad, op.NumbersOf(func(a *PowArgs) []float64 { return []float64{a.Exponent.Value} })),
	Source: "aten/src/ATen/native/Pow.cpp: pow_Tensor_Scalar; torch/csrc/autograd/FunctionsManual.cpp: pow_backward",
})

func gradPow(b *op.Back) { // grad * (exponent * self.pow(exponent - 1))
	if b.Args.(*PowArgs).Exponent.Value == 0 {
		b.Set(0, b.NewLike(b.SavedIn(0)))
		return
	}
	power := b.Local(b.NewLike(b.SavedIn(0)))
	scaled := b.Local(b.Do1(MulScalar, nil, power))
	b.Set(0, b.Do1(MulTensor, nil, b.Grads[0], scaled))
}

// PowTensor is x ** y.
var PowTensor = define(op.Op{
	Name: "pow.Tensor_Tensor", Cast: op.CastFP32, Run: func(c *op.Call) { c.Return(c.New(c.Elementwise(c.In...), promoted(c, false))) },
	Save: []op.Save{op.In(1), op.In(0), op.Out(0)}, Node: "PowBackward1",
	Grad: func(b *op.Back) {
		x, y := b.SavedIn(0), b.SavedIn(1)
		mark := b.Mark()
		if b.Need(1) { // grad * where(self == 0 & exponent >= 0, 0, result * self.log())
			l := b.Elementwise(x, y)
			ge := b.New(y.LikeDense(), tensor.Bool)
			eq := b.New(x.LikeDense(), tensor.Bool)
			cond := b.Local(b.New(l, tensor.Bool))
			b.Drop(eq, ge)
			base := b.Local(b.Do1(To, &ToCopyArgs{DType: b.OutM[0].DType}, x))
			log := b.Local(b.NewLike(base))
			product := b.Local(b.Do1(MulTensor, nil, b.SavedOut(0), log))
			zero := b.Local(b.NewShape(b.Grads[0].DType))
			picked := b.Local(b.Do1(WhereSelf, nil, cond, zero, product))
			b.Set(1, b.Do1(MulTensor, nil, b.Grads[0], picked))
			b.DropTo(mark)
		}
		if b.Need(0) { // where(exponent == 0, 0, grad * (exponent * self.pow(exponent - 1)))
			less := b.Local(b.Do1(MulScalar, nil, y))
			power := b.Local(b.Do1(MulTensor, nil, x, less))
			scaled := b.Local(b.Do1(MulTensor, nil, y, power))
			product := b.Local(b.Do1(MulTensor, nil, b.Grads[0], scaled))
			zero := b.Local(b.NewShape(b.Grads[0].DType))
			none := b.Local(b.New(y.LikeDense(), tensor.Bool))
			b.Set(0, b.Do1(WhereSelf, nil, none, zero, product))
			b.DropTo(mark)
		}
	},
	Eval: mapping(kernel.Pow, someReal).Otherwise(op.Two(math.Pow,
		func(x [3]float64, _, _ float64) float64 {
			if x[1] == 0 {
				return 0
			}
			return x[1] * math.Pow(x[0], x[1]-1)
		},
		func(x [3]float64, y, _ float64) float64 {
			if x[0] == 0 && x[1] >= 0 {
				return 0
			}
			return y * math.Log(x[0])
		}).Eval()),
	Source: "torch/csrc/autograd/FunctionsManual.cpp: pow_backward_self, pow_backward_exponent",
})

// someReal holds of inputs of which one is floating.
func someReal(c *op.Call) bool {
	return c.Target().DType.IsFloating() && slices.ContainsFunc(c.In, func(t *op.Tensor) bool { return t.DType.IsFloating() })
}

// PowBaseArgs is the base of pow where it is a number.
type PowBaseArgs struct {
	Base op.Number `arg:"base"`
}

// The power of a number and a tensor; the result has no gaps, whatever the exponent is like.
var PowBase = define(op.Op{
	Name: "pow.Scalar", Args: &PowBaseArgs{}, Cast: op.CastFP32, Run: func(c *op.Call) {
		base := c.Args.(*PowBaseArgs).Base
		c.Return(c.NewShape(weak(c.In[0].DType, base), c.In[0].Size.Slice()...))
		if base.Value != 1 { // the base becomes a tensor of the GPU's
			d := tensor.Int64
			if base.Float {
				d = tensor.Float64
			}
			c.Scratch(tensor.Bytes(d.Size()))
		}
	},
	Save: []op.Save{op.In(0), op.Out(0)}, Node: "PowBackward2",
	Grad: func(b *op.Back) { // grad * (result * base.log()), but 0 where base is 0 and the exponent is not negative
		mark := b.Mark()
		factor := b.Local(b.Do1(MulScalar, nil, b.SavedOut(0)))
		if b.Args.(*PowBaseArgs).Base.Value == 0 {
			zero := b.Local(b.NewShape(b.Grads[0].DType))
			cond := b.Local(b.New(b.SavedIn(0).LikeDense(), tensor.Bool))
			factor = b.Local(b.Do1(WhereSelf, nil, cond, zero, factor))
		}
		b.Set(0, b.Do1(MulTensor, nil, b.Grads[0], factor))
		b.DropTo(mark)
	},
	Eval: (&op.Eval{Single: true, Forward: func(m op.Machine, c *op.Call) error {
		if !c.In[0].DType.IsFloating() {
			return op.ErrView
		}
		return m.Apply(kernel.PowBase, c.Target(), c.In, c.Args.(*PowBaseArgs).Base.Value)
	}}).Otherwise(op.Elements{
		Of: func(x [3]float64, base float64) float64 { return math.Pow(base, x[0]) },
		Slopes: []op.Slope{func(x [3]float64, y, base float64) float64 {
			if base == 0 && x[0] >= 0 {
				return 0
			}
			return y * math.Log(base)
		}},
		Param: func(args any) float64 { return args.(*PowBaseArgs).Base.Value },
	}.Eval()),
	Source: "aten/src/ATen/native/Pow.cpp: TORCH_META_FUNC2(pow, Scalar); torch/csrc/autograd/FunctionsManual.cpp: pow_backward_exponent",
})
