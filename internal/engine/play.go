package engine

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/compiled"
	"github.com/memplan/memplan/internal/engine/distributed"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/optim"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Played is what came of playing a job.
type Played struct {
	Trace *trace.Trace
	Steps int
	// Steady is the first step from which on all are alike, event for event; 0
	// if the steps played are not.
	Steady int
	Totals Totals
	// Settled says that steps were played until all that comes after them is known.
	Settled bool
	// Late is the step of an optimizer from which on it allocates otherwise than in
	// those played, 0 if there is none that is so late.
	Late int64
	// Unreached is the longest interval of a statement that runs in every n-th step
	// and in none of those played; 0 if there is none.
	Unreached int64
	// Loops are the steps that were not played, as they are like others. Each goes on
	// where it ends; the last, if it has no end, goes on for ever. LeftOut is how many
	// steps the others stand for.
	Loops   []trace.Loop
	LeftOut int64
	// Skipped is how many steps of optimizers a GradScaler has left out, since
	// gradients were infinite; 0 where nothing is computed.
	Skipped int
	// Warnings tell what PyTorch would warn of.
	Warnings []note.Note
	// Classes are those of the trace's layers, as Trace.Layers; nil for what
	// is no module.
	Classes []*program.Class
	// AttentionPlans is the largest workspace that a plan of cuDNN's attention may
	// take, which is in no event.
	AttentionPlans tensor.Bytes
	// Workspaces are those of cuDNN's convolutions.
	Workspaces autograd.Workspaces
	// Rows are the operators that ran, Derived those whose derivatives did, sorted by
	// name.
	Rows, Derived []*op.Op
	// Kernels are those of whose scratch a rule of their own decides, in order.
	Kernels []autograd.KernelCall
	// Host is what the job keeps in host memory.
	Host autograd.HostTrace
	// Period is after how many steps those come round that are alike; 0: too many to
	// count. Growth is what live blocks on the device gain in a period, HostGrowth
	// those of Host; if steps are not alike, in the last period that was played.
	// Compared says that so many steps were played that they would be alike by then,
	// if they ever are: what is made in the first period and in the second is there.
	Period             int
	Growth, HostGrowth tensor.Bytes
	Compared           bool
}

// Totals are sums over one step.
type Totals struct {
	Parameters          int64 // elements
	Trainable           int64 // those that require grad
	ParameterTensors    int
	ParameterBytes      tensor.Bytes
	BufferBytes         tensor.Bytes
	GradientBytes       tensor.Bytes // after backward
	OptimizerStateBytes tensor.Bytes
	PagedStateBytes     tensor.Bytes // optimizer state in managed memory, beside
	SavedBytes          tensor.Bytes // kept by the graph at the end of the forward pass, without parameters and inputs
	BatchBytes          tensor.Bytes
	// Flops is what the forward passes of the last step computed in matrix
	// products, and HalfFlops the part of it whose operands had 16 bits. Products
	// are both by layer and operator, in the order of their first calls.
	Flops, HalfFlops float64
	Again            float64 // what checkpoints computed again in the backward passes, beside
	Products         []autograd.Product
	// LayerSaved and LayerParams are bytes by layer, indexed as Trace.Layers.
	LayerSaved, LayerParams []tensor.Bytes
}

// job is a program while it is played.
type job struct {
	*python.Interp
	backend Backend // nil: values are not computed
	prog    *program.Job
	models  map[string]*python.Module
	// evalMode says which models are in eval mode while the job trains.
	evalMode map[string]*bool
	order    []*python.Module // of models
	params   []*python.Cell   // of all models
	aux      *python.Module   // what the step calls itself
	zero     *op.Tensor       // of FullyShardedDataParallel.clip_grad_norm_; nil: it has not run

	script
	batches
	optimizers
	evaluation
	rounds
	updated  bool                            // the averaged weights, once
	reducers map[string]*distributed.Reducer // of models that DistributedDataParallel is around
	engine   *distributed.Engine             // DeepSpeed's around the model; nil: none
	megatron *distributed.Megatron           // Megatron-core's DistributedDataParallel and optimizer; nil: none
	stages   *distributed.MegatronPipeline   // the schedule of its pipeline; nil: there is none
	masters  []*optim.Param                  // what that optimizer steps, beside its parameters
	pipeline *distributed.Pipeline           // the schedule of the stages; nil: there are none
	compiled map[string]*compiled.Model      // models that torch.compile compiled
	totals   Totals
	stepNo   int64
	steps    int64 // that are to be played; 0: until two are alike
}

