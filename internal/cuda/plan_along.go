package cuda

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// alongPlans go along a dimension.
var alongPlans = map[*kernel.Kernel]planner{
	kernel.Gather: func(c *kernel.Call) ([]launch, error) {
		y, x, index := &c.T[0], &c.T[1], &c.T[2]
		d := int(number(c, "dim"))
		if err := alike(c, index, y, x); err != nil {
			return nil, err
		}
		p := args{}.ints(x.Size.At(d), y.DType.Size()).sizes(y.Size.Slice()).whole(y).beside(x, d).whole(index)
		return each("gather_along", y.Numel(), p), nil
	},
	kernel.Scatter: func(c *kernel.Call) ([]launch, error) {
		y, x, index, src := &c.T[0], &c.T[1], &c.T[2], &c.T[3]
		if err := alike(c, index, y, x, src); err != nil {
			return nil, err
		}
		p := args{}.scattered(c).ints(y.DType.Size()).doubles(float(c, "value")).sizes(index.Size.Slice()).sizes(y.Size.Slice()).
			whole(y).whole(x).beside(index, int(number(c, "dim"))).beside(src, int(number(c, "dim")))
		return each("scatter_along", y.Numel(), p), nil
	},
	kernel.ScatterAdd: func(c *kernel.Call) ([]launch, error) {
		y, x, index, src := &c.T[0], operand(c, "x"), &c.T[2], &c.T[3]
		p := args{}.scattered(c).sizes(index.Size.Slice()).sizes(y.Size.Slice()).
			whole(y).whole(x).beside(index, int(number(c, "dim"))).beside(src, int(number(c, "dim")))
		return each("scatter_add_along", y.Numel(), p), nil
	},
	kernel.Cumsum: func(c *kernel.Call) ([]launch, error) {
		y, a, d := &c.T[0], &c.T[1], int(number(c, "dim"))
		function, err := computed(c, "cumsum", y, a)
		if err != nil {
			return nil, err
		}
		lines := y.Size.Set(d, 1)
		p := args{}.ints(number(c, "reverse"), y.Size.At(d)).sizes(lines.Slice()).beside(y, d).beside(a, d)
		return []launch{{function, lines.Numel() * min(1, y.Size.At(d)), 1, p}}, nil
	},
	kernel.Sort: func(c *kernel.Call) ([]launch, error) {
		y, index, a, d := &c.T[0], &c.T[1], &c.T[2], int(number(c, "dim"))
		if err := alike(c, index, y, a); err != nil {
			return nil, err
		}
		function, err := computed(c, "sort", a, a)
		if err != nil {
			return nil, err
		}
		lines, n := y.Size.Set(d, 1), a.Size.At(d)
		p := args{}.ints(number(c, "descending"), y.DType.Size(), n, y.Size.At(d)).sizes(lines.Slice()).beside(y, d).beside(index, d).beside(a, d)
		return []launch{{function, lines.Numel() * tensor.DivUp(n, threads), 1, p}}, nil
	},
	kernel.Extreme: func(c *kernel.Call) ([]launch, error) {
		y, index, a, d := operand(c, "y"), &c.T[1], &c.T[2], int(number(c, "dim"))
		if err := alike(c, index, a, y); err != nil {
			return nil, err
		}
		function, err := computed(c, "extreme", a, a)
		if err != nil {
			return nil, err
		}
		p := args{}.ints(number(c, "largest"), a.DType.Size(), a.Size.At(d)).sizes(index.Size.Slice()).whole(y).whole(index).beside(a, d)
		return []launch{{function, index.Numel(), 1, p}}, nil
	},
	kernel.Histogram: func(c *kernel.Call) ([]launch, error) {
		y, a := &c.T[0], &c.T[1]
		p := args{}.ints(y.Size.At(0)).doubles(c.F...).ints(a.Size.At(0)).whole(y).whole(a)
		return []launch{{"histogram", y.Size.At(0), 1, p}}, nil
	},
}

// beside is a tensor with a stride of 0 along a dimension, and its stride there.
func (a args) beside(t *kernel.Tensor, d int) args {
	stride := slices.Clone(t.Stride.Slice())
	step := int64(0)
	if d < len(stride) {
		step, stride[d] = stride[d], 0
	}
	return a.tensor(t, stride...).ints(step)
}

// scattered is the dimension along which elements are scattered, counted from the innermost,
// and its size.
func (a args) scattered(c *kernel.Call) args {
	d, size := number(c, "dim"), c.T[0].Size
	return a.ints(int64(size.Len())-1-d, size.At(int(d)))
}

// alike refuses an index that is not int64, and tensors of several types.
func alike(c *kernel.Call, index *kernel.Tensor, ts ...*kernel.Tensor) error {
	if index.DType != tensor.Int64 {
		return unsupported(c, fmt.Sprintf("an index of %v is not read there", index.DType))
	}
	for _, t := range ts[1:] {
		if !t.Absent() && t.DType != ts[0].DType {
			return unsupported(c, fmt.Sprintf("is not computed of %v and %v", ts[0].DType, t.DType))
		}
	}
	return nil
}

// computed is the function for whole numbers, if y is one, or for floating ones.
func computed(c *kernel.Call, name string, y, a *kernel.Tensor) (string, error) {
	switch {
	case y.DType == tensor.Float64 || a.DType == tensor.Float64:
		return "", unsupported(c, "float64 is not computed there")
	case y.DType.IsFloating():
		return name + "_float", nil
	}
	return name + "_int", nil
}
