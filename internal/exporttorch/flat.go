package exporttorch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
)

// flatImports prints what FullyShardedDataParallel and its arguments are imported from.
func (s *script) flatImports(f *program.FSDP) {
	names := []string{"FullyShardedDataParallel"}
	for name, used := range map[string]bool{
		"BackwardPrefetch": f.Flat.BackwardPrefetch == "BACKWARD_POST", "CPUOffload": f.Offload, "MixedPrecision": flatPrecision(f) != "", "ShardingStrategy": f.Flat.Strategy != program.FullShard,
	} {
		if used {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if f.Replicas > 1 {
		s.line("from torch.distributed.device_mesh import init_device_mesh")
	}
	s.line("from torch.distributed.fsdp import " + strings.Join(names, ", "))
}

// flatten prints what puts FullyShardedDataParallel around modules, and around the model.
func (s *script) flatten(model string) {
	f := s.job.Parallel.FSDP
	args := "device_id=device"
	if f.Flat.Strategy != program.FullShard {
		args += ", sharding_strategy=ShardingStrategy." + f.Flat.Strategy
	}
	if f.Flat.Orig {
		args += ", use_orig_params=True"
	}
	if f.Flat.ForwardPrefetch {
		args += ", forward_prefetch=True"
	}
	switch f.Flat.BackwardPrefetch {
	case "":
		args += ", backward_prefetch=None"
	case "BACKWARD_POST":
		args += ", backward_prefetch=BackwardPrefetch.BACKWARD_POST"
	}
	if f.Offload {
		args += ", cpu_offload=CPUOffload(offload_params=True)"
	}
	if mp := flatPrecision(f); mp != "" {
		args += ", mixed_precision=" + mp
	}
	if len(s.job.Models[0].Frozen) > 0 {
		s.line("del p  # it would keep a whole parameter")
	}
	if f.Replicas > 1 {
		s.printf("mesh = init_device_mesh(\"cuda\", (%d, %d))", f.Replicas, f.Shards)
		args += ", device_mesh=mesh"
	}
	s.printf("sharding = dict(%s)", args)
	name := s.modelName(model)
	if len(f.Units) > 0 {
		var paths []string
		for _, u := range f.Units {
			paths = append(paths, `"`+s.path(u.Modules[0])+`"`)
		}
		s.printf("for name in [%s]:", strings.Join(paths, ", "))
		s.indent++
		s.line(`parent, _, child = name.rpartition(".")`)
		s.printf("parent = %s.get_submodule(parent)", name)
		s.line("setattr(parent, child, FullyShardedDataParallel(getattr(parent, child), **sharding))")
		s.indent--
	}
	s.printf("%s = FullyShardedDataParallel(%s, **sharding)", name, name)
}

// flatPrecision prints the MixedPrecision of version 1; "" if it is none.
func flatPrecision(f *program.FSDP) string {
	if f.ParamDType == nil && f.ReduceDType == nil && f.Flat.BufferDType == nil {
		return ""
	}
	var args []string
	add := func(name string, d *tensor.DType) {
		if d != nil {
			args = append(args, name+"="+program.Literal(*d))
		}
	}
	add("param_dtype", f.ParamDType)
	add("reduce_dtype", f.ReduceDType)
	add("buffer_dtype", f.Flat.BufferDType)
	if !f.KeepInputs {
		args = append(args, "cast_forward_inputs=True")
	}
	if !f.Flat.CastRoot {
		args = append(args, "cast_root_forward_inputs=False")
	}
	return fmt.Sprintf("MixedPrecision(%s)", strings.Join(args, ", "))
}
