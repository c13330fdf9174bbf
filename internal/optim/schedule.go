package optim

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"

	"github.com/memplan/memplan/internal/op"
)

// ScheduleRow is a scheduler of learning rates, as in torch.optim.lr_scheduler
// (torch/optim/lr_scheduler.py).
type ScheduleRow struct {
	Name string
	Sig  string // constructor, without the optimizer; see op.ParseSig
	Args any    // pointer to a zero value of the argument struct

	// Check reports what the constructor refuses, or what would divide by zero in a step.
	Check func(args any) error
	// Begin sets the groups before the first step; nil: nothing does.
	Begin func(s *scheduler, g *rate)
	// LR is the rate of a group after a step, of the one before; Closed that of step 0 in
	// the midst of others, nil: LR.
	LR, Closed func(s *scheduler, lr, base float64) float64
	// Turn is the momentum of a group after a step; nil: it stays.
	Turn func(s *scheduler, g *rate)
	// Base is the rate that LR goes from after the first step; nil: that of the group.
	Base func(args any) float64
	// Restart resets what Next counts; both are nil of schedulers that count steps alone.
	Restart, Next func(s *scheduler)
	// Measures steps by a metric, where the others step by their own count; nil: they do.
	Measures func(s *scheduler, metric float64)
	// Parts reports that the arguments hold schedulers.
	Parts bool
	// Last is the last step, beyond which PyTorch raises a ValueError; nil: there is none.
	Last func(args any) int64

	sig *op.Sig
}

// Signature returns the parsed constructor.
func (r *ScheduleRow) Signature() *op.Sig { return r.sig }

// Schedule is a scheduler with its arguments.
type Schedule struct {
	Row   *ScheduleRow
	Args  any
	Parts []*Schedule // of a row that has parts
}

// SequentialArgs are the arguments of SequentialLR, but for its schedulers.
type SequentialArgs struct {
	Milestones []int64 `arg:"milestones"`
}

// The schedulers that are made of others.
const (
	sequential = "SequentialLR"
	chained    = "ChainedScheduler"
)

var schedules = map[string]*ScheduleRow{}

func schedule(r ScheduleRow) *ScheduleRow {
	sig, err := op.ParseSig("torch.optim.lr_scheduler." + r.Name + r.Sig)
	if err != nil {
		panic(err)
	}
	r.sig = sig
	schedules[r.Name] = &r
	return &r
}

// LookupSchedule returns the scheduler of that name, or nil.
func LookupSchedule(name string) *ScheduleRow { return schedules[name] }

