package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

var batchSize = regexp.MustCompile(`batch_size: ([0-9]+)`)

// pipelined draws a program of another kind whose model is cut into stages, of which one rank
// of several has one.
func pipelined(g *generator, seed uint64) (text, arch string) {
	return g.pipelined(seed, func(*program.Class) []string { return nil })
}

// pipelinedCopies draws one of which each stage is that of several processes, with DistributedDataParallel or FSDP2.
func pipelinedCopies(g *generator, seed uint64) (text, arch string) {
	return g.pipelined(seed, func(root *program.Class) []string {
		if g.chance(0.3) {
			return g.ddp(false)
		}
		return g.fsdp(root, false)
	})
}

// pipelined draws a program in stages with more keys of parallel.
func (g *generator) pipelined(seed uint64, more func(root *program.Class) []string) (text, arch string) {
	for range 4000 {
		switch {
		case g.chance(0.4):
			text, arch = options(g, seed)
		case g.chance(0.3):
			text, arch = g.preset(seed)
		case g.chance(0.2):
			text, arch = calls(g, seed)
		case g.chance(0.2):
			text, arch = attention(g, seed)
		default:
			text, arch = g.spec(seed)
		}
		if job := built(text, arch); job != nil && len(job.Models) == 1 && batchSize.MatchString(text) {
			if text := g.pipeline(job.Models[0].Root, text, more(job.Models[0].Root)); text != "" && built(text, arch) != nil && !strings.Contains(text, "SyncBatchNorm") {
				return text, arch
			}
		}
		g.blocks, g.nBlock = nil, 0
	}
	return text, arch
}

// pipeline writes the keys of pp and some more to a program, whose batches are then of some microbatches; "": it
// cannot be cut.
func (g *generator) pipeline(root *program.Class, text string, more []string) string {
	var places []string
	for i := range root.Forward.Body {
		if calls := root.FirstCalls(&root.Forward.Body[i]); i > 0 && len(calls) > 0 {
			if path := root.Children[calls[0]].Path; !slices.Contains(places, path) {
				places = append(places, path)
			}
		}
	}
	ranks, each := 2+g.r.IntN(3), 1
	schedule := g.pick("gpipe", "1f1b")
	if len(places) >= 3 && g.chance(0.4) {
		schedule = g.pick("interleaved_1f1b", "looped_bfs")
		for ranks, each = 2, 2+g.r.IntN(2); len(places) < ranks*each-1; each-- {
		}
	}
	if len(places) < ranks*each-1 {
		return ""
	}
	for len(places) > ranks*each-1 {
		i := g.r.IntN(len(places))
		places = slices.Delete(places, i, i+1)
	}
	microbatches := 1 + g.r.Int64N(6)
	text = batchSize.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.ParseInt(batchSize.FindStringSubmatch(s)[1], 10, 64)
		return fmt.Sprintf("batch_size: %d", n*microbatches)
	})
	keys := []string{fmt.Sprintf("pp: %d", ranks), fmt.Sprintf("split: [%s]", strings.Join(places, ", ")), fmt.Sprintf("microbatches: %d", microbatches),
		"schedule: " + schedule, fmt.Sprintf("rank: %d", g.r.IntN(ranks))}
	return text + "parallel: {" + strings.Join(append(keys, more...), ", ") + "}\n"
}
