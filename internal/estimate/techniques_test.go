package estimate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/host"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// A batch of 16 MiB and a result of 16 MiB, both in segments of their own, on a
// GPU with 192 MiB to use.
const leaky = `
memplan: 1
mode: no_grad
model:
  inputs: {x: {shape: [1048576]}}
  layers: [neg]
train: {batch_size: 4, keep: out}
device: {memory: 200MiB, context: 8MiB, arch: sm_80, sms: 60}
`

// TestLeak: step n finds n - 1 results kept and needs two blocks more, together
// n + 1 of 16 MiB; 192 MiB are 12, so that step 12 dies.
func TestLeak(t *testing.T) {
	_, r := estimateText(t, leaky)
	v := r.Verdict
	if v.Result != report.OOMs || v.OOM.Step != 12 || v.OOM.TriedBytes != 16*tensor.MiB || v.OOM.FreeBytes != 0 {
		t.Errorf("%s, %+v", v.Result, v.OOM)
	}
	const says = "each step leaves 16.00 MiB more than it found, most of it made by neg"
	if v.Leak == nil || *v.Leak != (report.Leak{Bytes: 16 * tensor.MiB, Period: 1, SimulatedSteps: 12, Op: "neg", Says: says}) {
		t.Errorf("leak %+v", v.Leak)
	}
	if !strings.Contains(v.Reason, says) {
		t.Errorf("reason %q", v.Reason)
	}
}

// TestLeakEvery: of every second step the result is kept, so that step n finds
// (n-1)/2, rounded down; two blocks more are too many when that is 11, in step
// 23.
func TestLeakEvery(t *testing.T) {
	_, r := estimateText(t, strings.Replace(leaky, "train: {batch_size: 4, keep: out}", "train: {batch_size: 4}", 1)+`
step:
  - batch
  - {forward: {model: model}, name: out}
  - {keep: out, every: 2}
`)
	v := r.Verdict
	if v.OOM == nil || v.OOM.Step != 23 || v.Leak == nil || v.Leak.Bytes != 16*tensor.MiB || v.Leak.Period != 2 {
		t.Errorf("%s, %+v, leak %+v", v.Result, v.OOM, v.Leak)
	}
}

// TestLeakElsewhere: a number or a copy on the CPU leaves nothing on the GPU;
// the copy fills the host.
func TestLeakElsewhere(t *testing.T) {
	o, r := estimateText(t, leaky, "train.keep={of: out, to: cpu}")
	if r.Verdict.Result != report.Fits || r.Verdict.Leak != nil {
		t.Errorf("%s, leak %+v", r.Verdict.Result, r.Verdict.Leak)
	}
	if o.Played.HostGrowth != 16*tensor.MiB || !strings.Contains(strings.Join(r.Warnings, "\n"), "host memory keeps growing: 16.00 MiB more for each step") {
		t.Errorf("host grows by %v; %q", o.Played.HostGrowth, r.Warnings)
	}
	if _, r := estimateText(t, leaky, "train.keep=null"); r.Verdict.Result != report.Fits || len(r.Warnings) > 0 {
		t.Errorf("%s, %q", r.Verdict.Result, r.Warnings)
	}
}

