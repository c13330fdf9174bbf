package exporttorch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// fsdpImports prints what fully_shard and its arguments are imported from.
func (s *script) fsdpImports(f *program.FSDP) {
	if f.Flat != nil {
		s.flatImports(f)
		return
	}
	names := []string{"fully_shard"}
	if mixedPrecision(f) != "" {
		names = append([]string{"MixedPrecisionPolicy"}, names...)
	}
	if f.Offload {
		names = append([]string{"CPUOffloadPolicy"}, names...)
	}
	s.line("from torch.distributed.device_mesh import init_device_mesh")
	s.line("from torch.distributed.fsdp import " + strings.Join(names, ", "))
}

// fullyShard prints the calls of fully_shard, which moves the parameters to the
// device.
func (s *script) fullyShard() {
	f := s.job.Parallel.FSDP
	switch {
	case f == nil:
		return
	case f.Flat != nil:
		s.flatten(s.job.Models[0].Name)
		return
	}
	whole := "mesh=" + dataMesh(&s.job.Parallel)
	args := whole
	switch f.Reshard {
	case f.Shards: // the default of all but the model itself
		if f.ReshardRoot {
			args += ", reshard_after_forward=True"
		}
	case 0:
		args += ", reshard_after_forward=False"
	default:
		args += fmt.Sprintf(", reshard_after_forward=%d", f.Reshard)
	}
	if mp := mixedPrecision(f); mp != "" {
		args += ", mp_policy=" + mp
	}
	if f.Offload {
		args += ", offload_policy=CPUOffloadPolicy(" + map[bool]string{true: "", false: "pin_memory=False"}[f.Pinned] + ")"
	}
	if len(s.job.Models[0].Frozen) > 0 {
		s.line("del p  # it would keep a whole parameter")
	}
	if s.job.Parallel.TP == nil && s.job.Parallel.Pipeline == nil { // whose mesh it is, too
		s.mesh()
	}
	if args != whole || slices.ContainsFunc(f.Units, func(u program.Unit) bool { return u.Reshard != f.Reshard }) {
		s.printf("sharding = dict(%s)", args)
		args = "**sharding"
	}
	for _, m := range s.job.Models {
		s.shardModel(m.Name, args)
	}
}

// shardModel prints the calls for one model.
func (s *script) shardModel(model, args string) {
	f := s.job.Parallel.FSDP
	var held []string
	for _, path := range f.Held {
		held = append(held, s.modelName(model)+"."+s.path(path))
	}
	if held != nil {
		s.printf("held = [%s]", strings.Join(held, ", "))
	}
	for i := 0; i < len(f.Units); {
		i += s.unit(model, args, f.Units[i:])
	}
	s.printf("fully_shard(%s, %s)", s.modelName(model), args)
	if held != nil {
		s.line("for i in range(len(held)):")
		s.indent++
		s.line("held[i] = None")
		s.indent--
	}
	for t := f.Tied; len(t) > 1; t = t[2:] {
		s.printf("%s.%s = %s.%s", s.modelName(model), s.path(t[0]), s.modelName(model), s.path(t[1]))
	}
	switch {
	case f.Meta && f.Offload:
		s.printf("%s.to_empty(device=\"cpu\")", s.modelName(model))
		s.printf("for module in %s.modules():", s.modelName(model))
		s.indent++
		s.line("for name, b in module.named_buffers(recurse=False):")
		s.indent++
		s.line("setattr(module, name, b.to(device))")
		s.indent -= 2
	case f.Meta:
		s.printf("%s.to_empty(device=device)", s.modelName(model))
	}
}

// unit prints the first of some calls of fully_shard, with those after it that are like it, and
// returns how many it printed.
func (s *script) unit(model, args string, units []program.Unit) int {
	f := s.job.Parallel.FSDP
	u := units[0]
	alike := func(x program.Unit) bool { return len(x.Modules) == 1 && x.Reshard == u.Reshard }
	n := 1
	for n < len(units) && alike(u) && alike(units[n]) {
		n++
	}
	var modules []string
	for _, x := range units[:n] {
		for _, m := range x.Modules {
			modules = append(modules, `"`+s.path(m)+`"`)
		}
	}
	switch {
	case u.Reshard == f.Reshard:
	case u.Reshard == 0:
		args = "**dict(sharding, reshard_after_forward=False)"
	case u.Reshard == f.Shards:
		args = "**dict(sharding, reshard_after_forward=True)"
	default:
		args = fmt.Sprintf("**dict(sharding, reshard_after_forward=%d)", u.Reshard)
	}
	switch name := s.modelName(model); {
	case s.job.Parallel.Pipeline != nil && len(u.Modules) > 1:
		s.printf("if %s in dict(%s.named_modules()):", modules[0], name)
		s.indent++
		s.printf("fully_shard([%s.get_submodule(name) for name in [%s]], %s)", name, strings.Join(modules, ", "), args)
		s.indent--
	case s.job.Parallel.Pipeline != nil: // a process has those of its stage
		s.printf("for name in [%s]:", strings.Join(modules, ", "))
		s.indent++
		s.printf("if name in dict(%s.named_modules()):", name)
		s.indent++
		s.printf("fully_shard(%s.get_submodule(name), %s)", name, args)
		s.indent -= 2
	case len(u.Modules) > 1:
		s.printf("fully_shard([%s.get_submodule(name) for name in [%s]], %s)", name, strings.Join(modules, ", "), args)
	case n == 1 && u.Reshard != f.Reshard:
		s.printf("fully_shard(%s.get_submodule(%s), %s)", name, modules[0], args)
	default:
		s.printf("for name in [%s]:", strings.Join(modules, ", "))
		s.indent++
		s.printf("fully_shard(%s.get_submodule(name), %s)", name, args)
		s.indent--
	}
	return n
}

// mixedPrecision prints the MixedPrecisionPolicy; "" if it is the default.
func mixedPrecision(f *program.FSDP) string {
	var args []string
	add := func(name string, d *tensor.DType) {
		if d != nil {
			args = append(args, name+"="+program.Literal(*d))
		}
	}
	add("param_dtype", f.ParamDType)
	add("reduce_dtype", f.ReduceDType)
	add("output_dtype", f.OutputDType)
	if f.KeepInputs {
		args = append(args, "cast_forward_inputs=False")
	}
	if len(args) == 0 {
		return ""
	}
	return "MixedPrecisionPolicy(" + strings.Join(args, ", ") + ")"
}

// gradSync prints what lets the gradients of a model be reduced or not.
func (p *printer) gradSync(s *program.Stmt) {
	switch f := p.job.Parallel.FSDP; {
	case f != nil && f.Flat != nil:
		p.printf("for m in FullyShardedDataParallel.fsdp_modules(%s):  # as no_sync() does", p.modelName(s.Model))
		p.printf("    m._sync_gradients = %s", program.Literal(!s.NoSync))
		return
	case f != nil:
		p.printf("%s.set_requires_gradient_sync(%s)", p.modelName(s.Model), program.Literal(!s.NoSync))
		return
	}
	p.printf("%s.require_backward_grad_sync = %s", p.modelName(s.Model), program.Literal(!s.NoSync))
}
