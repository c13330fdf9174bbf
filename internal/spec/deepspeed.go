package spec

import (
	"fmt"
	"slices"
	"strings"
)

// DeepSpeed is the configuration of DeepSpeed's engine, by the keys and with the defaults of its
// JSON (deepspeed/runtime/config.py, zero/config.py and precision_config.py of 0.19): those
// that reach memory. DeepSpeedKeys lists the others.
type DeepSpeed struct {
	// these sizes are "auto": reduce_bucket_size, stage3_prefetch_bucket_size and
	// stage3_param_persistence_threshold
	AutoBucket, AutoPrefetch, AutoPersist bool `yaml:"-"`

	File  string `yaml:"-"` // that it was read from; "": it is in the spec
	Named Span   `yaml:"-"` // where the spec names the file

	TrainBatch   Integer        `yaml:"train_batch_size" min:"1"`
	MicroBatch   Integer        `yaml:"train_micro_batch_size_per_gpu" min:"1"`
	Accumulation Integer        `yaml:"gradient_accumulation_steps" min:"1" default:"1"`
	Clip         Number         `yaml:"gradient_clipping" min:"0" default:"1"`
	Zero         DeepSpeedZero  `yaml:"zero_optimization"`
	BF16         DeepSpeedBF16  `yaml:"bf16" also:"bfloat16"`
	FP16         DeepSpeedFP16  `yaml:"fp16"`
	Types        DeepSpeedTypes `yaml:"data_types"`
	Comm         String         `yaml:"communication_data_type" enum:"fp32|fp16|bf16" words:"fp32: fp32|float32: fp32|float16: fp16|half: fp16|bfloat16: bf16"`
	Predivide    Number         `yaml:"gradient_predivide_factor" default:"1"`
	Untested     Boolean        `yaml:"zero_allow_untested_optimizer" default:"false"`
	ForceCPU     Boolean        `yaml:"zero_force_ds_cpu_optimizer" default:"true"`
	Optimizer    *Value         `yaml:"optimizer"`
}

// Fail reports a mistake at a place of the configuration, in the errors of the spec, and
// ends what is under way.
func (c *DeepSpeed) Fail(errs *Errors, at Span, format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	if c.File != "" {
		msg = fmt.Sprintf("%s:%d:%d: %s", c.File, at.Line, at.Col, msg)
		at = c.Named
	}
	errs.Failf(at, "%s", msg)
}

// DeepSpeedZero is zero_optimization. Numbers of elements may be written as 5e8.
type DeepSpeedZero struct {
	Stage           Integer           `yaml:"stage" min:"0" max:"3" default:"0"`
	Contiguous      Boolean           `yaml:"contiguous_gradients" default:"true"`
	ReduceScatter   Boolean           `yaml:"reduce_scatter" default:"true"`
	ReduceBucket    Number            `yaml:"reduce_bucket_size" min:"0" max:"1e15" default:"5e8"`
	MultiRank       Boolean           `yaml:"use_multi_rank_bucket_allreduce" default:"true"`
	AllgatherBucket Number            `yaml:"allgather_bucket_size" min:"0" max:"1e15" default:"5e8"`
	Overlap         Boolean           `yaml:"overlap_comm"`
	RoundRobin      Boolean           `yaml:"round_robin_gradients" default:"false"`
	OffloadOptim    *DeepSpeedOffload `yaml:"offload_optimizer"`
	OffloadParam    *DeepSpeedOffload `yaml:"offload_param"`

	// of stage 3
	SubGroup   Number  `yaml:"sub_group_size" min:"0" max:"1e18" default:"1e9"`
	Prefetch   Number  `yaml:"stage3_prefetch_bucket_size" min:"0" max:"1e18" default:"5e7"`
	Persist    Number  `yaml:"stage3_param_persistence_threshold" min:"0" max:"1e18" default:"1e5"`
	PersistAll Number  `yaml:"stage3_model_persistence_threshold" min:"0" max:"1e18" default:"1e18"`
	MaxLive    Number  `yaml:"stage3_max_live_parameters" min:"0" max:"1e18" default:"1e9"`
	MaxReuse   Number  `yaml:"stage3_max_reuse_distance" min:"0" max:"1e18" default:"1e9"`
	AllReduce  Boolean `yaml:"stage3_use_all_reduce_for_fetch_params" default:"false"`
	Sequential Boolean `yaml:"stage3_allgather_sequential" default:"false"`
	OwnLinear  Boolean `yaml:"memory_efficient_linear" default:"true"`
}

