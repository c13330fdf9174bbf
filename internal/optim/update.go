package optim

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/array"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Update is how a step computes: what becomes of a parameter and its states.
type Update interface {
	update(m op.Machine, args any, p *Param) error
}

// Compute computes a step of the parameters, which have gradients, and for which
// Step has allocated what it needs.
func (r *Row) Compute(m op.Machine, groups []Group) error {
	if r.Prepare != nil {
		if err := r.Prepare(m, groups); err != nil {
			return err
		}
	}
	for _, g := range groups {
		for _, p := range g.Params {
			if err := r.Update.update(m, g.Args, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// state is a tensor that a step reads and writes by its name.
type state struct {
	name   string
	at     int     // in Param.State
	first  float64 // what it starts with
	copied bool    // it starts as the parameter
}

// keep adds a state, which may be made later, under a name.
func (p *Param) keep(name string, t *op.Tensor) *state {
	p.names = append(p.names, state{name: name, at: len(p.State)})
	p.State = append(p.State, t)
	return &p.names[len(p.names)-1]
}

// state is the one of that name; nil if the parameter has none.
func (p *Param) state(name string) *op.Tensor {
	for i := range p.names {
		if s := &p.names[i]; s.name == name {
			return p.State[s.at]
		}
	}
	return nil
}

// launched is an Update by a kernel of its own.
type launched[A any] func(m op.Machine, a *A, p *Param) error

func (f launched[A]) update(m op.Machine, args any, p *Param) error { return f(m, args.(*A), p) }

// numbers are those of a formula that are no arguments of the optimizer, by name.
type numbers map[string]float64

// formula is an Update of single elements. Its kernel's operands, between p and g, are
// the states of those names. Its numbers are arguments, or own's. Of arguments sign is
// -1 with maximize, decay the weight decay, beta1 and beta2 are betas.
type formula[A any] struct {
	kernel  *kernel.Kernel
	own     func(a *A, p *Param, step int64) numbers // nil: none
	ofGroup bool                                     // steps are counted for a group, whether a parameter has a gradient or not
}

// argument finds numbers of formulas in arguments.
var argument = map[string]struct {
	arg string
	of  func(v any) float64
}{
	"sign":  {"maximize", func(v any) float64 { return float64(1 - 2*op.Flag(v.(bool))) }},
	"decay": {"weight_decay", func(v any) float64 { return v.(float64) }},
	"beta1": {"betas", func(v any) float64 { return v.([]float64)[0] }},
	"beta2": {"betas", func(v any) float64 { return v.([]float64)[1] }},
}

// floats are the numbers of the kernel in a step of a parameter.
func (f formula[A]) floats(args any, p *Param) ([]float64, error) {
	var own numbers
	if f.own != nil {
		step := p.Steps
		if f.ofGroup {
			step = p.calls
		}
		own = f.own(args.(*A), p, step)
	}
	out := make([]float64, len(f.kernel.Floats))
	for i, name := range f.kernel.Floats {
		if v, is := own[name]; is {
			out[i] = v
			continue
		}
		find, is := argument[name]
		if !is {
			find.arg, find.of = name, func(v any) float64 { return v.(float64) }
		}
		v, is := argumentOf(args, find.arg)
		if !is {
			return nil, fmt.Errorf("%T has no argument %s, of which %s would be made", args, find.arg, name)
		}
		out[i] = find.of(v)
	}
	for name := range own {
		if !slices.Contains(f.kernel.Floats, name) {
			return nil, fmt.Errorf("the formula %s has no number %s", f.kernel.Name, name)
		}
	}
	return out, nil
}

// argumentOf is the field of an argument struct with that tag.
func argumentOf(args any, name string) (any, bool) {
	s := reflect.ValueOf(args).Elem()
	for _, f := range reflect.VisibleFields(s.Type()) {
		if f.Tag.Get("arg") == name {
			return s.FieldByIndex(f.Index).Interface(), true
		}
	}
	return nil, false
}

func (f formula[A]) update(m op.Machine, args any, p *Param) error {
	names := f.states()
	ts := make([]*op.Tensor, len(names))
	for i := range p.names {
		s := &p.names[i]
		at := slices.Index(names, s.name)
		if at < 0 {
			return fmt.Errorf("the formula %s has no operand %s", f.kernel.Name, s.name)
		}
		ts[at] = p.State[s.at]
		if p.Steps > 1 {
			continue
		}
		if err := s.start(m, p); err != nil {
			return err
		}
	}
	floats, err := f.floats(args, p)
	if err != nil {
		return err
	}
	l := op.Launch{On: m}
	l.Add(p.T)
	l.Add(ts...)
	l.Add(p.Grad)
	return l.Run(f.kernel, nil, floats...)
}

// states are the names of the operands between the parameter and the gradient.
func (f formula[A]) states() []string {
	var out []string
	for _, n := range f.kernel.Tensors[1 : len(f.kernel.Tensors)-1] {
		out = append(out, strings.TrimSuffix(n, "?"))
	}
	return out
}

// start writes what a state starts with.
func (s *state) start(m op.Machine, p *Param) error {
	if s.copied {
		return m.Apply(kernel.Copy, p.State[s.at], []*op.Tensor{p.T})
	}
	return m.Apply(kernel.Fill, p.State[s.at], nil, s.first)
}

// arrays is an Update that is computed with arrays: of steps that are more than
// functions of single elements, such as those with norms of a whole parameter.
type arrays[A any] func(a *A, s *stepped)

// stepped is what a step works on.
type stepped struct {
	step   float64
	size   []int
	dtype  tensor.DType
	p, g   []float64
	states map[string][]float64
}

func (f arrays[A]) update(m op.Machine, args any, p *Param) error {
	return m.OnHost(func(a op.Arrays) {
		s := &stepped{step: float64(p.Steps), p: a.Get(p.T), g: a.Get(p.Grad), dtype: p.T.DType, states: map[string][]float64{}}
		for d := range p.T.Size.Len() {
			s.size = append(s.size, int(p.T.Size.At(d)))
		}
		if maximize, ok := argumentOf(args, "maximize"); ok && maximize.(bool) {
			for i := range s.g {
				s.g[i] = -s.g[i]
			}
		}
		for i := range p.names {
			n := &p.names[i]
			v := a.Get(p.State[n.at])
			for k := range v {
				switch {
				case p.Steps > 1:
				case n.copied:
					v[k] = s.p[k]
				default:
					v[k] = n.first
				}
			}
			s.states[n.name] = v
		}
		f(args.(*A), s)
		a.Put(p.T, s.p)
		for i := range p.names {
			n := &p.names[i]
			a.Put(p.State[n.at], s.states[n.name])
		}
	})
}

// state are the elements of a state, which the parameter must have.
func (s *stepped) state(name string) []float64 {
	v, ok := s.states[name]
	if !ok {
		panic("optim: no state " + name)
	}
	return v
}

// add changes the parameter by a multiple of a vector.
func (s *stepped) add(v []float64, by float64) {
	for i := range s.p {
		s.p[i] += by * v[i]
	}
}

// rms is the root mean square.
func rms(v []float64) float64 { return array.Norm(v, 2) / math.Sqrt(float64(len(v))) }

func scale(v []float64, by float64) {
	for i := range v {
		v[i] *= by
	}
}

// lerp moves a towards f.
func lerp(a []float64, weight float64, f func(i int) float64) {
	for i := range a {
		a[i] += weight * (f(i) - a[i])
	}
}