// script is the function of the job whose statements run: the step, or an
// evaluation.
type script struct {
	frame  *python.Frame
	inputs []program.Input         // of next_batch
	kept   map[string]python.Value // its lists and sums
}

// batches are what data loaders hand out.
type batches struct {
	batch     []*op.Tensor // if it is static
	ahead     []*op.Tensor // that was copied ahead
	evalBatch []*op.Tensor // of evaluations, if it is static
	lastBatch []*op.Tensor // of them, of the last size
}

func newScriptFrame(self *python.Module, fn *program.Func) *python.Frame {
	return &python.Frame{Self: self, Fn: fn, Slots: make([]python.Value, len(fn.Slots))}
}

// Play plays a job: what comes before the loop, then steps, as many as asked
// for or, with 0, until two are alike. An error is a *program.Error, or
// what the backend returned; then the trace is there as far as it went.
func Play(prog *program.Job, env op.Env, backend Backend, steps int) (*Played, error) {
	return PlayWithin(nil, prog, env, backend, steps)
}

// PlayWithin is Play for a job whose work and memory m counts.
func PlayWithin(m *limit.Meter, prog *program.Job, env op.Env, backend Backend, steps int) (*Played, error) {
	return playUnless(m, prog, env, backend, steps, nil)
}

// PlayUnless is PlayWithin for a job of which no more than the first step is played
// if it runs out of memory there.
func PlayUnless(m *limit.Meter, prog *program.Job, env op.Env, steps int, fails func(first *Played) bool) (*Played, error) {
	return playUnless(m, prog, env, nil, steps, fails)
}

func playUnless(m *limit.Meter, prog *program.Job, env op.Env, backend Backend, steps int, fails func(first *Played) bool) (*Played, error) {
	j := newJob(m, prog, env, backend)
	j.steps = int64(steps)
	return j.play(steps, fails)
}

func newJob(m *limit.Meter, prog *program.Job, env op.Env, backend Backend) *job {
	env.Training, env.GradMode = prog.Inference == "", prog.Inference == ""
	env.Inference = prog.Inference == "inference_mode"
	env.Deterministic, env.CudnnBenchmark, env.NoSDPA = prog.Determ, prog.Benchmark, prog.NoSDPA
	j := &job{Interp: python.New(env, backend), backend: backend, prog: prog, models: map[string]*python.Module{}}
	j.Offload, j.Meter, j.CallModel = prog.Offload, m, j.callModel
	j.EnterFunc(prog.Step)
	j.findRounds()
	return j
}

// caught makes an error of what stops a job that is played.
func caught(r any, err *error) {
	switch stopped := r.(type) {
	case nil:
	case *program.Error:
		*err = stopped
	case autograd.BackendError:
		*err = stopped.Err
	default:
		panic(r)
	}
}

func (j *job) play(steps int, fails func(first *Played) bool) (played *Played, err error) {
	defer func() { caught(recover(), &err) }()
	played = &Played{Trace: j.Trace()} // of what fails, too
	j.inferStages(*j.Env())
	j.setup()
	j.run(steps, played, fails)
	j.sum()
	played.Skipped = j.scaler.skipped
	played.Totals, played.Classes, played.Workspaces, played.Host, played.Warnings = j.totals, j.Layers(), j.Searches(), *j.HostTrace(), j.Warned()
	played.Kernels, played.AttentionPlans = j.OwnKernels(), j.AttentionPlans()
	played.Rows, played.Derived = j.Ran()
	if j.backend == nil {
		j.Forget()
	}
	return played, nil
}

