// Package optim is the table of optimizers: for each one, what state it keeps
// for a parameter and what it allocates in a step, in each of its
// implementations. Most are those of torch.optim, some are other packages'.
//
// An implementation is written as the Python code runs: lists of temporaries
// are made tensor by tensor and freed from the last to the first, as the items
// of a Python list do; a local variable keeps its list until it is rebound.
package optim

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Row is one optimizer.
type Row struct {
	Name string // as in torch.optim, or in the package that has it
	Sig  string // constructor, without params; see op.ParseSig
	Args any    // pointer to a zero value of the argument struct, which embeds Common

	// Init makes the state of a parameter when it is first stepped, for all
	// parameters of a group before any is stepped.
	Init func(c *Call, p *Param)
	// Foreach, ForLoop and Fused step all parameters of a group that have
	// gradients, the first and the last those of one type at a time. Fused is nil
	// if there is no such implementation.
	Foreach, ForLoop, Fused func(c *Call, ps []*Param)
	// Update is how the step computes, for what executes a job; nil: it is not
	// executed, or Whole computes by itself. Prepare computes before the first
	// parameter, with those of all groups that have gradients.
	Update  Update
	Prepare func(m op.Machine, groups []Group) error
	// Begin runs before the first group is stepped, with all of them.
	Begin func(c *Call, groups []Group)
	// Whole is a step that is not made group by group.
	Whole func(c *Call, g Group)

	Eager         bool     // the constructor runs Init, for all parameters
	LoopByDefault bool     // without foreach, the for-loop runs
	OneFunction   bool     // the variables of ForLoop, and of Begin, are those of one Python function for all groups
	AllTypes      bool     // Foreach steps the parameters of all types at once
	OneGroup      bool     // the constructor refuses parameter groups
	GroupArgs     []string // the arguments that a group may have; nil: all but fused
	Closure       bool     // step needs a closure
	Zero          bool     // DeepSpeed's ZeRO takes it without zero_allow_untested_optimizer (is_zero_supported_optimizer)
	GPUOnly       bool     // parameters on the CPU are not modelled, or refused

	// Managed reports that the state lies in CUDA's managed memory, not in tensors; nil: it does not.
	Managed func(args any) bool

	// Warm is the step of the optimizer from which on it allocates the same; nil
	// if that is the second.
	Warm func(args any) int64
	// Bounds are the ranges of arguments that are numbers.
	Bounds []bound
	// Refuse reports an argument that the constructor refuses, or that is not
	// modelled, in view of the others.
	Refuse func(args any) (arg string, err error)
	// RefuseParam reports why the constructor refuses a parameter.
	RefuseParam func(size []int64) error
	// Reads lists the functions of lists that read gradients in the foreach form, each by
	// how many of its arguments they are; nil where that was not looked into.
	Reads []int

	// RefuseSharded reports why an implementation does not step parameters that
	// are divided among processes (DTensors); nil: all do.
	RefuseSharded func(args any) error

	// ByShard says of an optimizer of a package that it steps the local tensors of DTensors, which
	// p.T is then.
	ByShard bool
	// Feature names what torchver.OptimizerSince knows of: an optimizer that is
	// younger than torchver.Oldest.
	Feature string
	// Package is a package of its own that has the optimizer, and Python a class
	// that stands in its place where it is not installed; "" of those of
	// torch.optim.
	Package, Python string
	// Ready is what a script calls of the optimizer before the first step; "" if
	// nothing.
	Ready string
	// Embeddings reports whether the states of the weights of nn.Embedding have 32 bits,
	// which a script says apart from the constructor; nil: they have not.
	Embeddings func(args any) bool
	// Note says what a reader must know of the figures; "" if nothing.
	Note func(args any) string

	sig *op.Sig
}

// Common are the arguments that choose an implementation.
type Common struct {
	Foreach        *bool `arg:"foreach"`
	Fused          *bool `arg:"fused"`
	Capturable     bool  `arg:"capturable"`
	Maximize       bool  `arg:"maximize"`
	Differentiable bool  `arg:"differentiable"`
}

func (c *Common) common() *Common { return c }

// loops reports whether the arguments ask for the for-loop.
func (c *Common) loops() bool { return c.Foreach != nil && !*c.Foreach }

// fused reports whether they ask for the fused implementation.
func (c *Common) fused() bool { return c.Fused != nil && *c.Fused }

func commonOf(args any) *Common { return args.(interface{ common() *Common }).common() }

// Param is a parameter with its state.
type Param struct {
	T, Grad *op.Tensor
	State   []*op.Tensor
	Made    bool  // Init has run
	Steps   int64 // how often the parameter was stepped
	Own     any   // what else the optimizer remembers
	Table   bool  // it is the weight of an nn.Embedding

	Redistributed bool // the gradient is a DTensor whose placement is not the parameter's

	hosted  int                  // scalars of the state that are on the CPU
	calls   int64                // how often the group of the parameter was stepped
	names   []state              // of State, those that a step computes with
	managed map[string][]float64 // states of paged optimizers, where a step is computed
}