// ScheduleNames lists the schedulers, sorted.
func ScheduleNames() []string {
	var out []string
	for n := range schedules {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// rate is what schedulers change of a parameter group.
type rate struct {
	lr, momentum float64
	initial      float64 // as initial_lr
	begun        bool    // initial is set
	most, least  float64 // of OneCycleLR
}

// scheduler is one under way.
type scheduler struct {
	row     *ScheduleRow
	args    any
	parts   []*scheduler
	groups  []*rate
	base    []float64
	epoch   int64 // as last_epoch
	steps   int64 // as _step_count
	cur     int64 // of CosineAnnealingWarmRestarts
	period  int64
	plateau *plateau // of ReduceLROnPlateau
}

// newScheduler constructs one, which makes a first step.
func newScheduler(s *Schedule, groups []*rate) *scheduler {
	x := &scheduler{row: s.Row, args: s.Args, groups: groups}
	for _, p := range s.Parts {
		x.parts = append(x.parts, newScheduler(p, groups))
	}
	if a, is := s.Args.(*plateauArgs); is {
		x.plateau = newPlateau(a)
		return x
	}
	switch s.Row.Name {
	case sequential:
		for _, g := range groups {
			g.lr = g.initial
		}
		for _, p := range x.parts {
			p.epoch--
		}
		x.parts[0].first()
		return x
	case chained:
		return x
	}
	for _, g := range groups {
		if s.Row.Begin != nil {
			s.Row.Begin(x, g)
		}
		if !g.begun {
			g.initial, g.begun = g.lr, true
		}
		x.base = append(x.base, g.initial)
	}
	x.epoch = -1
	x.first()
	if s.Row.Base != nil {
		for i := range x.base {
			x.base[i] = s.Row.Base(s.Args)
		}
	}
	return x
}

func (s *scheduler) first() {
	s.steps = 0
	s.step()
}

// step goes on by one.
func (s *scheduler) step() {
	switch s.row.Name {
	case chained:
		for _, p := range s.parts {
			p.step()
		}
		return
	case sequential:
		s.epoch++
		milestones := s.args.(*SequentialArgs).Milestones
		i := sort.Search(len(milestones), func(k int) bool { return milestones[k] > s.epoch })
		if i > 0 && milestones[i-1] == s.epoch {
			s.parts[i].restart()
		} else {
			s.parts[i].step()
		}
		return
	}
	if s.steps, s.epoch = s.steps+1, s.epoch+1; s.row.Next != nil {
		s.row.Next(s)
	}
	s.set(s.row.LR)
}

// restart is step(0).
func (s *scheduler) restart() {
	s.steps, s.epoch = s.steps+1, 0
	if s.row.Restart != nil {
		s.row.Restart(s)
	}
	if s.row.Closed != nil {
		s.set(s.row.Closed)
	} else {
		s.set(s.row.LR)
	}
}

func (s *scheduler) set(lr func(s *scheduler, lr, base float64) float64) {
	for i, g := range s.groups {
		if s.row.Turn != nil {
			s.row.Turn(s, g)
		}
		g.lr = lr(s, g.lr, s.base[i])
	}
}

// Check reports why PyTorch would not construct a scheduler.
func (s *Schedule) Check() error {
	if s.Row.Parts {
		if len(s.Parts) == 0 {
			return fmt.Errorf("%s needs schedulers, at least one", s.Row.Name)
		}
		for _, p := range s.Parts {
			if p.Row.Parts {
				return fmt.Errorf("%s is made of single schedulers, not of %s", s.Row.Name, p.Row.Name)
			}
			if p.Row.Measures != nil {
				return fmt.Errorf("%s has schedulers that step by themselves; %s steps by what an evaluation gives", s.Row.Name, p.Row.Name)
			}
		}
	}
	if a, is := s.Args.(*SequentialArgs); is {
		switch n := len(a.Milestones); {
		case n != len(s.Parts)-1:
			return fmt.Errorf("%d schedulers need %d milestones, not %d", len(s.Parts), len(s.Parts)-1, n)
		case !slices.IsSorted(a.Milestones):
			return fmt.Errorf("milestones must rise")
		}
	}
	if s.Row.Check != nil {
		return s.Row.Check(s.Args)
	}
	return nil
}

// Suits reports why a scheduler does not go with an optimizer that has such arguments.
func (s *Schedule) Suits(args any) error {
	if number(args, "lr") == nil {
		return fmt.Errorf("%s sets lr, which is no number here", s.Row.Name)
	}
	for _, x := range append([]*Schedule{s}, s.Parts...) {
		if m, is := x.Args.(interface{ cycles() bool }); is && m.cycles() && momentum(args) == nil {
			return fmt.Errorf("%s with cycle_momentum sets momentum or betas, of which this optimizer has none", x.Row.Name)
		}
	}
	return nil
}

// field is the argument of a name in the struct that args points to; the zero Value if
// there is none.
func field(args any, name string) reflect.Value {
	v := reflect.ValueOf(args).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Tag.Get("arg") == name {
			return v.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}

// number is an argument that is a number; nil if there is none.
func number(args any, name string) *float64 {
	f := field(args, name)
	if f.IsValid() && f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	if !f.IsValid() || f.Kind() != reflect.Float64 {
		return nil
	}
	return f.Addr().Interface().(*float64)
}

// LR is the learning rate among arguments; nil if it is none of their numbers.
func LR(args any) *float64 { return number(args, "lr") }

// momentum is the first of betas or, without them, momentum; nil if there is neither.
func momentum(args any) *float64 {
	if f := field(args, "betas"); f.IsValid() {
		if betas, is := f.Interface().([]float64); is && len(betas) > 0 {
			return &betas[0]
		}
	}
	return number(args, "momentum")
}

// copied is a struct of arguments whose rate and momentum are its own.
func copied(args any) any {
	v := reflect.New(reflect.TypeOf(args).Elem())
	v.Elem().Set(reflect.ValueOf(args).Elem())
	if f := field(v.Interface(), "betas"); f.IsValid() && f.Kind() == reflect.Slice {
		f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
	}
	if f := field(v.Interface(), "lr"); f.IsValid() && f.Kind() == reflect.Pointer && !f.IsNil() {
		own := reflect.New(f.Type().Elem())
		own.Elem().Set(f.Elem())
		f.Set(own)
	}
	return v.Interface()
}

func atLeast(n, least int64, what string) error {
	if n < least {
		return fmt.Errorf("%s must be at least %d", what, least)
	}
	return nil
}

// Rates are the arguments of an optimizer's groups as a scheduler changes them.
type Rates struct {
	s      *scheduler
	groups []*rate
	args   []any
	last   int64 // step that there is; 0: no end
	done   int64
}

// NewRates begins a schedule over groups with arguments of their own, in a training of
// so many steps.
func NewRates(s *Schedule, groups []any, steps int64) *Rates {
	r := &Rates{}
	if t, is := s.Args.(*TrainerRates); is {
		s = &Schedule{Row: s.Row, Args: t.over(steps)}
	}
	for _, args := range groups {
		own := copied(args)
		g := &rate{lr: *number(own, "lr")}
		if m := momentum(own); m != nil {
			g.momentum = *m
		}
		r.groups, r.args = append(r.groups, g), append(r.args, own)
	}
	r.s = newScheduler(s, r.groups)
	for _, p := range append([]*Schedule{s}, s.Parts...) {
		if p.Row.Last != nil && r.last == 0 {
			r.last = p.Row.Last(p.Args)
		}
	}
	r.apply()
	return r
}

// Step is scheduler.step(). Beyond the last step that a schedule has it is an error.
func (r *Rates) Step() error {
	if r.done++; r.last > 0 && r.done > r.last && len(r.s.parts) == 0 {
		return fmt.Errorf("%s is stepped %d times; its total_steps are %d", r.s.row.Name, r.done, r.last)
	}
	r.s.step()
	r.apply()
	return nil
}

// Measured is scheduler.step(metric).
func (r *Rates) Measured(metric float64) {
	r.s.row.Measures(r.s, metric)
	r.apply()
}

// LR is the learning rate of a group.
func (r *Rates) LR(group int) float64 { return r.groups[group].lr }

// Args are the arguments of a group, whose numbers Step sets.
func (r *Rates) Args(group int) any { return r.args[group] }

func (r *Rates) apply() {
	for i, g := range r.groups {
		*number(r.args[i], "lr") = g.lr
		if m := momentum(r.args[i]); m != nil {
			*m = g.momentum
		}
	}
}

// cosine is half a wave from start to end.
func cosine(start, end, share float64) float64 {
	return end + (start-end)/2*(math.Cos(math.Pi*share)+1)
}

func linear(start, end, share float64) float64 { return (end-start)*share + start }
