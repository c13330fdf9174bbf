package importer

import (
	"slices"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trainer"
)

// The configuration that accelerate config writes (accelerate 1.14, ClusterConfig).
var accelerate = &Format{
	Name: "accelerate", Title: "accelerate's configuration", Beside: true,
	Signs:  [][]string{{"distributed_type", "num_processes"}, {"compute_environment"}, {"distributed_type", "mixed_precision"}},
	Unless: []string{"model_name_or_path", "base_model"},
	Keys: slices.Concat(
		table(reads, "`parallel`", "distributed_type num_processes fsdp_config deepspeed_config"),
		table(reads, "`trainer.hf.bf16` or `fp16`, where the job's file has neither", "mixed_precision"),
		table(none, "which machines and processes run the job; num_processes counts them all", "compute_environment machine_rank num_machines gpu_ids main_process_ip main_process_port rdzv_backend same_network main_training_function enable_cpu_affinity mpirun_config debug"),
		table(none, "TPUs", "downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_env tpu_vm command_file commands"),
		table(asks, "training on the CPU", "use_cpu"),
		table(asks, "compiled graphs; "+trainer.EagerMode, "dynamo_config"),
		table(asks, "FP8", "fp8_config"),
		table(asks, "a mesh of several kinds of parallelism", "parallelism_config"),
		table(asks, "Megatron-LM", "megatron_lm_config"),
		table(asks, "KTransformers", "kt_config"),
	),
}

// DeepSpeed's configuration beside the file of a job.
var deepSpeed = &Format{
	Name: "deepspeed", Title: "DeepSpeed's configuration", Beside: true,
	Signs:  [][]string{{"zero_optimization"}, {"train_micro_batch_size_per_gpu"}},
	Unless: []string{"model_name_or_path", "base_model"},
}

// mixed reports whether the job's file asks for mixed precision itself.
func (j *job) mixed() bool {
	t := j.out.get("trainer." + j.format.Trainer)
	return t != nil && (t.get("bf16") != nil || t.get("fp16") != nil)
}

// launched reads the configuration of accelerate; world is how many processes the
// command line says, 0 if it does not.
func (f *file) launched(j *job, s *sharding, world int64) int64 {
	f.table(j, f.doc.Root, f.format, "")
	switch f.oneOf("distributed_type", "NO", "NO", "MULTI_GPU", "FSDP", "DEEPSPEED", "MULTI_CPU", "XLA", "MEGATRON_LM", "MULTI_NPU", "MULTI_XPU") {
	case "FSDP":
		s.fsdp, s.of = f.get("fsdp_config"), f
		if s.fsdp == nil {
			s.fsdp = f.get("distributed_type")
		}
	case "DEEPSPEED":
		s.deepspeed, s.of = f.get("deepspeed_config"), f
		if s.deepspeed == nil {
			s.deepspeed = f.get("distributed_type")
		} else if v := s.deepspeed.Get("deepspeed_config_file"); v != nil {
			s.deepspeed = v
		}
	case "NO":
		if world == 0 {
			world = 1
		}
	case "MULTI_GPU":
	default:
		f.fail(f.get("distributed_type"), "distributed_type %s is not modelled; memplan plans NO, MULTI_GPU, FSDP and, without its sharding, DEEPSPEED", f.str("distributed_type", ""))
	}
	if v := f.get("mixed_precision"); v != nil && v.Kind == spec.Str {
		if key := v.Str; (key == "bf16" || key == "fp16") && !j.mixed() {
			j.out.put("trainer."+j.format.Trainer+"."+key, "true", f.from(v))
		}
	}
	if world == 0 {
		world = f.count("num_processes", 1)
	}
	return world
}
