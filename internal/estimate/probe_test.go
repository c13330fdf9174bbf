package estimate

import (
	"fmt"
	"testing"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

// TestProbe holds what a search asks of a job against what the report says, on a
// device with room and on ones in whose way of working the capacity shows: by requests
// that are refused, by a fraction, and by segments that are given back before.
func TestProbe(t *testing.T) {
	hindered := map[string]int{}
	for _, c := range []struct{ name, text string }{
		{"mlp", "model: {preset: mlp}\ntrain: {batch_size: 4096}\n"},
		{"adam", "model: {preset: mlp}\ntrain: {batch_size: 4096, optimizer: AdamW}\n"},
		{"resnet", "model: {preset: resnet, with: {img: 64}}\ntrain: {batch_size: 32}\n"},
		{"inference", "model: {preset: resnet, with: {img: 64}}\nmode: no_grad\ntrain: {batch_size: 64}\n"},
		{"evaluation", "model: {preset: lenet}\ntrain: {batch_size: 2000}\neval: {every: 2, batch_size: 9000}\n"},
		{"leak", everyStep[len("memplan: 1\n"):] + "  - optimizer_step\n  - zero_grad\n  - {keep: {of: out, in: outs, detach: true}, every: 3}\ntrain: {batch_size: 3000, steps: 20}\n"},
		{"empty cache", "model: {preset: resnet, with: {img: 64}}\ntrain: {batch_size: 32, empty_cache: {every: 2}}\n"},
		{"mixed", "model: {preset: gpt, with: {layers: 2, d: 256, heads: 4, vocab: 3000, seq: 128}}\ntrain: {batch_size: 16, precision: amp-fp16, optimizer: AdamW}\n"},
	} {
		if testing.Short() && c.name != "mlp" && c.name != "mixed" {
			continue
		}
		for _, conf := range []string{"", "max_split_size_mb:21", "garbage_collection_threshold:0.6", "expandable_segments:True", "max_split_size_mb:32,garbage_collection_threshold:0.8"} {
			free := probeOn(t, c.text, conf, 0, "", hindered)
			for _, less := range []tensor.Bytes{-20, 2, 20, 60} {
				probeOn(t, c.text, conf, max(free-less*tensor.MiB, 20*tensor.MiB), "", hindered)
			}
			probeOn(t, c.text, conf, 2*free, ", memory_fraction: 0.45", hindered)
		}
	}
	for _, way := range []string{"retries", "refused", "given back", "fraction"} {
		if hindered[way] == 0 && !testing.Short() {
			t.Errorf("no job of which the device's limit hinders the allocator: %s", way)
		}
	}
}

// probeOn compares on a device with so much usable memory, 0 for a large one, and
// returns what is reserved without a limit.
func probeOn(t *testing.T, text, conf string, memory tensor.Bytes, more string, hindered map[string]int) tensor.Bytes {
	t.Helper()
	device := "device: {gpu: a100-80gb"
	if memory > 0 {
		device = fmt.Sprintf("device: {gpu: t4, context: 0, memory: %d", int64(memory))
	}
	text = "memplan: 1\n" + text + device + fmt.Sprintf(", alloc_conf: %q", conf) + more + "}\n"
	o, r := estimateText(t, text)
	s, err := spec.Parse("test.yaml", []byte(text), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJob(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Probe(j)
	if err != nil {
		t.Fatal(err)
	}
	want := Probed{Fits: r.Verdict.Fits, Tight: r.Verdict.Tight, Usable: r.Device.UsableBytes, Reserved: r.Peak.ReservedBytes}
	if p.Over && r.Peak.ReservedBytes > r.Device.UsableBytes {
		p.Over = false
		if p.Reserved, err = Reserved(j); err != nil {
			t.Fatal(err)
		}
	}
	if p != want || p.Reserved != o.Free.PeakReserved.Reserved {
		t.Errorf("%s%+v; the report says %+v", text, p, want)
	}
	for way, is := range map[string]bool{
		"retries": o.OnGPU.Stats.NumAllocRetries > 0, "refused": !o.Fits(), "fraction": more != "" && o.OnGPU.Stats.NumAllocRetries > 0,
		"given back": o.Fits() && o.OnGPU.Stats.NumAllocRetries == 0 && o.OnGPU.PeakReserved.Reserved != o.Free.PeakReserved.Reserved,
	} {
		if is {
			hindered[way]++
		}
	}
	return r.Peak.ReservedBytes
}