// setup moves the models to the device, makes the optimizers and, if the input
// is static, the batch.
func (j *job) setup() {
	j.Phase = trace.Setup
	j.evalMode = map[string]*bool{}
	for k, m := range j.prog.Models {
		path := "" // of the only model
		if len(j.prog.Models) > 1 {
			path = m.Name
		}
		outer := j.Push()
		root := j.Instantiate(m.Root, path)
		eval := m.Eval
		j.models[m.Name], j.evalMode[m.Name] = root, &eval
		j.order = append(j.order, root)
		j.Prune(root, m.Pruned)
		j.Quantize(root, m.Quantized)
		python.Freeze(root, "", m)
		if a := m.Adapters; a != nil && a.OnHost {
			j.Adapt(root, a)
		}
		switch {
		case j.Offload.Parameters:
			j.ToHost(root)
		case j.prog.Parallel.FSDP != nil && j.prog.Parallel.FSDP.Flat != nil:
			distributed.Flatten(j.Interp, root, j.prog)
		case j.prog.Parallel.FSDP != nil:
			if j.prog.Parallel.TP != nil {
				if !j.prog.Parallel.FSDP.Meta {
					j.ToDevice(root)
				}
				distributed.Parallelize(j.Interp, root, &j.prog.Parallel)
			}
			distributed.Shard(j.Interp, root, j.prog, k)
		case m.Loaded != nil && j.prog.Parallel.DeepSpeed != nil && j.prog.Parallel.DeepSpeed.Stage == 3:
			j.engine = distributed.InitDivided(j.Interp, &j.prog.Parallel, root, m.Loaded.Made)
		case m.Loaded != nil && m.Loaded.OnDevice:
			j.FromPretrained(root, m.Loaded)
		default:
			distributed.CheckTypes(j.Interp, &j.prog.Parallel)
			j.ToDevice(root)
			if j.prog.Parallel.TP != nil {
				distributed.Parallelize(j.Interp, root, &j.prog.Parallel)
			}
			if j.prog.Parallel.Pipeline != nil && j.prog.Autocast { // torch.autocast around its forward is made
				j.EnterAutocast(j.prog.LowerType)
				j.ExitAutocast()
			}
		}
		j.Convert(root, m, false)
		j.Pop(outer)
	}
	for i, m := range j.prog.Models {
		if a := m.Adapters; a != nil && !a.OnHost {
			j.Adapt(j.order[i], a)
		}
		if a := m.Adapters; a != nil && a.Again {
			j.ToDevice(j.order[i])
		}
		j.Convert(j.order[i], m, true)
		j.Initialize(j.order[i], m)
	}
	if j.prog.ChannelsLast {
		for _, m := range j.order {
			j.ToChannelsLast(m)
		}
	}
	j.params = python.Parameters(j.order)
	if j.Offload.Away != nil {
		j.OffloadActivations(j.params, j.order)
	}
	j.aux = j.Instantiate(j.prog.Aux, "")
	j.makeOptimizers()
	j.makeEngine()
	j.makeMegatron()
	j.average()
	j.ToDevice(j.aux)
	j.Initialize(j.aux, nil)
	j.setupEval()
	j.distribute()
	j.compile()
	switch {
	case j.prog.Static:
		j.batch = j.newBatch(j.prog.Inputs)
		j.staticEvalBatch()
	case j.prog.Prefetch:
		j.prefetch()
	}
	j.script = script{frame: newScriptFrame(j.aux, j.prog.Step), inputs: j.prog.Inputs, kept: map[string]python.Value{}}
	j.before()
	if e := j.prog.Eval; e != nil && e.AtStart {
		j.evaluate(e)
	}
}

// before runs the statements before the loop, whose names the step goes on with.
func (j *job) before() {
	fn := j.prog.Before
	if fn == nil {
		return
	}
	step := j.frame
	j.frame = newScriptFrame(j.aux, fn)
	for i := range fn.Body {
		j.run1(&fn.Body[i])
	}
	j.autocast(false)
	for slot, name := range step.Fn.Slots[:step.Fn.Globals] {
		if i := slices.Index(fn.Slots, name); i >= 0 {
			step.Slots[slot] = j.frame.Slots[i]
		}
	}
	j.frame = step
}

