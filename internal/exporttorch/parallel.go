package exporttorch

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// parallelImports prints what a job on several GPUs imports.
func (s *script) parallelImports() {
	if f := s.job.Parallel.FSDP; f != nil {
		s.fsdpImports(f)
	}
	if s.job.Parallel.DeepSpeed != nil {
		s.line("import deepspeed")
	}
	if t := s.job.Parallel.TP; t != nil {
		s.tensorParallelImports(t)
	}
	if pl := s.job.Parallel.Pipeline; pl != nil {
		if s.job.Parallel.Copied() && s.job.Parallel.FSDP == nil {
			s.line("from torch.distributed.device_mesh import init_device_mesh")
		}
		s.printf("from torch.distributed.pipelining import PipelineStage, %s", pl.Schedule)
	}
	d := s.job.Parallel.DDP
	if d == nil {
		return
	}
	if d.Compress != "" {
		s.line("from torch.distributed.algorithms.ddp_comm_hooks import default_hooks")
	}
	if s.job.Parallel.ZeRO != nil {
		s.line("from torch.distributed.optim import ZeroRedundancyOptimizer")
	}
	s.line("from torch.nn.parallel import DistributedDataParallel")
}

// processGroup prints what each process does first: it takes a GPU.
func (s *script) processGroup() {
	if s.job.Parallel.Ranks == 0 {
		s.line(`device = torch.device("cuda")`)
		return
	}
	s.line(`dist.init_process_group("nccl")`)
	s.line(`device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))`)
	s.line("torch.cuda.set_device(device)")
	s.pipelineMesh()
}

// distribute wraps the models that are trained.
func (s *script) distribute() {
	d := s.job.Parallel.DDP
	if d == nil {
		return
	}
	s.inDDP = map[string]bool{}
	var given strings.Builder
	if s.job.Parallel.Pipeline != nil {
		given.WriteString(`, process_group=mesh.get_group("dp")`)
	}
	for _, g := range d.Given {
		fmt.Fprintf(&given, ", %s=%s", g.Name, program.Literal(g.Value))
	}
	for _, m := range s.job.Models {
		if !s.job.Wraps(m) {
			continue
		}
		s.inDDP[m.Name] = true
		s.printf("%s = DistributedDataParallel(%s, device_ids=[device.index]%s)", s.modelName(m.Name), s.modelName(m.Name), given.String())
		if d.Compress != "" {
			s.printf("%s.register_comm_hook(None, default_hooks.%s_compress_hook)", s.modelName(m.Name), d.Compress)
		}
	}
}

// zero prints an optimizer of which each process steps some of the parameters.
func (s *script) zero(z *program.ZeRO, o *program.Optimizer, params string) {
	view := ""
	if z.BucketView {
		view = ", parameters_as_bucket_view=True"
	}
	s.printf("%s = ZeroRedundancyOptimizer(%s, optimizer_class=%s%s%s)", s.optimizerName(o.Name), params, callee(o), view, arguments(o.Given, ", %s=%s"))
	if o.Row.Ready != "" {
		s.printf("%s.optim.%s", s.optimizerName(o.Name), o.Row.Ready)
	}
}
