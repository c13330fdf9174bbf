package graph

import (
	"cmp"
	"fmt"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trainer"
)

// The keys beside and in a scheduler.
const (
	keyEvery      = "every"
	keySchedulers = "schedulers"
)

// rates elaborates the scheduler of an optimizer's learning rates.
func (el *building) rates(o *program.Optimizer, v *spec.Value) {
	if v == nil {
		return
	}
	every := int64(0)
	s := el.scheduler(v, func(key, val *spec.Value) bool {
		if key.Str != keyEvery {
			return false
		}
		if every = val.Int; val.Kind != spec.Int || every < 1 || every > spec.MaxEvery {
			el.fail(val.Span, "every must be an integer from 1 to %d, not %s", spec.MaxEvery, val.Describe())
		}
		return true
	})
	if every > 0 && s.Row.Measures != nil {
		el.fail(v.Span, "%s steps after each evaluation; its every is that of eval", s.Row.Name)
	}
	if s.Every = every; every == 1 {
		s.Every = 0
	}
	if el.spec.Train.InBackward.V {
		el.fail(v.Span, "lr_scheduler with optimizer_in_backward, which makes an optimizer for each parameter, is not modelled")
	}
	if el.deepspeed != nil {
		el.fail(v.Span, "lr_scheduler under DeepSpeed's engine, which steps one of its own, is not modelled")
	}
	for _, args := range o.AllArgs() {
		if err := s.Suits(args); err != nil {
			el.fail(v.Span, "%v", err)
		}
	}
	o.Scheduler = s
}

// trainerRates gives an optimizer the schedule of transformers.Trainer, or says why its
// rates stay.
func (el *building) trainerRates(o *program.Optimizer) {
	t := el.spec.Trainer
	if t == nil || !t.OfTransformers() || t.Args().Table == nil || o.Scheduler != nil {
		return
	}
	r, err := ratesOf(t.Args())
	if lr := optim.LR(o.Args); lr != nil {
		r.LR = *lr
	}
	s := optim.OfTrainer(r)
	for _, args := range o.AllArgs() {
		err = cmp.Or(err, s.Suits(args))
	}
	if err = cmp.Or(err, r.Check()); err != nil {
		o.Unrated = err.Error()
		return
	}
	o.Scheduler = &program.Scheduler{Schedule: s, Trainer: true}
}

// ratesOf is what arguments of transformers.Trainer say of learning rates. The warmup is
// warmup_steps and, up to transformers 4, warmup_ratio where that is 0, or from 5 on
// warmup_ratio where it is given (training_args.py: get_warmup_steps).
func ratesOf(a *spec.Arguments) (*optim.TrainerRates, error) {
	r := &optim.TrainerRates{Type: a.Text("lr_scheduler_type"), Warmup: a.Number("warmup_steps"), Total: max(a.Int("max_steps"), 0), Kwargs: map[string]any{}}
	if a.Has("warmup_ratio") && (a.Release != trainer.Old || r.Warmup <= 0) {
		r.Warmup = a.Number("warmup_ratio")
	}
	kwargs, _ := a.Value("lr_scheduler_kwargs").(*spec.Value)
	if kwargs == nil {
		return r, nil
	}
	for _, p := range kwargs.Pairs {
		switch v := p.Value; v.Kind {
		case spec.Int:
			r.Kwargs[p.Key.Str] = float64(v.Int)
		case spec.Float:
			r.Kwargs[p.Key.Str] = v.Float
		case spec.Str:
			r.Kwargs[p.Key.Str] = v.Str
		case spec.Null:
		default:
			return r, fmt.Errorf("lr_scheduler_kwargs with %s: %s is not computed", p.Key.Str, v.Describe())
		}
	}
	return r, nil
}

// measuredRates holds evaluations against the schedulers that step by their loss.
func (el *elaborator) measuredRates() {
	for i, o := range el.job.Optimizers {
		if !o.Measures() {
			continue
		}
		name, at, e := o.Scheduler.Row.Name, el.optimDefs[i].Scheduler.Span, el.job.Eval
		switch {
		case e == nil:
			el.fail(at, "%s steps after each evaluation, by its loss: write eval: {every: 100, batches: 8}", name)
		case e.Loss() < 0:
			el.fail(at, "%s steps by the loss of the evaluation, whose statements give none; call a value loss, and do not delete it", name)
		case e.Last != nil:
			el.fail(at, "%s steps by the loss of the evaluation, whose batches have several sizes; this is not modelled", name)
		}
	}
}

// scheduler reads a name, or a name with arguments; beside takes keys that stand beside it.
func (el *building) scheduler(v *spec.Value, beside func(key, val *spec.Value) bool) *program.Scheduler {
	const form = "{StepLR: {step_size: 30}}"
	name, arg := v, (*spec.Value)(nil)
	if v.Kind == spec.Map {
		name = nil
		for _, p := range v.Pairs {
			switch {
			case beside(p.Key, p.Value):
			case name != nil:
				el.fail(p.Key.Span, "one scheduler is expected; %q is a second beside %q (ChainedScheduler and SequentialLR are made of several)", p.Key.Str, name.Str)
			default:
				name, arg = p.Key, p.Value
			}
		}
	}
	if name == nil || name.Kind != spec.Str {
		el.fail(v.Span, "write a scheduler of torch.optim.lr_scheduler, such as %s; not %s", form, v.Describe())
	}
	row := optim.LookupSchedule(name.Str)
	if row == nil {
		el.errs.Unknown(name.Span, "scheduler", name.Str, optim.ScheduleNames())
		panic(spec.Stop{})
	}
	if arg != nil && arg.Kind == spec.Null {
		arg = nil
	}
	s := &program.Scheduler{Schedule: &optim.Schedule{Row: row}}
	a := &argReader{el: el.elaborator, env: el.spec.Env, what: name.Str, at: name.Span, sigs: []*op.Sig{row.Signature()}}
	if row.Parts {
		a.also, a.skip = []string{keySchedulers}, func(name string) bool { return name == keySchedulers }
		parts := arg.Get(keySchedulers)
		if parts == nil || parts.Kind != spec.List {
			el.fail(name.Span, "%s needs schedulers, a list such as [%s, {ExponentialLR: {gamma: 0.9}}]", name.Str, form)
		}
		for _, it := range parts.Items {
			p := el.scheduler(it, func(_, _ *spec.Value) bool { return false })
			s.Parts, s.Schedule.Parts = append(s.Parts, p), append(s.Schedule.Parts, p.Schedule)
		}
	}
	a.read(arg)
	for _, p := range row.Signature().Params {
		if p.Required && !a.given[p.Name] {
			el.fail(name.Span, "%s needs %s", name.Str, p.Name)
		}
	}
	var vals map[string]any
	vals, s.Given = a.merged(nil)
	s.Args = op.BindArgs(row.Args, vals)
	if err := s.Check(); err != nil {
		el.fail(name.Span, "%v", err)
	}
	return s
}
