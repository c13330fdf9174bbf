package techniques

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
)

// schedules are the classes of torch.distributed.pipelining by their names in a spec.
var schedules = map[string]string{
	"gpipe": program.GPipe, "1f1b": program.OneFOneB, "interleaved_1f1b": program.Interleaved, "looped_bfs": program.LoopedBFS,
}

// Pipeline cuts the model into stages, of which the planned rank has one, and puts
// schedule.step in the place of the forward pass, the loss and the backward pass. It comes
// after all that changes the model, whose paths are those of the whole.
func (j *Job) Pipeline() {
	s := j.Spec.Parallel
	if s == nil || !s.PP.Set {
		return
	}
	p := &j.Job.Parallel
	p.Ranks = max(p.Ranks, 1) * s.PP.V
	pl := &program.Pipeline{Schedule: schedules[s.Schedule.V], Microbatches: s.Microbatches.V, Ranks: s.PP.V, Rank: s.Rank.V}
	j.pipelineGoesWith(s)
	if s.Rank.V >= s.PP.V {
		j.fail(s.Rank.At, "rank %d is none of pp: %d; ranks are 0 to %d", s.Rank.V, s.PP.V, s.PP.V-1)
	}
	cut := &cutting{Job: j, s: s, root: j.Job.Models[0].Root, step: j.Job.Step, pl: pl}
	cut.stepStatements()
	cut.stages(cut.places())
	cut.loss()
	pl.Whole = j.Job.Models[0]
	p.Pipeline = pl
	*j.Job = *j.Job.OfRank(pl.Rank)
	if v := j.Torch; v != torchver.Recorded {
		*j.Warnings = append(*j.Warnings, note.OtherPP.New("parallel.pp: torch.distributed.pipelining of PyTorch %v is planned as that of %v", v, torchver.Recorded).Of("parallel.pp"))
	}
}

// PipelineKeys refuses what is known to be missing or wrong before the model is elaborated, which is
// done for a microbatch.
func PipelineKeys(s *spec.Spec, batch int64) {
	p := s.Parallel
	if p == nil || !p.PP.Set {
		return
	}
	loops := p.Schedule.V == "interleaved_1f1b" || p.Schedule.V == "looped_bfs"
	stages := int64(len(p.Split)) + 1
	switch n := p.Microbatches.V; {
	case !p.Microbatches.Set:
		s.Errs.Failf(p.PP.At, "pp needs microbatches, into how many parts a batch is divided, such as pp: {ranks: %d, microbatches: %d, split: [...]}", p.PP.V, 2*p.PP.V)
	case batch%n != 0:
		s.Errs.Failf(p.Microbatches.At, "a batch of %d is not divided by %d microbatches without a rest; microbatches of different sizes fail in PipelineStage", batch, n)
	case s.Mode.V != "train":
		s.Errs.Failf(p.PP.At, "mode: %s is not modelled with parallel.pp, whose schedules train", s.Mode.V)
	case len(p.Split) == 0:
		s.Errs.Failf(p.PP.At, "pp needs split, the modules before which the model is cut, such as split: [layers.4, layers.8]")
	case loops && (stages%p.PP.V != 0 || stages == p.PP.V):
		s.Errs.Failf(p.Split[0].At, "split has %s, which makes %d stages; schedule: %s of pp: %d needs the same number of stages for each rank, 2 or more", spec.Plural(len(p.Split), "path"), stages, p.Schedule.V, p.PP.V)
	case p.Schedule.V == "interleaved_1f1b" && n%program.PipelineRounds(n, p.PP.V) != 0:
		s.Errs.Failf(p.Microbatches.At, "interleaved_1f1b goes through %d microbatches in %d rounds (microbatches // ranks), of which they must be a multiple", n, program.PipelineRounds(n, p.PP.V))
	case !loops && stages != p.PP.V:
		s.Errs.Failf(p.Split[0].At, "split has %s, which makes %d stages; pp: %d needs %d, one stage for each rank", spec.Plural(len(p.Split), "path"), len(p.Split)+1, p.PP.V, p.PP.V-1)
	}
}

