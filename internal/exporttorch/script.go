package exporttorch

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Options change the script.
type Options struct {
	Steps          int      // steps to run; 3 if 0
	AllocConf      string   // PYTORCH_CUDA_ALLOC_CONF; "": what the environment says
	MemoryFraction *float64 // of the GPU's memory that the process may take; nil: all

	// Batches are what functions that make batches read, by their names; without, they make
	// random numbers.
	Batches map[string]Batches
}

// The functions that make batches.
const (
	NextBatch         = "next_batch"
	NextEvalBatch     = "next_eval_batch"
	NextLastEvalBatch = "next_last_eval_batch"
)

// Batches are files of so many batches, one after the other, in the order of their elements;
// after the last comes the first.
type Batches struct {
	Count int64
	Files map[string]string // by the names of inputs
}

// Write prints the script of a job.
func Write(w io.Writer, job *program.Job, o Options) error {
	if job.Parallel.Megatron != nil {
		return errors.New("a job with trainer: megatron has no script of PyTorch alone: its buffers and its optimizer are Megatron's")
	}
	if o.Steps == 0 {
		o.Steps = 3
	}
	first := newScript(job, nil)
	first.print(o)
	s := newScript(job, first.resolve())
	s.keys, s.needs = first.keys, first.helps
	s.print(o)
	_, err := io.WriteString(w, printable.Quoted(s.b.String()))
	return err
}

// newScript begins a script; final is nil in the first text.
func newScript(job *program.Job, final map[nameKey]string) *script {
	return &script{job: job, final: final, number: map[nameKey]int{}, extents: map[any][]extent{}, members: map[*program.Class][]string{}, helps: map[int]bool{}}
}

// print prints the script.
func (s *script) print(o Options) {
	job := s.job
	s.batches = o.Batches
	name := job.Name
	if name == "" {
		name = "a model"
	}
	about := name + ": a training step, written by memplan export torch."
	if n := job.Parallel.Ranks; n > 0 {
		about += fmt.Sprintf(" Run it with torchrun --nproc-per-node %d.", n)
		if rank := job.Parallel.Planned(); rank > 0 {
			about += fmt.Sprintf(" Process %d is the one that is planned.", rank)
		}
	}
	s.printf("%q", about)
	for _, r := range s.renamed() {
		s.printf("# %s is %s in the spec: modules of PyTorch have that name, or Python takes it for another.", r[0], r[1])
	}
	if parametrizes(job) {
		s.line("import contextlib")
	}
	if adapted(job) {
		s.line("import copy")
	}
	if patterns(job) {
		s.line("import fnmatch")
	}
	uses, partial := checkpoints(job)
	if partial {
		s.line("import functools")
	}
	s.line("import json")
	if adapted(job) {
		s.line("import math")
	}
	if job.Determ || job.Parallel.Ranks > 0 || o.AllocConf != "" {
		s.line("import os")
	}
	if fuses(job) {
		s.line("import re")
		s.line("import types")
	}
	if job.Determ {
		s.line("")
		s.line(`os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic cuBLAS needs it before the first use`)
	}
	if o.AllocConf != "" {
		s.line("")
		s.printf("os.environ[%q] = %q", torchver.AllocConf, o.AllocConf)
	}
	s.line("")
	s.line("import torch")
	if job.Parallel.Ranks > 0 {
		s.line("import torch.distributed as dist")
	}
	s.line("import torch.nn as nn")
	s.line("import torch.nn.functional as F")
	if parametrizes(job) {
		s.line("import torch.nn.utils.parametrize as parametrize")
	}
	if prunes(job) {
		s.line("import torch.nn.utils.prune as prune")
	}
	if uses {
		s.line("import torch.utils.checkpoint")
	}
	s.parallelImports()
	if patterns(job) {
		s.line("")
		s.b.WriteString(covers)
	}
	s.packages()
	s.libraryFunctions()
	s.classes()
	if prunes(job) {
		s.b.WriteString(masks)
	}
	s.loadingFunction()
	s.quantizedClasses()
	s.adapterClasses()
	s.setup(o)
	s.step()
	s.loop(o.Steps)
}

// script is the text under way.
type script struct {
	job     *program.Job
	batches map[string]Batches // as Options.Batches
	b       strings.Builder
	indent  int
	seen    map[*program.Class]bool

	dicts map[string]bool // lists of modules of the class under way that are dictionaries

	inDDP map[string]bool // models that are modules of DistributedDataParallel by now

	final   map[nameKey]string          // the names; nil in the first text
	keys    []nameKey                   // in the order of their first use
	number  map[nameKey]int             // of keys
	extents map[any][]extent            // of functions; nil: the step's
	members map[*program.Class][]string // of classes with methods

	needs, helps map[int]bool // of helpers: those to print, those that are called
}

func (s *script) line(text string) {
	if text != "" {
		s.b.WriteString(strings.Repeat("    ", s.indent))
	}
	s.b.WriteString(text)
	s.b.WriteByte('\n')
}

func (s *script) printf(format string, args ...any) { s.line(fmt.Sprintf(format, args...)) }

