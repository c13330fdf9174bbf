package op

import (
	"errors"
	"slices"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// As is a tensor as it lies, as an operand; absent if t is nil.
func As(m Machine, t *Tensor) kernel.Tensor {
	if t == nil {
		return kernel.Tensor{}
	}
	return m.At(t, t.Layout)
}

// Broadcasted is a tensor with the sizes of a larger shape; absent if t is nil.
func Broadcasted(m Machine, t *Tensor, size ...int64) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	l, err := t.Expand(size)
	return m.At(t, l), err
}

// ErrView says that a kernel cannot see an operand as it must.
var ErrView = errors.New("an operand cannot be seen as the kernel must")

// viewed is a tensor with other sizes, or ErrView if its strides do not allow them;
// absent if t is nil.
func viewed(m Machine, t *Tensor, size ...int64) (kernel.Tensor, error) {
	if t == nil {
		return kernel.Tensor{}, nil
	}
	l, ok := t.View(tensor.D(size...))
	if !ok {
		return kernel.Tensor{}, ErrView
	}
	return m.At(t, l), nil
}

// Launch is a call of a kernel: it gathers operands until one of them fails.
type Launch struct {
	On       Machine
	Operands []kernel.Tensor
	Err      error
}

// Add adds tensors as they lie.
func (l *Launch) Add(ts ...*Tensor) {
	l.Operands = slices.Grow(l.Operands, len(ts))
	for _, t := range ts {
		l.Operands = append(l.Operands, As(l.On, t))
	}
}

// Seen adds a tensor with other sizes; one that is absent if t is nil.
func (l *Launch) Seen(t *Tensor, size ...int64) {
	k, err := viewed(l.On, t, size...)
	if l.Err == nil {
		l.Err = err
	}
	l.Operands = append(l.Operands, k)
}

// Run launches the kernel.
func (l *Launch) Run(k *kernel.Kernel, ints []int64, numbers ...float64) error {
	if l.Err != nil {
		return l.Err
	}
	return l.On.Launch(k, l.Operands, ints, numbers...)
}

// Otherwise is e where kernels can see the operands as they must, else by.
func (e *Eval) Otherwise(by *Eval) *Eval {
	if e.Backward == nil {
		e.Backward = func(Machine, *Back) error { return ErrView }
	}
	o := &Eval{
		Single: e.Single, InParts: by.InParts, ByFormula: e.ByFormula,
		Forward: func(m Machine, c *Call) error {
			if err := e.Forward(m, c); err != ErrView {
				return err
			}
			return by.Forward(m, c)
		},
	}
	if by.Backward != nil {
		o.Backward = func(m Machine, b *Back) error {
			if err := e.Backward(m, b); err != ErrView {
				return err
			}
			return by.Backward(m, b)
		}
	}
	return o
}

// When is a forward pass where it holds.
func (e *Eval) When(holds func(c *Call) bool) *Eval {
	forward := *e
	forward.Forward = func(m Machine, c *Call) error {
		if !holds(c) {
			return ErrView
		}
		return e.Forward(m, c)
	}
	return &forward
}

// Optional is ts[i], or nil beyond the end.
func Optional(ts []*Tensor, i int) *Tensor {
	if i < len(ts) {
		return ts[i]
	}
	return nil
}

// Flag is 1 where b holds, else 0.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Over adds tensors whose dimensions from k on are joined, as kernels of normalizations
// see them.
func (l *Launch) Over(k int, ts ...*Tensor) {
	for _, t := range ts {
		if t == nil {
			l.Seen(nil)
			continue
		}
		lead, n := t.Size.Slice(), int64(1)
		for _, s := range lead[k:] {
			n *= s
		}
		l.Seen(t, append(lead[:k:k], n)...)
	}
}
