package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// fsdp reads how a model is divided among processes, and refuses what does not go
// with it.
func (el *elaborator) fsdp(s *spec.Parallel) {
	p := &el.job.Parallel
	f := &program.FSDP{KeepInputs: !s.Cast.V, Offload: s.Offload.V, Pinned: s.Pin.V}
	p.Ranks, p.FSDP = s.FSDP.V, f
	f.Reshard = el.reshard(s, p.Ranks)
	f.ParamDType, f.ReduceDType, f.OutputDType = el.floating(s.Param), el.floating(s.Reduce), el.floating(s.Output)
	if len(el.ms) > 1 {
		el.fail(s.FSDP.At, "fsdp of several models is not modelled; this job has %s", plural(len(el.ms), "model"))
	}
	el.fsdpGoesWith(s)
	if v := el.opts.Env.Torch; v != torchver.Default {
		el.warnings = append(el.warnings, note.OtherFSDP.New("parallel.fsdp: FSDP2 of PyTorch %v is planned as that of %v", v, torchver.Default).Of("parallel.fsdp"))
	}
	el.checkNoSync(s)
	root, patterns := el.job.Models[0].Root, techniques.Patterns(el.errs, s.Modules, "module", el.job.Models[0].Root.ModulePaths())
	if len(s.Modules) == 0 {
		if patterns = el.ms[0].checkpointed(); patterns == nil {
			el.fail(s.FSDP.At, "%s does not say which of its modules are sharded apart; name them with modules, such as modules: [\"layers.*\"]", el.ms[0].name)
		}
	}
	if el.errs.Err() != nil { // a pattern that fits nothing
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
	root.Walk(func(path string, c *program.Class) {
		if c.Forward != nil && c.Forward.Merged && slices.Contains(f.Modules, path) {
			el.fail(s.FSDP.At, "%s, %s, is called with one tensor for several arguments, which fully_shard would make several tensors; that is not modelled: shard a module around it", path, c.Describe())
		}
	})
}

// reshard reads reshard_after_forward.
func (el *elaborator) reshard(s *spec.Parallel, ranks int64) int64 {
	if s.Reshard == nil {
		return ranks
	}
	switch v := el.eval(s.Reshard, el.spec.Env).(type) {
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
	el.fail(s.Reshard.Span, "reshard_after_forward is true, false or a factor of %d, not %s", ranks, s.Reshard.Describe())
	return 0
}

// floating reads a type of floating-point numbers; nil if none is given.
func (el *elaborator) floating(s spec.String) *tensor.DType {
	if !s.Set {
		return nil
	}
	d := el.errs.DType(s)
	if !d.IsFloating() {
		el.fail(s.At, "%s is no type of floating-point numbers", s.V)
	}
	return &d
}

// fsdpGoesWith refuses what is not modelled of models that are divided.
func (el *elaborator) fsdpGoesWith(s *spec.Parallel) {
	m, j := el.job.Models[0], el.job
	if s.Pin.Set && !s.Offload.V {
		el.fail(s.Pin.At, "pin_memory is for cpu_offload: true")
	}
	if f := j.Parallel.FSDP; f.Offload && j.Scaler {
		el.fail(s.Offload.At, "a GradScaler (amp-fp16) of gradients in host memory is not modelled")
	}
	for _, x := range []struct {
		what  string
		given bool
	}{
		{"offload", j.Offload != program.Offload{}},
		{"lora", m.Adapters != nil},
		{"quantize", m.Quantized != nil},
		{"prune", m.Pruned != nil},
		{"train.ema", j.EMA != nil},
		{"an eval: of other sizes", j.Eval != nil && j.Eval.Apart[m.Name]},
	} {
		if x.given {
			el.fail(s.FSDP.At, "%s is not modelled with parallel.fsdp", x.what)
		}
	}
	m.Root.Walk(func(path string, c *program.Class) {
		if c.Flat != 0 {
			el.fail(s.FSDP.At, "%s is %s, which copies its weights to one buffer when they are not in one; that is not modelled with parallel.fsdp", path, c.Describe())
		}
	})
	for _, o := range j.Optimizers {
		for _, args := range o.AllArgs() {
			err := o.Row.CheckSharded(args)
			if err == nil && j.Parallel.FSDP.Offload {
				err = o.Row.CheckCPU(args)
			}
			if err != nil {
				el.fail(s.FSDP.At, "%v", err)
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