// pipelineGoesWith refuses what is not modelled of a model in stages.
func (j *Job) pipelineGoesWith(s *spec.Parallel) {
	m, job, t := j.Job.Models[0], j.Job, &j.Spec.Train
	if len(j.Models) > 1 {
		j.fail(s.PP.At, "pp of several models is not modelled; this job has %s", spec.Plural(len(j.Models), "model"))
	}
	if c := t.Checkpoint; j.Checkpoints() && c.Reentrant.V {
		j.fail(c.Reentrant.At, "use_reentrant: true is not modelled with parallel.pp")
	}
	for _, x := range []struct {
		what  string
		given bool
	}{
		{"mode: infer", job.Inference != ""},
		{"precision amp-fp16, whose GradScaler scales a loss that the schedule computes,", job.Scaler},
		{"step:, statements of a step of the spec's own,", j.Spec.Step != nil},
		{"before:, statements before the loop,", j.Spec.Before != nil},
		{"grad_accumulation", t.GradAccumulation.V > 1},
		{"an optimizer that calls a closure", t.Optimizer != nil && slices.Contains(spec.Closures, t.Optimizer.Name.V)},
		{"zero_grad before the backward pass, which is in schedule.step,", t.ZeroGrad.At.V == "before_backward"},
		{"empty_cache before the backward pass, which is in schedule.step,", t.EmptyCache != nil && t.EmptyCache.At.V == "before_backward"},
		{"keep", t.Keep != nil},
		{"offload", job.Offload != program.Offload{}},
		{"optimizer_in_backward", job.InBackward},
		{"lora", m.Adapters != nil},
		{"quantize", m.Quantized != nil},
		{"prune", m.Pruned != nil},
		{"load", m.Loaded != nil},
		{"train.ema", job.EMA != nil},
		{"compile", m.Compiled != nil},
		{"channels_last", job.ChannelsLast},
		{"a trainer", j.Spec.Trainer != nil},
		{"an eval:", job.Eval != nil || j.Spec.Eval != nil},
		{"a teacher", j.Spec.Teacher != nil},
		{"fsdp of version 1", s.FSDP1()},
		{"amp with fsdp", s.FSDP.Set && job.Autocast},
		{"fsdp with replicate", s.FSDP.Set && s.Replicate.V > 1},
		{"fsdp with shard_embeddings", s.FSDP.Set && s.Ends.V},
		{"static_graph of ddp", s.Static.V},
		{"find_unused_parameters of ddp", s.Unused.V},
		{"zero", s.ZeRO.Set},
		{"no_sync, which a schedule decides itself,", s.NoSync.V},
	} {
		if x.given {
			j.fail(s.PP.At, "%s is not modelled with parallel.pp", x.what)
		}
	}
}

// cutting is a model that is cut.
type cutting struct {
	*Job
	s    *spec.Parallel
	root *program.Class
	step *program.Func
	pl   *program.Pipeline

	call           *program.Expr  // of the model
	output         int            // the slot of the step that has its result
	body           []program.Stmt // of the loss
	value          *program.Expr  // the loss
	kept           [][]bool       // by stage, which children it has
	from, backward int            // in the step: the call, and the backward pass
}

// stepStatements finds the statements of the step that schedule.step takes the place of.
func (c *cutting) stepStatements() {
	body := c.step.Body
	c.from = slices.IndexFunc(body, func(s program.Stmt) bool {
		return s.Kind == program.Assign && s.Value != nil && s.Value.Kind == program.CallModel
	})
	c.backward = slices.IndexFunc(body, func(s program.Stmt) bool { return s.Kind == program.Backward })
	if c.from < 0 || c.backward < c.from {
		c.fail(c.s.PP.At, "parallel.pp needs a step that calls the model, computes a loss and goes back from it")
	}
	call := &body[c.from]
	c.call, c.output, c.body, c.value = call.Value, call.Targets[0], body[c.from+1:c.backward], body[c.backward].Value
}

