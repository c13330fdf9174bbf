package estimate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/lengths"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
)

// lengthsJob reads a spec whose seq has the lengths of a file.
func lengthsJob(t *testing.T, model, rest, file string) *Job {
	t.Helper()
	text := fmt.Sprintf("memplan: 1\nmodel: %s\ndevice: {gpu: a100-80gb}\n%s\n", model, rest)
	r := &Recipe{Path: "test.yaml", Text: []byte(text), ReadFile: func(name string) ([]byte, error) {
		if name != "l.txt" {
			return nil, errors.New("there is no " + name)
		}
		return []byte(file), nil
	}}
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

const tinyGPT = "{preset: gpt, with: {layers: 2, d: 128, heads: 4, vocab: 500, seq: {lengths: l.txt%s}}}"

// TestOneLength: a run whose batches are all alike does what the job does that is played
// with that length.
func TestOneLength(t *testing.T) {
	for _, train := range []string{
		"train: {batch_size: 4, optimizer: AdamW, precision: amp-bf16}",
		"train: {batch_size: 4, optimizer: {SGD: {momentum: 0.9}}, loop: flat, checkpoint: true}",
		"train: {batch_size: 2, optimizer: AdamW, grad_accumulation: 3, clip_grad_norm: 1.0, zero_grad: after_step}",
	} {
		j := lengthsJob(t, fmt.Sprintf(tinyGPT, ", steps: 6"), train, "96\n96\n96\n96\n96\n96\n96\n96")
		o, err := Run(j)
		if err != nil {
			t.Fatal(err)
		}
		v := &varying{o: o, spec: j.Spec.Lengths, batches: batches(j.Program), turns: map[int64]*turn{}}
		if v.samples, err = j.recipe.samples(v.spec); err != nil {
			t.Fatal(err)
		}
		if err := v.play(); err != nil {
			t.Fatal(err)
		}
		v.next = func(run int) func() int64 { return v.sampler(run).Next }
		r, err := v.run(0, 6)
		if err != nil {
			t.Fatal(err)
		}
		at := func(step int) (peak, reserved float64) { // steps beyond those played are as the last
			s := o.Free.Steps[min(step, len(o.Free.Steps)-1)]
			return float64(s.PeakAllocated.Allocated), float64(s.PeakReserved.Reserved)
		}
		if v.turns[96].starts != 1 {
			t.Errorf("%s: the run begins with %d steps of its first length", train, v.turns[96].starts)
		}
		for i := range r.allocated {
			peak, reserved := at(i + 1)
			if r.allocated[i] != peak || r.reserved[i] != reserved {
				t.Errorf("%s: step %d: %v, %v; want %v, %v", train, i+1, r.allocated[i], r.reserved[i], peak, reserved)
			}
		}
	}
}

// TestDerivedLengths: what is derived from three lengths is what is played.
func TestDerivedLengths(t *testing.T) {
	var file strings.Builder
	for n := 9; n < 400; n += 13 {
		fmt.Fprintln(&file, n)
	}
	j := lengthsJob(t, fmt.Sprintf(tinyGPT, ", pad_to_multiple_of: 8"), "train: {batch_size: 2, optimizer: AdamW, precision: amp-bf16}", file.String())
	v := &varying{o: &Outcome{Job: j}, spec: j.Spec.Lengths, batches: 1, coarse: 1, turns: map[int64]*turn{}}
	v.samples, _ = j.recipe.samples(v.spec)
	all := v.shapes()
	if ok, err := v.derive(all); !ok || err != nil {
		t.Fatalf("no curve through the lengths: %v, %v", ok, err)
	}
	for _, n := range all {
		p, err := v.playLength(n)
		if err != nil {
			t.Fatal(err)
		}
		want, err := newTurn(p, v.numbers(p), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.turns[n]; !slices.Equal(got.step.calls, want.step.calls) || !slices.Equal(got.step.out, want.step.out) || !slices.Equal(got.start.calls, want.start.calls) {
			t.Errorf("length %d: what is derived is not what is played", n)
		}
	}
}

// TestOddLengths: lengths that are no multiples of 8 take padded tensors in attention, and
// sizes that are rounded up to multiples of 128 look as if it were 64 at three lengths. Each
// turn is what is played, whichever lengths decide the curves.
func TestOddLengths(t *testing.T) {
	const config = `{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 1000}`
	for _, c := range []struct {
		first, last, by int
		odd             []int
		coarse          int64
	}{
		{200, 1000, 8, []int{301, 333, 995}, 1},
		{200, 600, 3, nil, 1},
	} {
		var file strings.Builder
		for n := c.first; n < c.last; n += c.by {
			fmt.Fprintln(&file, n)
		}
		for _, n := range c.odd {
			fmt.Fprintln(&file, n)
		}
		r := &Recipe{Path: "test.yaml", Text: []byte("memplan: 1\nmodel: {hf: config.json, task: causal-lm, with: {seq: {lengths: l.txt}, mask: ones}}\ntrainer:\n  hf: {per_device_train_batch_size: 4, bf16: true}\ndevice: {gpu: a100-40gb}\n"),
			ReadFile: func(name string) ([]byte, error) {
				return []byte(map[string]string{"l.txt": file.String(), "config.json": config}[name]), nil
			}}
		j, err := r.Job()
		if err != nil {
			t.Fatal(err)
		}
		v := &varying{o: &Outcome{Job: j}, spec: j.Spec.Lengths, batches: 1, turns: map[int64]*turn{}}
		v.samples, _ = r.samples(v.spec)
		if err := v.play(); err != nil {
			t.Fatal(err)
		}
		if v.coarse != c.coarse {
			t.Errorf("lengths by %d: rounded up to multiples of %d", c.by, v.coarse)
		}
		for _, n := range v.shapes() {
			p, err := v.playLength(n)
			if err != nil {
				t.Fatal(err)
			}
			want, err := newTurn(p, v.numbers(p), 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := v.turns[n]; !slices.Equal(got.step.calls, want.step.calls) || !slices.Equal(got.start.calls, want.start.calls) {
				t.Errorf("lengths by %d: length %d: what is derived is not what is played", c.by, n)
			}
		}
	}
}

// TestRoundedLengths: a length stands for those below it that are multiples of the same
// powers of two.
func TestRoundedLengths(t *testing.T) {
	for _, longest := range []int64{1, 7, 40, 133} {
		for coarse := int64(1); coarse <= 64; coarse *= 2 {
			v := &varying{spec: &spec.Lengths{}, samples: lengths.Samples{int32(longest)}, coarse: coarse}
			for n := int64(1); n <= longest; n++ {
				got := v.length(n)
				same := min(alignment(got), coarse) == min(alignment(n), coarse)
				if got < n || got > longest || got-n >= coarse || !same {
					t.Errorf("longest %d, coarse %d: %d stands for %d", longest, coarse, got, n)
				}
			}
		}
	}
}

// TestAccumulatedLengths: each batch of a step has its own length.
func TestAccumulatedLengths(t *testing.T) {
	j := lengthsJob(t, fmt.Sprintf(tinyGPT, ""), "train: {batch_size: 1, optimizer: AdamW, grad_accumulation: 2}", "64\n256\n")
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	l := o.Varied
	if l.Shapes != 2 || l.Batch.Max != 256 || l.Batch.P50 != 256 || l.Longest != 256 {
		t.Errorf("%+v", l)
	}
	// of the two batches of each step one is short: less lives in a step than with two long ones
	if most := int64(o.Free.PeakAllocated.Allocated); l.Allocated.Max > most || l.Allocated.Max < most/2 {
		t.Errorf("the most that is allocated is %d; with long batches alone it is %d", l.Allocated.Max, most)
	}
}

// TestChance: the chance to run out of memory is that of the simulated runs.
func TestChance(t *testing.T) {
	model := fmt.Sprintf(tinyGPT, ", steps: 20")
	j := lengthsJob(t, model, "train: {batch_size: 1, optimizer: AdamW}", strings.Repeat("64\n", 99)+"512\n")
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	need := o.Free.PeakAllocated.Allocated
	j = lengthsJob(t, model, "train: {batch_size: 1, optimizer: AdamW}", strings.Repeat("64\n", 99)+"512\n")
	j.Machine.Total = j.Machine.Context + need - 1<<20
	if o, err = Run(j); err != nil {
		t.Fatal(err)
	}
	l := o.Varied
	// one of a hundred samples is long, and twenty are drawn
	if p := float64(l.Failed) / float64(l.Runs); p < 0.05 || p > 0.45 || l.Low > 0.2 || l.High < 0.2 {
		t.Errorf("%d of %d runs fail, between %v and %v; 20 %% are expected", l.Failed, l.Runs, l.Low, l.High)
	}
	r := o.Report()
	if r.Verdict.Fits || !strings.Contains(r.Verdict.Reason, "simulated runs of 20 steps ran out of memory") {
		t.Errorf("verdict %+v", r.Verdict)
	}
}

// TestRecordedLengths: runs with given lengths do what transformers' Trainer did with them.
func TestRecordedLengths(t *testing.T) {
	text, err := os.ReadFile(needs.File(t, "lengths", "trainer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name         string
		Lengths      []int64
		Batch        int64
		Accumulation int
		Args         json.RawMessage
		HF           json.RawMessage
		Steps        [][2]float64
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		var file strings.Builder
		for _, n := range c.Lengths {
			fmt.Fprintln(&file, n)
		}
		args := fmt.Sprintf("{per_device_train_batch_size: %d, gradient_accumulation_steps: %d, %s", c.Batch, c.Accumulation, string(c.Args)[1:])
		r := &Recipe{Path: "test.yaml", Text: fmt.Appendf(nil, "memplan: 1\ntorch: 2.6\nmodel: {hf: config.json, task: causal-lm, with: {seq: {lengths: l.txt}, mask: ones}}\ntrainer:\n  hf: %s\n  nan_loss: true\ndevice: {gpu: a100-80gb}\n", args),
			ReadFile: func(name string) ([]byte, error) {
				return map[string][]byte{"l.txt": []byte(file.String()), "config.json": c.HF}[name], nil
			}}
		j, err := r.Job()
		if err != nil {
			t.Fatal(err)
		}
		v := &varying{o: &Outcome{Job: j}, spec: j.Spec.Lengths, batches: batches(j.Program), turns: map[int64]*turn{}}
		if v.batches != c.Accumulation {
			t.Errorf("%s: %d batches in a step", c.Name, v.batches)
		}
		if v.samples, err = r.samples(v.spec); err != nil {
			t.Fatal(err)
		}
		if err := v.play(); err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		v.next = func(int) func() int64 {
			k := 0
			return func() int64 { k++; return c.Lengths[k-1] }
		}
		got, err := v.run(0, len(c.Steps))
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for i, s := range c.Steps {
			if got.allocated[i] != s[0] || got.reserved[i] != s[1] {
				wrong++
				t.Logf("%s: step %d: allocated %.0f, reserved %.0f; recorded %.0f, %.0f", c.Name, i+1, got.allocated[i], got.reserved[i], s[0], s[1])
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d steps are not as recorded", c.Name, wrong, len(c.Steps))
		}
	}
}

func TestWilson(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 10, 0, 0.2775}, {5, 10, 0.2366, 0.7634}, {10, 10, 0.7225, 1}} {
		if low, high := wilson(c.k, c.n); low < c.low-1e-4 || low > c.low+1e-4 || high < c.high-1e-4 || high > c.high+1e-4 {
			t.Errorf("%d of %d: %v to %v", c.k, c.n, low, high)
		}
	}
}

// TestVerdictOfLengths: a job whose longest batch fits runs out of memory where batches of
// another length do, or it is tight where a run needs cached memory back.
func TestVerdictOfLengths(t *testing.T) {
	j := lengthsJob(t, fmt.Sprintf(tinyGPT, ""), "train: {batch_size: 4, optimizer: AdamW}", "96\n95\n")
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		failed, retried int
		alone           int64
		result, says    string
	}{
		{0, 0, 0, report.Fits, "none of"},
		{0, 2, 0, report.Tight, "2 fit only by giving cached memory back"},
		{3, 0, 0, report.OOMs, "fragment the memory"},
		{3, 0, 95, report.OOMs, "batches of length 95 run out of memory, though those of length 96 do not"},
	} {
		o.Varied.Failed, o.Varied.Retried, o.Varied.Alone = c.failed, c.retried, c.alone
		if v := o.Report().Verdict; v.Result != c.result || !strings.Contains(v.Reason, c.says) || v.Fits != (c.failed == 0) || v.Tight != (c.result == report.Tight) {
			t.Errorf("%+v: %+v", c, v)
		}
		if o.Fits() != (c.failed == 0) || o.Retries() != (c.retried > 0) {
			t.Errorf("%+v: fits %v, retries %v", c, o.Fits(), o.Retries())
		}
	}
}

// TestRareSteps: what runs in every n-th step and is not in the steps that are played is
// refused, or the report says so.
func TestRareSteps(t *testing.T) {
	head := "memplan: 1\nmodel: {inputs: {x: [\"${seq}\", 8], y: {shape: [], dtype: int64}}, layers: [{Linear: 16}, {mean: {dim: 1}}], loss: {cross_entropy: {target: y}}}\nparams: {seq: {lengths: l.txt, steps: 5}}\n"
	for text, want := range map[string]string{
		"step:\n  - batch\n  - {forward: {model: model}, name: out}\n  - {cross_entropy: [out, y], name: loss}\n  - {backward: loss}\n  - {optimizer_step: , every: 8}\n  - {zero_grad: , every: 8}\n":                                   "params.seq: what runs in every 8-th step only is not modelled where lengths differ",
		"step:\n  - batch\n  - {forward: {model: model}, name: out}\n  - {cross_entropy: [out, y], name: loss}\n  - {backward: loss, every: 7}\n  - optimizer_step\n  - zero_grad\n":                                                     "params.seq: what runs in every 7-th step only is not modelled where lengths differ",
		"step:\n  - batch\n  - {forward: {model: model}, name: out}\n  - {cross_entropy: [out, y], name: loss}\n  - {backward: loss}\n  - optimizer_step\n  - zero_grad\n  - {softmax: {dim: 1}, inputs: out, name: logged, every: 9}\n": "",
		"eval: {every: 50}\n": "",
	} {
		r := &Recipe{Path: "test.yaml", Text: []byte(head + text), ReadFile: func(string) ([]byte, error) { return []byte("8\n9\n12\n"), nil }}
		j, err := r.Job()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Run(j)
		if want != "" {
			if err == nil || err.Error() != want {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(o.Report().Notes, func(n note.Note) bool { return n.Code == note.Unsettled }) {
			t.Errorf("%q: no note", text)
		}
	}
}

// TestLengthsTogether: where a backward pass is of several batches, a step is one with its longest
// batch, however they come.
func TestLengthsTogether(t *testing.T) {
	r := &Recipe{Path: "test.yaml", ReadFile: func(string) ([]byte, error) { return []byte("8\n200\n"), nil }, Text: []byte(`memplan: 1
model: {inputs: {x: ["${seq}", 8], y: {shape: [], dtype: int64}}, layers: [{Linear: 64}, {mean: {dim: 1}}], loss: {cross_entropy: {target: y}}}
params: {seq: {lengths: l.txt, steps: 40}}
step:
  - batch
  - {forward: {model: model}, name: out}
  - {cross_entropy: [out, y], name: one}
  - batch
  - {forward: {model: model}, name: out}
  - {cross_entropy: [out, y], name: loss}
  - {add: [loss, one], name: loss}
  - {backward: loss}
  - optimizer_step
  - zero_grad
`)}
	j, err := r.Job()
	if err != nil {
		t.Fatal(err)
	}
	o, err := Run(j)
	if err != nil {
		t.Fatal(err)
	}
	v := &varying{o: o, spec: j.Spec.Lengths, batches: 2, turns: map[int64]*turn{}}
	if v.samples, err = j.recipe.samples(v.spec); err != nil {
		t.Fatal(err)
	}
	if err := v.play(); err != nil {
		t.Fatal(err)
	}
	peaks := map[int64]float64{}
	for _, draw := range [][]int64{{8, 8}, {8, 200}, {200, 8}, {200, 200}} {
		k := 0
		v.next = func(int) func() int64 { return func() int64 { k++; return draw[(k-1)%2] } }
		got, err := v.run(0, 6)
		if err != nil {
			t.Fatal(err)
		}
		longest, peak := slices.Max(draw), got.allocated[5]
		if before, found := peaks[longest]; found && before != peak {
			t.Errorf("batches of %v: %.0f, of others as long %.0f", draw, peak, before)
		}
		peaks[longest] = peak
	}
	if peaks[8] >= peaks[200] {
		t.Errorf("%v", peaks)
	}
}
