package optim

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// TrainerRates is a schedule of transformers.Trainer, by its arguments
// (transformers/optimization.py: get_scheduler).
type TrainerRates struct {
	Type string // lr_scheduler_type
	// Warmup is a number of steps or, below 1, their share of all.
	Warmup float64
	Total  int64 // steps of the training; 0: as many as are played
	LR     float64
	Kwargs map[string]any // lr_scheduler_kwargs: numbers and strings
}

// trainerArgs are those of a schedule whose steps are known.
type trainerArgs struct {
	*TrainerRates
	row           *trainerSchedule
	warmup, total float64
}

// trainerSchedule is what one type does: the factor of the rates after a step, what
// lr_scheduler_kwargs may have, and those of them that must be there.
type trainerSchedule struct {
	factor   func(a *trainerArgs, step float64) float64
	kwargs   map[string]any // with their defaults; nil: none
	required []string
}

// trainerSchedules are the types, without reduce_lr_on_plateau and greedy, which go by
// losses.
var trainerSchedules = map[string]*trainerSchedule{
	"constant":             {factor: func(*trainerArgs, float64) float64 { return 1 }},
	"constant_with_warmup": {factor: warmed(func(*trainerArgs, float64) float64 { return 1 })},
	"linear": {factor: warmed(func(a *trainerArgs, step float64) float64 {
		return max(0, (a.total-step)/max(1, a.total-a.warmup))
	})},
	"cosine": {
		kwargs: map[string]any{"num_cycles": 0.5},
		factor: warmed(func(a *trainerArgs, step float64) float64 {
			return max(0, wave(a.number("num_cycles"), a.progress(step)))
		}),
	},
	"cosine_with_restarts": {
		kwargs: map[string]any{"num_cycles": 1.0},
		factor: warmed(func(a *trainerArgs, step float64) float64 {
			p := a.progress(step)
			if p >= 1 {
				return 0
			}
			return max(0, wave(0.5, math.Mod(a.number("num_cycles")*p, 1)))
		}),
	},
	"polynomial": {
		kwargs: map[string]any{"lr_end": 1e-7, "power": 1.0},
		factor: warmed(func(a *trainerArgs, step float64) float64 {
			end := a.number("lr_end")
			if step > a.total {
				return end / a.LR
			}
			return ((a.LR-end)*math.Pow(1-(step-a.warmup)/(a.total-a.warmup), a.number("power")) + end) / a.LR
		}),
	},
	"inverse_sqrt": {
		kwargs: map[string]any{"timescale": 0.0},
		factor: warmed(func(a *trainerArgs, step float64) float64 {
			scale := a.number("timescale")
			if scale == 0 {
				if scale = a.warmup; scale == 0 {
					scale = 10_000
				}
			}
			return 1 / math.Sqrt((step+scale-a.warmup)/scale)
		}),
	},
	"cosine_with_min_lr": {
		kwargs: map[string]any{"num_cycles": 0.5, "min_lr": 0.0, "min_lr_rate": 0.0},
		factor: warmed(func(a *trainerArgs, step float64) float64 {
			return a.above(wave(a.number("num_cycles"), a.progress(step)))
		}),
	},
	"cosine_warmup_with_min_lr": {
		kwargs: map[string]any{"num_cycles": 0.5, "min_lr": 0.0, "min_lr_rate": 0.0, "warmup_lr_rate": 0.0},
		factor: func(a *trainerArgs, step float64) float64 {
			if _, given := a.Kwargs["warmup_lr_rate"]; step < a.warmup && given {
				from := a.number("warmup_lr_rate")
				return from + (1-from)*step/max(1, a.warmup-1)
			}
			if step < a.warmup {
				return (step + 1) / max(1, a.warmup)
			}
			return a.above(wave(a.number("num_cycles"), a.progress(step+1)))
		},
	},
	"warmup_stable_decay": {
		kwargs: map[string]any{"num_decay_steps": 0.0, "num_stable_steps": 0.0, "warmup_type": "linear", "decay_type": "cosine",
			"min_lr_ratio": 0.0, "num_cycles": 0.5},
		required: []string{"num_decay_steps"},
		factor:   stable,
	},
}

// warmed rises to 1 in the steps of the warmup and goes on as after says.
func warmed(after func(a *trainerArgs, step float64) float64) func(a *trainerArgs, step float64) float64 {
	return func(a *trainerArgs, step float64) float64 {
		if step < a.warmup {
			return step / max(1, a.warmup)
		}
		return after(a, step)
	}
}

// wave is the height of a cosine, from 1 to 0, after a share of so many cycles.
func wave(cycles, share float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*cycles*2*share)) }

