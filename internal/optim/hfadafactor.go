package optim

import (
	"errors"
	"math"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// hfAdafactorArgs are the arguments of transformers.Adafactor.
type hfAdafactorArgs struct {
	Common
	LR             *float64  `arg:"lr"`
	Eps            []float64 `arg:"eps"`
	Clip           float64   `arg:"clip_threshold"`
	DecayRate      float64   `arg:"decay_rate"`
	Beta1          *float64  `arg:"beta1"`
	WeightDecay    float64   `arg:"weight_decay"`
	ScaleParameter bool      `arg:"scale_parameter"`
	RelativeStep   bool      `arg:"relative_step"`
	WarmupInit     bool      `arg:"warmup_init"`
}

// transformers.Adafactor works in float32 and keeps the root mean square of each
// parameter, a scalar on the GPU (transformers/optimization.py). The step size of
// a parameter is a number or a scalar, as its root mean square is above eps[1] or
// not; that of a number, which takes nothing, is modelled.
var HFAdafactor = define(Row{
	Name: "transformers.Adafactor", Args: &hfAdafactorArgs{}, LoopByDefault: true, GPUOnly: true, Package: "transformers.optimization",
	Sig: "transformers.optimization.Adafactor(lr: float? = None, eps: floats = (1e-30, 0.001), clip_threshold: float = 1.0, decay_rate: float = -0.8, " +
		"beta1: float? = None, weight_decay: float = 0.0, scale_parameter: bool = True, relative_step: bool = True, warmup_init: bool = False)",
	Bounds: []bound{{arg: "eps", n: 2, ok: func(float64) bool { return true }}},
	Refuse: func(args any) (string, error) {
		switch a := args.(*hfAdafactorArgs); {
		case a.LR != nil && a.RelativeStep:
			return "lr", errors.New("lr and relative_step, which is the default, exclude each other; write relative_step: false")
		case a.LR == nil && !a.RelativeStep:
			return "relative_step", errors.New("without relative_step an lr is needed")
		case a.WarmupInit && !a.RelativeStep:
			return "warmup_init", errors.New("warmup_init needs relative_step")
		}
		return "", nil
	},
	OneFunction: true, ForLoop: hfAdafactorLoop, Update: arrays[hfAdafactorArgs](hfAdafactorUpdate),
})

// hfAdafactorUpdate is a parameter's part of Adafactor.step.
func hfAdafactorUpdate(a *hfAdafactorArgs, s *stepped) {
	root := rms(s.p)
	for i := range s.state("rms") {
		s.state("rms")[i] = root
	}
	var lr float64
	switch {
	case !a.RelativeStep:
		lr = *a.LR
	case a.WarmupInit:
		lr = min(1e-6*s.step, 1/math.Sqrt(s.step))
	default:
		lr = min(1e-2, 1/math.Sqrt(s.step))
	}
	if a.ScaleParameter {
		lr *= max(a.Eps[1], root)
	}
	weight := math.Pow(s.step, a.DecayRate)
	var update []float64
	if len(s.size) > 1 {
		update = s.factored(weight, a.Eps[0], 0)
	} else {
		update = s.variance(weight, a.Eps[0])
	}
	for i, v := range update {
		update[i] = s.g[i] / math.Sqrt(v)
	}
	scale(update, lr/max(1, rms(update)/a.Clip))
	if a.Beta1 != nil {
		moment := s.state("moment")
		lerp(moment, 1-*a.Beta1, func(i int) float64 { return update[i] })
		update = moment
	}
	scale(s.p, 1-a.WeightDecay*lr)
	s.add(update, -1)
}

func hfAdafactorLoop(c *Call, ps []*Param) {
	a := c.Args.(*hfAdafactorArgs)
	grad, whole, update := c.local(), c.local(), c.local()
	for _, p := range ps {
		rank := p.Grad.Rank()
		grad.clear()
		half := p.T.DType.IsHalf()
		if half {
			grad.set(c.inFloat(p.Grad))
		}
		g := grad.of(p)
		c.inTurn(p, func() {
			state := func(name string, t *op.Tensor) { p.keep(name, c.Persist(t)) }
			p.keep("rms", nil)
			if a.Beta1 != nil {
				state("moment", c.like(g))
			}
			if rank < 2 {
				state("variance", c.like(g))
				return
			}
			size := g.Size.Slice()
			state("row", c.New(tensor.Contiguous(tensor.D(size[:rank-1]...)), g.DType))
			state("column", c.New(tensor.Contiguous(tensor.D(append(append([]int64(nil), size[:rank-2]...), size[rank-1])...)), g.DType))
		})
		whole.clear()
		weights := p.T
		if half {
			weights = c.inFloat(p.T)
			whole.set(weights)
		}
		before := p.State[0]
		p.State[0] = c.Persist(c.rootMeanSquare(weights))
		c.Drop(before)
		if a.ScaleParameter {
			c.Drop(c.scalarOf(tensor.Bool)) // max(eps[1], RMS)
		}
		square := c.like(g)
		sum := c.like(g)
		c.Drop(square)
		update.set(sum)
		if rank < 2 {
			update.set(c.like(p.State[len(p.State)-1]))
		} else {
			c.Drop(c.mean(sum, -1, false))
			c.Drop(c.mean(sum, -2, false))
			update.set(c.outer(p.State[len(p.State)-2], p.State[len(p.State)-1], g))
		}
		mean := c.rootMeanSquare(update.one())
		c.Drop(c.then(mean))
		if a.Beta1 != nil {
			update.clear()
		}
		c.Drop(c.like(g)) // -update
	}
}

// inFloat is t.float().
func (c *Call) inFloat(t *op.Tensor) *op.Tensor {
	return c.Do(aten.ToCopy, &aten.ToCopyArgs{DType: tensor.Float32}, t)[0]
}

// rootMeanSquare is tensor.norm(2) / number.
func (c *Call) rootMeanSquare(t *op.Tensor) *op.Tensor {
	norm := c.norm(t)
	out := c.like(norm)
	c.Drop(norm)
	return out
}

func (c *Call) mean(t *op.Tensor, dim int64, keep bool) *op.Tensor {
	return c.Do(aten.Mean, &aten.ReduceArgs{Dim: []int64{dim}, KeepDim: keep}, t)[0]
}

// outer is _approx_sq_grad: what rows and columns say of the whole.
func (c *Call) outer(row, col, like *op.Tensor) *op.Tensor {
	mean := c.mean(row, -1, true)
	r := c.like(row)
	c.Drop(mean)
	k := c.like(col)
	out := c.New(tensor.Contiguous(like.Size), like.DType)
	c.Drop(r, k)
	return out
}
