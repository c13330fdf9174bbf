package main

import (
	"math/rand/v2"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// mayFreeze freezes some parameters of a share of the specs.
func mayFreeze(seed uint64, text, arch string, share float64) string {
	if r := rand.New(rand.NewPCG(seed, 0x667265657a65)); r.Float64() < share {
		return frozen(text, arch, r)
	}
	return text
}

// frozen returns the spec with some of its parameters frozen, so that the
// derivatives of operators are asked for some of their inputs only: a stretch
// from the first parameter on, whole modules, or single parameters. A spec that
// cannot be built or says itself what is frozen stays as it is.
func frozen(text, arch string, r *rand.Rand) string {
	job := built(text, arch)
	if job == nil || job.Inference != "" || strings.Contains(text, "\nfreeze:") {
		return text
	}
	root := job.Models[0].Root
	params := root.ParamPaths()
	var patterns []string
	switch share := r.Float64(); r.IntN(4) {
	case 0:
		patterns = params[:int(share*float64(len(params)))]
	case 1:
		root.Walk(func(path string, c *program.Class) {
			if path != "" && len(c.Params) > 0 && r.Float64() < share {
				patterns = append(patterns, path)
			}
		})
	default:
		for _, p := range params {
			if r.Float64() < share {
				patterns = append(patterns, p)
			}
		}
	}
	if len(patterns) == 0 || len(patterns) == len(params) {
		return text
	}
	return text + "freeze: [" + strings.Join(patterns, ", ") + "]\n"
}
