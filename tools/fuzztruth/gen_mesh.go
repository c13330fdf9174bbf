package main

import (
	"fmt"
	"strings"
)

// meshed draws a job of parallelize_module whose model fully_shard divides, too: a mesh of two
// dimensions, or of three.
func meshed(g *generator, seed uint64) (text, arch string) {
	for range 400 {
		g.shards = []int64{1, 2, 2, 3, 4}[g.r.IntN(5)]
		text, arch = g.tensorParallel(seed)
		job := built(text, arch)
		if job == nil {
			continue
		}
		keys := []string{fmt.Sprintf("fsdp: %d", g.shards)}
		if g.chance(0.3) {
			n := 2 + g.r.Int64N(2)
			keys = []string{fmt.Sprintf("fsdp: %d, replicate: %d", n*g.shards, n)}
		}
		keys = append(keys, g.fullyShards(job.Models[0].Root, g.shards, strings.Contains(text, "grad_accumulation:"))...)
		keys = append(keys, g.maybe(0.3, "meta_device: true")...)
		text = strings.TrimSuffix(text, "}\n") + ", " + strings.Join(keys, ", ") + "}\n"
		if built(text, arch) != nil {
			return text, arch
		}
	}
	return text, arch
}