// setup prints what comes before the loop.
func (s *script) setup(o Options) {
	j := s.job
	s.line("")
	s.line("")
	s.processGroup()
	if f := o.MemoryFraction; f != nil {
		s.printf("torch.cuda.set_per_process_memory_fraction(%v)", *f)
	}
	s.helpers()
	if j.Determ {
		s.line("torch.use_deterministic_algorithms(True)")
	}
	if j.Benchmark {
		s.line("torch.backends.cudnn.benchmark = True")
	}
	for i, name := range op.SDPANames {
		if j.NoSDPA&(1<<i) != 0 {
			s.printf("torch.backends.cuda.enable_%s_sdp(False)", name)
		}
	}
	to := "device"
	if j.DType != tensor.Float32 {
		to = "device=device, dtype=" + program.Literal(j.DType)
	}
	if pl := j.Parallel.Pipeline; pl != nil {
		s.stages(pl)
	}
	for _, m := range j.Models {
		name := s.modelName(m.Name)
		if f := j.Parallel.FSDP; f != nil && f.Meta {
			s.line(`with torch.device("meta"):`)
			s.indent++
		}
		switch {
		case m.Loaded != nil:
			s.loaded(m)
		case m.Adapters != nil && m.Adapters.OnHost:
			s.adaptedOnHost(m)
		case m.Quantized != nil:
			s.construction(m)
		case s.ownTypes(m) != nil:
			s.typed(m)
		case m.Pruned != nil:
			s.printf("%s = %s()", name, s.className(m.Root))
			s.pruning(m)
			s.printf("%s.to(%s)", name, to)
		case !j.Offload.Parameters && (j.Parallel.FSDP == nil || j.Parallel.TP != nil && !j.Parallel.FSDP.Meta) && j.Parallel.DeepSpeed == nil:
			s.printf("%s = %s.to(%s)", name, s.made(m), to)
		case j.DType != tensor.Float32:
			s.printf("%s = %s.to(%s)", name, s.made(m), program.Literal(j.DType))
		default:
			s.printf("%s = %s", name, s.made(m))
		}
		s.indent = 0
		if j.Parallel.Pipeline != nil && j.Autocast { // not around the backward passes of the schedule
			s.printf(`%s.forward = torch.autocast("cuda", dtype=%s)(%s.forward)`, name, program.Literal(j.LowerType), name)
		}
		if j.Inference != "" || m.Eval {
			s.printf("%s.eval()", name)
		}
	}
	s.freeze()
	s.parallelize(j.Models[0].Name)
	s.fullyShard()
	s.adapters()
	s.offloadParameters()
	s.channelsLast()
	s.offloadActivations()
	s.optimizers()
	s.schedulers()
	s.deepSpeed()
	s.averaged()
	if j.Scaler {
		s.line(`scaler = torch.amp.GradScaler("cuda")`)
	}
	s.criteria(j.Aux, nil, to)
	if j.Eval != nil {
		s.criteria(j.Eval.Aux, j.Aux, to)
		s.evalModels()
	}
	s.distribute()
	if len(j.Inputs) > 0 {
		s.nextBatch(NextBatch, j.Inputs, j.Prefetch)
	}
	own := j.Eval != nil && j.OwnBatches()
	if e := j.Eval; own {
		s.nextBatch(NextEvalBatch, e.Inputs, false)
	}
	last := j.Eval != nil && j.Eval.Last != nil
	if last {
		s.nextBatch(NextLastEvalBatch, j.Eval.Last.Inputs, false)
	}
	switch {
	case j.Static:
		s.line("")
		s.line("")
		s.line("batch = next_batch()")
		if own {
			s.line("eval_batch = next_eval_batch()")
		}
		if last {
			s.line("last_eval_batch = next_last_eval_batch()")
		}
	case j.Prefetch:
		s.prefetch()
	}
	s.functions(j.Aux, false)
	s.schedule()
	s.lists(j.Kept)
	if j.Eval != nil {
		s.functions(j.Eval.Aux, true)
	}
	s.evaluate()
	s.before()
}

// channelsLast converts the models to the format that images are in.
func (s *script) channelsLast() {
	if !s.job.ChannelsLast {
		return
	}
	for _, m := range s.job.Models {
		f := tensor.ChannelsLast2d
		if m.Formats()[tensor.ChannelsLast3d] != "" {
			f = tensor.ChannelsLast3d
		}
		s.printf("%s.to(memory_format=%s)", s.modelName(m.Name), program.Literal(f))
	}
}

// before prints the statements that run once before the loop.
func (s *script) before() {
	if s.job.Before == nil {
		return
	}
	s.line("")
	s.line("")
	s.scope(nil, func() { s.stepBody(s.job.Before) })
}

// criteria makes the modules that a function of the script calls itself, but
// for those that another has already.
func (s *script) criteria(c, has *program.Class, to string) {
	for _, ch := range c.Children {
		if has != nil && slices.ContainsFunc(has.Children, func(o program.Child) bool { return o.Path == ch.Path }) {
			continue
		}
		move := ""
		if holds(ch.Class) { // the weights of a loss
			move = ".to(" + to + ")"
		}
		s.printf("%s = %s%s", s.criterion(ch.Path), s.construct(ch.Class), move)
	}
}

