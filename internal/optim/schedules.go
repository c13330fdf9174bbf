package optim

import (
	"errors"
	"math"
	"sort"
)

type (
	stepArgs struct {
		StepSize int64   `arg:"step_size"`
		Gamma    float64 `arg:"gamma"`
	}
	multiStepArgs struct {
		Milestones []int64 `arg:"milestones"`
		Gamma      float64 `arg:"gamma"`
	}
	constantArgs struct {
		Factor float64 `arg:"factor"`
		Total  int64   `arg:"total_iters"`
	}
	linearArgs struct {
		Start float64 `arg:"start_factor"`
		End   float64 `arg:"end_factor"`
		Total int64   `arg:"total_iters"`
	}
	exponentialArgs struct {
		Gamma float64 `arg:"gamma"`
	}
	polynomialArgs struct {
		Total int64   `arg:"total_iters"`
		Power float64 `arg:"power"`
	}
	cosineArgs struct {
		Max int64   `arg:"T_max"`
		Min float64 `arg:"eta_min"`
	}
	restartsArgs struct {
		First int64   `arg:"T_0"`
		Times int64   `arg:"T_mult"`
		Min   float64 `arg:"eta_min"`
	}
)

// The schedulers whose rates depend on the step alone.
var (
	_ = schedule(ScheduleRow{
		Name: "StepLR", Sig: "(step_size: int, gamma: float = 0.1)", Args: &stepArgs{},
		Check: func(args any) error { return atLeast(args.(*stepArgs).StepSize, 1, "step_size") },
		LR: func(s *scheduler, lr, _ float64) float64 {
			if a := s.args.(*stepArgs); s.epoch != 0 && s.epoch%a.StepSize == 0 {
				return lr * a.Gamma
			}
			return lr
		},
		Closed: func(s *scheduler, _, base float64) float64 { return base },
	})
	_ = schedule(ScheduleRow{
		Name: "MultiStepLR", Sig: "(milestones: ints, gamma: float = 0.1)", Args: &multiStepArgs{},
		LR: func(s *scheduler, lr, _ float64) float64 {
			a := s.args.(*multiStepArgs)
			return lr * math.Pow(a.Gamma, matching(a.Milestones, func(m int64) bool { return m == s.epoch }))
		},
		Closed: func(s *scheduler, _, base float64) float64 {
			a := s.args.(*multiStepArgs)
			return base * math.Pow(a.Gamma, matching(a.Milestones, func(m int64) bool { return m <= s.epoch }))
		},
	})
	_ = schedule(ScheduleRow{
		Name: "ConstantLR", Sig: "(factor: float = 0.3333333333333333, total_iters: int = 5)", Args: &constantArgs{},
		Check: func(args any) error {
			if f := args.(*constantArgs).Factor; f <= 0 || f > 1 {
				return errors.New("factor must be above 0 and at most 1")
			}
			return nil
		},
		LR: func(s *scheduler, lr, _ float64) float64 {
			switch a := s.args.(*constantArgs); s.epoch {
			case 0:
				return lr * a.Factor
			case a.Total:
				return lr * (1 / a.Factor)
			}
			return lr
		},
		Closed: func(s *scheduler, _, base float64) float64 {
			a, reached := s.args.(*constantArgs), 0.0
			if s.epoch >= a.Total {
				reached = 1
			}
			return base * (a.Factor + reached*(1-a.Factor))
		},
	})
	_ = schedule(ScheduleRow{
		Name: "LinearLR", Sig: "(start_factor: float = 0.3333333333333333, end_factor: float = 1.0, total_iters: int = 5)", Args: &linearArgs{},
		Check: func(args any) error {
			a := args.(*linearArgs)
			if a.Start <= 0 || a.Start > 1 {
				return errors.New("start_factor must be above 0 and at most 1")
			}
			if a.End < 0 || a.End > 1 {
				return errors.New("end_factor must be from 0 to 1")
			}
			return atLeast(a.Total, 1, "total_iters")
		},
		LR: func(s *scheduler, lr, _ float64) float64 {
			switch a := s.args.(*linearArgs); {
			case s.epoch == 0:
				return lr * a.Start
			case s.epoch > a.Total:
				return lr
			default:
				return lr * (1 + (a.End-a.Start)/(float64(a.Total)*a.Start+float64(s.epoch-1)*(a.End-a.Start)))
			}
		},
		Closed: func(s *scheduler, _, base float64) float64 {
			a := s.args.(*linearArgs)
			return base * (a.Start + (a.End-a.Start)*float64(min(a.Total, s.epoch))/float64(a.Total))
		},
	})
	_ = schedule(ScheduleRow{
		Name: "ExponentialLR", Sig: "(gamma: float)", Args: &exponentialArgs{},
		LR: func(s *scheduler, lr, _ float64) float64 {
			if s.epoch == 0 {
				return lr
			}
			return lr * s.args.(*exponentialArgs).Gamma
		},
		Closed: func(s *scheduler, _, base float64) float64 { return base },
	})
	_ = schedule(ScheduleRow{
		Name: "PolynomialLR", Sig: "(total_iters: int = 5, power: float = 1.0)", Args: &polynomialArgs{},
		Check: func(args any) error { return atLeast(args.(*polynomialArgs).Total, 1, "total_iters") },
		LR: func(s *scheduler, lr, _ float64) float64 {
			a := s.args.(*polynomialArgs)
			if s.epoch == 0 || s.epoch > a.Total {
				return lr
			}
			n := float64(a.Total)
			return lr * math.Pow((1-float64(s.epoch)/n)/(1-float64(s.epoch-1)/n), a.Power)
		},
		Closed: func(s *scheduler, _, base float64) float64 { return base },
	})
	_ = schedule(ScheduleRow{
		Name: "CosineAnnealingLR", Sig: "(T_max: int, eta_min: float = 0.0)", Args: &cosineArgs{},
		Check: func(args any) error { return atLeast(args.(*cosineArgs).Max, 1, "T_max") },
		LR: func(s *scheduler, lr, base float64) float64 {
			a := s.args.(*cosineArgs)
			n, i := float64(a.Max), float64(s.epoch)
			switch {
			case s.epoch == 0:
				return lr
			case s.steps == 1:
				return a.Min + (base-a.Min)*(1+math.Cos(i*math.Pi/n))/2
			case (s.epoch-1-a.Max)%(2*a.Max) == 0:
				return lr + (base-a.Min)*(1-math.Cos(math.Pi/n))/2
			}
			return (1+math.Cos(math.Pi*i/n))/(1+math.Cos(math.Pi*(i-1)/n))*(lr-a.Min) + a.Min
		},
		Closed: func(s *scheduler, _, base float64) float64 {
			a := s.args.(*cosineArgs)
			return a.Min + (base-a.Min)*(1+math.Cos(math.Pi*float64(s.epoch)/float64(a.Max)))/2
		},
	})
	_ = schedule(ScheduleRow{
		Name: "CosineAnnealingWarmRestarts", Sig: "(T_0: int, T_mult: int = 1, eta_min: float = 0.0)", Args: &restartsArgs{},
		Check: func(args any) error {
			a := args.(*restartsArgs)
			return errors.Join(atLeast(a.First, 1, "T_0"), atLeast(a.Times, 1, "T_mult"))
		},
		Restart: func(s *scheduler) { s.cur, s.period = 0, s.args.(*restartsArgs).First },
		Next: func(s *scheduler) {
			a := s.args.(*restartsArgs)
			if s.epoch == 0 {
				s.cur, s.period = 0, a.First
			} else if s.cur++; s.cur >= s.period {
				s.cur -= s.period
				s.period *= a.Times
			}
		},
		LR: func(s *scheduler, _, base float64) float64 {
			a := s.args.(*restartsArgs)
			return a.Min + (base-a.Min)*(1+math.Cos(math.Pi*float64(s.cur)/float64(s.period)))/2
		},
	})
	_ = schedule(ScheduleRow{Name: sequential, Sig: "(milestones: ints)", Args: &SequentialArgs{}, Parts: true})
	_ = schedule(ScheduleRow{Name: chained, Sig: "()", Args: &struct{}{}, Parts: true})
)