// stable warms up, stays, and goes down at last.
func stable(a *trainerArgs, step float64) float64 {
	least := a.number("min_lr_ratio")
	decay, stays := a.number("num_decay_steps"), a.number("num_stable_steps")
	if _, given := a.Kwargs["num_stable_steps"]; !given {
		stays = a.total - a.warmup - decay
	}
	var factor float64
	switch p := step / max(1, a.warmup); {
	case step < a.warmup && a.text("warmup_type") == "cosine":
		factor = wave(0.5, 1-p)
	case step < a.warmup && a.text("warmup_type") == "1-sqrt":
		factor = 1 - math.Sqrt(1-p)
	case step < a.warmup:
		factor = p
	case step < a.warmup+stays:
		return 1
	case step < a.warmup+stays+decay:
		switch p = (step - a.warmup - stays) / max(1, decay); a.text("decay_type") {
		case "cosine":
			factor = wave(a.number("num_cycles"), p)
		case "1-sqrt":
			factor = 1 - math.Sqrt(p)
		default:
			factor = 1 - p
		}
	default:
		return least
	}
	return max(0, factor*(1-least)+least)
}

// progress is the share of the steps after the warmup.
func (a *trainerArgs) progress(step float64) float64 {
	return (step - a.warmup) / max(1, a.total-a.warmup)
}

// above is a factor over that of the least rate.
func (a *trainerArgs) above(factor float64) float64 {
	least := a.number("min_lr_rate")
	if _, given := a.Kwargs["min_lr"]; given {
		least = a.number("min_lr") / a.LR
	}
	return max(0, factor*(1-least)+least)
}

func (a *trainerArgs) value(name string) any {
	if v, given := a.Kwargs[name]; given {
		return v
	}
	return a.row.kwargs[name]
}

func (a *trainerArgs) number(name string) float64 { n, _ := a.value(name).(float64); return n }
func (a *trainerArgs) text(name string) string    { s, _ := a.value(name).(string); return s }

// Check reports why a schedule of a trainer is not computed, or refused by transformers.
func (r *TrainerRates) Check() error {
	row := trainerSchedules[r.Type]
	if row == nil {
		return fmt.Errorf("lr_scheduler_type %s is not computed", r.Type)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Kwargs)) {
		want, known := row.kwargs[name]
		_, number := want.(float64)
		if _, is := r.Kwargs[name].(float64); !known || is != number {
			return fmt.Errorf("lr_scheduler_kwargs of %s with %s: %v is not computed", r.Type, name, r.Kwargs[name])
		}
	}
	has := func(name string) bool { return r.Kwargs[name] != nil }
	for _, name := range row.required {
		if !has(name) {
			return fmt.Errorf("%s needs %s in lr_scheduler_kwargs", r.Type, name)
		}
	}
	a := &trainerArgs{TrainerRates: r, row: row}
	if _, least := row.kwargs["min_lr"]; least && has("min_lr") == has("min_lr_rate") {
		return fmt.Errorf("%s needs min_lr or min_lr_rate in lr_scheduler_kwargs", r.Type)
	}
	if end := a.number("lr_end"); r.Type == "polynomial" && end >= r.LR {
		return fmt.Errorf("lr_end, %v, must be below the learning rate", end)
	}
	for _, name := range []string{"warmup_type", "decay_type"} {
		if kind := a.text(name); kind != "" && !slices.Contains([]string{"linear", "cosine", "1-sqrt"}, kind) {
			return fmt.Errorf("%s must be linear, cosine or 1-sqrt, not %s", name, kind)
		}
	}
	return nil
}

// over is the schedule of a training of so many steps, unless its arguments say how many.
func (r *TrainerRates) over(steps int64) *trainerArgs {
	a := &trainerArgs{TrainerRates: r, row: trainerSchedules[r.Type], warmup: math.Trunc(r.Warmup)}
	if r.Total > 0 {
		steps = r.Total
	}
	if a.total = float64(steps); r.Warmup < 1 {
		a.warmup = math.Ceil(a.total * r.Warmup)
	}
	return a
}

// trainerRow is a LambdaLR over the factor of a trainer's schedule.
var trainerRow = &ScheduleRow{Name: "LambdaLR", LR: func(s *scheduler, _, base float64) float64 {
	a := s.args.(*trainerArgs)
	return base * a.row.factor(a, float64(s.epoch))
}}

// OfTrainer is the schedule as others are.
func OfTrainer(r *TrainerRates) *Schedule { return &Schedule{Row: trainerRow, Args: r} }