// holds reports whether a module has tensors of its own or of modules in it.
func holds(c *program.Class) bool {
	found := false
	c.Walk(func(_ string, c *program.Class) { found = found || len(c.Params)+len(c.Buffers) > 0 })
	return found
}

// functions prints the functions that statements of the script itself call.
func (s *script) functions(aux *program.Class, evaluating bool) {
	for _, f := range aux.Methods {
		s.line("")
		s.line("")
		s.scope(f, func() {
			if pl := s.job.Parallel.Pipeline; pl != nil && f == pl.Loss && s.job.Autocast {
				s.printf(`@torch.autocast("cuda", dtype=%s)`, program.Literal(s.job.LowerType))
			}
			s.printf("def %s(%s):", s.functionName(f), strings.Join(s.variables(f, 0, f.Params), ", "))
			s.functionBody(&printer{script: s, fn: f, class: aux, evaluating: evaluating})
		})
	}
}

// counter is the variable that counts steps: i, unless the step has a name like
// that.
func (s *script) counter() string {
	name := "i"
	fns := []*program.Func{s.job.Step}
	if s.job.Before != nil {
		fns = append(fns, s.job.Before)
	}
	if s.job.Eval != nil {
		fns = append(fns, s.job.Eval.Fn)
	}
	for slices.ContainsFunc(fns, func(f *program.Func) bool { return slices.Contains(f.Slots, name) }) {
		name += "_"
	}
	return name
}

// step prints the step as a function, unless the loop is flat.
func (s *script) step() {
	if s.job.Flat {
		return
	}
	s.line("")
	s.line("")
	s.scope(nil, func() {
		s.printf("def step(%s):", s.counter())
		s.indent++
		s.globalsOf()
		s.stepBody(s.job.Step)
		s.indent--
	})
}

// stepBody prints the statements of a step, or those before the loop.
func (s *script) stepBody(fn *program.Func) {
	f := &printer{script: s, fn: fn, class: s.job.Aux, self: ""}
	if s.job.Inference != "" {
		s.printf("with torch.%s():", s.job.Inference)
		s.indent++
		defer func() { s.indent-- }()
	}
	if s.job.Offload.Away != nil {
		s.printf("with %s:", s.away())
		s.indent++
		defer func() { s.indent-- }()
	}
	if t := s.job.Parallel.TP; t != nil && t.Loss && fn == s.job.Step {
		s.line("with loss_parallel():")
		s.indent++
		defer func() { s.indent-- }()
	}
	s.statements(f, fn.Body, s.contexts())
}

// statements prints the statements of a function; those that compute stand in
// the contexts.
func (s *script) statements(f *printer, body []program.Stmt, contexts string) {
	if contexts == "" {
		f.body(body)
		return
	}
	runs(body, (*program.Stmt).Computes, func(run []program.Stmt) {
		if run[0].Computes() {
			s.printf("with %s:", contexts)
			s.indent++
			defer func() { s.indent-- }()
		}
		f.body(run)
	})
}

func (s *script) loop(steps int) {
	s.line("")
	s.line("")
	i := s.counter()
	number := i
	if e := s.job.Eval; e != nil && e.AtStart {
		s.line("evaluate(0)")
	}
	if s.job.FromZero {
		s.printf("for %s in range(%d):", i, steps)
		number += " + 1"
	} else {
		s.printf("for %s in range(1, %d):", i, steps+1)
	}
	s.indent++
	s.line("torch.cuda.reset_peak_memory_stats()")
	if s.job.Flat {
		s.scope(nil, func() { s.stepBody(s.job.Step) })
	} else {
		s.printf("step(%s)", i)
	}
	s.callEvaluate(i)
	s.line(`print(json.dumps({"step": ` + number + `, "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))`)
	s.indent--
	if s.job.Parallel.Ranks > 0 {
		s.line("dist.destroy_process_group()")
	}
}

// function prints a method of a class.
func (s *script) function(f *program.Func, c *program.Class) {
	s.line("")
	s.scope(f, func() { s.methodText(f, c) })
}

func (s *script) methodText(f *program.Func, c *program.Class) {
	name := "forward"
	if f != c.Forward && f != s.forwardOf(c) {
		name = s.name(nameKey{method, c, f.Name})
	}
	params := append([]string{"self"}, s.variables(f, 0, f.Params)...)
	s.printf("def %s(%s):", name, strings.Join(params, ", "))
	s.functionBody(&printer{script: s, fn: f, class: c, self: "self."})
}

func (s *script) functionBody(p *printer) {
	s.indent++
	defer func() { s.indent-- }()
	if p.fn.NoAutocast {
		s.line(`with torch.autocast("cuda", enabled=False):`)
		s.indent++
		defer func() { s.indent-- }()
	}
	p.body(p.fn.Body)
}