// TestLeakBound: a leak of a block of 1 KiB a step (mse_loss leaves its loss in
// the 640 bytes of what it sums) does not fill a GPU within the bound, and the
// report says so.
func TestLeakBound(t *testing.T) {
	needs.Time(t, "replays a long time; the whole suite runs without it")
	_, r := estimateText(t, small, "train.keep=loss", "device.memory=20GiB")
	v := r.Verdict
	if v.Result != report.Fits || v.Leak == nil || v.Leak.Bytes != 1024 || v.Leak.SimulatedSteps < 10_000 {
		t.Errorf("%s, leak %+v", v.Result, v.Leak)
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "later ones will not") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

// Sizes in elements: x 8 x 100, hidden 8 x 50, out 8 x 20; parameters 100 x 50 +
// 50 and 50 x 20 + 20, together 6070.
const small = `
memplan: 1
model:
  inputs: {x: {shape: [100]}, y: {shape: [20]}}
  layers: [{Linear: 50}, Tanh, {Linear: 20}]
  loss: {mse_loss: [out, y]}
train: {batch_size: 8, optimizer: Adam}
device: {memory: 1GiB, context: 8MiB, arch: sm_80, sms: 60}
`

const smallParams = 100*50 + 50 + 50*20 + 20

// TestOffloadActivations: what the graph saves lies on the CPU: x for the first
// weight, the result of tanh, it again as input of the second layer and that
// layer's weight, and both arguments of the loss.
func TestOffloadActivations(t *testing.T) {
	want := tensor.Bytes(4 * (8*100 + 8*50 + 8*50 + 50*20 + 8*20 + 8*20))
	for _, pinned := range []bool{false, true} {
		set := "offload={activations: true}"
		if pinned {
			set = "offload={activations: true, pin_memory: true}"
		}
		o, r := estimateText(t, small, set)
		ordinary, locked, err := host.Held(o.Played.Host.Events, o.Played.Host.Pinned)
		if err != nil || r.Totals.SavedActivationsBytes != 0 {
			t.Errorf("%v; %v saved on the GPU", err, r.Totals.SavedActivationsBytes)
		}
		// In powers of two: 3200 is 4096, 1600 is 2048 twice, 4000 is 4096, 640 is 1024 twice.
		if pinned && (ordinary != 0 || locked != 4096+2*2048+4096+2*1024) || !pinned && (ordinary != want || locked != 0) {
			t.Errorf("%d bytes and %d pinned, want %d", ordinary, locked, want)
		}
	}
}

// hostBytes sums what a job still holds on the CPU at its end, by category.
func hostBytes(o *Outcome) map[trace.Category]tensor.Bytes {
	h := &o.Played.Host
	live := map[int32]tensor.Bytes{}
	for i := range h.Events {
		if e := &h.Events[i]; e.Kind == trace.Alloc {
			live[e.ID] = e.Bytes
		} else {
			delete(live, e.ID)
		}
	}
	sums := map[trace.Category]tensor.Bytes{}
	for id, n := range live {
		sums[h.Categories[id]] += n
	}
	return sums
}

// TestOffloadOptimizer: Adam's two moments and the parameters that it steps are
// on the CPU; the parameters are on the GPU as well. With gradients: true no
// gradient stays there.
func TestOffloadOptimizer(t *testing.T) {
	for _, gradients := range []bool{false, true} {
		set := "offload={optimizer: true}"
		if gradients {
			set = "offload={optimizer: true, gradients: true}"
		}
		o, r := estimateText(t, small, set)
		sums := hostBytes(o)
		if sums[trace.Parameters] != 4*smallParams || sums[trace.OptimizerState] != 8*smallParams || sums[trace.Gradients] != 4*smallParams {
			t.Errorf("on the CPU %v", sums)
		}
		if r.AtPeak.OptimizerStateBytes != 0 || r.AtPeak.ParametersBytes != 4*smallParams || r.Totals.OptimizerStateBytes != 8*smallParams {
			t.Errorf("at the peak %+v, %v of state", r.AtPeak, r.Totals.OptimizerStateBytes)
		}
		if want := tensor.Bytes(4 * smallParams); gradients && r.Totals.GradientsBytes != 0 || !gradients && r.Totals.GradientsBytes != want {
			t.Errorf("%v of gradients on the GPU", r.Totals.GradientsBytes)
		}
	}
}

// TestOffloadParameters: parameters, gradients and state are on the CPU, and the
// GPU holds those of one layer at most, of which the first is the larger.
func TestOffloadParameters(t *testing.T) {
	o, r := estimateText(t, small, "offload={parameters: true}")
	sums := hostBytes(o)
	if sums[trace.Parameters] != 4*smallParams || sums[trace.OptimizerState] != 8*smallParams || sums[trace.Gradients] != 4*smallParams {
		t.Errorf("on the CPU %v", sums)
	}
	var live, most tensor.Bytes
	tr := o.Played.Trace
	size := map[int32]tensor.Bytes{}
	for i := range tr.Events {
		e := &tr.Events[i]
		if e.Kind == trace.Alloc && tr.Categories[e.ID] == trace.Parameters {
			size[e.ID] = e.Bytes
			live += e.Bytes
			most = max(most, live)
		} else if e.Kind == trace.Free {
			live -= size[e.ID]
		}
	}
	if most != 4*(100*50+50) || live != 0 || r.AtPeak.OptimizerStateBytes != 0 {
		t.Errorf("parameters on the GPU: %d bytes at most, %d at the end", most, live)
	}
}

// TestEMA: a second copy of the parameters, on the GPU or on the CPU.
func TestEMA(t *testing.T) {
	_, plain := estimateText(t, small)
	_, gpu := estimateText(t, small, "train.ema={decay: 0.99}")
	o, cpu := estimateText(t, small, "train.ema={device: cpu}")
	p := plain.AtPeak.ParametersBytes
	if p != 4*smallParams || gpu.AtPeak.ParametersBytes != 2*p || cpu.AtPeak.ParametersBytes != p {
		t.Errorf("parameters %d, %d with the averages, %d with those on the CPU", p, gpu.AtPeak.ParametersBytes, cpu.AtPeak.ParametersBytes)
	}
	if n := hostBytes(o)[trace.Parameters]; n != p {
		t.Errorf("%d bytes of averages on the CPU, want %d", n, p)
	}
}

// TestTeacher: the teacher's parameters have no gradients and no state, and
// nothing of it is saved but what the loss needs.
func TestTeacher(t *testing.T) {
	teacher := "teacher={inputs: {x: {shape: [100]}}, layers: [{Linear: 70}, Tanh, {Linear: 20}], temperature: 2}"
	_, plain := estimateText(t, small)
	_, r := estimateText(t, small, teacher)
	own := tensor.Bytes(4 * (100*70 + 70 + 70*20 + 20))
	if r.Totals.ParametersBytes != plain.Totals.ParametersBytes+own || r.Totals.GradientsBytes != plain.Totals.GradientsBytes ||
		r.Totals.OptimizerStateBytes != plain.Totals.OptimizerStateBytes {
		t.Errorf("totals %+v, without the teacher %+v", r.Totals, plain.Totals)
	}
	// log_softmax of the student and softmax of the teacher, as results and as
	// arguments of the divergence one block each; the student's logits are
	// saved by both losses already.
	if more := r.Totals.SavedActivationsBytes - plain.Totals.SavedActivationsBytes; more != 2*4*8*20 {
		t.Errorf("%d bytes more are saved", more)
	}
}

// TestPrefetch: the next batch lives beside the current one.
func TestPrefetch(t *testing.T) {
	_, plain := estimateText(t, small)
	_, r := estimateText(t, small, "data={device_prefetch: true}")
	batch := tensor.Bytes(4 * 8 * (100 + 20))
	if plain.AtPeak.InputsBytes != batch || r.AtPeak.InputsBytes != 2*batch {
		t.Errorf("inputs %d, %d with the next batch", plain.AtPeak.InputsBytes, r.AtPeak.InputsBytes)
	}
}

// TestEval: an evaluation on batches of 4096 peaks far above the step, in the
// last product of the second batch: beside parameters, their state and the
// gradients, which the next step clears, live x and y, the output and the loss of
// the first batch (which mse_loss leaves in the block of all that it sums), the
// result of tanh, the output, and 1 MiB of cuBLAS for this product.
func TestEval(t *testing.T) {
	_, r := estimateText(t, small, "eval={batch_size: 4096, batches: 2}", "torch=2.6")
	const b = 4 * 4096
	want := tensor.Bytes(4*smallParams*4 + b*(100+20+20+20+50+20) + 1<<20)
	var peak tensor.Bytes
	for _, p := range r.Phases {
		if p.Phase == "eval" {
			peak = p.PeakAllocatedBytes
		}
	}
	if r.Peak.Phase != "eval" || peak != r.Peak.AllocatedBytes {
		t.Errorf("the peak is in %s, that of the evaluation %v of %v", r.Peak.Phase, peak, r.Peak.AllocatedBytes)
	}
	got := r.Peak.RequestedBytes - r.AtPeak.WorkspaceBytes
	if got != want {
		t.Errorf("%d bytes at the peak, want %d", got, want)
	}
}

// TestHugeParameters: parameters whose bytes do not fit into 64 bits are refused,
// on the device and in the machine's memory alike; they never wrap.
func TestHugeParameters(t *testing.T) {
	for _, set := range []string{"device={gpu: t4, host_ram: 64GiB}", "train.precision=bf16"} {
		s, err := spec.Parse("test.yaml", []byte(`memplan: 1
model:
  inputs: {x: [4]}
  blocks:
    big: {parameters: {w: {shape: [1000000, 1000000, 250]}}, layers: [{mul: 1.0}]}
  layers: [{repeat: 9300, block: big}]
  loss: {sum: , inputs: out}
`), spec.Options{Set: []string{set}})
		if err != nil {
			t.Fatal(err)
		}
		j, err := NewJob(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Run(j); err == nil || !strings.Contains(err.Error(), "more than 4 EiB") {
			t.Errorf("%s: %v", set, err)
		}
	}
	big := &program.Class{Params: []program.Param{{Name: "w", Size: []int64{1 << 47}, DType: tensor.Float32}}}
	root := &program.Class{}
	for range 20000 {
		root.Children = append(root.Children, program.Child{Class: big})
	}
	if n, err := built(root, func(p *program.Param, _ bool) tensor.DType { return p.DType }); err == nil {
		t.Errorf("%v, no error", n.total)
	}
}

// TestStepsAsked: steps that are asked for and too few to come round are no leak.
func TestStepsAsked(t *testing.T) {
	text := strings.ReplaceAll(everyJobs[0].text, "every: N", "every: 7")
	for _, steps := range []int{5, 8, 11, 14, 16, 30} {
		_, r := estimateText(t, text, fmt.Sprint("train.steps=", steps))
		for _, w := range r.Warnings {
			if strings.Contains(w, "leak") {
				t.Errorf("%d steps: %s", steps, w)
			}
		}
	}
	for n := 2; n <= 100; n += 7 {
		_, r := estimateText(t, strings.ReplaceAll(everyJobs[0].text, "every: N", fmt.Sprint("every: ", n)))
		for _, w := range r.Warnings {
			if strings.Contains(w, "leak") {
				t.Errorf("every: %d: %s", n, w)
			}
		}
	}
}
