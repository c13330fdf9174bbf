package importer

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// LLaMA-Factory v1's arguments (v1/config), whose loop is its own (v1/core/base_trainer.py).
var llamaFactoryV1 = &Format{
	Name: "llamafactory-v1", Title: "LLaMA-Factory v1",
	Signs:  [][]string{{"model", "train_dataset"}, {"model", "sample_backend"}, {"model", "peft_config"}, {"model", "dist_config"}, {"model", "quant_config"}},
	Unless: []string{"model_name_or_path", "base_model"},
	Keys: slices.Concat(
		table(reads, "`model.hf`", "model"),
		table(reads, "`peft`", "peft_config"),
		table(reads, "`model.load`", "bf16 quant_config"),
		table(reads, "`parallel`", "dist_config dp_size mp_replicate_size mp_shard_size"),
		table(reads, "`params.seq`, the sequence length", "cutoff_len batching_strategy"),
		table(reads, "`model.with.attn`", "flash_attn"),
		table(reads, "`trainer.hf.use_liger_kernel`", "kernel_config"),
		table(reads, "`trainer.hf.gradient_checkpointing`", "enable_activation_checkpointing"),
		table(reads, "`trainer.hf.per_device_train_batch_size`", "micro_batch_size global_batch_size"),
		same("trainer.hf", "learning_rate max_grad_norm"),
		table(none, ofData, "train_dataset eval_dataset batching_workers"),
		table(none, ofText, "custom_chat_template"),
		table(none, ofCode, "trust_remote_code init_config"),
		table(none, ofSaves, "output_dir resume_from_checkpoint save_steps save_epochs save_ckpt_as_hf save_total_limit"),
		table(none, ofLogs, "logging_steps"),
		table(none, ofRate, "lr_scheduler_config"),
		table(none, ofLength, "num_train_epochs max_steps"),
		table(none, ofDrawn, "seed full_determinism"),
		table(none, "inference", "sample_backend max_new_tokens"),
		table(none, "which class the model is of", "model_class"),
		table(none, "the launch: processes, devices and clouds", "dist_timeout"),
		table(asks, "parallelism of sequences; planned with all of them in each process", "cp_size cp_mode"),
		table(asks, "another optimizer; planned with adamw_torch", "optim_config"),
		table(reads, "refused: preference training", "pref_loss pref_beta pref_ftx simpo_gamma dpo_label_smoothing ld_alpha"),
		table(reads, "refused: the export of a model", "export_dir"),
	),
	Defaults: map[string]string{"cp_size": "1", "cp_mode": "ulysses"},
	Trainer:  "hf",
	Names:    map[string]string{"per_device_train_batch_size": "micro_batch_size", "gradient_checkpointing": "enable_activation_checkpointing", "max_grad_norm": "max_grad_norm", "bf16": "bf16"},
	read:     (*job).llamaFactoryV1,
}

func (j *job) llamaFactoryV1() {
	for _, k := range []string{"pref_loss", "pref_beta", "pref_ftx", "simpo_gamma", "dpo_label_smoothing", "ld_alpha"} {
		if v := j.get(k); v != nil {
			j.fail(v, "%s is of preference training, which is not modelled; memplan plans supervised training", k)
		}
	}
	if j.get("train_dataset") == nil {
		j.fail(j.doc.Root.Get("model"), "the file trains nothing: there is no train_dataset")
	}
	j.model("model")
	j.put("model.task", "causal-lm", nil)
	j.doubt(j.get("train_dataset"), "train_dataset: the loop of LLaMA-Factory v1's own trainer; planned with transformers.Trainer's")
	half := j.flag("bf16", true)
	j.put("model.load.dtype", map[bool]string{true: "bfloat16", false: "auto"}[half], j.get("bf16"))
	if half {
		j.put("trainer.hf.bf16", "true", j.get("bf16"))
	}
	if q := j.get("quant_config"); q != nil {
		j.v1Quantized(q)
	}
	if p := j.get("peft_config"); p != nil {
		j.v1Adapter(p)
	}
	if d := j.get("dist_config"); d != nil {
		j.v1Sharded(d)
	}
	if k := j.get("kernel_config"); k != nil && k.Get("name") != nil && strings.Contains(k.Get("name").Str, "liger") {
		j.put("trainer.hf.use_liger_kernel", "true", k)
	} else if k != nil {
		j.doubt(k, "kernel_config: kernels of LLaMA-Factory's own; planned with those of transformers")
	}
	if v := j.get("flash_attn"); v != nil {
		j.attention("flash_attn", v, j.oneOf("flash_attn", "sdpa", attentions...))
	}
	if s := j.str("batching_strategy", "normal"); s != "normal" {
		j.doubt(j.get("batching_strategy"), "batching_strategy: %s; planned as normal, with micro_batch_size samples of cutoff_len tokens", s)
	}
	if n := j.count("global_batch_size", 1); n > j.count("micro_batch_size", 1) {
		j.doubt(j.get("global_batch_size"), "global_batch_size: gradient accumulation, whose steps depend on the number of processes; planned without")
	}
	j.world = max(j.count("dp_size", 1), j.count("mp_replicate_size", 1)*j.count("mp_shard_size", 1))
	if j.world == 1 {
		j.world = 0 // not given
	}
	if j.flag("enable_activation_checkpointing", true) {
		j.put("trainer.hf.gradient_checkpointing", "true", j.get("enable_activation_checkpointing"))
		j.put("trainer.hf.gradient_checkpointing_kwargs", "{use_reentrant: false}", nil)
	}
	j.put("trainer.hf.per_device_train_batch_size", stringOf(j.count("micro_batch_size", 1)), j.get("micro_batch_size"))
	j.otherImages("model")
	j.put("model.with.mask", "ones", nil)
	j.length("cutoff_len", 2048)
}

