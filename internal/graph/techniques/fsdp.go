package techniques

import (
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// fsdp reads how a model is divided among processes, and refuses what does not go
// with it.
func (j *Job) fsdp(s *spec.Parallel) {
	p := &j.Job.Parallel
	f := &program.FSDP{KeepInputs: !s.Cast.V, Offload: s.Offload.V, Pinned: s.Pin.V, WholeLast: !s.Last.V, Meta: s.Meta.V}
	p.Ranks, p.FSDP = s.FSDP.V, f
	f.Reshard = j.reshard(s, p.Ranks)
	f.ReshardRoot = s.Reshard != nil && !s.Last.Set
	f.ParamDType, f.ReduceDType, f.OutputDType = j.floating(s.Param), j.floating(s.Reduce), j.floating(s.Output)
	if len(j.Models) > 1 {
		j.fail(s.FSDP.At, "fsdp of several models is not modelled; this job has %s", spec.Plural(len(j.Models), "model"))
	}
	j.fsdpGoesWith(s)
	j.checkNoSync(s)
	root, patterns := j.Job.Models[0].Root, Patterns(j.Spec.Errs, s.Modules, "module", j.Job.Models[0].Root.ModulePaths())
	if len(s.Modules) == 0 {
		if patterns = j.Models[0].Checkpoint; patterns == nil {
			j.fail(s.FSDP.At, "%s does not say which of its modules are sharded apart; name them with modules, such as modules: [\"layers.*\"]", j.Models[0].Name)
		}
	}
	if j.Spec.Errs.Err() != nil { // a pattern that fits nothing
		panic(spec.Stop{})
	}
	for _, q := range patterns {
		outermost(root, "", program.Patterns{q}, func(at string, _ int, _ *program.Class) {
			if !slices.Contains(f.Modules, at) {
				f.Modules = append(f.Modules, at)
			}
		})
	}
	f.Modules = innerFirst(root, f.Modules)
	if s.Ends.V {
		j.shardEmbeddings(s, f)
	}
	root.Walk(func(path string, c *program.Class) {
		if c.Forward != nil && c.Forward.Merged && slices.Contains(f.Modules, path) {
			j.fail(s.FSDP.At, "%s, %s, is called with one tensor for several arguments, which fully_shard would make several tensors; that is not modelled: shard a module around it", path, c.Describe())
		}
	})
}

// shardEmbeddings has the table of tokens and the output embedding sharded apart, unless they share
// their weight (fsdp2_prepare_model in accelerate/utils/fsdp_utils.py).
func (j *Job) shardEmbeddings(s *spec.Parallel, f *program.FSDP) {
	m, pm := &j.Models[0], j.Job.Models[0]
	if m.Type == "" || s.Last.Set {
		j.fail(s.Ends.At, "shard_embeddings is for models of transformers (hf:), without reshard_last")
	}
	f.ReshardRoot = false
	head, table, rows := j.outputEmbedding(m, pm), "", int64(0)
	pm.Root.Walk(func(path string, c *program.Class) {
		if path == head {
			_, rows = linearSize(c)
		}
	})
	pm.Root.Walk(func(path string, c *program.Class) { // the first one with a row for each token
		if table == "" && isTable(c) && (rows == 0 || c.Params[0].Size[0] == rows) {
			table = path
		}
	})
	if tied := tiedModules(pm.Root); tied[table] || tied[head] {
		return
	}
	for _, path := range []string{table, head} {
		if path != "" && !slices.Contains(f.Modules, path) {
			f.Modules = append(f.Modules, path)
		}
	}
	f.WholeLast = head != ""
}

// reshard reads reshard_after_forward.
func (j *Job) reshard(s *spec.Parallel, ranks int64) int64 {
	if s.Reshard == nil {
		return ranks
	}
	switch v := j.Spec.Errs.Eval(s.Reshard, j.Spec.Env).(type) {
	case bool:
		if v {
			return ranks
		}
		return 0
	case int64:
		switch { // as _get_post_forward_mesh_info reads it
		case v == 1:
			return 0
		case v > 1 && ranks%v == 0:
			return v
		}
	}
	j.fail(s.Reshard.Span, "reshard_after_forward is true, false or a factor of %d, not %s", ranks, s.Reshard.Describe())
	return 0
}

// floating reads a type of floating-point numbers; nil if none is given.
func (j *Job) floating(s spec.String) *tensor.DType {
	if !s.Set {
		return nil
	}
	d := j.Spec.Errs.DType(s)
	if !d.IsFloating() {
		j.fail(s.At, "%s is not a floating-point type, such as bfloat16", s.V)
	}
	return &d
}

// fsdpGoesWith refuses what is not modelled of models that are divided.
func (j *Job) fsdpGoesWith(s *spec.Parallel) {
	m, job := j.Job.Models[0], j.Job
	if s.Pin.Set && !s.Offload.V {
		j.fail(s.Pin.At, "pin_memory is for cpu_offload: true")
	}
	if f := job.Parallel.FSDP; f.Offload && job.Scaler {
		j.fail(s.Offload.At, "a GradScaler (amp-fp16) of gradients in host memory is not modelled")
	}
	for _, x := range []struct {
		what  string
		given bool
	}{
		{"offload", job.Offload != program.Offload{}},
		{"lora", m.Adapters != nil},
		{"quantize", m.Quantized != nil},
		{"prune", m.Pruned != nil},
		{"train.ema", job.EMA != nil},
		{"load of a model on the meta device", m.Loaded != nil && job.Parallel.FSDP.Meta},
		{"an eval: of other sizes", job.Eval != nil && job.Eval.IsApart(m.Name)},
	} {
		if x.given {
			j.fail(s.FSDP.At, "%s is not modelled with parallel.fsdp", x.what)
		}
	}
	m.Root.Walk(func(path string, c *program.Class) {
		if c.Flat != 0 {
			j.fail(s.FSDP.At, "%s is %s, which copies its weights to one buffer when they are not in one; that is not modelled with parallel.fsdp", path, c.Describe())
		}
	})
	for _, o := range job.Optimizers {
		for _, args := range o.AllArgs() {
			err := o.Row.CheckSharded(args)
			if err == nil && job.Parallel.FSDP.Offload {
				err = o.Row.CheckCPU(args)
			}
			if err != nil {
				j.fail(s.FSDP.At, "%v", err)
			}
		}
	}
}

// innerFirst sorts paths of modules so that each comes after those that lie in it,
// otherwise in the order of Module.named_modules.
func innerFirst(c *program.Class, paths []string) []string {
	var out []string
	var visit func(path string, c *program.Class)
	visit = func(path string, c *program.Class) {
		for _, i := range c.Registered() {
			visit(program.Join(path, c.Children[i].Path), c.Children[i].Class)
		}
		if slices.Contains(paths, path) {
			out = append(out, path)
		}
	}
	visit("", c)
	return out
}
