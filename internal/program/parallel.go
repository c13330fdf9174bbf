package program

import "slices"

// Parallel says how a job is spread over several GPUs. A program is what one of
// the processes does; all do the same, but for the stages of a pipeline.
type Parallel struct {
	Ranks int64 // processes, one on each GPU, of all dimensions of the mesh; 0: the job is on one GPU
	DDP   *DDP  // torch.nn.parallel.DistributedDataParallel around each model that is trained; nil: none
	FSDP  *FSDP // nil: parameters are not sharded
	ZeRO  *ZeRO // ZeroRedundancyOptimizer around each optimizer; nil: none
	TP    *TP   // parallelize_module of some modules; nil: of none

	DeepSpeed *DeepSpeed // DeepSpeed's engine around the model; nil: none
	Megatron  *Megatron  // Megatron-core's DistributedDataParallel and optimizer; nil: none

	// Pipeline are stages of torch.distributed.pipelining; nil: each process has the whole model. Each
	// of its ranks is then as many processes as DDP or FSDP is of, one after the other.
	Pipeline *Pipeline
}

// Processes is how many processes there are, one on each GPU.
func (p *Parallel) Processes() int64 {
	if p.Megatron != nil {
		return p.Megatron.World
	}
	return max(p.Ranks, 1)
}

// Communicators is how many groups of processes a process exchanges tensors with: one for each
// dimension of the mesh.
func (p *Parallel) Communicators() int64 {
	var n int64
	if p.TP != nil {
		n++
	}
	if f := p.FSDP; f != nil {
		n++
		if f.Replicas > 1 && f.Shards > 1 {
			n++
		}
	}
	if n == 0 && p.Processes() > 1 {
		n = 1
	}
	return n
}

// Stages is how many processes there are that do different things; 0: all do the same. Of
// several that do the same, the first counts.
func (p *Parallel) Stages() int64 {
	switch {
	case p.Pipeline != nil:
		return p.Pipeline.Ranks
	case p.Megatron != nil && p.Megatron.Pipeline != nil:
		return int64(p.Megatron.Pipeline.Ranks)
	}
	return 0
}

// Planned is the rank of the process that is planned, where they differ.
func (p *Parallel) Planned() int64 {
	switch {
	case p.Megatron != nil && p.Megatron.Pipeline != nil:
		return int64(p.Megatron.Pipeline.Rank) * (p.Megatron.World / p.Stages())
	case p.DeepSpeed != nil:
		return p.DeepSpeed.Rank
	case p.Pipeline != nil:
		return p.Pipeline.Rank * p.Copies()
	}
	return 0
}

// Copies is how many processes have the same part of the model, or share it: those of
// DistributedDataParallel or fully_shard.
func (p *Parallel) Copies() int64 {
	if p.Pipeline != nil {
		return p.Ranks / p.Pipeline.Ranks
	}
	return p.Ranks
}

// Copied reports whether each stage of a pipeline is that of several processes.
func (p *Parallel) Copied() bool { return p.Pipeline != nil && (p.DDP != nil || p.FSDP != nil) }

// DDP are the arguments of DistributedDataParallel.
type DDP struct {
	Given []KwArg // as the spec gives them, for printing

	BucketCap  float64 // of gradients in one all-reduce, in MiB
	FirstCap   float64 // of the first bucket
	BucketView bool    // gradients are views of the buckets
	FindUnused bool
	Static     bool
	Broadcast  bool   // buffers are broadcast before a forward pass
	Compress   string // the communication hook: fp16 or bf16; "": none
}

// ZeRO are the arguments of torch.distributed.optim.ZeroRedundancyOptimizer: an
// optimizer of the parameters that are this process's to step.
type ZeRO struct {
	BucketView bool // the parameters of each process are views of one tensor
}

// Wraps reports whether DistributedDataParallel is around a model: one of which an
// optimizer has parameters, if there is an optimizer. It refuses a model without
// parameters that require grad.
func (j *Job) Wraps(m *Model) bool {
	if j.Parallel.DDP == nil || j.Inference != "" {
		return false
	}
	trains := func(o *Optimizer) bool { return slices.Contains(o.Models, m.Name) }
	if len(j.Optimizers) > 0 && !slices.ContainsFunc(j.Optimizers, trains) {
		return false
	}
	if m.Adapters != nil {
		return true
	}
	for _, p := range m.Root.ParamPaths() {
		if !m.Freezes(p) && !m.quantizes(p) {
			return true
		}
	}
	return false
}
