package importer

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// grpoKeys are the keys of Axolotl's trl: that are arguments of GRPOConfig and reach memory
// (core/trainers/grpo/__init__.py).
var grpoKeys = strings.Fields("beta max_completion_length num_generations generation_batch_size sync_ref_model importance_sampling_level loss_type num_iterations use_vllm vllm_mode " +
	"vllm_importance_sampling_correction off_policy_mask_threshold use_bias_correction_kl")

// grpoOthers are those of trl: that have no effect on memory: how completions are generated,
// rewarded and logged, and what the asynchronous trainer alone reads.
var grpoOthers = strings.Fields("reward_funcs reward_weights reward_processing_classes reward_num_workers rollout_func scale_rewards temperature top_p top_k min_p repetition_penalty generation_kwargs " +
	"chat_template_kwargs epsilon epsilon_high mask_truncated_completions multi_objective_aggregation log_completions num_completions_to_print ref_model_mixup_alpha ref_model_sync_steps " +
	"vllm_server_host vllm_server_port vllm_server_timeout vllm_guided_decoding_regex vllm_enable_sleep_mode vllm_importance_sampling_mode vllm_importance_sampling_cap vllm_sync_interval " +
	"vllm_lora_sync prefetch_depth streaming_partial_batch streaming_min_groups replay_buffer_size replay_recompute_logps reroll_start_fraction reroll_max_groups skip_zero_advantage_batches")

// grpoRefused are those of other trainers and another loss.
var grpoRefused = []string{"async_prefetch", "use_data_producer", "use_liger_loss"}

// grpo reports whether the loop is that of TRL's GRPOTrainer.
func (j *job) grpo() bool { return slices.Contains([]string{"grpo", "gdpo"}, j.str("rl", "")) }

// axolotlGRPO turns the loop into that of GRPOTrainer, of which Axolotl's AxolotlGRPOTrainer is
// made.
func (j *job) axolotlGRPO() {
	if !j.grpo() {
		if j.get("trl") != nil {
			j.leave("read with rl: grpo and rl: gdpo alone", "trl")
		}
		return
	}
	rl, grpo := j.get("rl"), "trainer.grpo."
	j.loop("grpo")
	if t := j.get("trl"); t != nil {
		known := slices.Sorted(slices.Values(slices.Concat(grpoKeys, grpoOthers, grpoRefused)))
		for _, p := range t.Pairs {
			if k := p.Key.Str; !slices.Contains(known, k) {
				j.fail(p.Key, "trl: %q is no key that memplan knows; it knows %s", k, strings.Join(known, ", "))
			}
		}
	}
	for _, k := range grpoRefused {
		if v := j.get("trl." + k); given(v) {
			j.fail(v, "trl.%s is not modelled; write %s: false", k, k)
		}
	}
	for _, k := range grpoKeys {
		if v := j.get("trl." + k); v != nil && v.Kind != spec.Null {
			j.set(grpo+k, "trl."+k, v)
		}
	}
	if v := j.get("rl_beta"); v != nil && j.get("trl.beta") == nil {
		j.set(grpo+"beta", "rl_beta", v)
	}
	if j.get("trl.max_completion_length") == nil {
		j.fail(rl, "rl: %s without trl.max_completion_length: completions of any length are not modelled; write it", rl.Str)
	}
	for _, k := range []string{"bf16", "gradient_checkpointing"} { // which are on in GRPOConfig
		if j.out.get(grpo+k) == nil {
			j.put(grpo+k, "false", nil)
		}
	}
	j.assume(rl, "rl: %s: generation is not modelled; no key limits prompts, and samples are planned as if sequence_len did, a completion included", rl.Str)
	switch beta := j.out.says(grpo + "beta"); {
	case beta == "" || number.MatchString(beta) && strings.Trim(beta, "0.") == "":
	case j.on("adapter"):
		j.doubt(rl, "rl: %s: TRL copies the adapter of a model that has one, and the copy is the reference; planned with the model without its adapter, which takes less by the size of the adapter", rl.Str)
	default: // GRPOTrainer reads the reference itself, by create_model_from_path
		kw := grpo + "model_init_kwargs."
		j.put(kw+"dtype", "float32", nil)
		j.put(kw+"device_map", "auto", nil)
	}
}
