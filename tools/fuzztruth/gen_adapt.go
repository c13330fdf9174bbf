package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// adapted draws a program whose model is changed: adapters around some layers,
// quantized layers, both, or masked weights. What memplan refuses (convolutions
// with groups, for example) stays a program without.
func adapted(g *generator, seed uint64) (text, arch string) {
	text, arch = g.spec(seed)
	return changed(text, arch, rand.New(rand.NewPCG(seed, 0x6164617074)))
}

// changed changes the model of a program.
func changed(text, arch string, r *rand.Rand) (string, string) {
	job := built(text, arch)
	if job == nil || job.Inference != "" {
		return text, arch
	}
	var linear, all []string
	job.Models[0].Root.Walk(func(path string, c *program.Class) {
		is := c.Is()
		if is.Linear {
			linear = append(linear, path)
		}
		if is.Linear || is.Conv > 0 || is.Table {
			all = append(all, path)
		}
	})
	if len(linear) == 0 {
		return text, arch
	}
	some := func(of []string) string {
		var out []string
		for _, p := range of {
			if r.Float64() < 0.6 {
				out = append(out, p)
			}
		}
		if len(out) == 0 {
			out = of[:1]
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	lora := func(of []string) string {
		return fmt.Sprintf("lora: {r: %d, alpha: 16, dropout: %s, bias: %s, targets: %s}\n", 1+r.IntN(12), pick("0", "0.1"), pick("none", "none", "all", "lora_only"), some(of))
	}
	quantize := func() string {
		if r.IntN(3) == 0 {
			return fmt.Sprintf("quantize: {bits: 8, threshold: %s, modules: %s}\n", pick("0", "6"), some(linear))
		}
		return fmt.Sprintf("quantize: {bits: 4, double_quant: %s, compute_dtype: %s, modules: %s}\n", pick("true", "false"), pick("bfloat16", "float32"), some(linear))
	}
	change := ""
	switch r.IntN(5) {
	case 0:
		change = fmt.Sprintf("prune: {amount: 0.4, modules: %s}\n", some(linear))
	case 1: // biases are not trained: under autocast they change their type in the first forward
		change = quantize() + "freeze: [\"*.bias\"]\n"
	case 2:
		change = quantize() + strings.NewReplacer("bias: all", "bias: none", "bias: lora_only", "bias: none").Replace(lora(linear))
	default:
		change = lora(all)
	}
	if built(text+change, arch) == nil {
		return text, arch
	}
	return text + change, arch
}

// built is the job of a spec, nil if it cannot be built.
func built(text, arch string) *program.Job {
	s, err := spec.Parse("fuzz.yaml", []byte(text), spec.Options{})
	if err != nil {
		return nil
	}
	g, err := graph.Build(s, graph.Options{Env: accuracy.ArchEnv(arch), Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		return nil
	}
	return g.Job
}
