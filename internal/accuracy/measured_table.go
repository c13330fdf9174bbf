package accuracy

import (
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/report"
	"github.com/memplan/memplan/internal/tensor"
)

// measuredSuites says what is measured in each suite, in the order of the page.
var measuredSuites = []struct{ name, about string }{
	{suiteTransformers, "GPT-2, OPT and T5 (xMem)"},
	{suiteCNNs, "torchvision's VGG, ResNet, MobileNetV2, MNASNet and RegNet (xMem)"},
	{suiteMLPs, "multilayer perceptrons (GPUMemNet), what is on top of a tiny model"},
}

// measured lists a suite.
func (r *Results) measured(suite string) []*Measured {
	var out []*Measured
	for _, m := range r.Measured {
		if m.Suite == suite {
			out = append(out, m)
		}
	}
	return out
}

// counts are the runs of a list with a prediction, and how many of their peaks
// lie in the interval.
func counts(list []*Measured) (runs, inside int) {
	for _, m := range list {
		if m.Skipped == "" && m.Failed == "" {
			runs++
			if m.Inside() {
				inside++
			}
		}
	}
	return runs, inside
}

// writeMeasured writes the part of docs/accuracy.md about measured peaks.
func (r *Results) writeMeasured(b *strings.Builder) {
	b.WriteString(`
## Against measured GPUs

Peaks that others measured on real GPUs and published (` + "`testdata/measured`" + `), without the CUDA context, against the peak of reserved memory that
` + "`memplan estimate`" + ` gives: on the run's GPU, so that cached memory is given back where the job would not fit otherwise. Runs that ran out of memory
are left out, and perceptrons that take no more than 100 MiB. Errors are without their sign; percentiles interpolate between two runs.

| what was measured | estimator | runs | median | 95th percentile | worst |
|---|---|---|---|---|---|
`)
	for _, s := range measuredSuites {
		list := r.measured(s.name)
		line := func(about, who string, errs []float64) {
			if len(errs) > 0 {
				fmt.Fprintf(b, "| %s | %s | %d | %.2f %% | %.2f %% | %.2f %% |\n", about, who, len(errs), quantile(errs, 0.5), quantile(errs, 0.95), quantile(errs, 1))
			}
		}
		line(s.about, "memplan", errorsOf(list, predicted))
		for _, e := range otherEstimators {
			line("", e.name, errorsOf(list, func(m *Measured) tensor.Bytes { return m.Others[e.name] }))
		}
	}
	cnns := r.measured(suiteCNNs)
	runs, inside := counts(cnns)
	widest := 0.0
	for _, m := range cnns {
		if m.Skipped == "" {
			widest = max(widest, m.Width())
		}
	}
	fmt.Fprintf(b, `
Convolutions take workspaces of cuDNN, whose sizes are documented nowhere and are not in the predictions; reports have an interval
(`+"`internal/estimate/workspace.go`"+`): %d of %d peaks lie inside, and the widest interval is %.1f %% of the peak.

| run | measured | predicted | error | interval | other estimators |
|---|---|---|---|---|---|
`, inside, runs, widest)
	for _, s := range measuredSuites[:2] {
		for _, m := range r.measured(s.name) {
			if m.Skipped != "" {
				continue
			}
			interval := "-"
			if m.Low < m.High {
				interval = fmt.Sprintf("%v to %v", m.Low, m.High)
				if !m.Inside() {
					interval += " (outside)"
				}
			}
			var others []string
			for _, e := range otherEstimators {
				if n := m.Others[e.name]; n > 0 {
					others = append(others, fmt.Sprintf("%s %+.1f %%", e.name, Percent(n, m.Peak)))
				}
			}
			fmt.Fprintf(b, "| %s | %v | %v | %+.2f %% | %s | %s |\n", m.Name, m.Peak, m.Predicted, m.Error(), interval, strings.Join(others, ", "))
		}
	}
	below, above := Tolerance(r.compared(suiteCNNs))
	fmt.Fprintf(b, `
The interval is one of tolerance: from %.1f %% below the prediction to %.1f %% above it, so that with 95 %% confidence 90 %% of all runs are inside,
if these runs are like others. They are runs in float32 on row-major images, from one source. Here it is computed without a network or a GPU:

| left out | interval | its runs inside |
|---|---|---|
`, 100*below, 100*above)
	for _, l := range leaveOut(r.compared(suiteCNNs)) {
		fmt.Fprintf(b, "| %s | -%.1f %% to +%.1f %% | %d of %d |\n", l.What, 100*l.Below, 100*l.Above, l.Inside, l.Runs)
	}
	b.WriteString(`
Where images are row-major, kernels for tensor cores convert their operands in the workspace. That is documented; it is as much as VGG19's peaks lack
(1.1 to 1.2 GiB, its second convolution), and more than RegNet's do. It does not explain the 370 to 600 MiB that four runs of MNASNet and MobileNetV2
with 200 to 323 images on an RTX 3060 lack and others do not. So nothing of it is part of predictions;
` + "`device.cudnn_workspace: model`" + ` counts what is converted.

Of 116 training benchmarks that timm published of an RTX 3090 with PyTorch 1.12 and CUDA 11.3 (` + "`testdata/measured/timm`" + `), the largest batch that ran is
known, and the next one that it tried and that did not. With the context of that CUDA (` + "`device.cuda: 11.3`" + `) memplan refuses none that ran and says FITS of
none that did not; 8 of these 84 it says to be TIGHT, with the warning that the headroom is less than what is not known.

Of 13 runs of PEFT's benchmark of Llama 3.2 3B on an L40S (` + "`testdata/measured/peft`" + `), the number of trained parameters is equal and the mean of what is allocated
after a step within 0.6 %. The lengths of its samples are not known. With three lengths that LoRA of rank 32 implies, the mean, the 99th percentile and the
maximum of what is reserved are within 0.9 % for LoRA, rsLoRA, DoRA, (IA)3 and OFT, and 0.4 to 5.8 % too low with virtual tokens. Of a full fine-tuning they are
3.7 to 7.9 % too low: there more is reserved of what batches of other lengths left.

xMem's language models call zero_grad at the start of the step, as its code does unless told otherwise; the published table infers that they call
it before the backward pass, with which 11 of the 19 predictions would be 4 to 13 % off. Where a prediction is 7 % off or more, a block of a few
MiB more or less decides whether one of the vocabulary's size needs a new segment.
`)
}

// writeMeasuredRuns prints the measured runs.
func (r *Results) writeMeasuredRuns(w io.Writer) error {
	t := &report.Table{
		Header:  []string{"Measured", "peak", "predicted", "error", "from", "to"},
		Numbers: []bool{false, true, true, true, true, true},
	}
	for _, m := range r.Measured {
		row := []string{m.Name, fmt.Sprint(int64(m.Peak)), fmt.Sprint(int64(m.Predicted)), percentText(m.Error()), fmt.Sprint(int64(m.Low)), fmt.Sprint(int64(m.High))}
		switch {
		case m.Skipped != "":
			continue
		case m.Failed != "":
			copy(row[2:], []string{"failed", "", "", ""})
		}
		t.Rows = append(t.Rows, row)
	}
	return t.Write(w)
}
