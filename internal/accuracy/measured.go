package accuracy

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Measured is a peak that was measured on a real GPU, without the CUDA context,
// beside what is predicted of reserved memory there.
type Measured struct {
	Name, Suite, Family, GPU string

	Peak      tensor.Bytes // measured
	Predicted tensor.Bytes
	Low, High tensor.Bytes            // between which the prediction says that it is
	Others    map[string]tensor.Bytes // what other estimators said, by their names

	Skipped string // why there is nothing to compare
	Failed  string // why nothing was predicted
}

// The suites of measured peaks.
const (
	suiteTransformers = "transformers"
	suiteCNNs         = "CNNs"
	suiteMLPs         = "MLPs"
)

// Error is the prediction's, in percent of what was measured.
func (m *Measured) Error() float64 { return Percent(m.Predicted, m.Peak) }

// Inside reports whether the peak lies in the interval.
func (m *Measured) Inside() bool { return m.Low <= m.Peak && m.Peak <= m.High }

// Width is the interval's, in percent of what was measured.
func (m *Measured) Width() float64 { return Percent(m.Peak+m.High-m.Low, m.Peak) }

// compareMeasured predicts everything under a folder.
func compareMeasured(dir string) ([]*Measured, error) {
	runs, err := LoadXMem(dir)
	if err != nil {
		return nil, err
	}
	var out []*Measured
	for _, r := range runs {
		out = append(out, r.Compare())
	}
	mlps, err := LoadMLPs(dir)
	if err != nil {
		return nil, err
	}
	floor, err := mlpFloor()
	if err != nil {
		return nil, err
	}
	for _, r := range mlps {
		out = append(out, r.Compare(floor))
	}
	return out, nil
}

// outcome plays a spec on its GPU.
func outcome(text string, files func(string) ([]byte, error)) (*estimate.Outcome, error) {
	s, err := spec.Parse("measured.yaml", []byte(text), spec.Options{Set: []string{"torch=" + torchver.Recorded.String()}})
	if err != nil {
		return nil, err
	}
	j, err := estimate.NewJob(s, files)
	if err != nil {
		return nil, err
	}
	return estimate.Run(j)
}

// predictPeak fills in what an outcome says. A job that fits reserves no more
// than it can on its GPU, where cached memory may have to be given back.
func (m *Measured) predictPeak(o *estimate.Outcome) {
	r := o.Report()
	m.Predicted = r.Peak.ReservedBytes
	if r.Verdict.Fits {
		m.Predicted = o.OnGPU.PeakReserved.Reserved
	}
	m.Low, m.High = r.Uncertainty.ReservedLowBytes, r.Uncertainty.ReservedHighBytes
	m.Low, m.High = min(m.Low, m.Predicted), max(m.High, m.Predicted)
}

// errorsOf are the errors of estimates without their signs, sorted; where there
// is none, estimate returns 0.
func errorsOf(list []*Measured, estimate func(*Measured) tensor.Bytes) []float64 {
	var out []float64
	for _, m := range list {
		if m.Skipped != "" || m.Failed != "" {
			continue
		}
		if p := estimate(m); p > 0 {
			out = append(out, math.Abs(Percent(p, m.Peak)))
		}
	}
	slices.Sort(out)
	return out
}

// predicted is memplan's estimate.
func predicted(m *Measured) tensor.Bytes { return m.Predicted }

// quantile interpolates between the two nearest values of a sorted list.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// readCSV reads a compressed table: each row by the names of its columns.
func readCSV(dir, name string) ([]map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	all, err := csv.NewReader(io.LimitReader(z, 16<<20)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []map[string]string
	for _, r := range all[min(1, len(all)):] {
		row := map[string]string{}
		for i, column := range all[0] {
			row[column] = r[i]
		}
		out = append(out, row)
	}
	return out, nil
}

// csvBytes reads a size; 0 where there is none.
func csvBytes(s string) tensor.Bytes {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 {
		return 0
	}
	return tensor.Bytes(f)
}