// DeepSpeedOffload is offload_optimizer or offload_param.
type DeepSpeedOffload struct {
	At     Span    `yaml:"-"`
	Device String  `yaml:"device" enum:"none|cpu|nvme" default:"none"`
	Pin    Boolean `yaml:"pin_memory" default:"true"`
}

// ToHost reports whether it says cpu.
func (o *DeepSpeedOffload) ToHost() bool { return o != nil && o.Device.V == "cpu" }

// DeepSpeedBF16 is bf16.
type DeepSpeedBF16 struct {
	Enabled  Boolean `yaml:"enabled" default:"false"`
	Overflow Boolean `yaml:"check_grad_overflow" default:"true"`
}

// DeepSpeedFP16 is fp16.
type DeepSpeedFP16 struct {
	Enabled Boolean `yaml:"enabled" default:"false"`
}

// DeepSpeedTypes is data_types.
type DeepSpeedTypes struct {
	GradAccum String `yaml:"grad_accum_dtype" enum:"fp32|fp16|bf16" words:"float32: fp32|float16: fp16|half: fp16|bfloat16: bf16"`
}

// A DeepSpeedKey is a key of DeepSpeed's configuration that is not in the struct DeepSpeed.
type DeepSpeedKey struct {
	Path string // keys joined by dots
	// Left says that what the key asks for is not modelled; of others Why says why they do not
	// reach the memory of the job's GPU.
	Left bool
	Why  string
	// Harmless are the values with which the key asks for nothing.
	Harmless string
}

// DeepSpeedKeys lists the keys that DeepSpeed's engine is not played by, in the order of the documentation.
func DeepSpeedKeys() []DeepSpeedKey { return slices.Clone(deepSpeedKeys) }

