package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// sharded draws a program of another kind whose model fully_shard divides among several GPUs.
func sharded(g *generator, seed uint64) (text, arch string) {
	return g.sharded(g.fsdp, g.other(seed))
}

// flattened draws one whose model FullyShardedDataParallel divides.
func flattened(g *generator, seed uint64) (text, arch string) {
	return g.sharded(g.fsdp1, g.other(seed))
}

// other draws a program of another kind.
func (g *generator) other(seed uint64) func() (text, arch string) {
	return func() (text, arch string) {
		switch {
		case g.chance(0.4):
			return options(g, seed)
		case g.chance(0.5):
			return g.preset(seed)
		}
		return g.spec(seed)
	}
}

// shardedAdapted draws one whose model has adapters, some of the type of the model.
func shardedAdapted(g *generator, seed uint64) (text, arch string) {
	return g.adapted(g.fsdp, seed)
}

// flattenedOnHost draws one that FullyShardedDataParallel divides, with the parts in host memory.
func flattenedOnHost(g *generator, seed uint64) (text, arch string) {
	g.offload = 1
	return flattened(g, seed)
}

// flattenedAdapted draws one that FullyShardedDataParallel divides.
func flattenedAdapted(g *generator, seed uint64) (text, arch string) {
	return g.adapted(g.fsdp1, seed)
}

// adapted draws a program whose model has adapters and is divided.
func (g *generator) adapted(keys func(root *program.Class, accumulates bool) []string, seed uint64) (text, arch string) {
	for !strings.Contains(text, "lora: {") || strings.Contains(text, "quantize:") {
		text, arch = g.sharded(keys, func() (text, arch string) {
			if g.chance(0.4) {
				text, arch = g.preset(seed)
			} else {
				text, arch = g.spec(seed)
			}
			text, arch = changed(text, arch, g.r)
			if g.bf16 || g.chance(0.2) {
				text = strings.Replace(text, "lora: {", "lora: {dtype: bfloat16, ", 1)
			}
			return text, arch
		})
	}
	return text, arch
}

// sharded divides the model of a program that draw makes.
func (g *generator) sharded(keys func(root *program.Class, accumulates bool) []string, draw func() (text, arch string)) (text, arch string) {
	for range 400 {
		text, arch = draw()
		if job := built(text, arch); job != nil && len(job.Models) == 1 {
			text += "parallel: {" + strings.Join(keys(job.Models[0].Root, strings.Contains(text, "grad_accumulation:")), ", ") + "}\n"
			if job := built(text, arch); job != nil && job.Parallel.FSDP != nil && !strings.Contains(text, "SyncBatchNorm") {
				return text, arch
			}
		}
		g.blocks, g.nBlock = nil, 0
	}
	return text, arch
}

// fsdp are the keys of FSDP2.
func (g *generator) fsdp(root *program.Class, accumulates bool) []string {
	ranks := 1 + g.r.Int64N(9)
	if g.chance(0.2) {
		ranks = 12
	}
	keys := []string{fmt.Sprintf("fsdp: %d", ranks)}
	shards := ranks
	if n := 1 + g.r.Int64N(ranks); ranks%n == 0 && g.chance(0.7) {
		keys, shards = append(keys, fmt.Sprintf("replicate: %d", n)), ranks/n
	}
	return append(keys, g.fullyShards(root, shards, accumulates)...)
}

// fullyShards are those that do not say how many ranks there are.
func (g *generator) fullyShards(root *program.Class, shards int64, accumulates bool) []string {
	var keys []string
	keys = append(keys, "modules: ["+strings.Join(g.units(root, shards), ", ")+"]")
	keys = append(keys, g.reshards(shards, 0.5)...)
	keys = append(keys, g.maybe(0.5, "param_dtype: bfloat16", "param_dtype: bfloat16", "param_dtype: float16")...)
	keys = append(keys, g.maybe(0.35, "reduce_dtype: float32", "reduce_dtype: float32", "reduce_dtype: bfloat16", "reduce_dtype: float16")...)
	keys = append(keys, g.maybe(0.15, "output_dtype: float32", "output_dtype: bfloat16")...)
	keys = append(keys, g.maybe(0.1, "cast_forward_inputs: false")...)
	keys = append(keys, g.maybe(0.15, "cpu_offload: true", "cpu_offload: true, pin_memory: false")...)
	if accumulates && g.chance(0.6) {
		keys = append(keys, "no_sync: true")
	}
	return keys
}

