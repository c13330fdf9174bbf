package accuracy

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/note"
	"github.com/memplan/memplan/internal/pool"
)

// timmSpec is timm's benchmark.py of a preset, its params and a batch, on the RTX 3090
// of 24268 MiB that drivers of 2022 show.
const timmSpec = `memplan: 1
model: {preset: %s, with: {%s}}
step:
  - {zero_grad: {set_to_none: false}}
  - batch
  - {forward: {model: model}, name: output}
  - {cross_entropy: [output, y], name: loss}
  - {backward: loss}
  - optimizer_step
train: {batch_size: %d, precision: amp-fp16, optimizer: {SGD: {lr: 1.0e-4, momentum: 0.9, nesterov: true, foreach: false}}, cudnn_benchmark: true, steps: 3}
device: {gpu: rtx-3090, memory: 24268MiB, cuda: "11.3"}
`

// timmBatches are the batches that it tries.
var timmBatches = []int{512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// TestMeasuredTimm holds verdicts against batches that ran and that did not: none that
// ran is refused, and none that did not is said to FIT. Few of those are said to be
// TIGHT, and none without the warning that the headroom is less than what is not known.
func TestMeasuredTimm(t *testing.T) {
	needs.Time(t, "plays the benchmarks of timm")
	rows := needs.Rows(t, "measured", "timm", "rtx3090.csv")
	var mu sync.Mutex
	verdicts := map[string]int{}
	pool.Do(len(rows), func(i int) {
		layout, model, preset, with := rows[i][0], rows[i][1], rows[i][2], rows[i][3]
		ran, err := strconv.Atoi(rows[i][4])
		if err != nil {
			t.Error(err)
			return
		}
		batches := []int{ran}
		if k := slices.Index(timmBatches, ran); k > 0 {
			batches = append(batches, timmBatches[k-1])
		}
		for _, batch := range batches {
			job, err := (&estimate.Recipe{Path: model, Text: fmt.Appendf(nil, timmSpec, preset, with, batch)}).Job()
			if err != nil {
				t.Errorf("%s: %v", model, err)
				return
			}
			o, err := estimate.Run(job)
			if err != nil {
				t.Errorf("%s: %v", model, err)
				return
			}
			r := o.Report()
			warned := slices.ContainsFunc(r.Notes, func(n note.Note) bool { return n.Code == note.Uncertain })
			mu.Lock()
			verdicts[fmt.Sprintf("ran: %v, %s", batch == ran, r.Verdict.Result)]++
			mu.Unlock()
			switch v := r.Verdict; {
			case batch == ran && !v.Fits:
				t.Errorf("%s %s, batch %d ran: %s", layout, model, batch, v.Reason)
			case batch != ran && v.Fits && (!v.Tight || !warned):
				t.Errorf("%s %s, batch %d did not fit: %s, %v reserved", layout, model, batch, v.Result, r.Peak.ReservedBytes)
			case batch != ran && v.Fits:
				t.Logf("%s %s, batch %d did not fit: %s, %v allocated of %v", layout, model, batch, v.Result, r.Peak.AllocatedBytes, r.Device.UsableBytes)
			}
		}
	})
	t.Log(verdicts)
	if n := verdicts["ran: false, TIGHT"]; n > 8 {
		t.Errorf("%d batches that did not fit are said to be TIGHT", n)
	}
}