// matching is how many milestones are as asked.
func matching(milestones []int64, is func(int64) bool) float64 {
	n := 0
	for _, m := range milestones {
		if is(m) {
			n++
		}
	}
	return float64(n)
}

// cycleArgs are those of CyclicLR, without scale_fn, which is a function.
type cycleArgs struct {
	Base         float64 `arg:"base_lr"`
	Max          float64 `arg:"max_lr"`
	Up           int64   `arg:"step_size_up"`
	Down         *int64  `arg:"step_size_down"`
	Mode         string  `arg:"mode"`
	Gamma        float64 `arg:"gamma"`
	Momentum     bool    `arg:"cycle_momentum"`
	BaseMomentum float64 `arg:"base_momentum"`
	MaxMomentum  float64 `arg:"max_momentum"`
}

func (a *cycleArgs) cycles() bool { return a.Momentum }

// height is how far a step is on the way from the base to the top, as scaled.
func (a *cycleArgs) height(epoch int64, span float64) float64 {
	up := float64(a.Up)
	down := up
	if a.Down != nil {
		down = float64(*a.Down)
	}
	total := up + down
	ratio := up / total
	cycle := math.Floor(1 + float64(epoch)/total)
	x := 1 + float64(epoch)/total - cycle
	part := (x - 1) / (ratio - 1)
	if x <= ratio {
		part = x / ratio
	}
	scale := 1.0
	switch a.Mode {
	case "triangular2":
		scale = 1 / math.Pow(2, cycle-1)
	case "exp_range":
		scale = math.Pow(a.Gamma, float64(epoch))
	}
	return span * part * scale
}

// oneCycleArgs are those of OneCycleLR.
type oneCycleArgs struct {
	Max          float64 `arg:"max_lr"`
	Total        *int64  `arg:"total_steps"`
	Epochs       *int64  `arg:"epochs"`
	PerEpoch     *int64  `arg:"steps_per_epoch"`
	Start        float64 `arg:"pct_start"`
	Strategy     string  `arg:"anneal_strategy"`
	Momentum     bool    `arg:"cycle_momentum"`
	BaseMomentum float64 `arg:"base_momentum"`
	MaxMomentum  float64 `arg:"max_momentum"`
	Div          float64 `arg:"div_factor"`
	FinalDiv     float64 `arg:"final_div_factor"`
	Three        bool    `arg:"three_phase"`
}

