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
var mapRows = map[string]row{
	"relu":         unary(kernel.Relu, kernel.ReluGrad, result),
	"relu_":        unary(kernel.Relu, kernel.ReluGrad, result),
	"leaky_relu":   unary(kernel.LeakyRelu, kernel.LeakyReluGrad, input, "negative_slope"),
	"elu":          unary(kernel.Elu, kernel.EluGrad, input, "alpha"),
	"silu":         unary(kernel.Silu, kernel.SiluGrad, input),
	"softplus":     unary(kernel.Softplus, kernel.SoftplusGrad, input, "beta", "threshold"),
	"hardtanh":     unary(kernel.Hardtanh, kernel.HardtanhGrad, input, "min_val", "max_val"),
	"hardswish":    unary(kernel.Hardswish, kernel.HardswishGrad, input),
	"hardsigmoid":  unary(kernel.Hardsigm, kernel.HardsigmGrad, input),
	"log_sigmoid":  unary(kernel.LogSigmoid, kernel.LogSigmoidGrad, input),
	"leaky_relu_":  unary(kernel.LeakyRelu, kernel.LeakyReluGrad, result, "negative_slope"),
	"hardtanh_":    unary(kernel.Hardtanh, kernel.HardtanhGrad, input, "min_val", "max_val"),
	"hardswish_":   unary(kernel.Hardswish, kernel.HardswishGrad, input),
	"silu_":        unary(kernel.Silu, kernel.SiluGrad, input),
	"relu6":        relu6(),
	"hardsigmoid_": unary(kernel.Hardsigm, kernel.HardsigmGrad, input),
	"gelu":         gelu(),
	"sigmoid":      unary(kernel.Sigmoid, kernel.SigmoidGrad, result),
	"tanh":         unary(kernel.Tanh, kernel.TanhGrad, result),
	"exp":          unary(kernel.Exp, kernel.Mul, result),
	"log":          unary(kernel.Log, kernel.Div, input),
	"sqrt":         unary(kernel.Sqrt, kernel.SqrtGrad, result),
	"rsqrt":        unary(kernel.Rsqrt, kernel.RsqrtGrad, result),
	"sin":          unary(kernel.Sin, kernel.SinGrad, input),
	"cos":          unary(kernel.Cos, kernel.CosGrad, input),
	"abs":          unary(kernel.Abs, kernel.AbsGrad, input),
	"neg":          scaledBy(-1),
	"pow":          unary(kernel.PowScalar, kernel.PowScalarGrad, input, "exponent"),

	"native_dropout": {
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
