package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/memplan/memplan/internal/accuracy"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// maySteps gives a share of the specs techniques that live in the step and the
// data path: values that are kept, an evaluation, averaged weights, batches that
// are copied ahead, offloading.
func maySteps(seed uint64, text, arch string, share float64) string {
	r := rand.New(rand.NewPCG(seed, 0x7374657073))
	if r.Float64() >= share {
		return text
	}
	more := withSteps(text, r)
	s, err := spec.Parse("fuzz.yaml", []byte(more), spec.Options{})
	if err != nil {
		return text
	}
	if _, err := graph.Build(s, graph.Options{Env: accuracy.ArchEnv(arch), Preset: specs.Preset, Presets: specs.Names()}); err != nil {
		return text
	}
	return more
}

// withSteps writes the techniques into a spec of the generator's.
func withSteps(text string, r *rand.Rand) string {
	chance := func(p float64) bool { return r.Float64() < p }
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	head, tail, _ := strings.Cut(text, "train:\n")
	training := !strings.Contains(head, "\nmode:")
	var train, top []string
	if chance(0.3) {
		of := "out"
		if training {
			of = pick("loss", "loss", "out")
		}
		train = append(train, "keep: "+keepText(r, of))
	}
	if training && chance(0.3) {
		train = append(train, pick("ema: {decay: 0.99}", "ema: {device: cpu}"))
	}
	if !strings.Contains(tail, "data:") && chance(0.4) {
		top = append(top, "data: {device_prefetch: true}")
	}
	if training && chance(0.5) {
		keys := []string{fmt.Sprintf("every: %d", 1+r.IntN(2)), fmt.Sprintf("batches: %d", 1+r.IntN(3))}
		if chance(0.6) {
			keys = append(keys, fmt.Sprintf("batch_size: %d", 2+r.IntN(60)))
		}
		if chance(0.6) {
			keys = append(keys, "context: "+pick("no_grad", "inference_mode", "grad"))
		}
		if chance(0.2) {
			keys = append(keys, "train_mode: true")
		}
		if len(train) > 0 && strings.HasPrefix(train[len(train)-1], "ema") && chance(0.4) && !strings.Contains(train[len(train)-1], "cpu") {
			keys = append(keys, "ema: true")
		}
		if chance(0.4) {
			keys = append(keys, "keep: "+keepText(r, pick("loss", "out")))
		}
		top = append(top, "eval: {"+strings.Join(keys, ", ")+"}")
	}
	if chance(0.5) {
		keys := []string{pick("activations: true", "activations: true", "optimizer: true", "optimizer: true, gradients: true", "parameters: true")}
		if chance(0.3) && keys[0] != "activations: true" {
			keys = append(keys, "activations: true")
		}
		if chance(0.4) {
			keys = append(keys, "pin_memory: true")
		}
		top = append(top, "offload: {"+strings.Join(keys, ", ")+"}")
	}
	var b strings.Builder
	b.WriteString(head + "train:\n")
	for _, t := range train {
		b.WriteString("  " + t + "\n")
	}
	b.WriteString(tail)
	for _, t := range top {
		b.WriteString(t + "\n")
	}
	return b.String()
}

// keepText is a value of keep: for the value of that name.
func keepText(r *rand.Rand, of string) string {
	one := func(of string, k int) string {
		keys := []string{"of: " + of, fmt.Sprintf("in: kept%d", k)}
		for _, key := range []string{"detach: true", "to: cpu"} {
			if r.IntN(3) == 0 {
				keys = append(keys, key)
			}
		}
		if of == "loss" {
			for _, key := range []string{"sum: true", "item: true"} {
				if r.IntN(3) == 0 {
					keys = append(keys, key)
				}
			}
		}
		return "{" + strings.Join(keys, ", ") + "}"
	}
	if r.IntN(3) == 0 {
		return "[" + one(of, 1) + ", " + one("out", 2) + "]"
	}
	return one(of, 1)
}
