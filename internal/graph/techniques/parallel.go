package techniques

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// defaultBucketCap and firstBucket are DistributedDataParallel's, in MiB
// (torch/nn/parallel/distributed.py and kDefaultFirstBucketBytes in
// torch/csrc/distributed/c10d/reducer.hpp).
const (
	defaultBucketCap = 25
	firstBucket      = 1
)

// Parallel reads how the job is spread over GPUs, but for the stages of a pipeline, and
// refuses what does not go with it.
func (j *Job) Parallel() {
	s := j.Spec.Parallel
	if s == nil {
		return
	}
	j.parallelKeys(s)
	if s.IsDeepSpeed() {
		j.deepSpeed(s)
	}
	if s.FSDP.Set {
		j.fsdp(s)
	}
	if s.TP.Set {
		j.tensorParallel(s)
	}
	if !s.DDP.Set {
		return
	}
	p := &j.Job.Parallel
	p.Ranks = s.DDP.V
	d := &program.DDP{
		BucketCap: defaultBucketCap, FirstCap: firstBucket,
		BucketView: s.View.V, FindUnused: s.Unused.V, Static: s.Static.V, Broadcast: s.Broadcast.V,
	}
	given := func(name string, set bool, value any) {
		if set {
			d.Given = append(d.Given, program.KwArg{Name: name, Value: value})
		}
	}
	if s.BucketCap.Set {
		d.BucketCap, d.FirstCap = s.BucketCap.V, s.BucketCap.V
	}
	given("broadcast_buffers", s.Broadcast.Set, s.Broadcast.V)
	given("bucket_cap_mb", s.BucketCap.Set, s.BucketCap.V)
	given("find_unused_parameters", s.Unused.Set, s.Unused.V)
	given("gradient_as_bucket_view", s.View.Set, s.View.V)
	given("static_graph", s.Static.Set, s.Static.V)
	switch s.Hook.V {
	case "fp16_compress_hook":
		d.Compress = "fp16"
	case "bf16_compress_hook":
		d.Compress = "bf16"
	}
	switch o := j.Spec.Offload; {
	case j.Job.Inference != "":
		return // DistributedDataParallel is for training
	case j.Job.Offload.Parameters:
		j.fail(o.Parameters.At, "parameters on the CPU do not go with parallel.ddp, which reduces gradients on the GPUs")
	case j.Job.Offload.Gradients:
		j.fail(o.Gradients.At, "gradients that leave the GPU as soon as they are ready do not go with parallel.ddp, which reduces them later")
	case j.Job.InBackward:
		j.fail(s.DDP.At, "optimizer_in_backward does not go with parallel.ddp: an optimizer would step before its gradient is reduced")
	}
	j.checkNoSync(s)
	p.DDP = d
	j.zero(s)
	for i, m := range j.Job.Models {
		if e := j.Job.Eval; e != nil && e.IsApart(m.Name) && j.Job.Wraps(m) {
			j.fail(j.Models[i].At, "an eval: of other sizes is not modelled with parallel.ddp")
		}
	}
}

