package runtime

import (
	"fmt"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// unary is an operator that is one kernel of its input, with the numbers of the
// arguments named; its derivative is one kernel of the gradient and of what was
// saved. Without one the operator has no derivative here.
func unary(k, grad *kernel.Kernel, saved saves, args ...string) row {
	numbers := func(a any) ([]float64, error) {
		var out []float64
		for _, name := range args {
			v, ok := number(a, name)
			if !ok {
				return nil, fmt.Errorf("argument %s is not known", name)
			}
			out = append(out, v)
		}
		return out, nil
	}
	r := row{forward: func(x *Executor, c *op.Call) error {
		n, err := numbers(c.Args)
		if err != nil {
			return err
		}
		return x.apply(k, target(c), c.In[:1], n...)
	}}
	if grad != nil {
		r.backward = func(x *Executor, b *op.Back) error {
			s := b.SavedIn
			if saved == result {
				s = b.SavedOut
			}
			n, err := numbers(b.Args)
			if err != nil {
				return err
			}
			return x.apply(grad, b.Results[0], []*op.Tensor{b.Grads[0], s[0]}, n...)
		}
	}
	return r
}

// saves says what a derivative reads beside the gradient.
type saves uint8

const (
	input saves = iota
	result
)

// scaledBy is a linear operator of one input, whose derivative is it again.
func scaledBy(f float64) row {
	return row{
		forward: func(x *Executor, c *op.Call) error { return x.apply(kernel.Affine, target(c), c.In[:1], f, 0) },
		backward: func(x *Executor, b *op.Back) error {
			return x.apply(kernel.Affine, b.Results[0], b.Grads[:1], f, 0)
		},
	}
}

// mapRows are functions of one tensor, element by element.
var mapRows = map[*op.Row]row{
	op.Relu:               unary(kernel.Relu, kernel.ReluGrad, result),
	op.ReluInPlace:        unary(kernel.Relu, kernel.ReluGrad, result),
	op.LeakyRelu:          unary(kernel.LeakyRelu, kernel.LeakyReluGrad, input, "negative_slope"),
	op.Elu:                unary(kernel.Elu, kernel.EluGrad, input, "alpha"),
	op.Silu:               unary(kernel.Silu, kernel.SiluGrad, input),
	op.Softplus:           unary(kernel.Softplus, kernel.SoftplusGrad, input, "beta", "threshold"),
	op.Hardtanh:           unary(kernel.Hardtanh, kernel.HardtanhGrad, input, "min_val", "max_val"),
	op.Hardswish:          unary(kernel.Hardswish, kernel.HardswishGrad, input),
	op.Hardsigmoid:        unary(kernel.Hardsigm, kernel.HardsigmGrad, input),
	op.LogSigmoid:         unary(kernel.LogSigmoid, kernel.LogSigmoidGrad, input),
	op.LeakyReluInPlace:   unary(kernel.LeakyRelu, kernel.LeakyReluGrad, result, "negative_slope"),
	op.HardtanhInPlace:    unary(kernel.Hardtanh, kernel.HardtanhGrad, input, "min_val", "max_val"),
	op.HardswishInPlace:   unary(kernel.Hardswish, kernel.HardswishGrad, input),
	op.SiluInPlace:        unary(kernel.Silu, kernel.SiluGrad, input),
	op.Relu6:              relu6(),
	op.HardsigmoidInPlace: unary(kernel.Hardsigm, kernel.HardsigmGrad, input),
	op.Gelu:               gelu(),
	op.Sigmoid:            unary(kernel.Sigmoid, kernel.SigmoidGrad, result),
	op.Tanh:               unary(kernel.Tanh, kernel.TanhGrad, result),
	op.Exp:                unary(kernel.Exp, kernel.Mul, result),
	op.Log:                unary(kernel.Log, kernel.Div, input),
	op.Sqrt:               unary(kernel.Sqrt, kernel.SqrtGrad, result),
	op.Rsqrt:              unary(kernel.Rsqrt, kernel.RsqrtGrad, result),
	op.Sin:                unary(kernel.Sin, kernel.SinGrad, input),
	op.Cos:                unary(kernel.Cos, kernel.CosGrad, input),
	op.Abs:                unary(kernel.Abs, kernel.AbsGrad, input),
	op.Neg:                scaledBy(-1),
	op.PowScalar:          unary(kernel.PowScalar, kernel.PowScalarGrad, input, "exponent"),

	op.NativeDropout: {
		forward: func(x *Executor, c *op.Call) error {
			p, _ := number(c.Args, "p")
			return x.launch(kernel.Dropout, x.operands(c.Out[0], c.Out[1], c.In[0]), []int64{x.draw()}, p)
		},
		backward: func(x *Executor, b *op.Back) error {
			p, _ := number(b.Args, "p")
			return x.apply(kernel.MaskScale, b.Results[0], []*op.Tensor{b.Grads[0], b.SavedOut[1]}, 1/(1-p))
		},
	},
}

func gelu() row {
	choose := func(args any, exact, tanh *kernel.Kernel) *kernel.Kernel {
		if arg(args, "approximate") == "tanh" {
			return tanh
		}
		return exact
	}
	return row{
		forward: func(x *Executor, c *op.Call) error {
			return x.apply(choose(c.Args, kernel.Gelu, kernel.GeluTanh), c.Out[0], c.In[:1])
		},
		backward: func(x *Executor, b *op.Back) error {
			return x.apply(choose(b.Args, kernel.GeluGrad, kernel.GeluTanhGrad), b.Results[0], []*op.Tensor{b.Grads[0], b.SavedIn[0]})
		},
	}
}

func relu6() row {
	return row{
		forward: func(x *Executor, c *op.Call) error {
			return x.apply(kernel.Hardtanh, c.Out[0], c.In[:1], 0, 6)
		},
		backward: func(x *Executor, b *op.Back) error {
			return x.apply(kernel.HardtanhGrad, b.Results[0], []*op.Tensor{b.Grads[0], b.SavedIn[0]}, 0, 6)
		},
	}
}

// operands are tensors as they are.
func (x *Executor) operands(ts ...*op.Tensor) []kernel.Tensor {
	out := make([]kernel.Tensor, len(ts))
	for i, t := range ts {
		out[i] = x.operand(t)
	}
	return out
}