var deepSpeedKeys = []DeepSpeedKey{
	{Path: "scheduler", Why: "the learning rate is a number of the host"},
	{Path: "steps_per_print", Why: "what is logged"},
	{Path: "wall_clock_breakdown", Why: "what is logged"},
	{Path: "memory_breakdown", Why: "what is logged"},
	{Path: "dump_state", Why: "what is logged"},
	{Path: "log_level", Why: "what is logged"},
	{Path: "tensorboard", Why: "what is logged"},
	{Path: "wandb", Why: "what is logged"},
	{Path: "comet", Why: "what is logged"},
	{Path: "csv_monitor", Why: "what is logged"},
	{Path: "comms_logger", Why: "what is logged"},
	{Path: "timers", Why: "what is logged"},
	{Path: "flops_profiler", Why: "what is counted of one step"},
	{Path: "prescale_gradients", Why: "gradients are divided in place, before they are reduced or after"},
	{Path: "gradient_allreduce_op", Why: "gradients are divided in place, or not"},
	{Path: "dataloader_drop_last", Why: "the batches are those of the spec"},
	{Path: "checkpoint", Why: "how checkpoints are written"},
	{Path: "nebula", Why: "how checkpoints are written"},
	{Path: "load_universal_checkpoint", Why: "how checkpoints are read"},
	{Path: "use_node_local_storage", Why: "how checkpoints are written"},
	{Path: "aio", Why: "how disks are read and written"},
	{Path: "disable_allgather", Why: "read by no ZeRO optimizer of 0.19"},
	{Path: "activation_checkpointing", Why: "only deepspeed.checkpointing.checkpoint reads it, which a model must call itself"},
	{Path: "amp", Left: true, Why: "Apex", Harmless: "false"},
	{Path: "torch_autocast", Left: true, Why: "autocast by DeepSpeed", Harmless: "false"},
	{Path: "sparse_gradients", Left: true, Why: "gradients of embeddings as rows and indices", Harmless: "false"},
	{Path: "managed_gradient_accumulation", Left: true, Why: "accumulation that the caller ends", Harmless: "true"},
	{Path: "tensor_parallel", Left: true, Why: "parameters that are divided within layers"},
	{Path: "autotuning", Left: true, Why: "trial runs", Harmless: "false"},
	{Path: "elasticity", Left: true, Why: "batches that depend on the number of processes", Harmless: "false"},
	{Path: "compression_training", Left: true, Why: "quantization and pruning while training"},
	{Path: "quantize_training", Left: true, Why: "quantization while training"},
	{Path: "weight_quantization", Left: true, Why: "weights in fewer bits"},
	{Path: "data_efficiency", Left: true, Why: "samples of changing length", Harmless: "false"},
	{Path: "curriculum_learning", Left: true, Why: "samples of changing length", Harmless: "false"},
	{Path: "progressive_layer_drop", Left: true, Why: "layers that are left out at random", Harmless: "false"},
	{Path: "eigenvalue", Left: true, Why: "second derivatives", Harmless: "false"},
	{Path: "hybrid_engine", Left: true, Why: "generation between steps", Harmless: "false"},
	{Path: "pipeline", Left: true, Why: "pipeline stages"},
	{Path: "compile", Left: true, Why: "DeepCompile"},
	{Path: "seq_parallel_communication_data_type", Left: true, Why: "sequence parallelism"},
	{Path: "graph_harvesting", Left: true, Why: "CUDA graphs", Harmless: "false"},
	{Path: "use_data_before_expert_parallel", Left: true, Why: "expert parallelism", Harmless: "false"},
	{Path: "expert_parallel", Left: true, Why: "expert parallelism", Harmless: "false"},

	{Path: "zero_optimization.allgather_partitions", Why: "read by no ZeRO optimizer of 0.19"},
	{Path: "zero_optimization.load_from_fp32_weights", Why: "how checkpoints are read"},
	{Path: "zero_optimization.elastic_checkpoint", Why: "how checkpoints are written"},
	{Path: "zero_optimization.ignore_unused_parameters", Why: "whether parameters without gradients are refused"},
	{Path: "zero_optimization.legacy_stage1", Why: "refused by DeepSpeed since 0.5.9"},
	{Path: "zero_optimization.stage3_gather_16bit_weights_on_model_save", Why: "how checkpoints are written"},
	{Path: "zero_optimization.stage3_gather_fp16_weights_on_model_save", Why: "how checkpoints are written"},
	{Path: "zero_optimization.stage3_module_granularity_threshold", Left: true, Why: "modules whose parameters are gathered as one", Harmless: "0"},
	{Path: "zero_optimization.override_module_apply", Why: "how models are initialized"},
	{Path: "zero_optimization.log_trace_cache_warnings", Why: "what is logged"},
	{Path: "zero_optimization.pipeline_loading_checkpoint", Why: "how checkpoints are read"},
	{Path: "zero_optimization.enable_sanity_checks", Why: "what is compared between processes"},
	{Path: "zero_optimization.zero_hpz_partition_size", Left: true, Why: "ZeRO++", Harmless: "1"},
	{Path: "zero_optimization.zero_quantized_weights", Left: true, Why: "ZeRO++", Harmless: "false"},
	{Path: "zero_optimization.zero_quantized_nontrainable_weights", Left: true, Why: "ZeRO++", Harmless: "false"},
	{Path: "zero_optimization.zero_quantized_gradients", Left: true, Why: "ZeRO++", Harmless: "false"},
	{Path: "zero_optimization.zeropp_loco_param", Left: true, Why: "ZeRO++"},
	{Path: "zero_optimization.mics_shard_size", Left: true, Why: "MiCS", Harmless: "-1"},
	{Path: "zero_optimization.mics_hierarchical_params_gather", Left: true, Why: "MiCS", Harmless: "false"},
	{Path: "zero_optimization.zenflow", Left: true, Why: "ZenFlow"},
	{Path: "zero_optimization.leaf_module", Left: true, Why: "modules whose parameters are gathered as one"},
	{Path: "zero_optimization.cpu_offload", Left: true, Why: "the old name of offload_optimizer", Harmless: "false"},
	{Path: "zero_optimization.cpu_offload_param", Left: true, Why: "the old name of offload_param", Harmless: "false"},
	{Path: "zero_optimization.cpu_offload_use_pin_memory", Why: "where host memory is taken from"},

	{Path: "bf16.immediate_grad_update", Why: "of BF16_Optimizer, which is not modelled", Harmless: "false"},
	{Path: "bf16.bf16_master_weights_and_grads", Left: true, Why: "master weights of 16 bits", Harmless: "false"},
	{Path: "bf16.bf16_optimizer_states", Left: true, Why: "optimizer states of 16 bits", Harmless: "false"},
	{Path: "fp16.auto_cast", Left: true, Why: "inputs that the engine converts", Harmless: "false"},
	{Path: "fp16.fp16_master_weights_and_grads", Left: true, Why: "master weights of 16 bits", Harmless: "false"},
	{Path: "fp16.loss_scale", Why: "the scale is a number of the host"},
	{Path: "fp16.initial_scale_power", Why: "the scale is a number of the host"},
	{Path: "fp16.loss_scale_window", Why: "the scale is a number of the host"},
	{Path: "fp16.hysteresis", Why: "the scale is a number of the host"},
	{Path: "fp16.consecutive_hysteresis", Why: "the scale is a number of the host"},
	{Path: "fp16.min_loss_scale", Why: "the scale is a number of the host"},
	{Path: "data_types.param_dtype", Why: "it must be that of bf16 or fp16"},
	{Path: "data_types.buffer_dtype", Left: true, Why: "buffers of another type"},
	{Path: "zero_optimization.offload_optimizer.nvme_path", Why: "where disks are"},
	{Path: "zero_optimization.offload_optimizer.buffer_count", Why: "of disks"},
	{Path: "zero_optimization.offload_optimizer.pipeline_read", Why: "of disks"},
	{Path: "zero_optimization.offload_optimizer.pipeline_write", Why: "of disks"},
	{Path: "zero_optimization.offload_optimizer.fast_init", Why: "of disks"},
	{Path: "zero_optimization.offload_optimizer.ratio", Why: "of stage 3"},
	{Path: "zero_optimization.offload_optimizer.super_offload", Why: "of stage 3"},
	{Path: "zero_optimization.offload_optimizer.cpuadam_cores_perc", Why: "of stage 3"},
	{Path: "zero_optimization.offload_param.nvme_path", Why: "where disks are"},
	{Path: "zero_optimization.offload_param.buffer_count", Why: "of disks"},
	{Path: "zero_optimization.offload_param.buffer_size", Why: "of disks"},
	{Path: "zero_optimization.offload_param.max_in_cpu", Why: "of disks"},
}

