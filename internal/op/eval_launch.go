package op

import (
	"errors"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// as is a tensor as it lies, as an operand; absent if t is nil.
func as(m Machine, t *Tensor) kernel.Tensor {
	if t == nil {
		return kernel.Tensor{}
	}
	return m.At(t, t.Layout)
}

// broadcasted is a tensor with the sizes of a larger shape; absent if t is nil.
func broadcasted(m Machine, t *Tensor, size ...int64) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	l, err := t.Expand(size)
	return m.At(t, l), err
}

// errView says that a kernel cannot see an operand as it must.
var errView = errors.New("an operand cannot be seen as the kernel must")

// viewed is a tensor with other sizes, or errView if its strides do not allow them;
// absent if t is nil.
func viewed(m Machine, t *Tensor, size ...int64) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	l, ok := t.View(tensor.D(size...))
	if !ok {
		return kernel.Tensor{}, errView
	}
	return m.At(t, l), nil
}

// launch is a call of a kernel: it gathers operands until one of them fails.
type launch struct {
	m   Machine
	ts  []kernel.Tensor
	err error
}

// add adds tensors as they lie.
func (l *launch) add(ts ...*Tensor) {
	for _, t := range ts {
		l.ts = append(l.ts, as(l.m, t))
	}
}

// seen adds a tensor with other sizes; one that is absent if t is nil.
func (l *launch) seen(t *Tensor, size ...int64) {
	k, err := viewed(l.m, t, size...)
	if l.err == nil {
		l.err = err
	}
	l.ts = append(l.ts, k)
}

// run launches the kernel.
func (l *launch) run(k *kernel.Kernel, ints []int64, numbers ...float64) error {
	if l.err != nil {
		return l.err
	}
	return l.m.Launch(k, l.ts, ints, numbers...)
}

// otherwise is e where kernels can see the operands as they must, else by.
func (e *Eval) otherwise(by *Eval) *Eval {
	return &Eval{
		Forward: func(m Machine, c *Call) error {
			if err := e.Forward(m, c); err != errView {
				return err
			}
			return by.Forward(m, c)
		},
		Backward: func(m Machine, b *Back) error {
			if err := e.Backward(m, b); err != errView {
				return err
			}
			return by.Backward(m, b)
		},
	}
}

// optional is ts[i], or nil beyond the end.
func optional(ts []*Tensor, i int) *Tensor {
	if i < len(ts) {
		return ts[i]
	}
	return nil
}

// flag is 1 where b holds, else 0.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
