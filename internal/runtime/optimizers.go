package runtime

import (
	"fmt"
	"math"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// update is how an optimizer is executed.
type update struct {
	// begin runs before the first parameter, with the parameters of all groups.
	begin func(x *Executor, h hyper, groups []optim.Group) error
	// step changes a parameter, with the states that the optimizer's row made.
	step func(x *Executor, h hyper, p *optim.Param) error
}

// updates are the optimizers that can be executed. Those whose way depends on
// numbers, as LBFGS, compute in their rows.
var updates = map[*optim.Row]update{
	optim.SGD:   {step: sgd},
	optim.Adam:  {step: adam(false)},
	optim.AdamW: {step: adam(true)},

	optim.Adadelta: {step: adadelta.step},
	optim.Adagrad:  {step: adagrad.step},
	optim.Adamax:   {step: adamax.step},
	optim.ASGD:     {step: asgd.step},
	optim.NAdam:    {step: nadam.step},
	optim.RAdam:    {step: radam.step},
	optim.RMSprop:  {step: rmsprop.step},
	optim.Rprop:    {step: rprop.step},
	optim.Lion:     {step: lion.step},

	optim.Adafactor:   {step: asideStep(adafactor)},
	optim.HFAdafactor: {step: asideStep(hfAdafactor)},
	optim.Lamb:        {begin: lambClip, step: asideStep(lamb)},
	optim.Muon:        {step: asideStep(muon)},

	optim.Adam8bit:       {step: eightBit},
	optim.AdamW8bit:      {step: eightBit},
	optim.PagedAdam8bit:  {step: eightBit},
	optim.PagedAdamW8bit: {step: eightBit},
	optim.PagedAdam:      {step: eightBit},
	optim.PagedAdamW:     {step: eightBit},
	optim.Lion8bit:       {step: eightBit},
	optim.PagedLion8bit:  {step: eightBit},
	optim.PagedLion:      {step: eightBit},
}

// hyper are the arguments of an optimizer for one parameter group.
type hyper struct {
	o     *program.Optimizer
	group int
}

// has reports whether the optimizer takes an argument.
func (h hyper) has(name string) bool { return h.o.Row.Signature().Find(name) != nil }

// value is an argument: the group's, the optimizer's, or the default. One that the
// optimizer does not take is a programming error.
func (h hyper) value(name string) any {
	p := h.o.Row.Signature().Find(name)
	if p == nil {
		panic("runtime: optimizer " + h.o.Row.Name + " takes no " + name)
	}
	given := h.o.Given
	if h.group < len(h.o.Groups) {
		given = append(append([]program.KwArg(nil), given...), h.o.Groups[h.group].Given...)
	}
	for i := len(given) - 1; i >= 0; i-- {
		if given[i].Name == name {
			return given[i].Value
		}
	}
	if v, err := p.Check(p.Default); err == nil {
		return v
	}
	return nil
}

func (h hyper) float(name string) float64 {
	switch v := h.value(name).(type) {
	case float64:
		return v
	case int64:
		return float64(v)
	}
	return 0
}

func (h hyper) flag(name string) int64 {
	b, _ := h.value(name).(bool)
	return flag(b)
}

// pair is an argument of two numbers, such as betas.
func (h hyper) pair(name string) (float64, float64) {
	v, _ := h.value(name).([]float64)
	if len(v) != 2 {
		return 0, 0
	}
	return v[0], v[1]
}

// Step implements engine.Backend.
func (x *Executor) Step(o *program.Optimizer, groups []optim.Group) error {
	u := updates[o.Row]
	if u.step == nil {
		return unsupported("optimizer %s", o.Row.Name)
	}
	if u.begin != nil {
		if err := x.ofOptimizer(o, u.begin(x, hyper{o, 0}, groups)); err != nil {
			return err
		}
	}
	for i, g := range groups {
		for _, p := range g.Params {
			if err := x.ofOptimizer(o, u.step(x, hyper{o, i}, p)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *Executor) ofOptimizer(o *program.Optimizer, err error) error {
	if err != nil {
		return fmt.Errorf("optimizer %s: %w", o.Row.Name, err)
	}
	return nil
}

// Unscale implements engine.Backend.
func (x *Executor) Unscale(grads []*op.Tensor, factor float64) (bool, error) {
	finite := true
	for _, g := range grads {
		v, err := x.Values(g)
		if err != nil {
			return false, err
		}
		for _, f := range v {
			finite = finite && !math.IsInf(f, 0) && !math.IsNaN(f)
		}
		if err := x.apply(kernel.Affine, g, []*op.Tensor{g}, factor, 0); err != nil {
			return false, err
		}
	}
	return finite, nil
}

// Lerp implements engine.Backend.
func (x *Executor) Lerp(t, to *op.Tensor, weight float64) error {
	return x.launch(kernel.Lerp, x.operands(t, to), nil, weight)
}

func sgd(x *Executor, h hyper, p *optim.Param) error {
	var buf *op.Tensor
	if h.float("momentum") != 0 && len(p.State) > 0 {
		buf = p.State[0]
	}
	return x.launch(kernel.SGD, x.operands(p.T, buf, p.Grad), []int64{p.Steps, h.flag("nesterov"), h.flag("maximize")},
		h.float("lr"), h.float("momentum"), h.float("dampening"), h.float("weight_decay"))
}

func adam(decoupled bool) func(x *Executor, h hyper, p *optim.Param) error {
	return func(x *Executor, h hyper, p *optim.Param) error {
		beta1, beta2 := h.pair("betas")
		first := 0
		if h.flag("capturable") == 1 || h.flag("fused") == 1 { // the step counter is a state on the device
			first = 1
		}
		states := make([]*op.Tensor, 3)
		for i := range states {
			if first+i < len(p.State) {
				states[i] = p.State[first+i]
			}
		}
		return x.launch(kernel.Adam, x.operands(p.T, states[0], states[1], states[2], p.Grad),
			[]int64{p.Steps, flag(decoupled), h.flag("maximize")}, h.float("lr"), beta1, beta2, h.float("eps"), h.float("weight_decay"))
	}
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
		if err := x.launch(kernel.Norm, []kernel.Tensor{x.at(n, all), x.operand(of[i])}, nil); err != nil {
			return err
		}
		if stacked == nil {
			continue
		}
		element := n.Layout
		element.Offset = stacked.Offset + int64(i)
		if err := x.launch(kernel.Copy, []kernel.Tensor{x.at(stacked, element), x.operand(n)}, nil); err != nil {
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
		if err := x.apply(step.k, step.y, step.in, step.floats...); err != nil {
			return err
		}
	}
	for _, g := range grads {
		if err := x.apply(kernel.Mul, g, []*op.Tensor{g, factor}); err != nil {
			return err
		}
	}
	return nil
}

// Clip implements engine.Backend: torch.nn.utils.clip_grad_value_, and
// clip_grad_norm_ of gradients in the machine's own memory.
func (x *Executor) Clip(grads []*op.Tensor, byValue bool, bound float64) error {
	if byValue {
		for _, g := range grads {
			if err := x.apply(kernel.Hardtanh, g, []*op.Tensor{g}, -bound, bound); err != nil {
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
		if err := x.apply(kernel.Affine, g, []*op.Tensor{g}, f, 0); err != nil {
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
	if len(data) == 0 || engine.BlockOf(t) == 0 {
		return nil, nil
	}
	if err := x.read(data, x.operand(t)); err != nil {
		return nil, err
	}
	return tensor.Decode(t.DType, data), nil
}