// parallelKeys refuses keys of one way to spread a job where it is spread in
// another.
func (j *Job) parallelKeys(s *spec.Parallel) {
	if s.DDP.Set && s.FSDP.Set {
		j.fail(s.FSDP.At, "ddp and fsdp exclude each other: a model is copied to all processes or divided among them")
	}
	if s.TP.Set && (s.DDP.Set || s.FSDP1() || s.IsDeepSpeed()) {
		j.fail(s.TP.At, "tp together with ddp, deepspeed or version: 1 of fsdp is not modelled; tp together with fsdp, which is FSDP2, is")
	}
	if s.PP.Set && (s.TP.Set || s.IsDeepSpeed()) {
		j.fail(s.PP.At, "pp together with tp or deepspeed, on a mesh of two dimensions, is not modelled; with ddp and fsdp it is")
	}
	for _, k := range []struct {
		key, of string
		at      spec.Span
		wrong   bool
	}{
		{"bucket_cap_mb", "ddp", s.BucketCap.At, s.BucketCap.Set && !s.DDP.Set},
		{"gradient_as_bucket_view", "ddp", s.View.At, s.View.Set && !s.DDP.Set},
		{"find_unused_parameters", "ddp", s.Unused.At, s.Unused.Set && !s.DDP.Set},
		{"static_graph", "ddp", s.Static.At, s.Static.Set && !s.DDP.Set},
		{"broadcast_buffers", "ddp", s.Broadcast.At, s.Broadcast.Set && !s.DDP.Set},
		{"comm_hook", "ddp", s.Hook.At, s.Hook.Set && !s.DDP.Set},
		{"zero", "ddp", s.ZeRO.At, s.ZeRO.Set && !s.DDP.Set},
		{"parameters_as_bucket_view", "zero", s.Bucket.At, s.Bucket.Set && !s.ZeRO.Set},
		{"modules", "fsdp", firstAt(s.Modules), len(s.Modules) > 0 && !s.FSDP.Set},
		{"replicate", "fsdp", s.Replicate.At, s.Replicate.Set && !s.FSDP.Set},
		{"reshard_after_forward", "fsdp", spanOf(s.Reshard), s.Reshard != nil && !s.FSDP.Set},
		{"meta_device", "fsdp", s.Meta.At, s.Meta.Set && !s.FSDP.Set},
		{"reshard_last", "fsdp", s.Last.At, s.Last.Set && !s.FSDP.Set},
		{"shard_embeddings", "fsdp", s.Ends.At, s.Ends.Set && !s.FSDP.Set},
		{"cpu_ram_efficient_loading", "fsdp", s.Efficient.At, s.Efficient.Set && !s.FSDP.Set},
		{"param_dtype", "fsdp", s.Param.At, s.Param.Set && !s.FSDP.Set},
		{"reduce_dtype", "fsdp", s.Reduce.At, s.Reduce.Set && !s.FSDP.Set},
		{"output_dtype", "fsdp", s.Output.At, s.Output.Set && !s.FSDP.Set},
		{"cast_forward_inputs", "fsdp", s.Cast.At, s.Cast.Set && !s.FSDP.Set},
		{"cpu_offload", "fsdp", s.Offload.At, s.Offload.Set && !s.FSDP.Set},
		{"pin_memory", "fsdp", s.Pin.At, s.Pin.Set && !s.FSDP.Set},
		{"version", "fsdp", s.Version.At, s.Version.Set && !s.FSDP.Set},
		{"sharding_strategy", "fsdp", s.Strategy.At, s.Strategy.Set && !s.FSDP.Set},
		{"use_orig_params", "fsdp", s.Orig.At, s.Orig.Set && !s.FSDP.Set},
		{"forward_prefetch", "fsdp", s.Forward.At, s.Forward.Set && !s.FSDP.Set},
		{"backward_prefetch", "fsdp", s.Backward.At, s.Backward.Set && !s.FSDP.Set},
		{"cast_root_forward_inputs", "fsdp", s.CastRoot.At, s.CastRoot.Set && !s.FSDP.Set},
		{"buffer_dtype", "fsdp", s.Buffer.At, s.Buffer.Set && !s.FSDP.Set},
		{"plan", "tp", spanOf(s.Plan), s.Plan != nil && !s.TP.Set},
		{"loss_parallel", "tp", s.Loss.At, s.Loss.Set && !s.TP.Set},
		{"rank", "deepspeed or pp", s.Rank.At, s.Rank.Set && s.DeepSpeedRanks() == 0 && !s.PP.Set},
		{"split", "pp", firstOf(s.Split), len(s.Split) > 0 && !s.PP.Set},
		{"schedule", "pp", s.Schedule.At, s.Schedule.Set && !s.PP.Set},
		{"microbatches", "pp", s.Microbatches.At, s.Microbatches.Set && !s.PP.Set},
		{"no_sync", "ddp or fsdp", s.NoSync.At, s.NoSync.Set && !s.DDP.Set && !s.FSDP.Set},
	} {
		if k.wrong {
			j.fail(k.at, "%s is a key of parallel.%s, which is not given", k.key, k.of)
		}
	}
}

func firstAt(list spec.Units) spec.Span {
	if len(list) == 0 {
		return spec.Span{}
	}
	return list[0].Modules[0].At
}

func firstOf(list []spec.String) spec.Span {
	if len(list) == 0 {
		return spec.Span{}
	}
	return list[0].At
}

func spanOf(v *spec.Value) spec.Span {
	if v == nil {
		return spec.Span{}
	}
	return v.Span
}

// checkNoSync refuses what leaves no microbatch before the last.
func (j *Job) checkNoSync(s *spec.Parallel) {
	if s.NoSync.V && j.Spec.Train.GradAccumulation.V < 2 && j.Spec.Step == nil {
		j.fail(s.NoSync.At, "no_sync needs grad_accumulation of 2 or more: the gradients of the last microbatch are always reduced")
	}
}