// places finds the statements of forward before which the model is cut.
func (c *cutting) places() []int {
	var paths []string
	body := c.root.Forward.Body
	for i := range body {
		for _, ch := range c.root.FirstCalls(&body[i]) {
			if p := c.root.Children[ch].Path; !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	var out []int
	for _, x := range c.s.Split {
		at := -1
		for i := range body {
			calls := c.root.FirstCalls(&body[i])
			k := slices.IndexFunc(calls, func(ch int) bool { return c.root.Children[ch].Path == x.V })
			if k > 0 {
				c.fail(x.At, "split: %s is called in one statement with %s before it, and the model is cut between statements; name that, or call them in two", x.V, c.root.Children[calls[0]].Path)
			}
			if k == 0 {
				at = i
				break
			}
		}
		switch {
		case at < 0 && slices.Contains(c.root.ModulePaths(), x.V):
			c.fail(x.At, "split: %s is not called by the model's own layers, between which it is cut; these call %s", x.V, strings.Join(paths, ", "))
		case at < 0:
			c.Spec.Errs.Unknown(x.At, "module of split", x.V, paths)
			panic(spec.Stop{})
		case at == 0:
			c.fail(x.At, "split: %s is the first module that forward calls, and nothing is left for the stage before it", x.V)
		case len(out) > 0 && at <= out[len(out)-1]:
			c.fail(x.At, "split: %s is called before the module that stands before it in the list", x.V)
		}
		out = append(out, at)
	}
	return out
}

// stages makes the classes of the stages.
func (c *cutting) stages(cuts []int) {
	f := c.root.Forward
	bounds := slices.Concat([]int{0}, cuts, []int{len(f.Body)})
	n := len(bounds) - 1
	parts := make([][]program.Stmt, n)
	for k := range n {
		parts[k] = f.Body[bounds[k]:bounds[k+1]]
	}
	c.children(parts)
	reads := make([]map[int]bool, n) // by stage, slots that it takes from before it
	writes := make([]map[int]bool, n)
	for k, part := range parts {
		reads[k], writes[k] = taken(part)
	}
	given := map[int]bool{} // parameters that no stage up to now has bound again
	for slot := range f.Params {
		given[slot] = true
	}
	later := func(k, slot int) bool { // whether a stage from k on takes what was bound before k
		for ; k < n; k++ {
			if reads[k][slot] {
				return true
			}
			if writes[k][slot] {
				return false
			}
		}
		return false
	}
	var received []int
	c.together()
	for k, part := range parts {
		var inputs, sent []int
		for slot := range f.Params {
			if given[slot] && reads[k][slot] {
				inputs = append(inputs, slot)
			}
		}
		for slot := range writes[k] {
			delete(given, slot)
		}
		bound := map[int]bool{} // that this stage can send
		for _, slot := range received {
			bound[slot] = true
		}
		for slot := range writes[k] {
			bound[slot] = true
		}
		for slot := range f.Slots {
			if bound[slot] && k+1 < n && later(k+1, slot) {
				sent = append(sent, slot)
			}
		}
		switch {
		case k+1 < n && len(sent) == 0:
			c.fail(c.s.Split[k].At, "split: nothing that is computed before %s is used from there on", c.s.Split[k].V)
		case k == 0 && len(inputs) == 0:
			c.fail(c.s.Split[k].At, "split: the first stage, up to %s, takes no input of the batch", c.s.Split[k].V)
		}
		kept := map[int]bool{}
		for ch := range c.root.Children {
			kept[ch] = c.kept[k][ch]
		}
		class := c.root.Part(c.ClassName(fmt.Sprintf("Stage%d", k)), withoutDel(part, received, inputs, writes[k]), kept, slices.Concat(received, inputs), sent)
		c.checkStage(k, class)
		st := program.Stage{Class: class, Received: len(received)}
		st.File, st.Line, st.Column = c.begins(k)
		if k > 0 && len(inputs) > 0 && c.pl.Loops() {
			c.fail(c.s.PP.At, "stage %d takes %s of the batch, which %s passes to all stages of a rank; this is not modelled", k, f.Slots[inputs[0]], c.pl.Schedule)
		}
		for _, slot := range inputs {
			st.Inputs = append(st.Inputs, c.slotOf(slot))
		}
		c.pl.Stages = append(c.pl.Stages, st)
		received = sent
	}
}

// together refuses modules of several stages in one call of fully_shard.
func (c *cutting) together() {
	f := c.Job.Job.Parallel.FSDP
	if f == nil {
		return
	}
	for _, u := range f.Units {
		for k := range c.kept {
			has := func(m string) bool {
				for i, ch := range c.root.Children {
					if c.kept[k][i] && (m == ch.Path || program.Inside(m, ch.Path)) {
						return true
					}
				}
				return false
			}
			if n := len(slices.DeleteFunc(slices.Clone(u.Modules), has)); n > 0 && n < len(u.Modules) {
				c.fail(c.s.FSDP.At, "fsdp: %s are sharded together, but lie in several stages", strings.Join(u.Modules, " and "))
			}
		}
	}
}

// begins is where the file says that a stage begins.
func (c *cutting) begins(k int) (file string, line, column int) {
	at := c.s.PP.At
	if k > 0 {
		at = c.s.Split[k-1].At
	}
	if o := c.Spec.Errs.Origin(at); o.File != "" {
		return o.File, o.Span.Line, o.Span.Col
	}
	return c.Spec.Path, at.Line, at.Col
}

// slotOf is the slot of the step that is passed for a parameter of forward.
func (c *cutting) slotOf(param int) int {
	a := c.call.Args[param]
	if a.Kind != program.Local {
		c.fail(c.s.PP.At, "a model of parallel.pp takes tensors of the batch")
	}
	return a.Slot
}

// taken are the slots that statements read before they bind them, and those that they bind.
func taken(part []program.Stmt) (reads, writes map[int]bool) {
	reads, writes = map[int]bool{}, map[int]bool{}
	for i := range part {
		s := &part[i]
		if s.Kind == program.Del {
			continue
		}
		for _, slot := range s.Reads() {
			if !writes[slot] {
				reads[slot] = true
			}
		}
		for _, slot := range s.Targets {
			writes[slot] = true
		}
	}
	return reads, writes
}

// withoutDel leaves out what deletes names that the stage does not have.
func withoutDel(part []program.Stmt, received, inputs []int, writes map[int]bool) []program.Stmt {
	var out []program.Stmt
	for _, s := range part {
		if s.Kind == program.Del {
			s.Targets = slices.DeleteFunc(slices.Clone(s.Targets), func(slot int) bool {
				return !writes[slot] && !slices.Contains(received, slot) && !slices.Contains(inputs, slot)
			})
			if len(s.Targets) == 0 {
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// children finds which stage has which child. One without parameters may be in several; one that
// nothing calls is in the first.
func (c *cutting) children(parts [][]program.Stmt) {
	c.kept = make([][]bool, len(parts))
	used := make([]int, len(c.root.Children)) // the first stage that has it, counted from 1
	own := map[string]int{}                   // parameters of the model itself
	for k, part := range parts {
		c.kept[k] = make([]bool, len(c.root.Children))
		uses := func(ch int) {
			c.kept[k][ch] = true
			if used[ch] == 0 {
				used[ch] = k + 1
			}
			if path := c.root.Children[ch].Path; used[ch] <= k && len(c.root.Children[ch].Class.ParamPaths()) > 0 {
				c.fail(c.s.Split[k-1].At, "split: stages %d and %d both use %s, whose parameters are on one rank", used[ch]-1, k, path)
			}
		}
		for i := range part {
			for _, ch := range c.root.FirstCalls(&part[i]) {
				uses(ch)
			}
			for _, path := range c.root.AttrPaths(&part[i]) {
				if ch := c.root.Holder(path); ch >= 0 {
					uses(ch)
				} else if c.root.IsParameter(path) {
					if at, ok := own[path]; ok && at != k {
						c.fail(c.s.Split[k-1].At, "split: stages %d and %d both use the parameter %s, which is on one rank", at, k, path)
					}
					own[path] = k
				}
			}
		}
	}
	for ch, k := range used {
		if k == 0 {
			c.kept[0][ch] = true
			used[ch] = 1
		}
	}
	for ch, child := range c.root.Children {
		for _, t := range child.Ties {
			if h := c.root.Holder(t.Source); h < 0 || used[h] != used[ch] {
				c.fail(c.s.PP.At, "%s shares its %s with %s, which is in another stage, on another rank", child.Path, t.Param, t.Source)
			}
		}
	}
	for _, p := range c.root.Params {
		if p.Tied != "" {
			c.fail(c.s.PP.At, "%s is shared with %s, which is not modelled with parallel.pp", p.Name, p.Tied)
		}
	}
}

// checkStage refuses a stage that no rank can train.
func (c *cutting) checkStage(k int, class *program.Class) {
	m := c.Job.Job.Models[0]
	trained := slices.ContainsFunc(class.ParamPaths(), func(p string) bool { return !m.Freezes(p) })
	if !trained {
		c.fail(c.s.Split[max(k-1, 0)].At, "split: stage %d has no parameters that are trained, and an optimizer refuses an empty list", k)
	}
}

// loss makes loss_fn of the statements between the call of the model and the backward pass,
// and schedule.step of all.
func (c *cutting) loss() {
	reads, _ := taken(append(slices.Clone(c.body), program.Stmt{Kind: program.Expression, Value: c.value}))
	var inputs []int
	batch := map[int]bool{}
	for i := range c.step.Body[:c.from] {
		if s := &c.step.Body[i]; s.Kind == program.Batch {
			for _, t := range s.Targets {
				batch[t] = true
			}
		}
	}
	for slot := range c.step.Slots {
		if slot != c.output && reads[slot] && batch[slot] {
			inputs = append(inputs, slot)
		}
	}
	if len(inputs) != 1 {
		names := "none"
		if len(inputs) > 0 {
			var all []string
			for _, slot := range inputs {
				all = append(all, c.step.Slots[slot])
			}
			names = strings.Join(all, ", ")
		}
		c.fail(c.s.PP.At, "the loss takes %s of the batch; with parallel.pp it takes the model's result and one tensor of the batch, as a schedule calls loss_fn(output, target)", names)
	}
	pl := c.pl
	pl.Target = inputs[0]
	pl.Loss = program.NewLoss(c.step, c.body, c.value, c.output, pl.Target)
	aux := c.Job.Job.Aux
	aux.Methods = append(aux.Methods, pl.Loss)
	losses := "losses"
	for slices.Contains(c.step.Slots, losses) {
		losses += "_"
	}
	c.step.Slots = append(c.step.Slots, losses)
	s := program.Stmt{Kind: program.ScheduleStep, Targets: []int{len(c.step.Slots) - 1}, Line: c.step.Body[c.from].Line}
	c.step.Body = slices.Concat(c.step.Body[:c.from], []program.Stmt{s}, c.step.Body[c.backward+1:])
	if c.Job.Job.Flat {
		c.step.Globals = len(c.step.Slots)
	}
}
