package report

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// Lengths say what a job does whose batches have different lengths: runs of so many steps
// that were simulated on the device, each with samples in an order of its own. The other
// figures of the report are those of batches as long as the longest.
type Lengths struct {
	Key       string    `json:"key"` // the param that differs: model.with.seq
	File      string    `json:"file"`
	Samples   int       `json:"samples"`
	Longest   int64     `json:"longest_batch"`
	Shapes    int       `json:"shapes"`     // different lengths of batches in the runs
	RoundedTo int64     `json:"rounded_to"` // lengths were rounded up by less than it
	Runs      int       `json:"runs"`
	Steps     int       `json:"steps"`                 // of each run
	Failed    int       `json:"failed"`                // runs that ran out of memory
	Retried   int       `json:"retried"`               // others that fit only by giving cached memory back
	Alone     int64     `json:"fails_alone,omitempty"` // a length with which the first batches run out of memory, where the longest do not
	Earliest  int       `json:"earliest_failure_step,omitempty"`
	Low       float64   `json:"chance_low"` // of the interval in which the chance of that lies with 95 %
	High      float64   `json:"chance_high"`
	Batch     Quantiles `json:"batch_length"`
	Allocated Quantiles `json:"peak_allocated_bytes"` // of single steps
	Reserved  Quantiles `json:"peak_reserved_bytes"`
}

// Quantiles are the median, the 99th percentile and the maximum of single steps.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// Says is the chance to run out of memory, in words.
func (l *Lengths) Says() string {
	says := fmt.Sprintf("%s of %s of %s ran out of memory (with 95 %% confidence %s to %s of all do)", countOf(l.Failed), Plural(int64(l.Runs), "simulated run"), Plural(int64(l.Steps), "step"), share(l.Low), share(l.High))
	if l.Retried > 0 {
		says += fmt.Sprintf("; %d fit only by giving cached memory back, which costs time", l.Retried)
	}
	return says
}

func countOf(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func share(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

func (t *text) lengths() error {
	l := t.r.Lengths
	if l == nil {
		return nil
	}
	tab := &Table{Header: []string{"Batches of different lengths", "p50", "p99", "max"}, Numbers: []bool{false, true, true, true}}
	b := func(n int64) string { return tensor.Bytes(n).String() }
	tab.Rows = append(tab.Rows,
		[]string{"length", fmt.Sprint(l.Batch.P50), fmt.Sprint(l.Batch.P99), fmt.Sprint(l.Batch.Max)},
		[]string{"peak allocated in a step", b(l.Allocated.P50), b(l.Allocated.P99), b(l.Allocated.Max)},
		[]string{"peak reserved in a step", b(l.Reserved.P50), b(l.Reserved.P99), b(l.Reserved.Max)})
	err := t.table(tab)
	t.printf("  %s\n", l.Says())
	if l.Earliest > 0 {
		t.printf("  the earliest in step %d\n", l.Earliest)
	}
	t.printf("  %s of %s, %s in the runs; all other figures are those of the longest batch, %d\n", Plural(int64(l.Samples), "sample"), l.File, Plural(int64(l.Shapes), "different length"), l.Longest)
	if l.RoundedTo > 1 {
		t.printf("  lengths are rounded up, by %d at the most\n", l.RoundedTo-1)
	}
	t.printf("\n")
	return err
}
