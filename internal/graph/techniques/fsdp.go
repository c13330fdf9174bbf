package techniques

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// fsdp reads how a model is divided among processes, and refuses what does not go
// with it.
func (j *Job) fsdp(s *spec.Parallel) {
	p := &j.Job.Parallel
	casts, _ := s.CastsInputs()
	f := &program.FSDP{KeepInputs: !casts, Offload: s.Offload.V, Pinned: s.Pin.V, Meta: s.Meta.V, Replicas: max(s.Replicate.V, 1)}
	p.Ranks, p.FSDP = s.FSDP.V, f
	if f.Shards = p.Ranks / f.Replicas; f.Shards*f.Replicas != p.Ranks {
		j.fail(s.Replicate.At, "replicate: %d does not divide %d processes without a rest", f.Replicas, p.Ranks)
	}
	f.Reshard = f.Shards
	if s.Reshard != nil {
		f.Reshard = j.reshard(s.Reshard, f.Shards)
	}
	f.ReshardRoot = s.Reshard != nil && !s.Last.Set
	f.ParamDType, f.ReduceDType, f.OutputDType = j.floating(s.Param), j.floating(s.Reduce), j.floating(s.Output)
	if len(j.Models) > 1 {
		j.fail(s.FSDP.At, "fsdp of several models is not modelled; this job has %s", spec.Plural(len(j.Models), "model"))
	}
	j.flat(s, f)
	j.fsdpGoesWith(s)
	j.checkNoSync(s)
	j.units(s, f)
	j.untied(s, f)
	root := j.Job.Models[0].Root
	root.Walk(func(path string, c *program.Class) {
		if c.Forward != nil && c.Forward.Merged && slices.ContainsFunc(f.Units, func(u program.Unit) bool { return slices.Contains(u.Modules, path) }) {
			j.fail(s.FSDP.At, "%s, %s, is called with one tensor for several arguments, which fully_shard would make several tensors; that is not modelled: shard a module around it", path, c.Describe())
		}
	})
}

// units lists the calls of fully_shard, inner modules first.
func (j *Job) units(s *spec.Parallel, f *program.FSDP) {
	root := j.Job.Models[0].Root
	paths := root.ModulePaths()
	given := s.Modules
	if len(given) == 0 {
		if j.Models[0].Checkpoint == nil {
			j.fail(s.FSDP.At, "%s does not say which of its modules are sharded apart; name them with modules, such as modules: [\"layers.*\"]", j.Models[0].Name)
		}
		for _, q := range j.Models[0].Checkpoint {
			given = append(given, spec.Unit{Modules: []spec.String{{V: q, At: s.FSDP.At, Set: true}}})
		}
	}
	taken := map[string]bool{}
	for _, u := range given {
		var patterns program.Patterns
		if len(s.Modules) == 0 {
			patterns = program.Patterns{u.Modules[0].V} // of a preset, which may have no such module
		} else if patterns = Patterns(j.Spec.Errs, u.Modules, "module", paths); j.Spec.Errs.Err() != nil {
			continue // a pattern that fits nothing
		}
		reshard := f.Reshard
		if u.Reshard != nil {
			reshard = j.reshard(u.Reshard, f.Shards)
		}
		if u.Together {
			f.Units = append(f.Units, program.Unit{Modules: j.together(u, root, taken), Reshard: reshard})
			continue
		}
		var found []string
		outermost(root, "", patterns, func(at string, _ int, _ *program.Class) {
			if !taken[at] {
				taken[at] = true
				found = append(found, at)
			}
		})
		for _, at := range found {
			f.Units = append(f.Units, program.Unit{Modules: []string{at}, Reshard: reshard})
		}
	}
	if j.Spec.Errs.Err() != nil {
		panic(spec.Stop{})
	}
	if s.Ends.V {
		j.shardEmbeddings(s, f)
	} else if s.Efficient.V {
		j.fail(s.Efficient.At, "cpu_ram_efficient_loading is accelerate's: it is for shard_embeddings: true")
	}
	f.Units = innerFirst(f.Units)
	if n := len(f.Units); n > 0 && !s.Last.V {
		f.Units[n-1].Reshard = 0
	}
}

// untied says which parameters are shared by modules that are sharded apart: fully_shard gives
// each its own.
func (j *Job) untied(s *spec.Parallel, f *program.FSDP) {
	unit := func(param string) int {
		in, longest := -1, 0
		for i, u := range f.Units {
			for _, m := range u.Modules {
				if program.Inside(param, m) && len(m) >= longest {
					in, longest = i, len(m)
				}
			}
		}
		return in
	}
	for p := tiedParams(j.Job.Models[0].Root); len(p) > 1; p = p[2:] {
		switch {
		case unit(p[0]) == unit(p[1]):
		case f.Flat != nil:
			j.fail(s.FSDP.At, "%s and %s are one parameter, but their modules are wrapped apart; that is not modelled with version 1: leave one of them to the model", p[1], p[0])
		case s.Efficient.V:
			f.Tied = append(f.Tied, p[0], p[1])
		default:
			*j.Warnings = append(*j.Warnings, note.Untied.New("parallel.fsdp: %s and %s are one parameter, but their modules are sharded apart: fully_shard makes two of it, and they are trained apart", p[1], p[0]).Of("parallel.fsdp"))
			return
		}
	}
}

