package importer

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/trainer"
)

// withArguments adds to the rows of a format those of TrainingArguments that reach no
// memory. The others are written as they are.
func withArguments(own []Key) []Key {
	out := slices.Clone(own)
	for _, a := range trainer.HF.Arguments {
		if a.Reach == trainer.Nothing && !slices.ContainsFunc(own, func(k Key) bool { return k.Name == a.Name }) {
			out = append(out, Key{a.Name, none, a.Why})
		}
	}
	return out
}

// A JSON of TrainingArguments, and one of TRL's SFTConfig, as Trainers save them.
var trainingArguments = &Format{
	Name: "training-arguments", Title: "TrainingArguments",
	Signs:  [][]string{{"per_device_train_batch_size"}, {"output_dir", "num_train_epochs"}, {"output_dir", "learning_rate"}, {"output_dir", "gradient_accumulation_steps"}},
	Unless: slices.Concat(jobKeys, sftKeys),
	Keys:   withArguments(table(reads, "`parallel`", "deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb")), Trainer: "hf", Passes: true, Names: sameNames(lfChanged + " gradient_checkpointing"),
	read: (*job).arguments,
}

var sftConfig = &Format{
	Name: "sft-config", Title: "SFTConfig",
	Signs: oneEach(sftKeys), Unless: jobKeys,
	Keys: withArguments(slices.Concat(table(reads, "`params.seq`, the sequence length", "max_length max_seq_length"), sftData,
		table(reads, "`parallel`", "deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb"))), Trainer: "sft", Passes: true, Names: sameNames(lfChanged + " gradient_checkpointing"),
	read: (*job).sft,
}

// jobKeys are keys that name a model or the program, which files of arguments do not.
var jobKeys = []string{"model_name_or_path", "base_model", "memplan", "model", "distributed_type", "zero_optimization", "model_type"}

// sftKeys are arguments of SFTConfig that TrainingArguments do not have.
var sftKeys = strings.Fields("max_length max_seq_length packing packing_strategy padding_free completion_only_loss assistant_only_loss dataset_text_field dataset_num_proc eval_packing chat_template_path activation_offloading")

// sftData are arguments of SFTConfig that reach no memory.
var sftData = table(none, ofData, "dataset_text_field dataset_kwargs dataset_num_proc shuffle_dataset truncation_mode chat_template_path eos_token pad_token trust_remote_code")

// sameNames are arguments that a file has under their own names.
func sameNames(names string) map[string]string {
	out := map[string]string{}
	for _, n := range strings.Fields(names) {
		out[n] = n
	}
	return out
}

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
		n := j.count("per_device_eval_batch_size", 8)
		if j.pairs {
			n *= 2
		}
		j.evaluation(n)
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