func (j *job) newBatch(inputs []program.Input) []*op.Tensor {
	var out []*op.Tensor
	for _, in := range inputs {
		out = append(out, j.ofBatch(in))
	}
	return out
}

// ofBatch copies a tensor of a batch, row-major in host memory, to the device; where it
// is to lie otherwise, it is copied as it is and then rearranged.
func (j *job) ofBatch(in program.Input) *op.Tensor {
	t := j.LeafOf(trace.Inputs, in.DType, false, j.prog.BatchLayout(in))
	from := t
	temporaries := j.CopyTemporaries(t.Layout, t.DType, tensor.Contiguous(t.Size), t.DType, true, j.prog.Prefetch)
	if len(temporaries) > 0 {
		from = temporaries[0]
	}
	if j.Executes() {
		j.Must(j.backend.Load(from, in))
	}
	for _, x := range temporaries {
		j.CopyTo(t, x)
		j.Drop(x)
	}
	return t
}

// playStep plays one step. The names of a function die when it returns; those
// of a flat loop live on.
func (j *job) playStep(n int64) {
	j.Step, j.stepNo = int32(n), n
	j.ResetProducts()
	body := j.prog.Step.Body
	for i := 0; i < len(body); i++ {
		if i += j.leaveOut(i); i < len(body) {
			j.run1(&body[i])
		}
	}
	j.autocast(false)
	if !j.prog.Flat {
		j.Phase = trace.Return
		cells := j.prog.Step.Cells
		for i := range j.frame.Slots {
			if i >= j.prog.Step.Globals && !slices.Contains(cells, i) {
				j.Store(j.frame, i, python.Value{})
			}
		}
		for _, i := range cells {
			j.Store(j.frame, i, python.Value{})
		}
	}
	if e := j.prog.Eval; e != nil && j.turn(e.Every, 0) {
		j.evaluate(e)
	}
	if j.Executes() {
		j.Must(j.backend.EndStep(int(n)))
	}
	j.Meter.Check()
}

// turn reports whether the number of the step under way leaves a rest, divided by n.
func (j *job) turn(n, rest int64) bool { return (j.stepNo-1+j.prog.First())%n == rest }

// run1 runs one statement within the contexts that it stands in, which begin and
// end in steps that leave it out, too.
func (j *job) run1(s *program.Stmt) {
	j.autocast(s.Computes())
	if s.Every > 1 && !j.turn(s.Every, s.Rest()) {
		return
	}
	var hooks autograd.SavedHooks
	if (s.Computes() || j.Offload.Away != nil) && !j.Evaluating {
		hooks = j.savedHooks()
	}
	if hooks == nil {
		j.InGradMode(s.Grad, func() { j.statement(s) })
		return
	}
	outer := j.Push()
	j.EnterHooks(hooks)
	j.InGradMode(s.Grad, func() { j.statement(s) })
	j.Pop(outer)
}

// autocast enters or leaves the region in which a job computes.
func (j *job) autocast(on bool) {
	on = on && j.prog.Autocast
	switch {
	case on && !j.Env().Autocast:
		j.EnterAutocast(j.prog.LowerType)
	case !on && j.Env().Autocast:
		j.Phase = trace.Forward
		j.ExitAutocast()
	}
}

