package optim

import (
	"errors"
	"math"
)

// plateauArgs are the arguments of ReduceLROnPlateau.
type plateauArgs struct {
	Mode          string  `arg:"mode"`
	Factor        float64 `arg:"factor"`
	Patience      int64   `arg:"patience"`
	Threshold     float64 `arg:"threshold"`
	ThresholdMode string  `arg:"threshold_mode"`
	Cooldown      int64   `arg:"cooldown"`
	Min           float64 `arg:"min_lr"`
	Eps           float64 `arg:"eps"`
}

// plateau is what ReduceLROnPlateau has seen.
type plateau struct {
	best          float64
	bad, cooldown int64
}

var _ = schedule(ScheduleRow{
	Name: "ReduceLROnPlateau", Args: &plateauArgs{},
	Sig: "(mode: str(min|max) = \"min\", factor: float = 0.1, patience: int = 10, threshold: float = 0.0001, " +
		"threshold_mode: str(rel|abs) = \"rel\", cooldown: int = 0, min_lr: float = 0.0, eps: float = 1e-08)",
	Check: func(args any) error {
		if args.(*plateauArgs).Factor >= 1 {
			return errors.New("factor must be below 1")
		}
		return nil
	},
	Measures: func(s *scheduler, metric float64) { s.plateau.step(s.args.(*plateauArgs), s.groups, metric) },
})

// newPlateau has seen nothing.
func newPlateau(a *plateauArgs) *plateau {
	if a.Mode == "max" {
		return &plateau{best: math.Inf(-1)}
	}
	return &plateau{best: math.Inf(1)}
}

// better reports whether a metric is better than the best one; a NaN is not.
func (p *plateau) better(a *plateauArgs, metric float64) bool {
	sign := 1.0
	if a.Mode == "max" {
		sign = -1
	}
	bound := p.best - sign*a.Threshold
	if a.ThresholdMode == "rel" {
		bound = p.best * (1 - sign*a.Threshold)
	}
	return sign*metric < sign*bound
}

// step is ReduceLROnPlateau.step(metric).
func (p *plateau) step(a *plateauArgs, groups []*rate, metric float64) {
	if p.better(a, metric) {
		p.best, p.bad = metric, 0
	} else {
		p.bad++
	}
	if p.cooldown > 0 {
		p.cooldown--
		p.bad = 0
	}
	if p.bad <= a.Patience {
		return
	}
	for _, g := range groups {
		if lr := max(g.lr*a.Factor, a.Min); g.lr-lr > a.Eps {
			g.lr = lr
		}
	}
	p.cooldown, p.bad = a.Cooldown, 0
}