func (a *oneCycleArgs) cycles() bool { return a.Momentum }

// total is the number of steps; 0 if the arguments do not say.
func (a *oneCycleArgs) total() int64 {
	switch {
	case a.Total != nil:
		return *a.Total
	case a.Epochs != nil && a.PerEpoch != nil:
		return *a.Epochs * *a.PerEpoch
	}
	return 0
}

// ends are the last steps of the phases.
func (a *oneCycleArgs) ends() []float64 {
	n := float64(a.total())
	if a.Three {
		return []float64{a.Start*n - 1, 2*a.Start*n - 2, n - 1}
	}
	return []float64{a.Start*n - 1, n - 1}
}

// at is the value after a step of what is so at the ends of the phases.
func (a *oneCycleArgs) at(epoch int64, values [4]float64) float64 {
	ends := a.ends()
	i := min(sort.Search(len(ends), func(i int) bool { return float64(epoch) <= ends[i] }), len(ends)-1)
	start := 0.0
	if i > 0 {
		start = ends[i-1]
	}
	share := (float64(epoch) - start) / (ends[i] - start)
	if a.Strategy == "linear" {
		return linear(values[i], values[i+1], share)
	}
	return cosine(values[i], values[i+1], share)
}

// The schedulers that go up and down, with the momentum the other way.
var (
	_ = schedule(ScheduleRow{
		Name: "CyclicLR", Args: &cycleArgs{},
		Sig: "(base_lr: float, max_lr: float, step_size_up: int = 2000, step_size_down: int? = None, mode: str(triangular|triangular2|exp_range) = \"triangular\", " +
			"gamma: float = 1.0, *, cycle_momentum: bool = True, base_momentum: float = 0.8, max_momentum: float = 0.9)",
		Check: func(args any) error {
			a := args.(*cycleArgs)
			if a.Down != nil {
				if err := atLeast(*a.Down, 1, "step_size_down"); err != nil {
					return err
				}
			}
			return atLeast(a.Up, 1, "step_size_up")
		},
		Begin: func(s *scheduler, g *rate) { g.lr = s.args.(*cycleArgs).Base },
		Base:  func(args any) float64 { return args.(*cycleArgs).Base },
		LR: func(s *scheduler, _, base float64) float64 {
			a := s.args.(*cycleArgs)
			return base + a.height(s.epoch, a.Max-base)
		},
		Turn: func(s *scheduler, g *rate) {
			if a := s.args.(*cycleArgs); a.Momentum {
				g.momentum = a.MaxMomentum - a.height(s.epoch, a.MaxMomentum-a.BaseMomentum)
			}
		},
	})
	_ = schedule(ScheduleRow{
		Name: "OneCycleLR", Args: &oneCycleArgs{},
		Sig: "(max_lr: float, total_steps: int? = None, epochs: int? = None, steps_per_epoch: int? = None, pct_start: float = 0.3, " +
			"anneal_strategy: str(cos|linear) = \"cos\", cycle_momentum: bool = True, base_momentum: float = 0.85, max_momentum: float = 0.95, " +
			"div_factor: float = 25.0, final_div_factor: float = 10000.0, three_phase: bool = False)",
		Check: func(args any) error {
			a := args.(*oneCycleArgs)
			if a.Total == nil && (a.Epochs == nil || a.PerEpoch == nil) {
				return errors.New("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
			}
			if a.total() < 1 || a.Total == nil && *a.Epochs < 1 {
				return errors.New("there must be at least 1 step")
			}
			if a.Start < 0 || a.Start > 1 {
				return errors.New("pct_start must be from 0 to 1")
			}
			before := 0.0
			for _, end := range a.ends() {
				if end == before {
					return errors.New("a phase of these steps takes no time, so that a step divides by zero; take other total_steps or pct_start")
				}
				before = end
			}
			return nil
		},
		Begin: func(s *scheduler, g *rate) {
			a := s.args.(*oneCycleArgs)
			g.most, g.initial, g.begun = a.Max, a.Max/a.Div, true
			g.least = g.initial / a.FinalDiv
		},
		LR: func(s *scheduler, _, _ float64) float64 {
			a, g := s.args.(*oneCycleArgs), s.groups[0] // the same of all groups
			if a.Three {
				return a.at(s.epoch, [4]float64{g.initial, g.most, g.initial, g.least})
			}
			return a.at(s.epoch, [4]float64{g.initial, g.most, g.least})
		},
		Turn: func(s *scheduler, g *rate) {
			a := s.args.(*oneCycleArgs)
			if high, low := a.MaxMomentum, a.BaseMomentum; a.Momentum {
				g.momentum = a.at(s.epoch, [4]float64{high, low, high, high})
			}
		},
		Last: func(args any) int64 { return args.(*oneCycleArgs).total() },
	})
)
