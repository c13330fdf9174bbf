package estimate

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
)

const tiny = "memplan: 1\nmodel:\n  inputs: {x: {shape: [4]}}\n  loss: [mean]\n  layers: [%s]\n%s"

// Jobs that unroll to too much end at their first limit, which says which it is;
// those that say so up front take no memory for it.
func TestBounds(t *testing.T) {
	doubling := "  blocks:\n    b0: {layers: [ReLU]}\n"
	for i := range 30 {
		doubling += fmt.Sprintf("    b%d: {layers: [{block: b%d}, {block: b%d}]}\n", i+1, i, i)
	}
	for _, c := range []struct {
		name, layers, rest, want string
		flag                     string // of a limit of the job; "": a mistake of the spec
	}{
		{"repeat", "{ReLU: , repeat: 1000000000}", "", "unrolls to more than 200000 statements", ""},
		{"repeat of repeat", "{layers: [{layers: [{ReLU: , repeat: 1000}], repeat: 1000}], repeat: 1000}", "", "unrolls to more than 200000 statements", ""},
		{"for", "{layers: [{ReLU: , for: {i: '${range(4096)}'}}], for: {k: '${range(4096)}'}}", "", "unrolls to more than 200000 statements", ""},
		{"blocks that double", "{block: b30}", doubling, "has more than 2000000 operations", ""},
		{"layers", "{layers: [{Linear: 4, repeat: 100}], repeat: 1000}", "", "of memory", limit.MemoryFlag},
		{"accumulation", "{Linear: 4}", "train: {grad_accumulation: 10000}\n", "", limit.MemoryFlag},
		{"accumulation of too much", "{Linear: 4}", "train: {grad_accumulation: 100000}\n", "6:28: the spec unrolls to more than 200000 statements", ""},
		{"history", "{Linear: 4}", "train: {optimizer: {LBFGS: {max_iter: 1000000000, history_size: 1000000000}}}\n", "", limit.MemoryFlag},
		{"batches of an evaluation", "{Linear: 4}", "eval: {batches: 100000}\n", "", limit.MemoryFlag},
		{"RNN", "{LSTM: {hidden_size: 4, num_layers: 1000000000}}", "", "", ""},
		{"pieces", "{chunk: 1000000000}", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := limit.New(t.Context(), limit.Limits{Memory: 64 * tensor.MiB, Time: time.Hour})
			defer b.Close()
			r := &Recipe{Path: "a.yaml", Text: fmt.Appendf(nil, tiny, c.layers, c.rest), Budget: b}
			j, err := r.Job()
			if err == nil {
				_, err = Run(j)
			}
			met, wrong := (*limit.Error)(nil), (*spec.Errors)(nil)
			switch {
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("%v", err)
			case c.flag != "" && (!errors.As(err, &met) || met.Flag != c.flag):
				t.Errorf("no limit: %v", err)
			case c.flag == "" && !errors.As(err, &wrong):
				t.Errorf("no mistake of the spec: %v", err)
			}
			if b.Work() > 20_000_000 {
				t.Errorf("%d steps of work", b.Work())
			}
		})
	}
}

// Large jobs stay within what docs/limits.md says that they take, and so within what
// a check allows. Work is counted, and so the same on all machines.
func TestLargeJobs(t *testing.T) {
	needs.Time(t, "plays models of hundreds of billions of parameters")
	const (
		llama70  = "memplan: 1\nmodel: {preset: llama, with: {layers: 80, d: 8192, heads: 64, kv: 8, ff: 28672, hd: 128, vocab: 128256}}\n"
		llama405 = "memplan: 1\nmodel: {preset: llama, with: {layers: 126, d: 16384, heads: 128, kv: 8, ff: 53248, hd: 128, vocab: 128256}}\n"
	)
	for _, c := range []struct {
		name, text string
		most       int64 // steps of work
	}{
		{"405B", llama405 + "train: {batch_size: 1, precision: bf16}\n", 2_000_000},
		{"405B with 4 batches", llama405 + "train: {batch_size: 4, grad_accumulation: 4, precision: bf16}\n", 4_500_000},
		{"70B under FSDP", llama70 + "train: {batch_size: 1, precision: bf16, checkpoint: true}\nparallel: {fsdp: 64}\n", 1_800_000},
		{"70B under FSDP with 4 batches", llama70 + "train: {batch_size: 4, grad_accumulation: 4, precision: bf16, checkpoint: true}\nparallel: {fsdp: 64}\n", 6_100_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := limit.New(t.Context(), limit.Limits{Memory: limit.CheckMemory, Work: limit.CheckWork})
			defer b.Close()
			j, err := (&Recipe{Path: "a.yaml", Text: []byte(c.text + "device: {gpu: h100-80gb}\n"), Budget: b}).Job()
			if err == nil {
				_, err = Run(j)
			}
			if err != nil || b.Work() > c.most || b.Work() < c.most/10*9 {
				t.Errorf("%d steps of work, not about %d: %v", b.Work(), c.most, err)
			}
		})
	}
}

// A list that grows by one item at a time takes memory in proportion.
func TestAppend(t *testing.T) {
	bytes := func(n int) uint64 {
		r := &Recipe{Path: "a.yaml", Text: fmt.Appendf(nil, tiny, fmt.Sprintf("{Linear: 4}, {clone: , name: 'xs[]', repeat: %d}", n), "")}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := r.Job(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if a, b := bytes(1000), bytes(10_000); b > 20*a {
		t.Errorf("%d bytes for 1000 items, %d for 10,000", a, b)
	}
}

// LBFGS plays as many iterations as there are before all are alike.
func TestLBFGS(t *testing.T) {
	peaks := map[string]tensor.Bytes{}
	for _, n := range []string{"300", "10000"} {
		r := &Recipe{Path: "a.yaml", Text: fmt.Appendf(nil, tiny, "{Linear: 512}", "train: {optimizer: {LBFGS: {history_size: 5, max_iter: "+n+"}}}\n")}
		j, err := r.Job()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Run(j)
		if err != nil {
			t.Fatal(err)
		}
		peaks[n] = o.Free.PeakReserved.Reserved
		if n := len(o.Played.Trace.Events); n > 200_000 {
			t.Errorf("%d events", n)
		}
	}
	if peaks["300"] != peaks["10000"] {
		t.Errorf("%v", peaks)
	}
}

// What a step of LBFGS adds to the history another frees, which is played until all
// that is freed was added by steps that were alike.
func TestLBFGSHistory(t *testing.T) {
	peak := func(history, iterations, steps int) tensor.Bytes {
		rest := fmt.Sprintf("train: {steps: %d, optimizer: {LBFGS: {history_size: %d, max_iter: %d}}}\n", steps, history, iterations)
		if steps == 0 {
			rest = strings.Replace(rest, "steps: 0, ", "", 1)
		}
		j, err := (&Recipe{Path: "a.yaml", Text: fmt.Appendf(nil, tiny, "{Linear: 512}", rest)}).Job()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Run(j)
		if err != nil {
			t.Fatalf("%d in the history, %d iterations: %v", history, iterations, err)
		}
		if steps == 0 && !o.Played.Settled {
			t.Errorf("%d in the history, %d iterations: not played until its steps repeat", history, iterations)
		}
		return o.OnGPU.PeakReserved.Reserved
	}
	for _, history := range []int{1, 4, 8} {
		for iterations := 1; iterations <= 3; iterations += 2 {
			if got, want := peak(history, iterations, 0), peak(history, iterations, 40); got != want {
				t.Errorf("%d in the history, %d iterations: %v, played out %v", history, iterations, got, want)
			}
		}
	}
}
