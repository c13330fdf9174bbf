package importer

import (
	"slices"
	"strings"
)

// argumentKeys are the TrainingArguments that reach no memory; the others are written
// as they are (transformers 5.12, with the names of 4.51).
var argumentKeys = slices.Concat(
	table(none, ofSaves, "output_dir save_strategy save_steps save_on_each_node save_total_limit save_only_model save_safetensors enable_jit_checkpoint load_best_model_at_end metric_for_best_model greater_is_better resume_from_checkpoint restore_callback_states_from_checkpoint push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision"),
	table(none, ofLogs, "log_level log_level_replica log_on_each_node logging_dir disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id"),
	table(none, ofRate, "learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio adam_beta1 adam_beta2 adam_epsilon"),
	table(none, ofLength, "num_train_epochs max_steps"),
	table(none, ofDrawn, "seed data_seed full_determinism"),
	table(none, ofData, "ignore_data_skip remove_unused_columns dataloader_drop_last accelerator_config length_column_name train_sampling_strategy group_by_length"),
	table(none, "how FSDP wraps layers, which memplan shards one by one", "fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params"),
	table(none, "what the script does, not how", "do_eval local_rank ddp_timeout ddp_backend debug skip_memory_metrics"),
	table(none, "matrix products in TF32 take the same memory", "tf32"),
)

// A JSON of TrainingArguments, and one of TRL's SFTConfig, as Trainers save them.
var trainingArguments = &Format{
	Name: "training-arguments", Title: "TrainingArguments",
	Signs:  [][]string{{"per_device_train_batch_size"}, {"output_dir", "num_train_epochs"}, {"output_dir", "learning_rate"}, {"output_dir", "gradient_accumulation_steps"}},
	Unless: slices.Concat(jobKeys, sftKeys),
	Keys:   slices.Concat(table(reads, "`parallel`", "deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb"), argumentKeys), Trainer: "hf", Passes: true, Batch: "per_device_train_batch_size",
	read: (*job).arguments,
}

var sftConfig = &Format{
	Name: "sft-config", Title: "SFTConfig",
	Signs: oneEach(sftKeys), Unless: jobKeys,
	Keys: slices.Concat(table(reads, "`params.seq`, the sequence length", "max_length max_seq_length"), sftData,
		table(reads, "`parallel`", "deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb"), argumentKeys), Trainer: "sft", Passes: true, Batch: "per_device_train_batch_size",
	read: (*job).sft,
}

// jobKeys are keys that name a model or the program, which files of arguments do not.
var jobKeys = []string{"model_name_or_path", "base_model", "memplan", "model", "distributed_type", "zero_optimization", "model_type"}

// sftKeys are arguments of SFTConfig that TrainingArguments do not have.
var sftKeys = strings.Fields("max_length max_seq_length packing packing_strategy padding_free completion_only_loss assistant_only_loss dataset_text_field dataset_num_proc eval_packing chat_template_path activation_offloading")

// sftData are arguments of SFTConfig that reach no memory.
var sftData = table(none, ofData, "dataset_text_field dataset_kwargs dataset_num_proc shuffle_dataset truncation_mode chat_template_path eos_token pad_token trust_remote_code")

func oneEach(names []string) [][]string {
	var out [][]string
	for _, n := range names {
		out = append(out, []string{n})
	}
	return out
}

// arguments reads a file that names no model.
func (j *job) arguments() {
	if !slices.ContainsFunc(j.opts.Set, func(s string) bool { return strings.HasPrefix(s, "model.hf=") }) {
		j.doc.Errs.Addf(j.doc.Root.Span, "the file names no model; --set model.hf=NAME does, and --set model.with.seq=512 the sequence length")
		panic(stop{})
	}
	j.put("model.task", "causal-lm", nil)
	j.put("model.with.mask", "ones", nil)
	if j.out.get("trainer") == nil {
		j.put("trainer."+j.format.Trainer, "{}", nil)
	}
	j.argumentsEvaluate()
}

func (j *job) sft() {
	j.arguments()
	j.length("max_length", 1024)
}

// argumentsEvaluate plans the evaluation that eval_strategy asks for.
func (j *job) argumentsEvaluate() {
	if s := j.str("eval_strategy", j.str("evaluation_strategy", "no")); s != "no" {
		j.evaluation(j.count("per_device_eval_batch_size", 8))
	}
}

// length says that every sample has as many tokens as the file allows.
func (j *job) length(key string, otherwise int64) {
	n := j.count(key, otherwise)
	j.keys["params.seq"] = key
	j.out.put("params.seq", stringOf(n), j.where(key))
	j.put("model.with.seq", `"${seq}"`, nil)
	j.assume("every sample has %s tokens (%d); memory is less where samples are shorter", key, n)
}
