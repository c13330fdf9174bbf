package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/hub"
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
		same("trainer.hf", "max_grad_norm"),
		table(none, ofData, "train_dataset eval_dataset batching_workers"),
		table(none, ofText, "custom_chat_template"),
		table(none, ofCode, "trust_remote_code init_config"),
		table(none, ofSaves, "output_dir resume_from_checkpoint save_steps save_epochs save_ckpt_as_hf save_total_limit"),
		table(none, ofLogs, "logging_steps"),
		table(none, ofRate, "learning_rate lr_scheduler_config"),
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
	for _, pair := range p.Pairs {
		switch k, v := pair.Key.Str, pair.Value; k {
		case "name", "adapter_name_or_path":
			if k != "name" && given(v) {
				j.doubt(v, "adapter_name_or_path: a stored adapter; planned as a new one with the keys of this file")
			}
		case "target_modules":
			if v.Str == "all" {
				j.put("peft.lora.target_modules", "all-linear", v)
				continue
			}
			j.put("peft.lora.target_modules", listOf(v), v)
		case "r", "lora_alpha", "lora_dropout", "modules_to_save", "use_rslora", "use_dora":
			j.put("peft.lora."+k, flow(v), v)
		default:
			j.doc.Errs.Unknown(pair.Key.Span, "key of peft_config", k, []string{"name", "r", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "use_rslora", "use_dora"})
		}
	}
}

// v1Freeze writes the plugin that trains some layers alone (v1/plugins/model_plugins/peft.py).
func (j *job) v1Freeze(p *spec.Value) {
	name := j.doc.Root.Get("model").Str
	layers := hub.Layers(name)
	if layers == 0 {
		j.fail(p, "peft_config: how many layers %s has is not known, of which freeze trains some; write a spec with freeze: {modules: [\"*\"], except: [LAYERS]}", name)
	}
	n, modules := int64(2), "all"
	var extra []string
	for _, pair := range p.Pairs {
		switch k, v := pair.Key.Str, pair.Value; k {
		case "name":
		case "freeze_trainable_layers":
			if v.Kind != spec.Int {
				j.fail(v, "freeze_trainable_layers must be a whole number, not %s", v.Describe())
			}
			n = v.Int
		case "freeze_trainable_modules":
			modules = v.Str
		case "freeze_extra_modules":
			if given(v) {
				extra = strings.Split(v.Str, ",")
			}
		default:
			j.doc.Errs.Unknown(pair.Key.Span, "key of peft_config", k, []string{"name", "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"})
		}
	}
	first, last := max(0, layers-n), layers
	if n <= 0 {
		first, last = 0, min(-n, layers)
	}
	var trained []string
	for i := first; i < last; i++ {
		for m := range strings.SplitSeq(modules, ",") {
			if m = strings.TrimSpace(m); m == "all" {
				m = ""
			}
			trained = append(trained, quote(fmt.Sprintf("*.%d.%s*", i, m)))
		}
	}
	for _, m := range extra {
		trained = append(trained, quote("*"+strings.TrimSpace(m)+"*"))
	}
	j.put("freeze.modules", `["*"]`, p)
	j.put("freeze.except", "["+strings.Join(trained, ", ")+"]", p)
	j.doubt(p, "peft_config: freeze converts the parameters that are trained to float32, and no others; planned with all parameters in the type of the load")
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
