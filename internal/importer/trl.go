package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// TRL's --config for `trl sft`: ScriptArguments, SFTConfig, ModelConfig and
// DatasetMixtureConfig.
var trl = &Format{
	Name: "trl", Title: "TRL's --config",
	Signs:  [][]string{{"model_name_or_path", "dataset_name"}, {"model_name_or_path", "use_peft"}, {"model_name_or_path", "max_length"}, {"model_name_or_path", "datasets"}, {"model_name_or_path", "output_dir"}},
	Unless: append([]string{"num_generations", "max_completion_length", "reward_funcs"}, notTRL...),
	Keys: withArguments(slices.Concat(
		trlModel,
		table(reads, "`params.seq`, the sequence length", "max_length max_seq_length"),
		table(reads, "refused: preference training", "beta precompute_ref_log_probs ref_model_mixup_alpha sync_ref_model f_divergence_type"),
		table(none, ofData, "dataset_name dataset_config dataset_train_split dataset_test_split dataset_streaming datasets streaming test_split_size"),
		sftData,
	)),
	Trainer: "sft", Passes: true, Names: sameNames(lfChanged + " gradient_checkpointing"),
	read: (*job).trl,
}

// notTRL are keys of files of other programs that name a model in the same way.
var notTRL = []string{"stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "export_dir", "infer_backend", "base_model"}

// trlModel are the keys of ModelConfig, and those of TrainingArguments that spread a job.
var trlModel = slices.Concat(
	table(reads, "`model.hf`", "model_name_or_path"),
	table(reads, "`model.load`", "dtype torch_dtype load_in_8bit load_in_4bit bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage"),
	table(reads, "`model.with.attn`", "attn_implementation"),
	table(reads, "`peft.lora`", "use_peft lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters lora_modules_to_save use_rslora use_dora"),
	table(reads, "`parallel`", "deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_bucket_cap_mb"),
	table(none, ofCode, "model_revision"),
	table(none, "the class of PEFT's model", "lora_task_type"),
	table(none, "how DistributedDataParallel treats buffers", "ignore_bias_buffers"),
)

// TRL's --config for `trl grpo`, which has GRPOConfig in the place of SFTConfig.
var trlGRPO = &Format{
	Name: "trl-grpo", Title: "TRL's --config of GRPO",
	Signs:  [][]string{{"model_name_or_path", "num_generations"}, {"model_name_or_path", "max_completion_length"}, {"model_name_or_path", "reward_funcs"}},
	Unless: notTRL,
	Keys: withArguments(slices.Concat(
		trlModel,
		table(none, ofData, "dataset_name dataset_config dataset_train_split dataset_test_split dataset_streaming datasets streaming test_split_size"),
		table(none, "how completions are rewarded", "reward_funcs reward_model_name_or_path"),
	)),
	Trainer: "grpo", Passes: true, Names: sameNames(lfChanged + " gradient_checkpointing"),
	read: (*job).trlGRPO,
}

func (j *job) trl() {
	j.trlModel()
	for _, k := range []string{"beta", "precompute_ref_log_probs", "ref_model_mixup_alpha", "sync_ref_model", "f_divergence_type"} {
		if v := j.get(k); v != nil {
			j.fail(v, "%s is of TRL's preference training, which memplan does not import; it plans trl sft and trl grpo, and a spec with trainer: {dpo: {...}} is the loop of trl dpo", k)
		}
	}
	j.length(firstOf(j, "max_length", "max_seq_length"), 1024)
	if j.out.get("trainer") == nil {
		j.put("trainer.sft", "", nil)
	}
	j.argumentsEvaluate()
}

// trlModel reads the keys of ModelConfig.
func (j *job) trlModel() {
	j.model("model_name_or_path")
	j.put("model.task", "causal-lm", nil)
	key := "dtype"
	if j.get(key) == nil {
		key = "torch_dtype"
	}
	dtype := j.oneOf(key, "float32", "auto", "bfloat16", "float16", "float32")
	j.put("model.load.dtype", dtype, j.get(key))
	q := "model.load.quantization_config."
	switch {
	case j.flag("load_in_4bit", false):
		j.put(q+"load_in_4bit", "true", j.get("load_in_4bit"))
		if dtype != "auto" {
			j.put(q+"bnb_4bit_compute_dtype", dtype, j.get(key))
		}
		j.put(q+"bnb_4bit_quant_type", j.oneOf("bnb_4bit_quant_type", "nf4", "nf4", "fp4"), j.get("bnb_4bit_quant_type"))
		j.put(q+"bnb_4bit_use_double_quant", fmt.Sprint(j.flag("use_bnb_nested_quant", false)), j.get("use_bnb_nested_quant"))
		if v := j.get("bnb_4bit_quant_storage"); v != nil {
			j.set(q+"bnb_4bit_quant_storage", "bnb_4bit_quant_storage", v)
		}
	case j.flag("load_in_8bit", false):
		j.put(q+"load_in_8bit", "true", j.get("load_in_8bit"))
	}
	if j.out.get("model.load.quantization_config") != nil {
		j.put("model.load.device_map", `{"": 0}`, nil)
	} else {
		j.put("model.load.device_map", "auto", nil)
	}
	if v := j.get("attn_implementation"); v != nil {
		j.attention("attn_implementation", v, j.str("attn_implementation", ""))
	}
	j.trlAdapter()
	j.otherImages("model_name_or_path")
	j.put("model.with.mask", "ones", nil)
}

// trlGRPO reads a file of trl grpo. No key says how long prompts are.
func (j *job) trlGRPO() {
	j.trlModel()
	if !slices.ContainsFunc(j.opts.Set, func(s string) bool { return strings.HasPrefix(s, "model.with.seq=") }) {
		j.doc.Errs.Addf(j.doc.Root.Span, "no key of trl grpo says how long prompts are; --set model.with.seq=1024 is the length of a prompt with its completion")
		panic(spec.Stop{})
	}
	j.assume(j.get("max_completion_length"), "generation is not modelled")
	if v := j.get("reward_model_name_or_path"); v != nil {
		j.doubt(v, "a model that rewards completions; planned without it")
	}
	if j.out.get("trainer") == nil {
		j.put("trainer.grpo", "", nil)
	}
}

// firstOf is the first of two keys that the file has, else the first.
func firstOf(j *job, a, b string) string {
	if j.get(a) == nil && j.get(b) != nil {
		return b
	}
	return a
}

// trlAdapter writes what get_peft_config makes of ModelConfig.
func (j *job) trlAdapter() {
	if !j.flag("use_peft", false) {
		return
	}
	lora := "peft.lora."
	j.put(lora+"r", stringOf(j.count("lora_r", 16)), j.get("lora_r"))
	j.put(lora+"lora_alpha", stringOf(j.count("lora_alpha", 32)), j.get("lora_alpha"))
	if v := j.get("lora_dropout"); v != nil {
		j.set(lora+"lora_dropout", "lora_dropout", v)
	} else {
		j.put(lora+"lora_dropout", "0.05", nil)
	}
	if v := j.get("lora_target_modules"); v != nil {
		t := flow(v)
		if v.Kind == spec.List && len(v.Items) == 1 { // as ModelConfig's __post_init__ has it
			t = flow(v.Items[0])
		}
		j.put(lora+"target_modules", t, v)
	}
	for _, k := range []struct{ key, is string }{{"lora_target_parameters", "target_parameters"}, {"lora_modules_to_save", "modules_to_save"}, {"use_rslora", "use_rslora"}, {"use_dora", "use_dora"}} {
		if v := j.get(k.key); given(v) {
			j.set(lora+k.is, k.key, v)
		}
	}
}

func stringOf(n int64) string { return strconv.FormatInt(n, 10) }