// ReadDeepSpeed reads a configuration that stands in the spec, or in a file with these
// mistakes. Left are the keys that ask for what is not modelled. Values "auto", which a
// trainer fills in, are taken from auto, by the paths of the keys; without one there they
// are mistakes.
func ReadDeepSpeed(root *Value, errs *Errors, env Env, auto map[string]*Value) (c *DeepSpeed, left []DeepSpeedKey) {
	c = &DeepSpeed{}
	if env == nil {
		env = &paramEnv{}
	}
	root = root.clone()
	var strip func(v *Value, path string)
	strip = func(v *Value, path string) {
		if v == nil || v.Kind != Map {
			return
		}
		v.Pairs = slices.DeleteFunc(v.Pairs, func(p Pair) bool {
			at := path + p.Key.Str
			if i := slices.IndexFunc(deepSpeedKeys, func(k DeepSpeedKey) bool { return k.Path == at }); i >= 0 {
				if k := deepSpeedKeys[i]; k.Left && p.Value.Kind != Null && !p.Value.harmless(k.Harmless) {
					left = append(left, k)
				}
				return true
			}
			return p.Value.Kind == Null
		})
		for i := range v.Pairs {
			p := &v.Pairs[i]
			at := path + p.Key.Str
			if p.Value.Kind == Str && p.Value.Str == "auto" {
				if x := auto[at]; x != nil {
					y := *x
					y.Span = p.Value.Span
					p.Value = &y
				} else if auto == nil {
					errs.Addf(p.Value.Span, "%s: auto is what a trainer fills in; this job has none: write a value", at)
				}
			}
			strip(p.Value, at+".")
		}
		v.Pairs = slices.DeleteFunc(v.Pairs, func(p Pair) bool {
			is := p.Value.Kind == Str && p.Value.Str == "auto"
			switch at := path + p.Key.Str; {
			case !is:
			case at == "zero_optimization.reduce_bucket_size":
				c.AutoBucket = true
			case at == "zero_optimization.stage3_prefetch_bucket_size":
				c.AutoPrefetch = true
			case at == "zero_optimization.stage3_param_persistence_threshold":
				c.AutoPersist = true
			}
			return is
		})
	}
	strip(root, "")
	(&decoder{errs: errs, env: env}).section(root, c, "config")
	if !c.Zero.Overlap.Set {
		c.Zero.Overlap.V = c.Zero.Stage.V == 3
	}
	z := &c.Zero
	for _, n := range []*Number{&z.ReduceBucket, &z.AllgatherBucket, &z.SubGroup, &z.Prefetch, &z.Persist, &z.PersistAll, &z.MaxLive, &z.MaxReuse} {
		if n.V != float64(int64(n.V)) {
			errs.Addf(n.At, "a number of elements is an integer, such as 5e8")
		}
	}
	return c, left
}

// harmless reports whether a value asks for nothing: it is that scalar, or a mapping whose
// key enabled is it.
func (v *Value) harmless(with string) bool {
	if v.Kind == Map {
		if with != "false" {
			return len(v.Pairs) == 0
		}
		e := v.Get("enabled")
		return e == nil || e.Kind == Bool && !e.Bool
	}
	return with != "" && strings.EqualFold(v.Str, with)
}