// Group is a parameter group: parameters that are stepped with the same
// arguments.
type Group struct {
	Args   any
	Params []*Param
}

// Exec is what an optimizer may ask of the player.
type Exec interface {
	op.Exec
	// Persist marks t as optimizer state.
	Persist(t *op.Tensor) *op.Tensor
	// Paged notes state of n bytes outside of the allocator, in managed memory.
	Paged(n tensor.Bytes)
	// Evaluate calls the closure, which makes new gradients, and returns the loss.
	Evaluate() *op.Tensor
	// Values are the elements of tensors; nil where nothing is computed.
	Values() Values
}

// Values are the elements of tensors, row-major, where a step is computed and its
// way depends on them.
type Values interface {
	Read(t *op.Tensor) []float64
	Write(t *op.Tensor, v []float64)
}

// Call is one step of one optimizer.
type Call struct {
	Exec
	Args any

	locals []*local
	home   *Param // that remembers what is kept for all parameters
	asked  int    // how many of locals the function has named yet
}

// Step updates the parameters that have gradients.
func (r *Row) Step(x Exec, groups []Group) { r.step(x, groups, false) }

// StepOnCPU is Step for parameters on the CPU, where the for-loop is the
// default.
func (r *Row) StepOnCPU(x Exec, groups []Group) { r.step(x, groups, true) }

func (r *Row) step(x Exec, groups []Group, cpu bool) {
	c := &Call{Exec: x}
	if r.Whole != nil {
		c.Args = groups[0].Args
		r.Whole(c, groups[0])
		c.end()
		return
	}
	if r.Begin != nil {
		r.Begin(c, groups)
	}
	began := c.asked
	for _, g := range groups {
		c.Args = g.Args
		for _, p := range g.Params {
			p.calls++
		}
		with := c.withGradients(r, g.Params)
		if len(with) == 0 {
			continue
		}
		impl, grouped := r.implementation(g.Args, cpu)
		if !grouped {
			impl(c, with)
		} else {
			for _, ps := range ByType(with, func(p *Param) tensor.DType { return p.T.DType }) {
				c.asked = began
				c.redistribute(r.Reads, ps)
				impl(c, ps)
			}
		}
		if !r.OneFunction {
			c.end()
		}
		c.asked = began
	}
	c.end()
}

// redistribute is what functions of lists do with gradients whose placement is not
// that of their parameters: each function that is called changes it again, for each of
// its arguments that the gradients are; reads counts those.
func (c *Call) redistribute(reads []int, ps []*Param) {
	for _, n := range reads {
		var ts []*op.Tensor
		for range n {
			for _, p := range ps {
				if p.Redistributed {
					ts = append(ts, c.temp(p))
				}
			}
		}
		c.dropList(ts)
	}
}

// CheckRedistributed reports why the steps are not modelled of parameters whose
// gradients are DTensors of another placement.
func (r *Row) CheckRedistributed(args any) error {
	a, coupled := commonOf(args), false
	switch x := args.(type) {
	case *adamArgs:
		coupled = r == Adam && x.WeightDecay != 0
	case *sgdArgs:
		coupled = x.WeightDecay != 0 || x.Momentum != 0
	}
	if r.Reads == nil || a.loops() || a.fused() || a.Maximize || coupled {
		return fmt.Errorf("%s with these arguments is not modelled where gradients lie otherwise than parameters, as those of sequence and of a rowwise Embedding do; "+
			"AdamW is, and Adam and SGD without weight_decay and momentum, if they are not fused", r.Name)
	}
	return nil
}

// withGradients lists the parameters to step, with their state made.
func (c *Call) withGradients(r *Row, params []*Param) []*Param {
	var with []*Param
	for _, p := range params {
		if p.Grad == nil {
			continue
		}
		with = append(with, p)
		p.Steps++
		if !p.Made && r.Init != nil {
			p.Made = true
			r.Init(c, p)
		}
	}
	return with
}

// Start is what the constructor does: a row that is eager makes its state.
func (r *Row) Start(x Exec, groups []Group) {
	if !r.Eager {
		return
	}
	for _, g := range groups {
		c := &Call{Exec: x, Args: g.Args}
		for _, p := range g.Params {
			p.Made = true
			r.Init(c, p)
		}
	}
}

// implementation returns the function that the arguments choose, and whether
// it is called for each type of parameters apart. On a GPU the default is
// foreach, but for some optimizers.
func (r *Row) implementation(args any, cpu bool) (func(*Call, []*Param), bool) {
	a := commonOf(args)
	switch {
	case a.fused():
		return r.Fused, true
	case a.Foreach == nil && (r.LoopByDefault || cpu), a.loops():
		return r.ForLoop, false
	}
	return r.Foreach, !r.AllTypes
}

