package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Limits on how many steps are played to find a steady state.
const (
	minSteps = 3
	maxSteps = 10
)

// Played is what came of playing a job.
type Played struct {
	Trace *trace.Trace
	Steps int
	// Steady is the first step from which on all are alike, event for event; 0
	// if the steps played are not.
	Steady int
	Totals Totals
	// Unreached is the interval of a statement that runs in every n-th step and
	// in none of those played; 0 if there is none.
	Unreached int64
	// Kinds are the classes of the trace's layers, as Trace.Layers; "" for what
	// is no module.
	Kinds []string
}

// Totals are sums over one step.
type Totals struct {
	Parameters          int64 // elements
	ParameterTensors    int
	ParameterBytes      tensor.Bytes
	BufferBytes         tensor.Bytes
	GradientBytes       tensor.Bytes // after backward
	OptimizerStateBytes tensor.Bytes
	SavedBytes          tensor.Bytes // kept by the graph at the end of the forward pass, without parameters and inputs
	BatchBytes          tensor.Bytes
	// LayerSaved and LayerParams are bytes by layer, indexed as Trace.Layers.
	LayerSaved, LayerParams []tensor.Bytes
}

// job is a program while it is played.
type job struct {
	*Player
	prog   *program.Job
	models map[string]*module
	order  []*module
	params []*cell // of all models
	aux    *module
	opts   [][]*cell // parameters of each optimizer
	batch  []*op.Tensor
	scaler gradScaler
	frame  *frame
	totals Totals
	stepNo int64
}

// Play plays a job: what comes before the loop, then steps, as many as asked
// for or, with 0, until two are alike. An error is a *ProgramError.
func Play(prog *program.Job, env op.Env, backend Backend, steps int) (played *Played, err error) {
	env.Training, env.GradMode = prog.Inference == "", prog.Inference == ""
	env.Deterministic = prog.Determ
	j := &job{Player: New(env, backend), prog: prog, models: map[string]*module{}}
	defer func() {
		if r := recover(); r != nil {
			pe, ok := r.(*ProgramError)
			if !ok {
				panic(r)
			}
			err = pe
		}
	}()
	j.setup()
	n, steady := j.run(steps)
	j.sum()
	for len(j.names.kinds) < len(j.tr.Layers) {
		j.names.kind(int32(len(j.names.kinds)), "")
	}
	return &Played{Trace: j.tr, Steps: n, Steady: steady, Totals: j.totals, Kinds: j.names.kinds, Unreached: j.unreached(n)}, nil
}

// setup moves the models to the device, makes the optimizers and, if the input
// is static, the batch.
func (j *job) setup() {
	j.phase = trace.Setup
	for _, m := range j.prog.Models {
		path := "" // of the only model
		if len(j.prog.Models) > 1 {
			path = m.Name
		}
		root := j.instantiate(m.Root, path)
		j.models[m.Name] = root
		j.order = append(j.order, root)
		j.toDevice(root)
	}
	j.params = parameters(j.order)
	j.aux = j.instantiate(j.prog.Aux, "")
	for i, o := range j.prog.Optimizers {
		var ms []*module
		for _, name := range o.Models {
			ms = append(ms, j.models[name])
		}
		j.opts = append(j.opts, parameters(ms))
		o.Row.Start(j, o.Args, j.optimParams(i))
	}
	j.toDevice(j.aux)
	if j.prog.Static {
		j.batch = j.newBatch()
	}
	j.frame = &frame{self: j.aux, fn: j.prog.Step, slots: make([]value, len(j.prog.Step.Slots))}
}

func (j *job) newBatch() []*op.Tensor {
	var out []*op.Tensor
	for _, in := range j.prog.Inputs {
		out = append(out, j.Leaf(trace.Inputs, in.DType, false, in.Size...))
	}
	return out
}

// run plays the steps and returns their number and the first steady one.
func (j *job) run(steps int) (played, steady int) {
	period := j.period()
	limit, least := steps, max(minSteps, 2*period+1)
	if steps == 0 {
		limit = max(maxSteps, least)
	}
	starts := []int{0}
	var birth []int // event index by block id
	for n := 1; n <= limit; n++ {
		starts = append(starts, len(j.tr.Events))
		j.playStep(n)
		if n == 1 { // room for the other steps, which are about as long
			j.tr.Events = slices.Grow(j.tr.Events, (max(steps, minSteps)-1)*(len(j.tr.Events)-starts[1]))
		}
		for i := len(birth); i <= int(j.nextID); i++ {
			birth = append(birth, 0)
		}
		for i := starts[n]; i < len(j.tr.Events); i++ {
			if e := &j.tr.Events[i]; e.Kind == trace.Alloc {
				birth[e.ID] = i
			}
		}
		if n <= period || !alike(j.tr.Events, starts, birth, n, period) {
			steady = n
		}
		played = n
		if steps == 0 && n >= least && n-steady >= period {
			break
		}
	}
	if played-steady < period {
		steady = 0
	}
	return played, steady
}

// maxPeriod bounds how many steps are played because statements run in every
// n-th only.
const maxPeriod = 100

// period is the number of steps after which the statements that run in every
// n-th step come round together; 1 if that is too many to play.
func (j *job) period() int {
	p := int64(1)
	for i := range j.prog.Step.Body {
		if e := j.prog.Step.Body[i].Every; e > 1 {
			a, b := p, e
			for b > 0 {
				a, b = b, a%b
			}
			if p = p / a * e; p > maxPeriod {
				return 1
			}
		}
	}
	return int(p)
}