// together are the modules of one call of fully_shard.
func (j *Job) together(u spec.Unit, root *program.Class, taken map[string]bool) []string {
	is := map[string]bool{}
	root.Walk(func(path string, _ *program.Class) { is[path] = true })
	var out []string
	for _, m := range u.Modules {
		if !is[m.V] {
			j.fail(m.At, "modules that are gathered together are given by their paths, such as [norm, head]; %s is a pattern or a list of modules", m.V)
		}
		if taken[m.V] {
			j.fail(m.At, "%s is sharded already", m.V)
		}
		taken[m.V] = true
		for _, other := range out {
			if program.Inside(m.V, other) || program.Inside(other, m.V) {
				j.fail(m.At, "%s and %s lie in one another; modules that are gathered together lie side by side", other, m.V)
			}
		}
		out = append(out, m.V)
	}
	return out
}

// shardEmbeddings has the table of tokens sharded apart, and the last norm together with the output
// embedding, or, where they share a weight, with the table (fsdp2_prepare_model in
// accelerate/utils/fsdp_utils.py).
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
	apart := func(reshard int64, paths ...string) {
		paths = slices.DeleteFunc(paths, func(path string) bool {
			return path == "" || slices.ContainsFunc(f.Units, func(u program.Unit) bool { return slices.Contains(u.Modules, path) })
		})
		if len(paths) > 0 {
			f.Units = append(f.Units, program.Unit{Modules: paths, Reshard: reshard})
		}
	}
	last := head
	if tied := tiedModules(pm.Root); tied[table] && tied[head] {
		last = table
	} else {
		apart(f.Reshard, table)
		for _, path := range []string{table, head} { // its variables input_weight and output_weight
			if path != "" {
				f.Held = append(f.Held, program.Join(path, "weight"))
			}
		}
	}
	apart(0, lastNorm(pm.Root, table), last)
}

// lastNorm is the last norm among the children of the module around layers and table, which
// lies in the model itself (_find_final_norm); "": none.
func lastNorm(root *program.Class, table string) string {
	base, rest, _ := strings.Cut(table, ".")
	i := root.Child(base)
	if rest == "" || i < 0 {
		return ""
	}
	norm := ""
	c := root.Children[i].Class
	for _, i := range c.Registered() {
		if ch := &c.Children[i]; !strings.Contains(ch.Path, ".") && isNorm(ch.Class) {
			norm = program.Join(base, ch.Path)
		}
	}
	return norm
}

// isNorm reports whether a module has a weight for each feature and no other module in it, as norms have.
func isNorm(c *program.Class) bool {
	return len(c.Params) > 0 && len(c.Children) == 0 && !slices.ContainsFunc(c.Params, func(p program.Param) bool { return len(p.Size) != 1 })
}

// reshard reads reshard_after_forward of so many ranks.
func (j *Job) reshard(given *spec.Value, ranks int64) int64 {
	switch v := j.Spec.Errs.Eval(given, j.Spec.Env).(type) {
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
			if v != ranks && j.Spec.Parallel.TP.Set {
				j.fail(given.Span, "resharding to a smaller mesh with tp is not supported, PyTorch says; with tp, reshard_after_forward is true or false")
			}
			return v
		}
	}
	j.fail(given.Span, "reshard_after_forward is true, false or a factor of %d, not %s", ranks, given.Describe())
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
			var err error
			if job.Parallel.FSDP.Flat == nil { // whose optimizers step plain tensors
				err = o.Row.CheckSharded(args)
			}
			if err == nil && job.Parallel.FSDP.Offload {
				err = o.Row.CheckCPU(args)
			}
			if err != nil {
				j.fail(s.FSDP.At, "%v", err)
			}
		}
	}
}

// innerFirst sorts calls so that each comes after those of modules that lie in its own,
// otherwise as they are.
func innerFirst(units []program.Unit) []program.Unit {
	var out []program.Unit
	done := make([]bool, len(units))
	var visit func(i int)
	visit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for k, u := range units {
			if slices.ContainsFunc(u.Modules, func(inner string) bool {
				return slices.ContainsFunc(units[i].Modules, func(outer string) bool { return program.Inside(inner, outer) })
			}) {
				visit(k)
			}
		}
		out = append(out, units[i])
	}
	for i := range units {
		visit(i)
	}
	return out
}
