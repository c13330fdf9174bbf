package optim

import (
	_ "embed"
	"math"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

//go:embed python/lamb.py
var lambPython string

// lambArgs are the arguments of Lamb.
type lambArgs struct {
	Common
	LR             float64   `arg:"lr"`
	BiasCorrection bool      `arg:"bias_correction"`
	Betas          []float64 `arg:"betas"`
	Eps            float64   `arg:"eps"`
	WeightDecay    float64   `arg:"weight_decay"`
	GradAveraging  bool      `arg:"grad_averaging"`
	MaxGradNorm    *float64  `arg:"max_grad_norm"`
	TrustClip      bool      `arg:"trust_clip"`
	AlwaysAdapt    bool      `arg:"always_adapt"`
	Caution        bool      `arg:"caution"`
	Decoupled      bool      `arg:"decoupled_decay"`
}

// Lamb is that of timm 1.0: it clips the gradients by their norm over all groups,
// then works parameter by parameter, all in one function
// (timm/optim/lamb.py: Lamb.step).
var Lamb = define(Row{
	Name: "Lamb", Args: &lambArgs{}, LoopByDefault: true, Package: "timm.optim", Python: lambPython, OneFunction: true, Begin: lambBegin, ForLoop: lambLoop,
	Sig: "timm.optim.Lamb(lr: float = 0.001, bias_correction: bool = True, betas: floats = (0.9, 0.999), eps: float = 1e-06, weight_decay: float = 0.01, " +
		"grad_averaging: bool = True, max_grad_norm: float? = 1.0, trust_clip: bool = False, always_adapt: bool = False, caution: bool = False, decoupled_decay: bool = False)",
	Prepare: lambClip, Update: arrays[lambArgs](lambUpdate),
	Bounds:    adamBounds,
	Note:      func(any) string { return "Lamb of timm: follows the package's source, without a recording of it" },
	GroupArgs: []string{"lr", "bias_correction", "betas", "eps", "weight_decay", "grad_averaging", "trust_clip", "always_adapt", "caution", "decoupled_decay"},
})

func lambBegin(c *Call, groups []Group) {
	clip := c.local()
	if groups[0].Args.(*lambArgs).MaxGradNorm == nil {
		return
	}
	var norms []*op.Tensor
	for _, g := range groups {
		for _, p := range g.Params {
			if p.Grad != nil {
				norms = append(norms, c.norm(p.Grad))
			}
		}
	}
	if len(norms) == 0 {
		c.Fail("Lamb clips gradients, and there are none")
	}
	stacked := c.New(tensor.Contiguous(tensor.D(int64(len(norms)))), norms[0].DType)
	total := c.norm(stacked)
	c.Drop(stacked)
	clip.set(c.like(total)) // (global_norm / max_grad_norm).clamp_(min=1.0)
	c.dropList(norms)
	c.Drop(total)
}

func lambLoop(c *Call, ps []*Param) {
	a := c.Args.(*lambArgs)
	denom, update, mask := c.local(), c.local(), c.local()
	weightNorm, updateNorm, ratio := c.local(), c.local(), c.local()
	for _, p := range ps {
		c.inTurn(p, func() {
			c.moment(p, "m")
			c.moment(p, "v")
		})
		root := c.temp(p)
		d := c.temp(p)
		c.Drop(root)
		denom.set(d)
		update.set(c.temp(p))
		if a.Caution { // (update * grad > 0).to(grad.dtype)
			product := c.temp(p)
			flags := c.mask(p)
			c.Drop(product)
			m := c.temp(p)
			c.Drop(flags)
			mask.set(m)
			c.Drop(c.Do(aten.Mean, &aten.ReduceArgs{}, m)[0])
		}
		if a.WeightDecay == 0 && !a.AlwaysAdapt {
			continue
		}
		weightNorm.set(c.norm(p.T))
		updateNorm.set(c.norm(update.one()))
		number := func() *op.Tensor { return c.scalarOf(p.T.DType) }
		ratio.set(number())
		outer, inner := c.scalarOf(tensor.Bool), c.scalarOf(tensor.Bool) // the norms, where they are not 0
		one := number()
		chosen := number()
		c.Drop(one, inner)
		one = number()
		result := number()
		c.Drop(one, outer, chosen)
		ratio.set(result)
		if a.TrustClip {
			ratio.set(number())
		}
	}
}

// lambClip divides the gradients of all groups by how far their norm is beyond
// max_grad_norm.
func lambClip(m op.Machine, groups []Group) error {
	most := groups[0].Args.(*lambArgs).MaxGradNorm
	if most == nil {
		return nil
	}
	return m.OnHost(func(a op.Arrays) {
		var norms []float64
		for _, g := range groups {
			for _, p := range g.Params {
				norms = append(norms, array.Norm(a.Get(p.Grad), 2))
			}
		}
		by := max(array.Norm(norms, 2) / *most, 1)
		for _, g := range groups {
			for _, p := range g.Params {
				v := a.Get(p.Grad)
				for i := range v {
					v[i] /= by
				}
				a.Put(p.Grad, v)
			}
		}
	})
}

// lambUpdate is a parameter's part of Lamb.step.
func lambUpdate(a *lambArgs, s *stepped) {
	beta1, beta2 := a.Betas[0], a.Betas[1]
	bias1, bias2, beta3 := 1.0, 1.0, 1.0
	if a.BiasCorrection {
		bias1, bias2 = 1-math.Pow(beta1, s.step), 1-math.Pow(beta2, s.step)
	}
	if a.GradAveraging {
		beta3 = 1 - beta1
	}
	m, v := s.state("m"), s.state("v")
	update := make([]float64, len(s.p))
	for i, g := range s.g {
		m[i] = beta1*m[i] + beta3*g
		v[i] = beta2*v[i] + (1-beta2)*g*g
		update[i] = m[i] / bias1 / (math.Sqrt(v[i])/math.Sqrt(bias2) + a.Eps)
	}
	if a.Caution {
		agree := 0.0
		for i, g := range s.g {
			if update[i]*g > 0 {
				agree++
			} else {
				update[i] = 0
			}
		}
		scale(update, 1/max(agree/float64(len(s.g)), 1e-3))
	}
	switch {
	case a.WeightDecay != 0 && a.Decoupled:
		scale(s.p, 1-a.LR*a.WeightDecay)
	case a.WeightDecay != 0:
		for i := range update {
			update[i] += a.WeightDecay * s.p[i]
		}
	}
	if a.WeightDecay != 0 || a.AlwaysAdapt {
		trust := 1.0
		if p, u := array.Norm(s.p, 2), array.Norm(update, 2); p > 0 && u > 0 {
			trust = p / u
		}
		if a.TrustClip {
			trust = min(trust, 1)
		}
		scale(update, trust)
	}
	s.add(update, -a.LR)
}