// unreached is the longest interval of a statement that was not played.
func (j *job) unreached(played int) int64 {
	var most int64
	for i := range j.prog.Step.Body {
		if e := j.prog.Step.Body[i].Every; e > int64(played) {
			most = max(most, e)
		}
	}
	return most
}

// alike reports whether step n and the one a period before are equal event for
// event: the same calls in the same order, on blocks that were born at the same
// place of steps equally long ago.
func alike(events []trace.Event, starts, birth []int, n, period int) bool {
	a, b := events[starts[n-period]:starts[n-period+1]], events[starts[n]:]
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Kind != y.Kind || x.Bytes != y.Bytes || x.Phase != y.Phase || x.Thread != y.Thread {
			return false
		}
		if x.Kind != trace.Free {
			continue
		}
		bx, by := birth[x.ID], birth[y.ID]
		sx, sy := events[bx].Step, events[by].Step
		if int(sy-sx) != period || bx-starts[sx] != by-starts[sy] {
			return false
		}
	}
	return true
}

// playStep plays one step. The names of a function die when it returns; those
// of a flat loop live on.
func (j *job) playStep(n int) {
	j.step, j.stepNo = int16(n), int64(n)
	for i := range j.prog.Step.Body {
		s := &j.prog.Step.Body[i]
		if s.Every > 1 && j.stepNo%s.Every != 0 {
			continue
		}
		j.autocast(s.Computes())
		j.statement(s)
	}
	j.autocast(false)
	if !j.prog.Flat {
		j.phase = trace.Return
		for i := range j.frame.slots {
			j.store(j.frame, i, value{})
		}
	}
}

// autocast enters or leaves the region in which a job computes.
func (j *job) autocast(on bool) {
	on = on && j.prog.Autocast
	switch {
	case on && !j.env.Autocast:
		j.enterAutocast(j.prog.LowerType)
	case !on && j.env.Autocast:
		j.phase = trace.Forward
		j.exitAutocast()
	}
}

// statement runs one statement of the step.
func (j *job) statement(s *program.Stmt) {
	fr := j.frame
	switch s.Kind {
	case program.Batch:
		j.phase = trace.Input
		ts := j.batch
		if !j.prog.Static {
			ts = j.newBatch()
		}
		for i, slot := range s.Targets {
			v := value{t: ts[i]}
			if j.prog.Static {
				j.keep(v)
			}
			j.store(fr, slot, v)
		}
	case program.Forward:
		j.phase = trace.Forward
		mode := j.env.GradMode
		j.env.GradMode = mode && !s.NoGrad
		var args []value
		for _, a := range s.Values {
			args = append(args, j.eval(fr, a))
		}
		v := j.callModule(j.models[s.Model], args)
		j.env.GradMode = mode
		j.assign(fr, s, v)
	case program.Backward:
		j.phase = trace.Backward
		if j.step > 0 {
			j.sumSaved()
		}
		v := j.eval(fr, s.Value)
		if j.prog.Scaler {
			scaled := j.scaled(v.t)
			j.drop(v)
			v = value{t: scaled}
		}
		j.Backward(v.t, nil, s.Retain)
		j.drop(v)
		j.countGradients()
	case program.OptStep:
		j.phase = trace.Optimizer
		if j.prog.Scaler {
			j.scaledStep(s.Optimizer)
		} else {
			j.optimize(s.Optimizer)
		}
	case program.Unscale:
		j.phase = trace.Clip
		if j.hasGradients(s.Optimizer) {
			j.unscale(s.Optimizer)
		}
	case program.ClipNorm, program.ClipValue:
		j.phase = trace.Clip
		j.clip(s)
	case program.UpdateScale:
		j.phase = trace.Optimizer
		j.updateScale()
	case program.ZeroGrad:
		j.phase = trace.ZeroGrad
		for _, c := range j.opts[s.Optimizer] {
			if g := obj(c.t).grad; g != nil && s.SetToNone {
				obj(c.t).grad = nil
				j.release(g)
			}
		}
	case program.EmptyCache:
		j.phase = trace.Other
		j.emit(trace.EmptyCache, 0, 0)
	default: // the loss, and whatever else the step computes
		j.phase = trace.Forward
		j.exec(fr, s)
	}
}

// optimize steps one optimizer.
func (j *job) optimize(i int) {
	o := j.prog.Optimizers[i]
	mode := j.env.GradMode
	j.env.GradMode = false // step is under torch.no_grad
	params := j.optimParams(i)
	j.Player.op = j.names.op("Optimizer.step#" + o.Row.Name + ".step")
	o.Row.Step(j, o.Args, params)
	j.Player.op = 0
	j.env.GradMode = mode
}

// optimParams are the parameters of an optimizer with their gradients.
func (j *job) optimParams(i int) []*optim.Param {
	params := make([]*optim.Param, len(j.opts[i]))
	for k, c := range j.opts[i] {
		c.opt.Grad = nil
		if g := obj(c.t).grad; g != nil {
			c.opt.Grad = &g.Tensor
		}
		params[k] = &c.opt
	}
	return params
}

// Persist implements optim.Exec.
func (j *job) Persist(t *op.Tensor) *op.Tensor {
	j.mark(obj(t), trace.OptimizerState)
	return t
}
