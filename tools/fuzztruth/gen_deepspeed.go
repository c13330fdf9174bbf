package main

import (
	"fmt"
	"strings"
)

// engined draws a program of another kind with DeepSpeed's engine around its model. DeepSpeed
// must be installed beside PyTorch.
func engined(g *generator, seed uint64) (text, arch string) {
	return g.engined(seed, g.deepSpeed)
}

// divided is engined with stage 3 of ZeRO.
func divided(g *generator, seed uint64) (text, arch string) { return g.engined(seed, g.zero3) }

func (g *generator) engined(seed uint64, keys func() []string) (text, arch string) {
	for range 400 {
		if g.chance(0.5) {
			text, arch = g.preset(seed)
		} else {
			text, arch = g.spec(seed)
		}
		text = withoutPrecision(text)
		text += "parallel: {" + strings.Join(keys(), ", ") + "}\n"
		if job := built(text, arch); job != nil && job.Parallel.DeepSpeed != nil && !strings.Contains(text, "SyncBatchNorm") {
			return text, arch
		}
		g.blocks, g.nBlock = nil, 0
	}
	return text, arch
}

// withoutPrecision leaves the type of the model to DeepSpeed's configuration.
func withoutPrecision(text string) string {
	for _, p := range []string{"fp32", "bf16", "fp16", "amp-bf16", "amp-fp16"} {
		text = strings.ReplaceAll(text, ", precision: "+p+"}", "}")
		text = strings.ReplaceAll(text, ", precision: "+p+",", ",")
		text = strings.ReplaceAll(text, "  precision: "+p+"\n", "")
	}
	return text
}

func (g *generator) deepSpeed() []string {
	stage := 1 + g.r.Int64N(2)
	zero := []string{fmt.Sprintf("stage: %d", stage), fmt.Sprintf("reduce_bucket_size: %d", []int64{500, 5000, 60000, 1000000, 20000000}[g.r.IntN(5)])}
	zero = append(zero, g.maybe(0.3, "overlap_comm: true")...)
	zero = append(zero, g.maybe(0.25, "contiguous_gradients: false")...)
	zero = append(zero, g.maybe(0.25, "reduce_scatter: false")...)
	zero = append(zero, g.maybe(0.2, "round_robin_gradients: true")...)
	zero = append(zero, g.maybe(0.2, "use_multi_rank_bucket_allreduce: false")...)
	offload := g.maybe(0.2, "offload_optimizer: {device: cpu, pin_memory: false}")
	zero = append(zero, offload...)
	config := []string{"zero_optimization: {" + strings.Join(zero, ", ") + "}", "zero_allow_untested_optimizer: true"}
	half := g.maybe(0.8, "bf16: {enabled: true}", "bf16: {enabled: true}", "fp16: {enabled: true}", "bf16: {enabled: true, check_grad_overflow: false}")
	if len(offload) > 0 {
		config = append(config, "zero_force_ds_cpu_optimizer: false")
	}
	config = append(config, half...)
	config = append(config, g.maybe(0.5, "gradient_clipping: 1.0")...)
	config = append(config, g.maybe(0.15, "communication_data_type: fp32")...)
	if stage == 2 || len(half) > 0 && strings.HasPrefix(half[0], "fp16") {
		config = append(config, g.maybe(0.2, "data_types: {grad_accum_dtype: fp32}")...)
	}
	ranks := 1 + g.r.Int64N(9)
	return append([]string{fmt.Sprintf("deepspeed: %d, config: {%s}", ranks, strings.Join(config, ", "))}, g.maybe(0.3, fmt.Sprintf("rank: %d", g.r.Int64N(ranks)))...)
}

// zero3 are the keys of stage 3.
func (g *generator) zero3() []string {
	zero := []string{"stage: 3", fmt.Sprintf("reduce_bucket_size: %d", []int64{500, 5000, 60000, 1000000, 20000000}[g.r.IntN(5)])}
	zero = append(zero, g.maybe(0.7, "stage3_param_persistence_threshold: 0", "stage3_param_persistence_threshold: 100", "stage3_param_persistence_threshold: 3000")...)
	zero = append(zero, g.maybe(0.6, "stage3_prefetch_bucket_size: 0", "stage3_prefetch_bucket_size: 1000", "stage3_prefetch_bucket_size: 20000", "stage3_prefetch_bucket_size: 500000")...)
	zero = append(zero, g.maybe(0.4, "stage3_max_reuse_distance: 0", "stage3_max_reuse_distance: 2000", "stage3_max_reuse_distance: 50000")...)
	zero = append(zero, g.maybe(0.2, "stage3_max_live_parameters: 0", "stage3_max_live_parameters: 30000")...)
	zero = append(zero, g.maybe(0.3, "sub_group_size: 300", "sub_group_size: 5000", "sub_group_size: 100000")...)
	zero = append(zero, g.maybe(0.25, "overlap_comm: false")...)
	zero = append(zero, g.maybe(0.25, "contiguous_gradients: false")...)
	zero = append(zero, g.maybe(0.25, "reduce_scatter: false")...)
	zero = append(zero, g.maybe(0.1, "stage3_allgather_sequential: true")...)
	zero = append(zero, g.maybe(0.1, "stage3_use_all_reduce_for_fetch_params: true")...)
	zero = append(zero, g.maybe(0.15, "memory_efficient_linear: false")...)
	config := []string{"zero_optimization: {" + strings.Join(zero, ", ") + "}", "zero_allow_untested_optimizer: true"}
	config = append(config, g.maybe(0.8, "bf16: {enabled: true}", "bf16: {enabled: true}", "fp16: {enabled: true}")...)
	config = append(config, g.maybe(0.5, "gradient_clipping: 1.0")...)
	config = append(config, g.maybe(0.15, "communication_data_type: fp32")...)
	config = append(config, g.maybe(0.2, "data_types: {grad_accum_dtype: fp32}")...)
	ranks := 1 + g.r.Int64N(9)
	return append([]string{fmt.Sprintf("deepspeed: %d, config: {%s}", ranks, strings.Join(config, ", "))}, g.maybe(0.3, fmt.Sprintf("rank: %d", g.r.Int64N(ranks)))...)
}
