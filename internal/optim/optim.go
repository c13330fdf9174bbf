// Package optim is the table of optimizers: for each one of torch.optim, what
// state it keeps for a parameter and what it allocates in a step, in each of
// its implementations.
//
// An implementation is written as the Python code runs: lists of temporaries
// are made tensor by tensor and die from the last to the first, as the items
// of a Python list do; a local variable keeps its list until it is rebound.
package optim

import (
	"fmt"
	"sort"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Row is one optimizer.
type Row struct {
	Name string // as in torch.optim
	Sig  string // constructor, without params; see op.ParseSig
	Args any    // pointer to a zero value of the argument struct, which embeds Common

	// Init makes the state of a parameter when it is first stepped.
	Init func(c *Call, p *Param)
	// Foreach, ForLoop and Fused step all parameters that have gradients and
	// are alike in type. Fused is nil if there is no such implementation.
	Foreach, ForLoop, Fused func(c *Call, ps []*Param)

	Eager         bool // the constructor runs Init, for all parameters
	LoopByDefault bool // without foreach, the for-loop runs
	NotCapturable bool // the capturable forms are not modelled

	sig *op.Sig
}

// Common are the arguments that choose an implementation.
type Common struct {
	Foreach    *bool `arg:"foreach"`
	Fused      *bool `arg:"fused"`
	Capturable bool  `arg:"capturable"`
	Maximize   bool  `arg:"maximize"`
}

func (c *Common) common() *Common { return c }

// Param is a parameter with its state.
type Param struct {
	T, Grad *op.Tensor
	State   []*op.Tensor
	Stepped bool // Init has run
}

// Exec is what an optimizer may ask of the player.
type Exec interface {
	op.Exec
	// Persist marks t as optimizer state.
	Persist(t *op.Tensor) *op.Tensor
}

// Call is one step of one optimizer.
type Call struct {
	Exec
	Args any
}

// Step updates the parameters that have gradients. It fails if the arguments
// ask for what the optimizer does not have.
func (r *Row) Step(x Exec, args any, params []*Param) {
	c := &Call{x, args}
	var with []*Param
	for _, p := range params {
		if p.Grad == nil {
			continue
		}
		with = append(with, p)
		if !p.Stepped {
			p.Stepped = true
			if r.Init != nil {
				r.Init(c, p)
			}
		}
	}
	if len(with) == 0 {
		return
	}
	impl, grouped := r.implementation(args)
	if !grouped {
		impl(c, with)
		return
	}
	for _, g := range groups(with) {
		impl(c, g)
	}
}

// Start is what the constructor does: a row that is eager makes its state.
func (r *Row) Start(x Exec, args any, params []*Param) {
	if !r.Eager {
		return
	}
	c := &Call{x, args}
	for _, p := range params {
		p.Stepped = true
		r.Init(c, p)
	}
}

// implementation returns the function that the arguments choose, and whether
// it is called for each type of parameters apart. On a GPU the default is
// foreach, but for one optimizer.
func (r *Row) implementation(args any) (func(*Call, []*Param), bool) {
	a := args.(interface{ common() *Common }).common()
	switch {
	case a.Fused != nil && *a.Fused:
		return r.Fused, true
	case a.Foreach == nil && r.LoopByDefault, a.Foreach != nil && !*a.Foreach:
		return r.ForLoop, false
	}
	return r.Foreach, true
}

// Check reports arguments that PyTorch refuses.
func (r *Row) Check(args any) error {
	a := args.(interface{ common() *Common }).common()
	fused := a.Fused != nil && *a.Fused
	switch {
	case fused && r.Fused == nil:
		return fmt.Errorf("%s has no fused implementation for GPUs", r.Name)
	case fused && a.Foreach != nil && *a.Foreach:
		return fmt.Errorf("fused and foreach exclude each other")
	case r.NotCapturable && a.Capturable:
		return fmt.Errorf("%s with capturable: true is not modelled", r.Name)
	case r.ForLoop == nil && a.Foreach != nil && !*a.Foreach:
		return fmt.Errorf("%s with foreach: false is not modelled: what it allocates changes after some steps", r.Name)
	}
	return nil
}

// OnDevice reports whether the step counters live on the GPU.
func (c *Call) OnDevice() bool {
	a := c.Args.(interface{ common() *Common }).common()
	return a.Capturable || (a.Fused != nil && *a.Fused)
}

// IsFused reports whether the arguments ask for the fused implementation.
func IsFused(args any) bool {
	a := args.(interface{ common() *Common }).common()
	return a.Fused != nil && *a.Fused
}

// groups splits parameters by type, in the order of first appearance.
func groups(ps []*Param) [][]*Param {
	var out [][]*Param
	index := map[tensor.DType]int{}
	for _, p := range ps {
		i, ok := index[p.T.DType]
		if !ok {
			i = len(out)
			index[p.T.DType] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], p)
	}
	return out
}

// counter makes a step counter: a scalar in float32, on the GPU only for the
// fused and capturable implementations.
func (c *Call) counter(p *Param) {
	if c.OnDevice() {
		p.State = append(p.State, c.Persist(c.New(tensor.Contiguous(tensor.D()), tensor.Float32)))
	}
}

// moment makes a state tensor like the parameter (zeros_like).
func (c *Call) moment(p *Param) {
	p.State = append(p.State, c.Persist(c.New(p.T.LikeDense(), p.T.DType)))
}

// list makes one temporary for each parameter.
func (c *Call) list(ps []*Param) []*op.Tensor {
	out := make([]*op.Tensor, len(ps))
	for i, p := range ps {
		out[i] = c.New(p.T.LikeDense(), p.T.DType)
	}
	return out
}

// dropList frees a list as Python does: the last item first.
func (c *Call) dropList(l []*op.Tensor) {
	for i := len(l) - 1; i >= 0; i-- {
		c.Drop(l[i])
	}
}

// temp makes a temporary like the parameter.
func (c *Call) temp(p *Param) *op.Tensor { return c.New(p.T.LikeDense(), p.T.DType) }

var table = map[string]*Row{}

func define(r Row) *Row {
	sig, err := op.ParseSig(r.Sig)
	if err != nil {
		panic("optim: " + err.Error())
	}
	p := &r
	p.sig = sig
	table[r.Name] = p
	return p
}

// Lookup returns the optimizer of that name, or nil.
func Lookup(name string) *Row { return table[name] }

// Signature returns the parsed constructor.
func (r *Row) Signature() *op.Sig { return r.sig }

// Names lists the optimizers, sorted.
func Names() []string {
	names := make([]string, 0, len(table))
	for n := range table {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
