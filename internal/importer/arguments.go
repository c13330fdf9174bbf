package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
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
		panic(spec.Stop{})
	}
	j.put("model.task", "causal-lm", nil)
	j.put("model.with.mask", "ones", nil)
	if !slices.ContainsFunc(j.opts.Set, func(s string) bool { return strings.HasPrefix(s, "model.load") || strings.HasPrefix(s, "model.dtype=") }) {
		j.loads()
	}
	if j.out.get("trainer") == nil {
		j.put("trainer."+j.format.Trainer, "", nil)
	}
	j.argumentsEvaluate()
}

// loads writes how the program reads a model that it is named: from_pretrained of
// transformers 5 in the checkpoint's type, SFTTrainer (create_model_from_path of
// trl/trainer/utils.py) in float32 to the GPU.
func (j *job) loads() {
	dtype := "auto"
	if j.format.Trainer == "sft" {
		dtype = "float32"
		j.put("model.load.device_map", "auto", nil)
	}
	j.put("model.load.dtype", dtype, nil)
	j.assume(nil, "weights are loaded as the program does by default, with dtype %s (--set model.load.dtype=TYPE)", dtype)
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
		at := j.get("eval_strategy")
		if at == nil {
			at = j.get("evaluation_strategy")
		}
		j.evaluation(at, stringOf(evalBatches*n))
	}
}

// length says that sequences have as many tokens as a key allows.
func (j *job) length(key string, otherwise int64) {
	j.sequences(sequences{key: key, most: j.count(key, otherwise), multiple: 1})
}

// sequences is how long the sequences of a batch are.
type sequences struct {
	key      string // of the file, which says how long samples are at most
	most     int64
	more     int64       // tokens that the program adds
	multiple int64       // that batches are padded to
	full     string      // why every batch has the most tokens; "": the longest sample decides
	at       *spec.Value // that says so
}

// sequences writes the param seq: what the file allows, unless the command line gives the
// lengths of samples.
func (j *job) sequences(s sequences) {
	up := roundUp(s.most+s.more, s.multiple)
	text := stringOf(up)
	switch {
	case j.opts.Lengths && s.full != "":
		j.fail(s.at, "--lengths has no effect: %s", s.full)
	case j.opts.Lengths:
		grouped := j.on("group_by_length") || j.str("train_sampling_strategy", "") == "group_by_length"
		text = fmt.Sprintf("{max: %d, pad_to_multiple_of: %d, group_by_length: %v}", s.most, s.multiple, grouped)
	default:
		switch {
		case s.more > 0:
			j.assume(j.get(s.key), "sequences have %d tokens: those of %s, %d that are added, and padding to a multiple of %d", up, s.key, s.more, s.multiple)
		case up != s.most:
			j.assume(j.get(s.key), "%s %d, as batches are padded to a multiple of %d", s.key, up, s.multiple)
		}
		if s.full != "" {
			j.assume(s.at, "%s", s.full)
		} else {
			j.assume(j.get(s.key), "every sample has %s tokens; memory is less where samples are shorter (--lengths)", s.key)
		}
	}
	j.keys["params.seq"] = s.key
	j.out.put("params.seq", text, j.where(s.key))
	j.put("model.with.seq", `"${seq}"`, nil)
}
