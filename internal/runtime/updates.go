package runtime

import (
	"math"
	"strings"

	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
)

// elementwise is an optimizer whose step is a kernel that is defined by a formula.
type elementwise struct {
	kernel *kernel.Kernel
	// states are the operands between parameter and gradient that the row makes for
	// these arguments, in its order; nil: all of them. Counters that lie on the
	// device stand in front of them.
	states func(h hyper) []string
	// first are the values that states start with; 0, if they are not listed.
	first map[string]func(h hyper) float64
	// numbers are those of the kernel that are no arguments of the optimizer.
	numbers func(h hyper, step int64) map[string]float64
}

func (e *elementwise) step(x *Executor, h hyper, p *optim.Param) error {
	var names []string
	if e.states != nil {
		names = e.states(h)
	} else {
		for _, n := range e.kernel.Tensors[1 : len(e.kernel.Tensors)-1] {
			names = append(names, strings.TrimSuffix(n, "?"))
		}
	}
	states := map[string]*op.Tensor{}
	for i, name := range names {
		t := p.State[len(p.State)-len(names)+i]
		states[name] = t
		if p.Steps > 1 {
			continue
		}
		v := 0.0
		if f := e.first[name]; f != nil {
			v = f(h)
		}
		if err := x.Fill(t, v); err != nil {
			return err
		}
	}
	operands := []*op.Tensor{p.T}
	for _, n := range e.kernel.Tensors[1 : len(e.kernel.Tensors)-1] {
		operands = append(operands, states[strings.TrimSuffix(n, "?")])
	}
	var own map[string]float64
	if e.numbers != nil {
		own = e.numbers(h, p.Steps)
	}
	return x.launch(e.kernel, x.operands(append(operands, p.Grad)...), nil, h.numbers(e.kernel.Floats, own)...)
}

// numbers are a kernel's, by name: its own, or the optimizer's arguments. sign and
// decay are those of all optimizers that add the parameter to the gradient.
func (h hyper) numbers(names []string, own map[string]float64) []float64 {
	out := make([]float64, len(names))
	for i, n := range names {
		v, given := own[n]
		switch {
		case given:
		case n == "sign":
			v = float64(1 - 2*h.flag("maximize"))
		case n == "decay":
			v = h.float("weight_decay")
		case n == "beta1":
			v, _ = h.pair("betas")
		case n == "beta2":
			_, v = h.pair("betas")
		default:
			v = h.float(n)
		}
		out[i] = v
	}
	return out
}

// decoupled are decay and shrink of optimizers with decoupled_weight_decay.
func (h hyper) decoupled(own map[string]float64) map[string]float64 {
	own["shrink"] = 1
	if h.flag("decoupled_weight_decay") == 1 {
		own["decay"], own["shrink"] = 0, 1-h.float("lr")*h.float("weight_decay")
	}
	return own
}

// The optimizers of torch.optim that are formulas, and Lion.
var (
	adadelta = elementwise{kernel: kernel.Adadelta}
	adagrad  = elementwise{
		kernel: kernel.Adagrad,
		first:  map[string]func(h hyper) float64{"sum": func(h hyper) float64 { return h.float("initial_accumulator_value") }},
		numbers: func(h hyper, step int64) map[string]float64 {
			return map[string]float64{"rate": h.float("lr") / (1 + float64(step-1)*h.float("lr_decay"))}
		},
	}
	adamax = elementwise{kernel: kernel.Adamax, numbers: func(h hyper, step int64) map[string]float64 {
		beta1, _ := h.pair("betas")
		return map[string]float64{"rate": h.float("lr") / (1 - math.Pow(beta1, float64(step)))}
	}}
	asgd = elementwise{kernel: kernel.ASGD, numbers: func(h hyper, step int64) map[string]float64 {
		eta, mu := h.float("lr"), 1.0
		if before := float64(step - 1); before > 0 {
			eta /= math.Pow(1+h.float("lambd")*h.float("lr")*before, h.float("alpha"))
			mu = 1 / max(1, before-h.float("t0"))
		}
		return map[string]float64{"eta": eta, "mu": mu}
	}}
	nadam = elementwise{kernel: kernel.NAdam, numbers: func(h hyper, step int64) map[string]float64 {
		beta1, beta2 := h.pair("betas")
		momentum := func(step int64) float64 {
			return beta1 * (1 - 0.5*math.Pow(0.96, float64(step)*h.float("momentum_decay")))
		}
		product := 1.0
		for s := int64(1); s <= step; s++ {
			product *= momentum(s)
		}
		next := momentum(step + 1)
		return h.decoupled(map[string]float64{
			"now": h.float("lr") * (1 - momentum(step)) / (1 - product), "next": h.float("lr") * next / (1 - product*next),
			"correction": 1 - math.Pow(beta2, float64(step)),
		})
	}}
	radam = elementwise{kernel: kernel.RAdam, numbers: func(h hyper, step int64) map[string]float64 {
		beta1, beta2 := h.pair("betas")
		power := math.Pow(beta2, float64(step))
		own := map[string]float64{"plain": h.float("lr") / (1 - math.Pow(beta1, float64(step))), "adaptive": 0}
		limit := 2/(1-beta2) - 1
		if rho := limit - 2*float64(step)*power/(1-power); rho > 5 {
			rect := math.Sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
			own["plain"], own["adaptive"] = 0, own["plain"]*rect*math.Sqrt(1-power)
		}
		return h.decoupled(own)
	}}
	rmsprop = elementwise{kernel: kernel.RMSprop, states: func(h hyper) []string {
		names := []string{"square"}
		if h.float("momentum") > 0 {
			names = append(names, "buf")
		}
		if h.flag("centered") == 1 {
			names = append(names, "mean")
		}
		return names
	}}
	rprop = elementwise{
		kernel: kernel.Rprop,
		first:  map[string]func(h hyper) float64{"size": func(h hyper) float64 { return h.float("lr") }},
		numbers: func(h hyper, _ int64) map[string]float64 {
			less, more := h.pair("etas")
			least, most := h.pair("step_sizes")
			return map[string]float64{"less": less, "more": more, "least": least, "most": most}
		},
	}
	lion = elementwise{kernel: kernel.Lion, numbers: func(h hyper, _ int64) map[string]float64 {
		shrink := h.float("lr") * h.float("weight_decay")
		if h.flag("decoupled_weight_decay") == 1 { // decay divided by the initial lr
			shrink = h.float("weight_decay")
		}
		return map[string]float64{"shrink": 1 - shrink}
	}}
)
