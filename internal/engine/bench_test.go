package engine_test

import (
	"testing"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine"
	"github.com/memplan/memplan/internal/graph"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/specs"
)

const (
	gpt2     = "memplan: 1\nmodel: {preset: gpt2}\ntrain: {batch_size: 8, optimizer: AdamW}\n"
	resnet50 = "memplan: 1\nmodel: {preset: resnet, with: {depth: 50}}\ntrain: {batch_size: 32, optimizer: {SGD: {momentum: 0.9}}}\n"
	llama7b  = "memplan: 1\nmodel: {preset: llama, with: {vocab: 32000, d: 4096, heads: 32, kv: 32, layers: 32, ff: 11008, ctx: 4096, seq: 2048, hd: 128}}\ntrain: {precision: bf16, optimizer: AdamW}\n"
	llama70b = "memplan: 1\nmodel: {preset: llama, with: {vocab: 32000, d: 8192, heads: 64, kv: 8, layers: 80, ff: 28672, ctx: 4096, seq: 2048, hd: 128}}\ntrain: {precision: bf16, optimizer: AdamW}\n"
)

var a100 = op.Env{Arch: 80, SMs: 108, ThreadsPerSM: 2048, Torch: torchver.Recorded}

func build(tb testing.TB, text string) *program.Job {
	tb.Helper()
	s, err := spec.Parse("bench.yaml", []byte(text), spec.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	g, err := graph.Build(s, graph.Options{Env: a100, Preset: specs.Preset, Presets: specs.Names()})
	if err != nil {
		tb.Fatal(err)
	}
	return g.Job
}

func play(tb testing.TB, job *program.Job) *engine.Played {
	tb.Helper()
	p, err := engine.Play(job, a100, nil, 3)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestPlayAllocations bounds the cost of playing by what the Go runtime
// allocates for an event, which does not depend on the machine as time does:
// 2.3 when this was written.
func TestPlayAllocations(t *testing.T) {
	const limit = 2.8
	job := build(t, gpt2)
	events := len(play(t, job).Trace.Events)
	allocs := testing.AllocsPerRun(5, func() { play(t, job) })
	if perEvent := allocs / float64(events); perEvent > limit {
		t.Errorf("%.2f allocations for an event; the limit is %.2f", perEvent, limit)
	}
}

func BenchmarkEstimateGPT2(b *testing.B)     { benchmarkEstimate(b, gpt2) }
func BenchmarkEstimateResNet50(b *testing.B) { benchmarkEstimate(b, resnet50) }
func BenchmarkEstimateLlama7B(b *testing.B)  { benchmarkEstimate(b, llama7b) }
func BenchmarkEstimateLlama70B(b *testing.B) { benchmarkEstimate(b, llama70b) }

// benchmarkEstimate measures everything from the text of a spec to the
// allocator's state after three steps.
func benchmarkEstimate(b *testing.B, text string) {
	b.ReportAllocs()
	events := 0
	for b.Loop() {
		p := play(b, build(b, text))
		if _, err := allocsim.Replay(p.Trace.Events, allocsim.ReplayOptions{}); err != nil {
			b.Fatal(err)
		}
		events = len(p.Trace.Events)
	}
	b.ReportMetric(float64(events), "events")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(events), "ns/event")
}
