package runtime

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// Step implements engine.Backend.
func (x *Executor) Step(o *program.Optimizer, groups []optim.Group) error {
	x.running = o.Row.Name
	if o.Row.Update == nil {
		return unsupported("optimizer %s", o.Row.Name)
	}
	if err := o.Row.Compute(x, groups); err != nil {
		return fmt.Errorf("optimizer %s: %w", o.Row.Name, err)
	}
	return nil
}

// Unscale implements engine.Backend.
func (x *Executor) Unscale(grads []*op.Tensor, factor float64) (finite bool, err error) {
	defer func() { x.finite = append(x.finite, map[bool]byte{false: '0', true: '1'}[finite]) }()
	if x.skip { // as it was found
		n := len(x.finite)
		return n < len(x.resume.finite) && x.resume.finite[n] == '1', nil
	}
	finite = true
	for _, g := range grads {
		v, err := x.Values(g)
		if err != nil {
			return false, err
		}
		for _, f := range v {
			finite = finite && !math.IsInf(f, 0) && !math.IsNaN(f)
		}
		if err := x.Apply(kernel.Affine, g, []*op.Tensor{g}, factor, 0); err != nil {
			return false, err
		}
	}
	return finite, nil
}

// Lerp implements engine.Backend.
func (x *Executor) Lerp(t, to *op.Tensor, weight float64) error {
	return x.Launch(kernel.Lerp, x.operands(t, to), nil, weight)
}

// normEpsilon is added to a norm before it divides (torch/nn/utils/clip_grad.py).
const normEpsilon = 1e-6

// Norms implements engine.Backend.
func (x *Executor) Norms(norms, of []*op.Tensor, stacked *op.Tensor) error {
	for i, n := range norms {
		all := tensor.Layout{Size: of[i].Size, Stride: of[i].Size, Offset: n.Offset}
		for d := range all.Stride.Len() {
			all.Stride = all.Stride.Set(d, 0)
		}
		if err := x.Launch(kernel.Norm, []kernel.Tensor{x.At(n, all), x.operand(of[i])}, nil); err != nil {
			return err
		}
		if stacked == nil {
			continue
		}
		element := n.Layout
		element.Offset = stacked.Offset + int64(i)
		if err := x.Launch(kernel.Copy, []kernel.Tensor{x.At(stacked, element), x.operand(n)}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Scale implements engine.Backend. The factor stays on the device: PyTorch, too,
// multiplies by it where it is 1.
func (x *Executor) Scale(grads []*op.Tensor, norm *op.Tensor, bound float64, spare, factor *op.Tensor) error {
	for _, step := range []struct {
		k      *kernel.Kernel
		y      *op.Tensor
		in     []*op.Tensor
		floats []float64
	}{
		{kernel.Fill, spare, nil, []float64{1}},
		{kernel.Affine, factor, []*op.Tensor{norm}, []float64{1, normEpsilon}},
		{kernel.Div, factor, []*op.Tensor{spare, factor}, nil},
		{kernel.Affine, factor, []*op.Tensor{factor}, []float64{bound, 0}},
		{kernel.Hardtanh, factor, []*op.Tensor{factor}, []float64{math.Inf(-1), 1}},
	} {
		if err := x.Apply(step.k, step.y, step.in, step.floats...); err != nil {
			return err
		}
	}
	for _, g := range grads {
		if err := x.Apply(kernel.Mul, g, []*op.Tensor{g, factor}); err != nil {
			return err
		}
	}
	return nil
}

// Clip implements engine.Backend: torch.nn.utils.clip_grad_value_, and
// clip_grad_norm_ of gradients in host memory.
func (x *Executor) Clip(grads []*op.Tensor, byValue bool, bound float64) error {
	if byValue {
		for _, g := range grads {
			if err := x.Apply(kernel.Hardtanh, g, []*op.Tensor{g}, -bound, bound); err != nil {
				return err
			}
		}
		return nil
	}
	total := 0.0
	for _, g := range grads {
		n, err := x.norm(g)
		if err != nil {
			return err
		}
		total += n * n
	}
	f := bound / (math.Sqrt(total) + normEpsilon)
	if f >= 1 {
		return nil
	}
	for _, g := range grads {
		if err := x.Apply(kernel.Affine, g, []*op.Tensor{g}, f, 0); err != nil {
			return err
		}
	}
	return nil
}

// norm is the 2-norm of a tensor, computed on the host from its elements.
func (x *Executor) norm(t *op.Tensor) (float64, error) {
	v, err := x.Values(t)
	sum := 0.0
	for _, f := range v {
		sum += f * f
	}
	return math.Sqrt(sum), err
}

// Values reads a tensor whose elements lie without gaps, in the order in which
// they lie.
func (x *Executor) Values(t *op.Tensor) ([]float64, error) {
	data := make([]byte, t.Numel()*t.DType.Size())
	if len(data) == 0 || autograd.BlockOf(t) == 0 {
		return nil, nil
	}
	if err := x.read(data, x.operand(t)); err != nil {
		return nil, err
	}
	return tensor.Decode(t.DType, data), nil
}
