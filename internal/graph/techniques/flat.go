package techniques

import (
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// flat reads the arguments of FullyShardedDataParallel, version 1 of FSDP, and refuses what is
// of one version and given with the other, or not modelled.
func (j *Job) flat(s *spec.Parallel, f *program.FSDP) {
	for _, k := range []struct {
		key     string
		at      spec.Span
		version int64
		given   bool
	}{
		{"sharding_strategy", s.Strategy.At, 1, s.Strategy.Set},
		{"use_orig_params", s.Orig.At, 1, s.Orig.Set},
		{"forward_prefetch", s.Forward.At, 1, s.Forward.Set},
		{"backward_prefetch", s.Backward.At, 1, s.Backward.Set},
		{"cast_root_forward_inputs", s.CastRoot.At, 1, s.CastRoot.Set},
		{"buffer_dtype", s.Buffer.At, 1, s.Buffer.Set},
		{"reshard_after_forward", spanOf(s.Reshard), 2, s.Reshard != nil},
		{"reshard_last", s.Last.At, 2, s.Last.Set},
		{"shard_embeddings", s.Ends.At, 2, s.Ends.Set},
		{"cpu_ram_efficient_loading", s.Efficient.At, 2, s.Efficient.Set},
		{"meta_device", s.Meta.At, 2, s.Meta.Set},
		{"output_dtype", s.Output.At, 2, s.Output.Set},
		{"pin_memory", s.Pin.At, 2, s.Pin.Set},
	} {
		if k.given && k.version != s.Version.V {
			j.fail(k.at, "%s is a key of version %d of fsdp, not of version %d", k.key, k.version, s.Version.V)
		}
	}
	if !s.FSDP1() {
		return
	}
	_, castRoot := s.CastsInputs()
	f.Flat = &program.FlatFSDP{Strategy: s.Strategy.V, Orig: s.Orig.V, ForwardPrefetch: s.Forward.V, BackwardPrefetch: s.Backward.V, CastRoot: castRoot}
	f.Flat.BufferDType = j.floating(s.Buffer)
	if f.Flat.BackwardPrefetch == "NO_PREFETCH" {
		f.Flat.BackwardPrefetch = ""
	}
	hybrid := f.Flat.Strategy == program.HybridShard || f.Flat.Strategy == program.HybridShardZero2
	switch { // of one process FullyShardedDataParallel says in a warning that it divides nothing
	case hybrid && f.Replicas == 1:
		j.fail(s.Strategy.At, "%s needs replicate, the number of groups of processes of which each has all parameters", s.Strategy.V)
	case !hybrid && f.Replicas > 1:
		j.fail(s.Replicate.At, "replicate is for sharding_strategy: HYBRID_SHARD")
	}
	for _, u := range s.Modules {
		if u.Together || u.Reshard != nil {
			j.fail(u.At, "FullyShardedDataParallel wraps modules one by one, and all with the same arguments; a unit of version 1 is a path or pattern")
		}
	}
	m, job := j.Job.Models[0], j.Job
	for _, x := range []struct {
		what  string
		given bool
	}{
		{"cpu_offload where nothing is divided", f.Offload && !f.Divides()},
		{"a GradScaler (amp-fp16)", job.Scaler},
		{"optimizer_in_backward", job.InBackward},
		{"channels_last", job.ChannelsLast},
		{"load to the GPU", m.Loaded != nil && m.Loaded.OnDevice},
	} {
		if x.given {
			j.fail(s.Version.At, "%s is not modelled with version 1 of fsdp", x.what)
		}
	}
	for _, o := range job.Optimizers {
		if (len(o.Groups) > 0 || len(o.Params) > 0) && !f.Flat.Orig && !j.Spec.Trainer.OfTransformers() { // whose patterns fit no flat parameter
			j.fail(s.Version.At, "patterns of an optimizer's parameters are not modelled with version 1 of fsdp, whose flat parameters have other names; use_orig_params: true keeps those of the model")
		}
	}
}