// v1Quantized writes the plugin of quantization.
func (j *job) v1Quantized(q *spec.Value) {
	if n := q.Get("name"); n == nil || n.Str != "bnb" && n.Str != "auto" {
		j.fail(q, "quant_config: memplan plans the name bnb")
	}
	bits := q.Get("quantization_bit")
	load := "model.load.quantization_config."
	switch {
	case bits != nil && bits.Int == 8:
		j.put(load+"load_in_8bit", "true", bits)
	case bits == nil || bits.Int == 4:
		j.put(load+"load_in_4bit", "true", q)
		j.put(load+"bnb_4bit_compute_dtype", "bfloat16", nil)
		j.put(load+"bnb_4bit_use_double_quant", "true", nil)
		j.put(load+"bnb_4bit_quant_type", "nf4", nil)
		j.put(load+"bnb_4bit_quant_storage", "bfloat16", nil)
	default:
		j.fail(bits, "quantization_bit is 4 or 8 with bnb, not %s", bits.Describe())
	}
	j.put("model.load.device_map", `{"": 0}`, nil)
}

// v1Adapter writes the plugin of adapters.
func (j *job) v1Adapter(p *spec.Value) {
	switch n := p.Get("name"); {
	case n != nil && n.Str == "freeze":
		j.v1Freeze(p)
		return
	case n == nil || n.Str != "lora":
		j.fail(p, "peft_config: memplan plans the names lora and freeze")
	}
	if v := p.Get("export_dir"); given(v) {
		j.fail(v, "the file asks for the export of a model, which trains nothing")
	}
	lora := "peft.lora."
	for _, d := range []struct{ key, is string }{{"r", "8"}, {"lora_alpha", "16"}, {"lora_dropout", "0.05"}} { // of LoraParams
		j.put(lora+d.key, d.is, nil)
	}
	for _, pair := range p.Pairs {
		switch k, v := pair.Key.Str, pair.Value; k {
		case "name", "target_modules":
		case "export_size", "export_hub_model_id", "infer_dtype", "export_legacy_format":
			j.leave("the export of a model", "peft_config."+k)
		case "adapter_name_or_path":
			if given(v) {
				j.doubt(v, "adapter_name_or_path: a stored adapter; planned as a new one with the keys of this file")
			}
		case "r", "lora_alpha", "lora_dropout", "modules_to_save", "use_rslora", "use_dora":
			j.put(lora+k, flow(v), v)
		default:
			j.doc.Errs.Unknown(pair.Key.Span, "key of peft_config", k, []string{"name", "r", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "use_rslora", "use_dora"})
		}
	}
	switch v := p.Get("target_modules"); {
	case v == nil || v.Str == "all":
		j.allLinear(v)
	case v.Kind == spec.Str: // one name
		j.put(lora+"target_modules", "["+flow(v)+"]", v)
	default:
		j.put(lora+"target_modules", flow(v), v)
	}
}

// v1Sharded reads the plugin that spreads the job over GPUs.
func (j *job) v1Sharded(d *spec.Value) {
	switch n := d.Get("name"); {
	case n != nil && n.Str == "fsdp2":
		j.spread = sharding{fsdp: n, of: &j.file, two: true}
	case n != nil && n.Str == "fsdpturbo":
		j.spread = sharding{fsdp: n, of: &j.file, two: true}
		j.doubt(n, "dist_config: fsdpturbo, which spreads experts over GPUs; planned as FSDP2")
	case n != nil && n.Str == "deepspeed":
		j.spread = sharding{deepspeed: n, of: &j.file}
		if f := d.Get("config_file"); f != nil {
			j.spread.deepspeed = f
		}
	default:
		j.fail(d, "dist_config: memplan plans the names fsdp2 and deepspeed")
	}
}
