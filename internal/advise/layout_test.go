package advise

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/device"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/program"
)

// mpt are the models of llm-foundry's benchmark: width, heads, layers. Vocabulary 50368,
// 2048 positions; linear layers and norms have no bias there, which is a thousandth of the parameters.
var mpt = map[string][3]int{"1b": {2048, 16, 24}, "3b": {2560, 20, 32}, "7b": {4096, 32, 32}, "13b": {5120, 40, 40}, "30b": {7168, 56, 48}, "70b": {8192, 64, 80}}

// TestPublishedThroughput holds the times of steps of FSDP on 8 to 64 GPUs against what
// llm-foundry measured; without -all, of those with few microbatches, as each is played.
func TestPublishedThroughput(t *testing.T) {
	needs.Time(t, needs.Alone)
	var errs []float64
	byGPU := map[string][]float64{}
	for _, row := range needs.Rows(t, "measured", "llmfoundry", "rows.csv") {
		m := mpt[row[0]]
		n := func(s string) int64 {
			v, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		gpus, micro, accumulation, want := n(row[2]), n(row[3]), n(row[4]), float64(n(row[6]))
		if accumulation > 4 && !*all {
			continue
		}
		text := fmt.Sprintf(`memplan: 1
model: {preset: gpt, with: {vocab: 50368, d: %d, heads: %d, layers: %d, ctx: 2048, seq: 2048, dropout: 0}}
train: {batch_size: %d, grad_accumulation: %d, optimizer: AdamW, checkpoint: %s}
fsdp: {ranks: %d, param_dtype: bfloat16, reduce_dtype: float32}
device: {gpu: %s}
`, m[0], m[1], m[2], micro, accumulation, row[5], gpus, row[1])
		r := &estimate.Recipe{Path: "mpt.yaml", Text: []byte(text)}
		o, err := runWith(r)
		if err != nil {
			t.Fatal(err)
		}
		gpu, err := device.Lookup(row[1])
		if err != nil {
			t.Fatal(err)
		}
		b := newBase(r, o)
		step := LinksOf(gpu, gpu.Arch).step(b, nil)
		got := float64(micro*accumulation*2048) / step.Seconds
		e := 100 * (got/want - 1)
		errs = append(errs, math.Abs(e))
		byGPU[row[1]] = append(byGPU[row[1]], e)
		t.Logf("%4s %s × %2s: %6.0f tokens/s, measured %6.0f: %+5.1f %% (waiting %.1f %%)", row[0], row[1], row[2], got, want, e, 100*step.Exposed/step.Seconds)
	}
	slices.Sort(errs)
	t.Logf("median %.1f %%, worst %.1f %%", errs[len(errs)/2], errs[len(errs)-1])
	for gpu, most := range map[string][2]float64{"h100-80gb": {-20.5, -7}, "a100-80gb": {-38.5, -30}} { // as docs/advice.md says
		if low, high := slices.Min(byGPU[gpu]), slices.Max(byGPU[gpu]); low < most[0] || high > most[1] {
			t.Errorf("%s: %.1f to %.1f %% of the measured throughput, not within %v", gpu, low, high, most)
		}
	}
}

// TestCollectives holds the model of collectives against what it is made of.
func TestCollectives(t *testing.T) {
	h100, err := device.Lookup("h100-80gb")
	if err != nil {
		t.Fatal(err)
	}
	l := LinksOf(h100, h100.Arch)
	const gb = 1e9
	node, two := l.of(8), l.of(16)
	if got, want := node.gather(8*gb), ncclBase+7*ringNode+7*gb/l.Node; math.Abs(got/want-1) > 1e-9 {
		t.Errorf("a gather of 8 GB in a node takes %g s, want %g", got, want)
	}
	if got, want := two.gather(16*gb)-two.gather(0), 15*gb/min(l.Node, 8*l.Network); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("16 GB between two nodes take %g s, want %g: a ring for each adapter", got, want)
	}
	if got := l.of(1).reduce(gb) + l.of(1).gather(gb) + l.of(1).broadcast(gb); got != 0 {
		t.Errorf("collectives of one process take %g s", got)
	}
	if ring := 2 * two.gather(gb); two.reduce(gb) > 1.01*ring {
		t.Errorf("an all-reduce takes %g s, longer than the two halves of a ring, %g", two.reduce(gb), ring)
	}
	if small := l.of(1024).reduce(1024); small > 1e-3 {
		t.Errorf("a small all-reduce among 1024 takes %g s: no tree", small)
	}
	if pairs := l.across(2, 8); pairs.nodes != 2 || pairs.bandwidth != l.Network {
		t.Errorf("two ranks of two nodes are %+v", pairs)
	}
	if pcie, err := device.Lookup("h100-pcie"); err != nil || LinksOf(pcie, 90).Node != rateOf(90).link {
		t.Errorf("an H100 PCIe has no NVLink (%v)", err)
	}
}

