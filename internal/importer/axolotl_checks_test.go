package importer

import (
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/note"
)

// TestAxolotlRefuses names a file for each check of Axolotl.
func TestAxolotlRefuses(t *testing.T) {
	const lora = "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
	const fsdp = "fsdp_config: {offload_params: true}\n"
	for _, c := range []struct{ text, want string }{
		{"batch_size: 2\n", "batch_size: 2 with gradient_accumulation_steps; remove one of them"},
		{"streaming: true\n", "streaming: true without max_steps"},
		{"streaming: true\nmax_steps: 10\nval_set_size: 0.1\n", "val_set_size: 0.1 with streaming"},
		{"pretraining_dataset: {path: a}\n", "pretraining_dataset without max_steps"},
		{"pretraining_dataset: {path: a}\nmax_steps: 10\nval_set_size: 0.1\n", "val_set_size: 0.1 with pretraining_dataset"},
		{"test_datasets: [{path: a}]\nval_set_size: 0.1\n", "val_set_size: 0.1 with test_datasets; write val_set_size: 0"},
		{"warmup_steps: 10\nwarmup_ratio: 0.1\n", "warmup_ratio: 0.1 with warmup_steps; remove one of them"},
		{"saves_per_epoch: 1\nsave_steps: 10\n", "save_steps: 10 with saves_per_epoch"},
		{"save_strategy: epoch\nsave_steps: 10\n", "save_steps: 10 with a save_strategy other than steps"},
		{"evals_per_epoch: 1\neval_steps: 10\nval_set_size: 0.1\n", "eval_steps: 10 with evals_per_epoch"},
		{"eval_strategy: epoch\neval_steps: 10\nval_set_size: 0.1\n", "eval_steps: 10 with an eval_strategy other than steps"},
		{"eval_strategy: epoch\nevals_per_epoch: 1\nval_set_size: 0.1\n", "evals_per_epoch: 1 with an eval_strategy other than steps"},
		{"val_set_size: 0\neval_steps: 10\n", "val_set_size: 0 with eval_steps or eval_strategy; write eval_strategy: no"},
		{"eval_table_size: 5\nsample_packing: true\n", "eval_table_size: 5 with sample_packing; write eval_sample_packing: false"},
		{"rl: dpo\nsample_packing: true\n", "sample_packing: true with rl; write sample_packing: false"},
		{lora + "rl: kto\n", "rl: kto without remove_unused_columns: false"},
		{lora + "rl: orpo\ndpo_loss_type: [ipo]\n", "dpo_loss_type without rl: dpo"},
		{"rl: dpo\ndpo_loss_weights: [1]\n", "dpo_loss_weights without rl: dpo and dpo_loss_type"},
		{lora + "rl: simpo\nwarmup_ratio: 0.1\n", "warmup_ratio: 0.1 with rl: simpo; write warmup_steps"},
		{"neftune_noise_alpha: 5\nnoisy_embedding_alpha: 5\n", "noisy_embedding_alpha: 5 with neftune_noise_alpha"},
		{"unfrozen_parameters: [lm_head]\ngradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n", "gradient_checkpointing_kwargs with unfrozen_parameters; write use_reentrant: false"},
		{lora + "unfrozen_parameters: [lm_head]\npeft_layers_to_transform: [0]\n", "peft_layers_to_transform with unfrozen_parameters"},
		{lora + "peft_layers_pattern: layers\n", "peft_layers_pattern: layers without peft_layers_to_transform"},
		{lora + "lora_mlp_kernel: true\ntrust_remote_code: true\n", "trust_remote_code: true with fused kernels of LoRA; write lora_mlp_kernel: false,"},
		{lora + "lora_qkv_kernel: true\nload_in_8bit: true\n", "lora_qkv_kernel: true with weights of 8 bits; write lora_mlp_kernel: false,"},
		{lora + "lora_o_kernel: true\n" + fsdp, "lora_o_kernel: true with FSDP1; write fsdp_version: 2"},
		{"adapter: qlora\nlora_r: 8\nlora_target_linear: true\nload_in_4bit: true\nload_in_8bit: true\n", "load_in_8bit: true with adapter: qlora"},
		{lora + "lora_dropout: 0.1\nlora_target_parameters: [experts.down_proj]\n", "lora_dropout: 0.1 with lora_target_parameters"},
		{lora + "quantize_moe_experts: true\nload_in_8bit: true\n", "quantize_moe_experts: true with lora_target_linear"},
		{lora + "quantize_moe_experts: true\n", "quantize_moe_experts: true without load_in_4bit or load_in_8bit"},
		{"attn_implementation: sdpa\nflash_attention: true\n", "flash_attention: true with attn_implementation; remove it"},
		{"attn_implementation: flash\n", "attn_implementation: flash; write flash_attention_2"},
		{"attn_implementation: sdpa\ngemma4_hybrid_attn_impl: true\n", "gemma4_hybrid_attn_impl: true without flash_attention_2"},
		{"base_model: nvidia/Nemotron-H-8B\ngradient_checkpointing: true\n", "gradient_checkpointing: true of Nemotron-H without sample_packing"},
		{"base_model: mosaicml/mpt-7b\ngradient_checkpointing: true\n", "gradient_checkpointing: true of an MPT model"},
		{"base_model: tiiuae/falcon-7b\nfsdp: [full_shard]\n", "fsdp of a Falcon model"},
		{"activation_offloading: true\n", "activation_offloading: true without gradient_checkpointing"},
		{"selective_checkpointing: true\n", "selective_checkpointing: true without gradient_checkpointing"},
		{"flash_optimum: true\nbf16: true\n", "flash_optimum: true with bf16 or fp16"},
		{"cut_cross_entropy: true\nliger_cross_entropy: true\n", "liger_cross_entropy: true with another one of cut_cross_entropy,"},
		{"liger_swiglu: true\nliger_glu_activation: true\n", "liger_swiglu: true with liger_glu_activation"},
		{"fsdp: [full_shard]\ndeepspeed: a.json\n", "fsdp with deepspeed; remove one of them"},
		{fsdp + "fsdp_version: 2\noptimizer: adamw_8bit\n", "optimizer: adamw_8bit with fsdp_version: 2; write optimizer: adamw_torch_8bit"},
		{"fsdp_config: {fsdp_version: 2}\noptimizer: adamw_bnb_8bit\n", "optimizer: adamw_bnb_8bit with fsdp_version: 2"},
		{fsdp + "optimizer: paged_adamw_8bit\n", "optimizer: paged_adamw_8bit with offload_params of FSDP1"},
		{"fsdp_version: 2\nrl: dpo\nload_in_4bit: true\nadapter: qlora\nlora_r: 8\nlora_target_linear: true\n", "rl: dpo with fsdp_version: 2 and weights in 4 or 8 bits"},
		{fsdp + "optimizer: muon\n", "optimizer: muon with DeepSpeed or FSDP1"},
		{"deepspeed: a.json\noptimizer: flash_adamw\n", "optimizer: flash_adamw with DeepSpeed or FSDP1"},
		{lora + "optimizer: q_galore_adamw8bit\n", "optimizer: q_galore_adamw8bit with an adapter or DeepSpeed"},
		{"optimizer: ao_adamw_4bit\n", "optimizer: ao_adamw_4bit, which it has no class for; write optimizer: adamw_torch_4bit or adamw_torch_8bit"},
		{"tensor_parallel_size: 2\noptimizer: adamw_8bit\n", "tensor_parallel_size: 2 with an optimizer of bitsandbytes in 8 bits"},
		{"tensor_parallel_size: 2\nliger_rms_norm: true\n", "liger_rms_norm: true with tensor_parallel_size"},
		{"context_parallel_size: 2\n", "context_parallel_size: 2 without FlashAttention"},
		{"context_parallel_size: 2\nflash_attention: true\nsample_packing: true\n", "context_parallel_size: 2 with sample_packing and more than one row"},
		{"relora: true\n", "relora: true without jagged_restart_steps and an adapter"},
		{"early_stopping_patience: 3\n", "early_stopping_patience: 3 without save_steps and eval_steps"},
		{"gpu_memory_limit: 10\nmax_memory: {0: 10GiB}\n", "gpu_memory_limit: 10 with max_memory"},
	} {
		text := "datasets: [{path: x}]\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\n" + c.text
		if !strings.Contains(c.text, "base_model:") {
			text += "base_model: a/b\n"
		}
		_, err := Read([]File{{"job.yml", []byte(text)}}, Options{})
		if want := "Axolotl refuses " + c.want; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %q", c.text, err, want)
		}
	}
	j, err := Read([]File{{"job.yml", []byte("base_model: a/b\nmax_packed_sequence_len: 2048\n")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "Axolotl refuses max_packed_sequence_len: 2048 in its releases of 2026, which have the key no more; remove it"
	if !slices.ContainsFunc(j.Notes, func(n note.Note) bool { return n.Code == note.WouldFail && n.Text == want }) {
		t.Errorf("%v\nwant %q", j.Notes, want)
	}
	const cp = "base_model: nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16\ncontext_parallel_size: 2\nflash_attention: true\n"
	_, err = Read([]File{{"job.yml", []byte(cp)}}, Options{})
	if want := "job.yml:2:24: context_parallel_size: 2 with layers of Mamba 2"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %q", err, want)
	}
}
