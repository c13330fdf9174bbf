package engine

import (
	"cmp"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// stepper is an optimizer while its job is played.
type stepper struct {
	params []*optim.Param // beside its cells, which are in the order of Module.parameters
	groups [][]int        // indices of params, by parameter group
	own    [][]int        // those of them that this process steps; nil: all
}

// optimizers are those of a job, by their number there.
type optimizers struct {
	opts     [][]*python.Cell // parameters
	steppers []stepper
	stepped  []int64          // how often each was, of one that steps in the backward pass how many parameters
	onCPU    [][]*optim.Param // the copies that each steps, if it is offloaded
	scaler   gradScaler
	stepping *program.Stmt  // the statement that steps one
	rates    []*optim.Rates // as schedulers set them; nil where there is none
}

// makeOptimizers constructs the optimizers.
func (j *job) makeOptimizers() {
	for i, o := range j.prog.Optimizers {
		j.rates = append(j.rates, nil)
		if s := o.Scheduler; s != nil {
			groups := o.AllArgs()[1:]
			if len(groups) == 0 {
				groups = []any{o.Args}
			}
			j.rates[i] = optim.NewRates(s.Schedule, groups, cmp.Or(j.prog.Steps, j.steps))
		}
		s := stepper{groups: make([][]int, max(len(o.Groups), 1))}
		var cells []*python.Cell
		seen := map[*op.Tensor]bool{} // FSDP may have several cells of one
		for _, name := range o.Models {
			root := j.models[name]
			python.EachParameter(root, func(m *python.Module, k int) {
				c := m.Params[k]
				if seen[c.T] { // its first name counts, as in Module.named_parameters
					return
				}
				seen[c.T] = true
				g := o.Group(m.ParameterPath(root, k))
				if g < 0 || c.Frozen {
					return
				}
				s.groups[g] = append(s.groups[g], len(cells))
				cells = append(cells, c)
				s.params = append(s.params, &optim.Param{T: c.T, Table: m.Class.Is().Table, Redistributed: c.Redistributes()})
			})
		}
		var parts [][][]int
		if j.prog.Parallel.ZeRO != nil {
			for _, c := range cells {
				if a, b := cells[0].T.DType, c.T.DType; a != b {
					j.Fail("ZeroRedundancyOptimizer only supports using the same dense type for all parameters, PyTorch says: not %s and %s", a, b)
				}
			}
			parts = distributed.Divide(s.groups, cells, j.prog.Parallel.Ranks)
			s.own = parts[0]
		}
		j.opts = append(j.opts, cells)
		j.steppers = append(j.steppers, s)
		j.stepped = append(j.stepped, 0)
		if j.prog.InBackward {
			j.stepInBackward(i)
		} else {
			j.startOptimizer(i)
		}
		if z := j.prog.Parallel.ZeRO; z != nil && z.BucketView {
			distributed.ViewBuckets(j.Interp, cells, parts)
		}
	}
}

// stepInBackward makes an optimizer for each parameter, which steps in the hook
// that runs when its gradient is ready and then drops it. The backward pass
// itself holds the gradient until the hook returns.
func (j *job) stepInBackward(i int) {
	o := j.prog.Optimizers[i]
	for _, g := range j.optimGroups(i) {
		for _, p := range g.Params {
			own := []optim.Group{{Args: g.Args, Params: []*optim.Param{p}}}
			o.Row.Start(j, own)
			autograd.Of(p.T).Ready = func(leaf *autograd.Object) {
				outer := j.Push()
				j.Phase = trace.Optimizer
				j.Label("Optimizer.step#" + o.Row.Name + ".step")
				p.Grad = &leaf.Grad.Tensor
				j.stepped[i]++
				j.Quiet(func() { o.Row.Step(j, own) })
				j.update(i, own)
				j.Changes(p.T)
				j.dropGrad(leaf)
				j.Pop(outer)
			}
		}
	}
}

// grouped sorts parameters, which stand beside those of optimizer i, into its
// groups.
func (j *job) grouped(i int, params []*optim.Param) []optim.Group {
	o := j.prog.Optimizers[i]
	var out []optim.Group
	groups := j.steppers[i].groups
	if own := j.steppers[i].own; own != nil {
		groups = own
	}
	for g, members := range groups {
		group := optim.Group{Args: o.Args}
		if len(o.Groups) > 0 {
			group.Args = o.Groups[g].Args
		}
		if r := j.rates[i]; r != nil {
			group.Args = r.Args(g)
		}
		for _, k := range members {
			group.Params = append(group.Params, params[k])
		}
		out = append(out, group)
	}
	return out
}

// optimGroups are the parameters of an optimizer with their gradients.
func (j *job) optimGroups(i int) []optim.Group {
	params := j.steppers[i].params
	j.Meter.Work(int64(len(params)))
	for k, c := range j.opts[i] {
		p := params[k]
		p.T, p.Grad = c.T, nil
		if g := autograd.Of(c.T).Grad; g != nil {
			p.Grad = &g.Tensor
		}
	}
	return j.grouped(i, params)
}

// optimize steps one optimizer.
func (j *job) optimize(i int) {
	o := j.prog.Optimizers[i]
	j.stepped[i]++
	outer := j.Push()
	j.Env().GradMode = false // step is under torch.no_grad
	j.Label("Optimizer.step#" + o.Row.Name + ".step")
	var loss *op.Tensor
	if s := j.stepping; s != nil && s.Closure != nil && !o.Row.Closure {
		loss = j.Evaluate()
	}
	if j.Offload.Optimizer || j.parametersOnCPU() {
		j.stepOnCPU(i)
	} else {
		groups := j.optimGroups(i)
		j.Quiet(func() { o.Row.Step(j, groups) })
		j.update(i, groups)
	}
	if s := o.Scheduler; s != nil && s.Trainer {
		j.stepRates(i)
	}
	for _, c := range j.opts[i] {
		if o := autograd.Of(c.T); o.Grad != nil {
			j.Changes(c.T)
		}
	}
	j.Drop(loss)
	j.Pop(outer)
}

// stepRates steps the scheduler of an optimizer. One that is beyond its end ends what is
// executed, as it ends PyTorch; of memory it says nothing.
func (j *job) stepRates(i int) {
	if err := j.rates[i].Step(); j.Executes() {
		j.Must(err)
	}
}

// measureRates steps the schedulers that an evaluation steps, by its loss.
func (j *job) measureRates(loss float64) {
	for i, o := range j.prog.Optimizers {
		if o.Measures() {
			j.rates[i].Measured(loss)
		}
	}
}

// maxWarm bounds how many steps are played because an optimizer allocates
// otherwise at first.
const maxWarm = 128

// warmUp is the step of an optimizer from which on it allocates the same; one
// that takes longer than is played does not count.
func (j *job) warmUp(i int) int64 {
	o, most := j.prog.Optimizers[i], int64(0)
	if o.Row.Warm == nil {
		return 0
	}
	for _, args := range o.AllArgs() {
		if n := o.Row.Warm(args); n <= maxWarm {
			most = max(most, n)
		}
	}
	if j.prog.InBackward { // parameter by parameter
		most *= int64(len(j.opts[i]))
	}
	return most
}

// late is the step of an optimizer from which on it allocates otherwise, if that is
// beyond those that are played for it.
func (j *job) late() int64 {
	most := int64(0)
	for _, o := range j.prog.Optimizers {
		if o.Row.Warm == nil {
			continue
		}
		for _, args := range o.AllArgs() {
			if n := o.Row.Warm(args); n > maxWarm {
				most = max(most, n)
			}
		}
	}
	return most
}

// warm is the number of steps after which all optimizers allocate as they do
// from then on.
func (j *job) warm() int64 {
	most := int64(0)
	for _, s := range j.prog.Step.Body {
		if s.Kind == program.OptStep {
			most = max(most, j.warmUp(s.Optimizer)*max(s.Every, 1))
		}
	}
	if n := len(j.prog.Optimizers); j.prog.InBackward && n > 0 {
		most = max(most, j.warmUp(0)/max(int64(len(j.opts[0])), 1))
	}
	return most
}

// zeroGrad is optimizer.zero_grad(set_to_none=True): parameter group by group.
func (j *job) zeroGrad(i int) {
	for _, members := range j.steppers[i].groups {
		for _, k := range members {
			j.dropGrad(autograd.Of(j.opts[i][k].T))
		}
	}
	if j.onCPU != nil {
		for _, h := range j.onCPU[i] {
			j.dropGrad(autograd.Of(h.T))
		}
	}
}

// Persist implements optim.Exec.
func (j *job) Persist(t *op.Tensor) *op.Tensor {
	j.Mark(t, trace.OptimizerState)
	return t
}

// Paged implements optim.Exec.
func (j *job) Paged(n tensor.Bytes) { j.totals.PagedStateBytes += n }

// Evaluate implements optim.Exec: it calls the closure with gradients enabled.
// The names that it takes from around it live on there.
func (j *job) Evaluate() *op.Tensor {
	s := j.stepping
	if s == nil || s.Closure == nil {
		j.Fail("the step needs a closure")
	}
	outer, around := j.Push(), j.frame
	j.Muted = 0 // the row that calls it is, not the closure
	fr := newScriptFrame(j.aux, s.Closure)
	for i, slot := range s.Captured {
		fr.Slots[i] = j.Hold(around.Slots[slot])
	}
	j.frame, j.Env().GradMode, j.Op = fr, true, 0
	var loss python.Value
	for i := range s.Closure.Body {
		if b := &s.Closure.Body[i]; b.Kind == program.Return {
			loss = j.Returned(fr, b)
		} else {
			j.run1(b)
		}
	}
	j.autocast(false)
	for i := range fr.Slots {
		j.Store(fr, i, python.Value{})
	}
	j.frame = around
	j.Pop(outer)
	j.optimGroups(s.Optimizer) // the gradients are others now
	return loss.T
}
