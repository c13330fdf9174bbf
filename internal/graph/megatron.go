package graph

import (
	"slices"

	"github.com/memplan/memplan/internal/graph/techniques"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trainer"
)

// megatronLoop adds what the loop of Megatron is given in addition to its arguments, and
// configures its DistributedDataParallel.
func (el *building) megatronLoop(given map[string]any) {
	t := el.spec.Trainer
	if m := el.ms[0]; m.use.Preset.V != spec.MegatronPreset {
		el.fail(m.at, "trainer: megatron trains its own model; write model: {preset: megatron}")
	}
	given["accumulation"] = el.spec.Train.GradAccumulation.V
	given["has_mask"] = !t.Args().Bool("no_create_attention_mask_in_dataloader")
	checks := !t.Args().Bool("no_check_for_nan_in_loss_and_grad") && !t.Args().Bool("fp16") // which scales the loss
	given["checks"] = checks
	given["mixture"] = t.Args().Int("num_experts") > 0
	a := t.Args()
	if name := "attention_backend"; a.Text("transformer_impl") == trainer.TransformerEngine && a.Text(name) == "auto" && (a.Bool("bf16") || a.Bool("fp16")) {
		key := "trainer.megatron." + name
		el.notModelled = append(el.notModelled, note.Asked.New("%s: auto is planned as flash-attn or, from Hopper on, cuDNN's attention, which keep no scores; Transformer Engine takes neither, but unfused, with flash-attn before 2.4.1 in deterministic_mode before Hopper, and where flash-attn is not installed", key).Of(key))
	}
	if b := t.MegatronBuffers(); b.Fused && !a.Bool("no_gradient_accumulation_fusion") {
		const key = "trainer.megatron.no_gradient_accumulation_fusion"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: without it kernels of Transformer Engine and Apex add gradients of weights to the buffer at once, and a tensor that nothing is written to stands for each; planned are gradients of their own", key).Of(key))
	}
	if rope := a.Text("position_embedding_type") == "rope" || a.Bool("use_rotary_position_embeddings"); rope && !a.Bool("no_rope_fusion") {
		const key = "trainer.megatron.no_rope_fusion"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: without it one kernel of Transformer Engine rotates; planned are several operators", key).Of(key))
	}
	if a.Bool("deterministic_mode") {
		const key = "trainer.megatron.deterministic_mode"
		el.notModelled = append(el.notModelled, note.Asked.New("%s: what sorts indices in the derivative of the loss, a few numbers for each token, and how routers write their choice", key).Of(key))
	}
	el.megatronBalance()
	b := t.MegatronBuffers()
	m := &program.Megatron{World: b.World, Ranks: b.Ranks, Grads: techniques.DeepSpeedTypes[b.Grads], Distributed: b.Distributed, Accumulation: el.spec.Train.GradAccumulation.V, Fused: b.Fused, Checks: checks, Bucket: b.Bucket, Padded: b.Padded, TE: b.TE, Scaler: t.Args().Bool("fp16"), PerToken: a.Bool("calculate_per_token_loss")}
	given["per_token"] = m.PerToken
	if t.Args().Bool("sequence_parallel") && t.Args().Int("tensor_model_parallel_size") > 1 {
		m.Shared = sharedOfMegatron
	}
	m.Grouped = b.TE && a.Int("num_experts") > 0 && a.Bool("moe_grouped_gemm")
	if m.ExpertRanks = b.ExpertRanks; m.ExpertRanks > 0 {
		m.Experts = program.Patterns{"*.mlp.experts.*"}
	}
	if st := t.MegatronStage(); st != nil {
		el.megatronStages(m, st)
		given["pipeline"], given["last_stage"] = true, st.Last()
	}
	el.job.Parallel.Megatron = m
}

// sharedOfMegatron are patterns of the parameters that every tensor-parallel process has and that
// see a part of the sequence: norms, biases of RowParallelLinear and what chooses experts.
var sharedOfMegatron = program.Patterns{"*norm.*", "*linear_proj_bias", "*mlp.linear_fc2_bias", "*mlp.router.weight"}

// undecayedOfMegatron are patterns of the parameters that Megatron gives no weight decay:
// biases and what has one dimension (_get_param_groups in megatron/core/optimizer/__init__.py).
var undecayedOfMegatron = program.Patterns{"*bias", "*norm.*"}

// megatronGroups finds the patterns of the optimizer's group without weight decay.
func (el *building) megatronGroups() {
	c := el.spec.Train.Optimizer
	for _, p := range undecayedOfMegatron {
		if slices.ContainsFunc(el.job.Models[0].Root.ParamPaths(), program.Patterns{p}.Fits) {
			c.Groups[0].Params = append(c.Groups[0].Params, spec.String{V: p, At: c.Name.At, Set: true})
		}
	}
}
