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
		if s.name == suiteCNNs {
			line("", "memplan, no workspaces", errorsOf(list, func(m *Measured) tensor.Bytes { return m.Bare }))
		}
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
Convolutions take workspaces of cuDNN, whose sizes are modelled (`+"`internal/cudnn/workspace.go`"+`) and stated with an interval: %d of %d peaks lie
inside, and the widest interval is %.1f %% of the peak.

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
	b.WriteString(`
The table of workspaces was made with these very runs in view: what dense, grouped and pointwise convolutions convert, and the times, limit and
architecture of the filter gradient of a first layer. So the errors above say how well it fits, not how well it predicts. For that, each
family is left out and all of it is chosen again, by the least sum of errors of the other families' runs, among ` + fmt.Sprint(len(workspaceTables())) + ` tables:

| family left out | table chosen | errors of its runs |
|---|---|---|
`)
	for _, l := range r.LeftOut {
		var errs []string
		for _, e := range l.Errors {
			errs = append(errs, fmt.Sprintf("%+.1f %%", e))
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", l.Family, l.Choice, strings.Join(errs, ", "))
	}
	b.WriteString(`
Only VGG has much of dense convolutions, and only RegNet has grouped ones: without them the others cannot tell. The half-width of the interval
(7 % of the peak, or the largest workspace that is possible) is an assumption in view of the same runs.

xMem's language models call zero_grad at the start of the step, as its code does unless told otherwise; the published table infers that they call
it before the backward pass, with which 11 of the 19 predictions would be 4 to 13 % off. Where a prediction is 7 % off or more, a block of a few
MiB more or less decides whether one of the vocabulary's size needs a new segment.
`)
}

// WriteMeasured prints the measured runs.
func (r *Results) WriteMeasured(w io.Writer) error {
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