// Check reports arguments that PyTorch refuses, or that are not modelled: the
// name of one, "" for the optimizer itself, and what is wrong.
func (r *Row) Check(args any, v torchver.Version) (arg string, err error) {
	a := commonOf(args)
	if since, _ := torchver.OptimizerSince(r.Feature); r.Feature != "" && !v.AtLeast(since) {
		return "", fmt.Errorf("%s came with PyTorch %s; the job is for %s (torch: %q)", r.sig.Python, since, v, since)
	}
	if a.fused() {
		since, _ := torchver.OptimizerSince(r.Name + " fused")
		switch {
		case r.Fused == nil:
			return "fused", fmt.Errorf("%s has no fused implementation", r.Name)
		case !v.AtLeast(since):
			return "fused", fmt.Errorf("%s has a fused implementation for GPUs since PyTorch %s; the job is for %s", r.Name, since, v)
		case a.Foreach != nil && *a.Foreach:
			return "fused", fmt.Errorf("fused and foreach exclude each other")
		}
	}
	if a.Differentiable {
		return "differentiable", fmt.Errorf("%s with differentiable: true is not modelled: its steps become part of the graph", r.Name)
	}
	if r.Refuse != nil {
		return r.Refuse(args)
	}
	return "", nil
}

// CheckCPU reports arguments that PyTorch refuses, or that are not modelled, for
// parameters on the CPU.
func (r *Row) CheckCPU(args any) error {
	switch {
	case commonOf(args).Capturable:
		return fmt.Errorf("%s with capturable: true needs its parameters on the GPU", r.Name)
	case r.GPUOnly:
		return fmt.Errorf("%s on the CPU is not modelled", r.Name)
	}
	return nil
}

// CheckSharded reports arguments that PyTorch refuses, or that are not modelled,
// for parameters that are divided among processes.
func (r *Row) CheckSharded(args any) error {
	switch {
	case r.Package != "" && !r.ByShard:
		return fmt.Errorf("%s of %s is not modelled for parameters that are divided among processes", r.Name, r.Package)
	case r.RefuseSharded != nil:
		if err := r.RefuseSharded(args); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return nil
}

// wholeOnly is the RefuseSharded of optimizers that look at all elements of a
// parameter together.
func wholeOnly(any) error {
	return errors.New("what this optimizer computes of whole parameters is not modelled where they are divided among processes")
}

// noStrategy is what PyTorch 2.6 says of operators of lists that DTensor does not
// know or that get an empty list.
func noStrategy(op string) error {
	return fmt.Errorf("found no DeviceMesh from dtensor args for aten.%s, PyTorch says", op)
}

// onDevice reports whether the step counters live on the GPU.
func (c *Call) onDevice() bool {
	a := commonOf(c.Args)
	return a.Capturable || a.fused()
}

// IsFused reports whether the arguments ask for the fused implementation.
func IsFused(args any) bool { return commonOf(args).fused() }

// ByType splits items by the types of their tensors, those of the type that
// comes last first: in the order in which a std::unordered_map of few keys is
// walked (_group_tensors_by_device_and_dtype in aten/src/ATen/native/ForeachUtils.h).
func ByType[T any](items []T, dtype func(T) tensor.DType) [][]T {
	var out [][]T
	index := map[tensor.DType]int{}
	for _, it := range items {
		i, ok := index[dtype(it)]
		if !ok {
			i = len(out)
			index[dtype(it)] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], it)
	}
	slices.Reverse(out)
	return out
}

// counter makes a step counter: a scalar, on the GPU only for the fused and
// capturable implementations.
func (c *Call) counter(p *Param) {
	if c.onDevice() {
		c.scalarState(p)
	} else {
		p.hosted++
	}
}

// ToDevice copies to the GPU what is on the CPU of the state of parameters.
func (r *Row) ToDevice(x Exec, groups []Group) {
	for _, g := range groups {
		c := &Call{Exec: x, Args: g.Args}
		for _, p := range g.Params {
			for ; p.hosted > 0; p.hosted-- {
				c.scalarState(p)
			}
		}
	}
}

// scalarState makes a state that is a scalar on the GPU.
func (c *Call) scalarState(p *Param) { p.State = append(p.State, c.Persist(c.scalar())) }

// moment makes a state tensor like the parameter (zeros_like), by whose name the step
// computes with it.
func (c *Call) moment(p *Param, name string) *state { return p.keep(name, c.Persist(c.temp(p))) }

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

// OfGroup reports whether a parameter group may have an argument of its own.
func (r *Row) OfGroup(arg string) bool {
	return arg != "fused" && (r.GroupArgs == nil || slices.Contains(r.GroupArgs, arg))
}

// Implementation reports whether the arguments choose the for-loop or the fused
// implementation on a GPU; neither is foreach.
func (r *Row) Implementation(args any) (loop, fused bool) {
	a := commonOf(args)
	return !a.fused() && (a.loops() || a.Foreach == nil && r.LoopByDefault), a.fused()
}
