package op

import (
	"fmt"

	"github.com/memplan/memplan/internal/cudnn"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// Shapes is an Exec that knows only shapes: it tells what an operator returns
// without a graph, an allocator or a device.
type Shapes struct {
	E     Env
	Meter *limit.Meter

	// Beyond says of the last lookup beyond the rows of a table what it was.
	Beyond string
}

// shapeBytes is what a result of Shapes takes.
const shapeBytes = 512

// ShapeError is what Shapes.Fail panics with. Arg is the argument that is wrong
// if an Arg is among the values of the message.
type ShapeError struct{ Msg, Arg string }

// Arg is the name of an argument in a message of Fail.
type Arg string

func (e *ShapeError) Error() string { return e.Msg }

// Infer returns the results of an operator on inputs of given shapes, or a
// *ShapeError.
func (s *Shapes) Infer(r *Op, args any, in ...*Tensor) (out []*Tensor, err error) {
	defer func() {
		if p := recover(); p != nil {
			switch p := p.(type) {
			case *ShapeError:
				err = p
			case tensor.RankError:
				err = &ShapeError{Msg: p.Error()}
			default:
				panic(p)
			}
		}
	}()
	return s.Do(r, args, in...), nil
}

// Env implements Exec.
func (s *Shapes) Env() *Env { return &s.E }

// New implements Exec.
func (s *Shapes) New(l tensor.Layout, d tensor.DType) *Tensor {
	s.checkSize(l, d)
	s.Meter.Hold(shapeBytes)
	return &Tensor{Layout: l, DType: d}
}

// checkSize refuses a tensor whose size overflows.
func (s *Shapes) checkSize(l tensor.Layout, d tensor.DType) {
	if _, err := l.Size.Bytes(d.Size()); err != nil {
		s.Fail("a tensor of shape %v: %v", l.Size, err)
	}
}

// NewIn implements Exec.
func (s *Shapes) NewIn(_ tensor.Bytes, l tensor.Layout, d tensor.DType) *Tensor { return s.New(l, d) }

// Alias implements Exec.
func (s *Shapes) Alias(_ *Tensor, l tensor.Layout, d tensor.DType) *Tensor {
	s.Meter.Hold(shapeBytes)
	return &Tensor{Layout: l, DType: d}
}

// ViewOf implements Exec.
func (s *Shapes) ViewOf(t *Tensor, l tensor.Layout) *Tensor { return s.Alias(t, l, t.DType) }

// Keep implements Exec.
func (s *Shapes) Keep(t *Tensor) *Tensor { return t }

// Drop implements Exec.
func (s *Shapes) Drop(...*Tensor) {}

// Do implements Exec.
func (s *Shapes) Do(r *Op, args any, in ...*Tensor) []*Tensor {
	if r.Casts(&s.E) {
		return s.doAutocast(r, args, in)
	}
	c := Call{Exec: s, Op: r, In: in, Args: args}
	switch {
	case r.View != nil:
		for _, l := range r.View(&c) {
			s.Meter.Hold(shapeBytes)
			if _, err := l.Size.CheckNumel(); err != nil {
				s.Fail("a tensor of shape %v: %v", l.Size, err)
			}
			c.Return(&Tensor{Layout: l, DType: in[0].DType})
		}
	case r.InPlace && !r.Composite:
		r.Run(&c)
		c.Return(in[0])
	default:
		r.Run(&c)
	}
	if !r.Composite {
		s.follow(&c)
	}
	return c.Out
}

// doAutocast runs an operator on inputs of the types that autocast gives them.
func (s *Shapes) doAutocast(r *Op, args any, in []*Tensor) []*Tensor {
	r.RefuseAutocast(s)
	s.E.Autocast = false
	defer func() { s.E.Autocast = true }()
	if t := r.autocastRefuses(s.E.AutocastDType, in); t != nil {
		s.Fail(refusal, r.Name, t.DType, s.E.AutocastDType)
	}
	ins := append([]*Tensor(nil), in...)
	if to, ok := r.AutocastType(s.E.AutocastDType, in); ok {
		for i, t := range ins {
			if Autocasts(t) {
				ins[i] = &Tensor{Layout: t.Layout, DType: to}
			}
		}
	}
	return s.Do(r, r.AutocastArgs(args, in), ins...)
}

// SumTo implements Exec.
func (s *Shapes) SumTo(t *Tensor, shape tensor.Dims) *Tensor {
	return s.New(tensor.Contiguous(shape), t.DType)
}

// BlasHandle implements Exec.
func (s *Shapes) BlasHandle() {}

// LtHandle implements Exec.
func (s *Shapes) LtHandle() {}

// ConvWorkspace implements Exec.
func (s *Shapes) ConvWorkspace(cudnn.ConvCall) {}

// AttentionPlan implements Exec.
func (s *Shapes) AttentionPlan(tensor.Bytes) {}

// FirstPlan implements Exec.
func (s *Shapes) FirstPlan(cudnn.ConvPlan) bool { return false }

// EmptyCache implements Exec.
func (s *Shapes) EmptyCache() {}

// Kernel implements Exec.
func (s *Shapes) Kernel(Kernel) {}

// DropoutState implements Exec.
func (s *Shapes) DropoutState() {}

// Packed implements Exec.
func (s *Shapes) Packed(int64, ...*Tensor) bool { return true }

// InHostMemory implements Exec.
func (s *Shapes) InHostMemory(*Tensor) bool { return false }

// NeedsGrad implements Exec.
func (s *Shapes) NeedsGrad(*Tensor) bool { return false }

// Requires implements Exec.
func (s *Shapes) Requires(*Tensor) bool { return false }

// RequireGrad implements Exec.
func (s *Shapes) RequireGrad(*Tensor) {}

// Fail implements Exec.
func (s *Shapes) Fail(format string, args ...any) {
	e := &ShapeError{Msg: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if name, ok := a.(Arg); ok {
			e.Arg = string(name)
		}
	}
	panic(e)
}
