package techniques

import (
	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// DeepSpeedTypes are the types that DeepSpeed's configuration names.
var DeepSpeedTypes = map[string]tensor.DType{"fp32": tensor.Float32, "fp16": tensor.Float16, "bf16": tensor.BFloat16}

// DeepSpeedType is the type of the parameters under a configuration.
func DeepSpeedType(c *spec.DeepSpeed) tensor.DType {
	switch {
	case c.FP16.Enabled.V:
		return tensor.Float16
	case c.BF16.Enabled.V:
		return tensor.BFloat16
	}
	return tensor.Float32
}

// deepSpeed reads what DeepSpeed's engine is configured with, and refuses what does not go
// with it.
func (j *Job) deepSpeed(s *spec.Parallel) {
	c := j.DeepSpeed
	p := &j.Job.Parallel
	p.Ranks = s.DeepSpeedRanks()
	at := s.DeepSpeed.Span
	d := &program.DeepSpeed{
		Trainer: j.Spec.Trainer != nil,
		Rank:    s.Rank.V, Stage: c.Zero.Stage.V, DType: DeepSpeedType(c), Accumulation: j.Spec.Train.GradAccumulation.V, Clip: c.Clip.V,
		ReduceBucket: int64(c.Zero.ReduceBucket.V), Overlap: c.Zero.Overlap.V, Contiguous: c.Zero.Contiguous.V,
		ReduceScatter: c.Zero.ReduceScatter.V, MultiRank: c.Zero.MultiRank.V, RoundRobin: c.Zero.RoundRobin.V,
		CheckOverflow: c.FP16.Enabled.V || c.BF16.Enabled.V && c.BF16.Overflow.V,
	}
	if o := c.Zero.OffloadOptim; o.ToHost() {
		d.Offload, d.Pinned, d.Contiguous = true, o.Pin.V, true
		if c.ForceCPU.V && !d.Trainer { // accelerate puts DeepSpeedCPUAdam in its place
			c.Fail(j.Spec.Errs, o.At, "offload_optimizer with an optimizer of the job's own, which DeepSpeed refuses unless zero_force_ds_cpu_optimizer is false")
		}
	}
	d.Accum, d.Comm = d.DType, d.DType
	if c.Types.GradAccum.Set {
		d.Accum = DeepSpeedTypes[c.Types.GradAccum.V]
	}
	if c.Comm.Set {
		d.Comm = DeepSpeedTypes[c.Comm.V]
	}
	if d.Trainer && c.AutoBucket {
		d.ReduceBucket = j.squareOfHidden(at, "reduce_bucket_size")
	}
	z := &c.Zero
	d.Stage3 = program.ZeRO3{
		SubGroup: int64(z.SubGroup.V), Prefetch: int64(z.Prefetch.V), Persist: int64(z.Persist.V), AllStays: int64(z.PersistAll.V),
		MaxLive: int64(z.MaxLive.V), MaxReuse: int64(z.MaxReuse.V), AllReduce: z.AllReduce.V, Sequential: z.Sequential.V, OwnLinear: z.OwnLinear.V,
	}
	if d.Trainer && c.AutoPrefetch {
		d.Stage3.Prefetch = j.squareOfHidden(at, "stage3_prefetch_bucket_size") * 9 / 10
	}
	if z.Sequential.V { // DeepSpeed says so in its log
		d.Stage3.Prefetch = 1
	}
	if d.Trainer && c.AutoPersist {
		d.Stage3.Persist = 10 * j.hidden(at, "stage3_param_persistence_threshold")
	}
	if d.Stage == 3 && d.Offload {
		c.Fail(j.Spec.Errs, c.Zero.OffloadOptim.At, "offload_optimizer is not modelled with stage 3 of ZeRO")
	}
	if o := z.OffloadParam; d.Stage == 3 && o != nil && o.Device.V != "none" {
		c.Fail(j.Spec.Errs, o.At, "offload_param is not modelled")
	}
	d.Config = deepSpeedConfig(c, d, j.Batch)
	if s.Rank.V >= p.Ranks {
		j.fail(s.Rank.At, "rank is the number of a process, from 0 to %d", p.Ranks-1)
	}
	if len(j.Models) > 1 {
		j.fail(at, "deepspeed of several models is not modelled; this job has %s", spec.Plural(len(j.Models), "model"))
	}
	m, job := j.Job.Models[0], j.Job
	if m.Adapters != nil {
		d.Stage3.Around = 1 // PeftModel and its tuner are called; the latter calls the forward of the model
	}
	for _, x := range []struct {
		what  string
		given bool
	}{
		{"offload", job.Offload != program.Offload{}},
		{"an adapter that is not peft: {lora: ...} under a trainer, with stage 3 of ZeRO in a model with load,", m.Adapters != nil && (!d.Trainer || d.Stage == 3 && m.Loaded == nil || j.Spec.PEFT == nil || j.Spec.PEFT.LoRA == nil || len(m.Adapters.Kernels) > 0)},
		{"quantize", m.Quantized != nil},
		{"prune", m.Pruned != nil},
		{"load of quantized weights", m.Loaded != nil && (m.Loaded.Quantize || m.Loaded.Stored)},
		{"train.ema", job.EMA != nil},
		{"train.channels_last", job.ChannelsLast},
		{"train.precision of autocast", job.Autocast},
		{"optimizer_in_backward", job.InBackward},
		{"train.clip_grad_norm (gradient_clipping of the configuration is)", j.Spec.Train.ClipGradNorm.Set},
		{"train.clip_grad_value", j.Spec.Train.ClipGradValue.Set},
		{"step", j.Spec.Step != nil},
		{"a trainer but hf and sft", d.Trainer && j.Spec.Trainer.HF == nil && j.Spec.Trainer.SFT == nil},
		{"train.compile", m.Compiled != nil},
		{"several optimizers", len(job.Optimizers) > 1},
		{"an eval: of other sizes", job.Eval != nil && job.Eval.IsApart(m.Name)},
	} {
		if x.given {
			j.fail(at, "%s is not modelled with parallel.deepspeed", x.what)
		}
	}
	if d.Stage == 3 && m.Loaded != nil && m.Loaded.OnDevice {
		j.fail(at, "transformers refuses device_map with stage 3 of ZeRO, which divides the weights while they are loaded; leave device_map out of load")
	}
	m.Root.Walk(func(path string, c *program.Class) {
		if c.Flat != 0 {
			j.fail(at, "%s is %s, which copies its weights to one buffer when they are not in one; that is not modelled with parallel.deepspeed", path, c.Describe())
		}
	})
	for _, o := range job.Optimizers {
		switch {
		case o.Row.Closure, o.Row.Eager, o.Row.Whole != nil:
			j.fail(at, "%s is not modelled with parallel.deepspeed", o.Row.Name)
		case !o.Row.Zero && !c.Untested.V && !d.Trainer: // transformers lets it pass
			j.fail(at, "%s is an optimizer that DeepSpeed calls untested, and refuses; zero_allow_untested_optimizer: true in its configuration lets it pass", o.Row.Name)
		}
	}
	p.DeepSpeed = d
	if d.Stage == 3 {
		j.divided(m)
	}
	j.Spec.Train.Precision.V = map[tensor.DType]string{tensor.Float32: "fp32", tensor.BFloat16: "bf16", tensor.Float16: "fp16"}[d.DType] // for readers
}

// divided says where recordings of stage 3 differ from what is planned.
func (j *Job) divided(m *program.Model) {
	warn := func(text string) {
		*j.Warnings = append(*j.Warnings, note.Divided.New("parallel.deepspeed: %s", text).Of("parallel.deepspeed"))
	}
	if on, _ := j.Models[0].Params.Lookup(hf.GradientCheckpointing); (on == true || j.Spec.Train.Checkpoint != nil) && j.Spec.PEFT != nil {
		warn("stage 3 frees frozen weights in checkpointed layers a little earlier than is planned")
	}
	if m.Loaded != nil {
		warn("how stage 3 divides a model while it is loaded is recorded with Llama, Qwen2 and GPT-2; models with other buffers, or with parameters outside of layers (BERT, T5, Gemma 2, ViT), differ a little")
	}
}

// squareOfHidden is what "auto" means for the size of a bucket: the square of the model's
// hidden_size (trainer_config_finalize).
func (j *Job) squareOfHidden(at spec.Span, key string) int64 {
	n := j.hidden(at, key)
	return n * n
}

// hidden is the model's hidden_size, from which "auto" follows.
func (j *Job) hidden(at spec.Span, key string) int64 {
	for _, name := range []string{"hidden_size", "n_embd", "d_model", "dim"} {
		if v, ok := j.Models[0].Params.Lookup(name); ok {
			if n, ok := v.(int64); ok {
				return n
			}
		}
	}
	j.fail(at, "%s: auto follows from hidden_size, which the configuration of the model does not have; write a number", key)
	return 0
}

// deepSpeedConfig is the configuration that a script prints.
func deepSpeedConfig(c *spec.DeepSpeed, d *program.DeepSpeed, batch int64) []program.KwArg {
	var out []program.KwArg
	add := func(to *[]program.KwArg, name string, set bool, v any) {
		if set {
			*to = append(*to, program.KwArg{Name: name, Value: v})
		}
	}
	z := &c.Zero
	zero := []program.KwArg{{Name: "stage", Value: z.Stage.V}}
	add(&zero, "contiguous_gradients", z.Contiguous.Set, z.Contiguous.V)
	add(&zero, "reduce_scatter", z.ReduceScatter.Set, z.ReduceScatter.V)
	add(&zero, "reduce_bucket_size", z.ReduceBucket.Set || c.AutoBucket, d.ReduceBucket)
	add(&zero, "use_multi_rank_bucket_allreduce", z.MultiRank.Set, z.MultiRank.V)
	add(&zero, "allgather_bucket_size", z.AllgatherBucket.Set, int64(z.AllgatherBucket.V))
	add(&zero, "overlap_comm", z.Overlap.Set, z.Overlap.V)
	if o := z.OffloadOptim; o != nil {
		offload := []program.KwArg{{Name: "device", Value: o.Device.V}}
		add(&offload, "pin_memory", o.Pin.Set, o.Pin.V)
		add(&zero, "offload_optimizer", true, offload)
	}
	for _, x := range []struct {
		name  string
		of    *spec.Number
		auto  bool
		value int64
	}{
		{"sub_group_size", &z.SubGroup, false, d.Stage3.SubGroup},
		{"stage3_prefetch_bucket_size", &z.Prefetch, c.AutoPrefetch, d.Stage3.Prefetch},
		{"stage3_param_persistence_threshold", &z.Persist, c.AutoPersist, d.Stage3.Persist},
		{"stage3_model_persistence_threshold", &z.PersistAll, false, d.Stage3.AllStays},
		{"stage3_max_live_parameters", &z.MaxLive, false, d.Stage3.MaxLive},
		{"stage3_max_reuse_distance", &z.MaxReuse, false, d.Stage3.MaxReuse},
	} {
		add(&zero, x.name, x.of.Set || x.auto, x.value)
	}
	add(&zero, "stage3_use_all_reduce_for_fetch_params", z.AllReduce.Set, z.AllReduce.V)
	add(&zero, "stage3_allgather_sequential", z.Sequential.Set, z.Sequential.V)
	add(&zero, "memory_efficient_linear", z.OwnLinear.Set, z.OwnLinear.V)
	add(&zero, "round_robin_gradients", z.RoundRobin.Set, z.RoundRobin.V)
	out = append(out, program.KwArg{Name: "train_micro_batch_size_per_gpu", Value: batch}, program.KwArg{Name: "gradient_accumulation_steps", Value: d.Accumulation})
	out = append(out, program.KwArg{Name: "zero_optimization", Value: zero})
	bf16 := []program.KwArg{{Name: "enabled", Value: true}}
	add(&bf16, "check_grad_overflow", c.BF16.Overflow.Set, c.BF16.Overflow.V)
	add(&out, "bf16", c.BF16.Enabled.V, bf16)
	add(&out, "fp16", c.FP16.Enabled.V, []program.KwArg{{Name: "enabled", Value: true}})
	add(&out, "gradient_clipping", c.Clip.Set, c.Clip.V)
	add(&out, "communication_data_type", c.Comm.Set, c.Comm.V)
	add(&out, "gradient_predivide_factor", c.Predivide.Set, c.Predivide.V)
	add(&out, "data_types", c.Types.GradAccum.Set, []program.KwArg{{Name: "grad_accum_dtype", Value: c.Types.GradAccum.V}})
	add(&out, "zero_force_ds_cpu_optimizer", c.ForceCPU.Set, c.ForceCPU.V)
	add(&out, "zero_allow_untested_optimizer", c.Untested.Set, c.Untested.V)
	return out
}
