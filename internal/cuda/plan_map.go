package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// whole are the kernels of kind Map that know integers too.
var whole = []*kernel.Kernel{kernel.Fill, kernel.Copy, kernel.Affine, kernel.Neg, kernel.Abs, kernel.FloorDivide, kernel.Add, kernel.Mul, kernel.Maximum, kernel.Minimum,
	kernel.Eq, kernel.Ne, kernel.Lt, kernel.Le, kernel.Gt, kernel.Ge,
	kernel.EqScalar, kernel.NeScalar, kernel.LtScalar, kernel.LeScalar, kernel.GtScalar, kernel.GeScalar, kernel.MaskedFill, kernel.Where}

// operands are the tensors of a call.
func operands(c *kernel.Call) []*kernel.Tensor {
	out := make([]*kernel.Tensor, len(c.T))
	for i := range c.T {
		out[i] = &c.T[i]
	}
	return out
}

// mapPlans are kernels of kind Map: one function computes all of floating
// numbers, one all of integers.
func mapPlans() map[*kernel.Kernel]planner {
	out := map[*kernel.Kernel]planner{kernel.Dropout: dropout, kernel.RandomUniform: random, kernel.RandomBernoulli: random, kernel.Tril: triangle(false), kernel.Triu: triangle(true), kernel.SGD: sgd, kernel.Adam: adam}
	for _, k := range kernel.All() {
		if _, ok := out[k]; k.Kind == kernel.Map && k.Formula == nil && !ok {
			out[k], anyType[k] = elementwise, true
		}
	}
	for _, k := range []*kernel.Kernel{kernel.RandomUniform, kernel.RandomBernoulli, kernel.Tril, kernel.Triu} {
		anyType[k] = true
	}
	return out
}

// values are the operands that decide in what is computed: not masks.
func values(c *kernel.Call) []kernel.Tensor {
	switch c.Kernel {
	case kernel.Fill:
		return c.T
	case kernel.Where:
		return c.T[2:]
	case kernel.MaskedFill, kernel.MaskScale:
		return c.T[1:2]
	}
	return c.T[1:]
}

// integral reports whether integers are computed; bool counts as one.
func integral(c *kernel.Call, ts []kernel.Tensor) (bool, error) {
	floating := 0
	for i := range ts {
		if ts[i].DType.IsFloating() {
			floating++
		}
	}
	for i := range c.T {
		if c.T[i].DType == tensor.Float64 && c.Kernel != kernel.Copy {
			return false, unsupported(c, "float64 is not computed there")
		}
	}
	return floating == 0, nil
}

func elementwise(c *kernel.Call) ([]launch, error) {
	if len(c.T) > 4 || len(c.F) > 2 {
		return nil, fmt.Errorf("kernel %s has too many operands for its kind", c.Kernel.Name)
	}
	ints, err := integral(c, values(c))
	if err != nil {
		return nil, err
	}
	function := "map_float"
	if ints {
		function = "map_int"
		if !slices.Contains(whole, c.Kernel) {
			return nil, unsupported(c, fmt.Sprintf("is not computed of %v", values(c)[0].DType))
		}
	}
	ts := operands(c)
	for len(ts) < 4 {
		ts = append(ts, &kernel.Tensor{})
	}
	s := over(c.T[0].Size.Len(), ts...)
	f := append(append([]float64(nil), c.F...), 0, 0)
	a := args{}.ints(int64(c.Kernel.Index()), int64(len(c.T)-1)).doubles(f[0], f[1]).sizes(s.size).tensors(s, ts...)
	return each(function, numel(s.size), a), nil
}

// threshold is a probability in units of 2^-24, rounded up: a number of
// kernel.Uniform is at least p if, and only if, its 24 bits are at least that.
func threshold(p float64) int64 { return int64(math.Ceil(p * (1 << 24))) }

func dropout(c *kernel.Call) ([]launch, error) {
	ts := operands(c)
	s := over(c.T[0].Size.Len(), ts...)
	a := args{}.ints(c.I[0], threshold(c.F[0])).floats(1/(1-c.F[0])).sizes(s.size).tensors(s, ts...)
	return each("dropout", numel(s.size), a), nil
}

func random(c *kernel.Call) ([]launch, error) {
	y := &c.T[0]
	s := over(y.Size.Len(), y)
	from := float(c, "from")
	a := args{}.ints(c.I[0], truth(c.Kernel == kernel.RandomBernoulli), threshold(float(c, "p"))).doubles(from, float(c, "to")-from).sizes(s.size).tensors(s, y)
	return each("random_numbers", numel(s.size), a), nil
}

func triangle(upper bool) planner {
	return func(c *kernel.Call) ([]launch, error) {
		ints, err := integral(c, c.T[1:])
		if err != nil {
			return nil, err
		}
		rank := c.T[0].Size.Len()
		if rank < 2 {
			return nil, unsupported(c, fmt.Sprintf("%d dimensions; at least 2 are needed", rank))
		}
		a := args{}.ints(truth(upper), c.I[0], truth(ints)).sizes(c.T[0].Size.Slice()).whole(&c.T[0]).whole(&c.T[1])
		return each("triangle", c.T[0].Numel(), a), nil
	}
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// number is an integer of a call by its name.
func number(c *kernel.Call, name string) int64 {
	for i, n := range c.Kernel.Ints {
		if n == name {
			return c.I[i]
		}
	}
	return 0
}

// float is a number of a call by its name.
func float(c *kernel.Call, name string) float64 {
	for i, n := range c.Kernel.Floats {
		if n == name {
			return c.F[i]
		}
	}
	return 0
}

// operand is an operand of a call by its name.
func operand(c *kernel.Call, name string) *kernel.Tensor {
	for i, n := range c.Kernel.Tensors {
		if strings.TrimSuffix(n, "?") == name {
			return &c.T[i]
		}
	}
	return &kernel.Tensor{}
}

func sgd(c *kernel.Call) ([]launch, error) {
	ts := operands(c)
	s := over(c.T[0].Size.Len(), ts...)
	a := args{}.ints(truth(number(c, "step") == 1), number(c, "nesterov"), number(c, "maximize")).
		floats(float(c, "lr"), float(c, "momentum"), float(c, "dampening"), float(c, "weight_decay")).sizes(s.size).tensors(s, ts...)
	return each("sgd", numel(s.size), a), nil
}

func adam(c *kernel.Call) ([]launch, error) {
	ts := operands(c)
	s := over(c.T[0].Size.Len(), ts...)
	step, lr, beta1, beta2 := float64(number(c, "step")), float(c, "lr"), float(c, "beta1"), float(c, "beta2")
	decay, shrink := float(c, "weight_decay"), 1.0
	if number(c, "decoupled") != 0 {
		decay, shrink = 0, 1-lr*decay
	}
	a := args{}.ints(truth(step == 1), number(c, "maximize")).
		floats(beta1, 1-beta1, beta2, 1-beta2, lr/(1-math.Pow(beta1, step)), math.Sqrt(1-math.Pow(beta2, step)), float(c, "eps"), decay, shrink).
		sizes(s.size).tensors(s, ts...)
	return each("adam", numel(s.size), a), nil
}