// statement runs one statement of the step.
func (j *job) statement(s *program.Stmt) {
	fr := j.frame
	j.EnterStmt(fr.Fn, s)
	switch s.Kind {
	case program.Batch:
		j.Phase = trace.Input
		ts, inputs := j.batch, j.inputs
		switch {
		case s.Last:
			ts, inputs = j.lastBatch, j.prog.Eval.Last.Inputs
		case j.Evaluating:
			ts = j.evalBatch
		}
		switch {
		case j.prog.Static:
			for _, t := range ts {
				j.Keep(t)
			}
		case j.prog.Prefetch && !j.Evaluating:
			ts = j.ahead // the tuple still holds them
			for _, t := range ts {
				j.Keep(t)
			}
		default:
			if j.prog.Rebind {
				for _, slot := range s.Targets {
					j.Store(fr, slot, python.Value{})
				}
			}
			ts = j.newBatch(inputs)
		}
		if s.Unpack {
			for i, slot := range s.Targets {
				j.Store(fr, slot, python.Value{T: ts[i]})
			}
		} else {
			items := make([]python.Value, len(ts))
			for i, t := range ts {
				items[i].T = t
			}
			j.Store(fr, s.Targets[0], python.Value{List: python.NewList(items)})
		}
		if j.prog.Prefetch && !j.Evaluating {
			j.prefetch()
		}
	case program.Backward:
		j.Phase = trace.Backward
		if j.Step > 0 {
			j.sumSaved()
		}
		v := j.Eval(fr, s.Value)
		if j.Executes() {
			j.Must(j.backend.Loss(v.T))
		}
		if j.prog.Scaler {
			scaled := j.scaled(v.T)
			j.LetGo(v)
			v = python.Value{T: scaled}
		}
		if j.engine != nil {
			j.engine.Backward(v.T, s.Retain)
			if j.engine.Trainer {
				j.Phase = trace.Optimizer
				j.engine.Step()
			}
		} else {
			j.Backward(v.T, nil, s.Retain)
			if j.megatron != nil {
				j.megatron.Backward(0)
			}
		}
		j.LetGo(v)
		j.countGradients()
	case program.OptStep:
		j.Phase = trace.Optimizer
		j.stepping = s
		if j.engine != nil {
			if !j.engine.Trainer {
				j.engine.Step()
			}
		} else if j.megatron != nil {
			j.megatronStep()
		} else if j.prog.Scaler {
			j.scaledStep(s.Optimizer)
		} else {
			j.optimize(s.Optimizer)
		}
	case program.Unscale:
		j.Phase = trace.Clip
		j.unscale(s.Optimizer)
	case program.ClipNorm, program.ClipValue:
		j.Phase = trace.Clip
		j.clip(s)
	case program.RateStep:
		j.stepRates(s.Optimizer)
	case program.UpdateScale:
		j.Phase = trace.Optimizer
		j.updateScale()
	case program.ZeroGrad:
		j.Phase = trace.ZeroGrad
		if j.megatron != nil {
			j.megatron.ZeroGrad()
		} else if s.SetToNone {
			j.zeroGrad(s.Optimizer)
		} else {
			for _, g := range j.gradients(s.Optimizer) {
				j.Fill(g, 0)
			}
		}
	case program.EmptyCache:
		j.Phase = trace.Other
		j.EmptyCache()
	case program.ToDevice:
		j.Phase = trace.Optimizer
		for i, m := range j.prog.Models {
			if m.Adapters != nil && m.Adapters.Recurrent {
				j.ToDevice(j.order[i])
			}
		}
		if !j.Offload.Optimizer && !j.parametersOnCPU() && j.engine == nil {
			j.prog.Optimizers[s.Optimizer].Row.ToDevice(j, j.optimGroups(s.Optimizer))
		}
	case program.KeepValue:
		j.Phase = trace.Other
		j.keepValue(fr, s)
	case program.SetMode:
		if j.evalMode[s.Model] == nil { // the averaged model, which is no model of the spec
			j.evalMode[s.Model] = new(bool)
		}
		*j.evalMode[s.Model] = s.Eval
	case program.GradSync:
		if r := j.reducers[s.Model]; r != nil {
			r.Sync = !s.NoSync
		}
		distributed.SetSync(j.models[s.Model], !s.NoSync)
	case program.UpdateEMA:
		j.Phase = trace.Optimizer
		j.updateAverage()
	case program.ScheduleStep:
		j.scheduleStep(fr, s)
	default: // forward passes, the loss, and whatever else the step computes
		j.Phase = trace.Forward
		j.Exec(fr, s)
	}
}

// dropGrad sets a leaf's .grad to None.
func (j *job) dropGrad(leaf *autograd.Object) {
	if g := leaf.Grad; g != nil {
		leaf.Grad = nil
		j.Release(g)
	}
}
