package main

import (
	"fmt"
	"strings"
)

// replicated draws a program of another kind, on several GPUs with
// DistributedDataParallel.
func replicated(g *generator, seed uint64) (text, arch string) {
	for range 200 {
		switch {
		case g.chance(0.6):
			text, arch = options(g, seed)
		case g.chance(0.5):
			text, arch = g.preset(seed)
		default:
			text, arch = g.spec(seed)
		}
		text += "parallel: {" + strings.Join(g.ddp(strings.Contains(text, "grad_accumulation:")), ", ") + "}\n"
		// SyncBatchNorm's exchange of statistics is not modelled.
		if job := built(text, arch); job != nil && job.Parallel.DDP != nil && !strings.Contains(text, "SyncBatchNorm") {
			return text, arch
		}
		g.blocks, g.nBlock = nil, 0
	}
	return text, arch
}

func (g *generator) ddp(accumulates bool) []string {
	keys := []string{fmt.Sprintf("ddp: %d", g.size(1, 9))}
	keys = append(keys, g.maybe(0.4, "bucket_cap_mb: 1", "bucket_cap_mb: 0.1", "bucket_cap_mb: 5")...)
	keys = append(keys, g.maybe(0.5, "gradient_as_bucket_view: true")...)
	keys = append(keys, g.maybe(0.3, "find_unused_parameters: true")...)
	keys = append(keys, g.maybe(0.2, "static_graph: true")...)
	keys = append(keys, g.maybe(0.3, "broadcast_buffers: false")...)
	keys = append(keys, g.maybe(0.2, "comm_hook: fp16_compress_hook", "comm_hook: bf16_compress_hook")...)
	if accumulates && g.chance(0.6) {
		keys = append(keys, "no_sync: true")
	}
	return keys
}
