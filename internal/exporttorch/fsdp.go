package exporttorch

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// fsdpImports prints what fully_shard and its arguments are imported from.
func (s *script) fsdpImports(f *program.FSDP) {
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
func (s *script) fullyShard(model string) {
	f := s.job.Parallel.FSDP
	if f == nil {
		return
	}
	args := "mesh=mesh"
	switch f.Reshard {
	case s.job.Parallel.Ranks: // the default of all but the model itself
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
	s.printf("mesh = init_device_mesh(\"cuda\", (%d,))", s.job.Parallel.Ranks)
	if args != "mesh=mesh" || f.WholeLast {
		s.printf("sharding = dict(%s)", args)
		args = "**sharding"
	}
	modules := make([]string, len(f.Modules))
	for i, m := range f.Modules {
		modules[i] = `"` + s.path(m) + `"`
	}
	last := len(modules)
	if f.WholeLast {
		last = max(last-1, 0)
	}
	if last > 0 {
		s.printf("for name in [%s]:", strings.Join(modules[:last], ", "))
		s.indent++
		s.printf("fully_shard(%s.get_submodule(name), %s)", s.modelName(model), args)
		s.indent--
	}
	for _, m := range modules[last:] {
		s.printf("fully_shard(%s.get_submodule(%s), **dict(sharding, reshard_after_forward=False))", s.modelName(model), m)
	}
	s.printf("fully_shard(%s, %s)", s.modelName(model), args)
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
	if p.job.Parallel.FSDP != nil {
		p.printf("%s.set_requires_gradient_sync(%s)", p.modelName(s.Model), program.Literal(!s.NoSync))
		return
	}
	p.printf("%s.require_backward_grad_sync = %s", p.modelName(s.Model), program.Literal(!s.NoSync))
}