// fsdp1 are the keys of FSDP1.
func (g *generator) fsdp1(root *program.Class, accumulates bool) []string {
	ranks := 2 + g.r.Int64N(8)
	if g.chance(0.1) {
		ranks = 1
	}
	keys := []string{fmt.Sprintf("fsdp: %d, version: 1", ranks)}
	strategy := g.pick("FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
	if strings.Contains(strategy, "HYBRID") {
		n := 2 + g.r.Int64N(2)
		keys = []string{fmt.Sprintf("fsdp: %d, version: 1, replicate: %d", n*ranks, n)}
	}
	keys = append(keys, "sharding_strategy: "+strategy)
	var units []string
	for _, u := range g.units(root, 1) {
		if !strings.ContainsAny(u, "[{") {
			units = append(units, u)
		}
	}
	if units == nil {
		units = []string{`"*"`}
	}
	keys = append(keys, "modules: ["+strings.Join(units, ", ")+"]")
	keys = append(keys, g.maybe(0.6, "use_orig_params: true")...)
	keys = append(keys, g.maybe(0.2, "forward_prefetch: true")...)
	keys = append(keys, g.maybe(0.3, "backward_prefetch: BACKWARD_POST", "backward_prefetch: NO_PREFETCH")...)
	keys = append(keys, g.maybe(0.5, "param_dtype: bfloat16", "param_dtype: bfloat16", "param_dtype: float16")...)
	keys = append(keys, g.maybe(0.35, "reduce_dtype: float32", "reduce_dtype: float32", "reduce_dtype: bfloat16", "reduce_dtype: float16")...)
	keys = append(keys, g.maybe(0.15, "cast_forward_inputs: true", "cast_root_forward_inputs: false")...)
	keys = append(keys, g.maybe(g.offload, "cpu_offload: true")...)
	keys = append(keys, g.maybe(0.1, "buffer_dtype: bfloat16", "buffer_dtype: float32")...)
	if accumulates && g.chance(0.6) {
		keys = append(keys, "no_sync: true")
	}
	return keys
}

// reshards is reshard_after_forward over some of so many ranks.
func (g *generator) reshards(ranks int64, share float64) []string {
	texts := []string{"reshard_after_forward: true", "reshard_after_forward: false"}
	for n := int64(2); n < ranks; n++ {
		if ranks%n == 0 {
			texts = append(texts, fmt.Sprintf("reshard_after_forward: %d", n))
		}
	}
	return g.maybe(share, texts...)
}

// units are modules that fully_shard is called on.
func (g *generator) units(root *program.Class, ranks int64) []string {
	var paths []string
	root.Walk(func(path string, c *program.Class) {
		if path != "" && len(c.ParamPaths()) > 0 {
			paths = append(paths, path)
		}
	})
	if len(paths) == 0 || g.chance(0.2) {
		return []string{g.pick(`"*"`, `"*.*"`)}
	}
	var out []string
	for range 1 + g.r.IntN(4) {
		unit := `"` + g.pick(paths...) + `"`
		if g.chance(0.4) {
			of := map[string]bool{unit: true}
			for range 1 + g.r.IntN(3) {
				of[`"`+g.pick(paths...)+`"`] = true
			}
			unit = "[" + strings.Join(slices.Sorted(maps.Keys(of)), ", ") + "]"
		}
		if reshard := g.reshards(ranks, 0.4); reshard != nil {
			unit = "{modules: " + unit + ", " + reshard[0] + "}"
		}
		out = append(out, unit)
	}
	if g.chance(0.3) {
		out = append(out, `"*"`)
	}
	return out
}