// layoutJob is a job that fits no GPU as it is.
const layoutJob = `memplan: 1
model: {preset: gpt, with: {layers: 4, d: 1024, heads: 16}}
train: {batch_size: 32, precision: amp-bf16, optimizer: AdamW}
%s
device: {gpu: rtx-3060}
`

// TestLayOut holds that what is listed is what the job is with its keys, that nothing of the
// layout which is faster fits, and that the spec's own options stay.
func TestLayOut(t *testing.T) {
	r := &estimate.Recipe{Path: "job.yaml", Text: fmt.Appendf(nil, layoutJob, "ddp: {ranks: 4, gradient_as_bucket_view: true}")}
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	found, err := LayOut(t.Context(), r, LayoutSearch{GPUs: 16, Links: LinksOf(j.Machine.GPU, j.Machine.Env.Arch)})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Found) != 10 || len(found.Refused) != 0 {
		t.Fatalf("%d layouts, %v refused", len(found.Found), found.Refused)
	}
	last := 0.0
	for _, l := range found.Found {
		if !l.Fits || l.Step.Seconds < last || l.Step.Exposed > l.Step.Communication {
			t.Errorf("%s: fits %v, %+v after %g s", l.Name, l.Fits, l.Step, last)
		}
		last = l.Step.Seconds
		o, err := runWith(r, l.Keys...)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := o.Free.PeakReserved.Reserved, l.Outcome.Free.PeakReserved.Reserved; got != want {
			t.Errorf("%s: %v with its keys, %v listed", l.Name, got, want)
		}
		p := &o.Job.Program.Parallel
		if p.Ranks != 16 || p.DDP != nil && !p.DDP.BucketView {
			t.Errorf("%s: %d processes, %+v", l.Name, p.Ranks, p.DDP)
		}
		for _, x := range l.Options {
			if x.Change.ID == "accumulate" && x.Name != "2" { // half as many microbatches are faster
				half, err := strconv.Atoi(x.Name)
				if err != nil {
					t.Fatal(err)
				}
				o, err := runWith(r, append(slices.Clone(l.Keys), key("train.batch_size", 64/half), key("train.grad_accumulation", half/2))...)
				if err != nil || o.Fits() && !o.Retries() {
					t.Errorf("%s fits with %d microbatches, too (%v)", l.Name, half/2, err)
				}
			}
		}
	}
}

// TestLayOutFlat holds that a job of FSDP1 stays one, in its sharding strategies.
func TestLayOutFlat(t *testing.T) {
	r := &estimate.Recipe{Path: "job.yaml", Text: fmt.Appendf(nil, layoutJob, "fsdp: {ranks: 4, version: 1, use_orig_params: true, sharding_strategy: SHARD_GRAD_OP}")}
	found, err := LayOut(t.Context(), r, LayoutSearch{GPUs: 16, Links: Links{Node: 2e10, Network: 2e9, PerNode: 8}})
	if err != nil || len(found.Refused) != 0 {
		t.Fatal(err, found.Refused)
	}
	strategies := map[string]float64{}
	for _, l := range found.Found {
		if f := l.Outcome.Job.Program.Parallel.FSDP; f != nil {
			if f.Flat == nil || !f.Flat.Orig {
				t.Fatalf("%s: %+v", l.Name, f)
			}
			strategies[f.Flat.Strategy] = max(strategies[f.Flat.Strategy], l.Step.Communication)
		}
	}
	if len(strategies) != 3 || strategies[program.ShardGradOp] >= strategies[program.FullShard] {
		t.Errorf("communication of strategies: %v", strategies)
	}
}

// TestDeepSpeedStages holds that of DeepSpeed the stages are tried, with the rest of its configuration.
func TestDeepSpeedStages(t *testing.T) {
	r := &estimate.Recipe{Path: "job.yaml", Text: fmt.Appendf(nil, strings.Replace(layoutJob, ", precision: amp-bf16", "", 1),
		"deepspeed: {ranks: 4, config: {bf16: {enabled: true}, zero_optimization: {stage: 2, reduce_bucket_size: 1000000}}}")}
	found, err := LayOut(t.Context(), r, LayoutSearch{GPUs: 8, Links: Links{Node: 1e9, Network: 1e9, PerNode: 8}})
	if err != nil {
		t.Fatal(err)
	}
	stages := map[int64]bool{}
	for _, l := range found.Found {
		d := l.Outcome.Job.Program.Parallel.DeepSpeed
		if stages[d.Stage] = true; d.ReduceBucket != 1000000 || l.Outcome.Job.Program.Parallel.Ranks != 8 {
			t.Errorf("%s: %+v", l.Name, d)
		}
	}
	if len(stages) != 3 {
		t.Errorf("stages %v", stages)
	}
}
