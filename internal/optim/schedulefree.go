package optim

import (
	"math"

	"github.com/memplan/memplan/internal/kernel"
)

// scheduleFreeArgs are the arguments of AdamWScheduleFree.
type scheduleFreeArgs struct {
	Common
	LR            float64   `arg:"lr"`
	Betas         []float64 `arg:"betas"`
	Eps           float64   `arg:"eps"`
	WeightDecay   float64   `arg:"weight_decay"`
	Warmup        int64     `arg:"warmup_steps"`
	R             float64   `arg:"r"`
	WeightLRPower float64   `arg:"weight_lr_power"`
	InnerMomentum float64   `arg:"inner_momentum"`
}

// AdamWScheduleFree keeps z, which starts as a copy of the parameter, and a second
// moment; a first one with inner_momentum alone. The parameter is what the package
// calls y. The gradient is normalized in place, where there is no first moment
// (schedulefree/adamw_schedulefree.py). Its lists are of all types.
var AdamWScheduleFree = define(Row{
	Name: "AdamWScheduleFree", Args: &scheduleFreeArgs{}, Package: "schedulefree", OneFunction: true, AllTypes: true, Ready: "train()",
	Sig: "schedulefree.AdamWScheduleFree(lr: float = 0.0025, betas: floats = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0, " +
		"warmup_steps: int = 0, r: float = 0.0, weight_lr_power: float = 2.0, inner_momentum: float = 0.0, foreach: bool = True)",
	Bounds: []bound{{arg: "betas", n: 2, ok: func(float64) bool { return true }}},
	Init: func(c *Call, p *Param) {
		c.moment(p, "z").copied = true
		c.moment(p, "v")
		if c.Args.(*scheduleFreeArgs).InnerMomentum != 0 {
			c.moment(p, "m")
		}
	},
	Foreach: func(c *Call, ps []*Param) {
		denom, normalized := c.local(), c.local()
		denom.set(c.list(ps)...)
		normalized.normalize(c, ps)
	},
	ForLoop: func(c *Call, ps []*Param) {
		denom, normalized := c.local(), c.local()
		for i, p := range ps {
			denom.set(c.temp(p))
			normalized.normalize(c, ps[i:i+1])
		}
	},
	Update: formula[scheduleFreeArgs]{
		ofGroup: true,
		// into is the weight of z in the average, along the step of the parameter; with
		// reuse the normalized gradient takes the place of the gradient.
		kernel: kernel.Elementwise("adamw_schedule_free", "p z v m?", "decay beta2 momentum eps correction1 correction2 into along rate reuse",
			"v = beta2*v + (1-beta2)*g*g",
			"denom = sqrt(v/correction2) + eps",
			"d = g/denom",
			"when m: m = momentum*m + (1-momentum)*g",
			"when m: d = m/correction1/denom",
			"d = d + decay*p",
			"when reuse: g = d",
			"p = p + into*(z-p)",
			"p = p + along*d",
			"z = z - rate*d"),
		own: func(a *scheduleFreeArgs, p *Param, step int64) numbers {
			w, _ := p.Own.(*scheduleFreeWeights)
			if w == nil {
				w = &scheduleFreeWeights{}
				p.Own = w
			}
			w.to(a, step)
			n := numbers{
				"momentum": a.InnerMomentum, "correction1": 1, "reuse": 1, "correction2": 1 - math.Pow(a.Betas[1], float64(step)),
				"into": w.into, "along": w.rate * (a.Betas[0]*(1-w.into) - 1), "rate": w.rate,
			}
			if a.InnerMomentum != 0 {
				n["correction1"], n["reuse"] = 1-math.Pow(a.InnerMomentum, float64(step)), 0
			}
			return n
		},
	},
})

// scheduleFreeWeights is what an average has come to after so many steps of its group.
type scheduleFreeWeights struct {
	steps                 int64 // k
	rate, most, sum, into float64
}

// to goes on to a step; in those between the parameter had no gradient.
func (w *scheduleFreeWeights) to(a *scheduleFreeArgs, step int64) {
	for ; w.steps < step; w.steps++ {
		w.rate = a.LR
		if w.steps < a.Warmup {
			w.rate *= float64(w.steps+1) / float64(a.Warmup)
		}
		w.most = max(w.most, w.rate)
		weight := math.Pow(float64(w.steps+1), a.R) * math.Pow(w.most, a.WeightLRPower)
		if w.sum += weight; w.sum != 0 {
			w.into = weight / w.sum
		}
	}
}

// normalize binds grad_normalized: the gradients, or of first moments temporaries.
func (v *local) normalize(c *Call, ps []*Param) {
	if c.Args.(*scheduleFreeArgs).InnerMomentum == 0 {
		ps = nil
	}
	v.set(c.list(ps)...)
}
