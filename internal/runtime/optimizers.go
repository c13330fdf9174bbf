package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// updates are the optimizers that can be executed: what one does to a parameter
// with the states that its row made.
var updates = map[string]func(x *Executor, h hyper, p *optim.Param) error{
	"SGD":   sgd,
	"Adam":  adam(false),
	"AdamW": adam(true),
}

// hyper are the arguments of an optimizer for one parameter group.
type hyper struct {
	o     *program.Optimizer
	group int
}

// value is an argument: the group's, the optimizer's, or the default.
func (h hyper) value(name string) any {
	given := h.o.Given
	if h.group < len(h.o.Groups) {
		given = append(append([]program.KwArg(nil), given...), h.o.Groups[h.group].Given...)
	}
	for i := len(given) - 1; i >= 0; i-- {
		if given[i].Name == name {
			return given[i].Value
		}
	}
	if p := h.o.Row.Signature().Find(name); p != nil {
		return p.Default
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

// betas are the two of Adam.
func (h hyper) betas() (float64, float64) {
	if v, ok := h.value("betas").([]float64); ok && len(v) == 2 {
		return v[0], v[1]
	}
	return 0.9, 0.999
}

// Step implements engine.Backend.
func (x *Executor) Step(o *program.Optimizer, group int, params []*optim.Param) error {
	update := updates[o.Row.Name]
	if update == nil {
		return unsupported("optimizer %s", o.Row.Name)
	}
	for _, p := range params {
		if err := x.named(&op.Row{Name: o.Row.Name}, update(x, hyper{o, group}, p)); err != nil {
			return err
		}
	}
	return nil
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
		beta1, beta2 := h.betas()
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

// Clip implements engine.Backend: torch.nn.utils.clip_grad_norm_ and
// clip_grad_value_.
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
	f := bound / (math.Sqrt(total) + 1e-6)
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
	if err := x.device.Read(data, addressOf(x.operand(t))); err != nil {
		return nil, err
	}
	return tensor.Decode(t.DType, data), nil
}
