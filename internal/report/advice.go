package report

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Advice says what batch fits and what else would help. MaxBatchSize is the
// largest batch that fits such that none of the next eight does; 0 if none
// fits. RecommendedBatchSize is round (a power of two below 8, else a multiple
// of 8) and leaves Headroom of the usable memory; 0 if none does.
type Advice struct {
	MaxBatchSize         int64    `json:"max_batch_size"`
	RecommendedBatchSize int64    `json:"recommended_batch_size"`
	MaxIsTight           bool     `json:"max_is_tight"`           // the largest fits only after cached memory is given back
	Headroom             float64  `json:"headroom"`               // share of the usable memory
	NotFitting           []int64  `json:"not_fitting"`            // batch sizes below the largest that do not fit
	Unbounded            bool     `json:"unbounded,omitempty"`    // the search ended at the greatest batch size
	SearchEnded          bool     `json:"search_ended,omitempty"` // the search ended as it had had its work; larger batches may fit
	Search               *Search  `json:"search,omitempty"`       // of another key than the batch size
	Changes              []Change `json:"changes"`
	Fix                  *Fix     `json:"fix"` // null: no changes were looked for
}

// Search is the outcome for a key that was asked for.
type Search struct {
	Key         string  `json:"key"`
	Largest     int64   `json:"largest"`
	Tight       bool    `json:"largest_is_tight"`
	Recommended int64   `json:"recommended"`
	NotFitting  []int64 `json:"not_fitting"`
	Refused     string  `json:"refused,omitempty"` // why the model takes no greater value
}

// Change is a set of changes that belong together, and what comes of them.
type Change struct {
	Change            string       `json:"change"` // the changes' names and values, with + between them
	PeakReservedBytes tensor.Bytes `json:"peak_reserved_bytes"`
	Fits              bool         `json:"fits"`
	Result            string       `json:"result"` // of the verdict: FITS, TIGHT or OOM
	HeadroomBytes     tensor.Bytes `json:"headroom_bytes"`
	HostBytes         tensor.Bytes `json:"host_total_bytes"` // of host memory
	// Cost is the per cent by which a step becomes slower, and prices of what changes
	// in numbers and of the work to adopt it. Of as many changes those that cost less
	// come first (docs/advice.md).
	Cost     float64 `json:"cost"`
	Cheapest bool    `json:"cheapest"` // everything that comes before it was tried or excluded
	Slowdown float64 `json:"slowdown"` // modelled time of a step, by that before
	Numerics string  `json:"numerics"` // none, running statistics, rounding or different training
	Effort   string  `json:"effort"`
	Parts    []Part  `json:"parts"`
	// Set is what --set takes, and Arguments are what to append to the command
	// line, in the place of flags that it has already.
	Set       []string `json:"set"`
	Arguments []string `json:"arguments"`
	SpecLines []string `json:"spec_lines"` // where to change the spec
	Code      string   `json:"code"`       // in a PyTorch script
}

// Part is one of the changes.
type Part struct {
	ID       string `json:"id"`
	Text     string `json:"text"`
	Numerics string `json:"numerics"`
	Effort   string `json:"effort"`
	Code     string `json:"code"`
}

// Fix says how changes were looked for.
type Fix struct {
	Combinations int `json:"combinations"` // that the catalogue has for this job
	Simulated    int `json:"simulated"`
	// Excluded are those of which simulations of others tell that they do not fit.
	Excluded int `json:"excluded"`
	// Cut says that the search ended at its limit; what was not tried may come
	// before changes that are not said to be the cheapest.
	Cut bool `json:"cut"`
}

// Point is one batch size of a curve.
type Point struct {
	BatchSize      int64        `json:"batch_size"`
	AllocatedBytes tensor.Bytes `json:"allocated_bytes"`
	ReservedBytes  tensor.Bytes `json:"reserved_bytes"`
	DeviceBytes    tensor.Bytes `json:"device_bytes"`
	Result         string       `json:"result"`
}

// advice prints what batch fits, below the reason of the verdict.
func (t *text) advice() {
	a := t.r.Advice
	if a == nil {
		return
	}
	if t.r.Train.BatchSize > 0 { // a recording may not say
		t.printf("%s\n", a.Batch())
	}
	if l := t.r.Lengths; l != nil {
		t.printf("  by the longest batch alone, %d; runs with different lengths were simulated for batch size %d only\n", l.Longest, t.r.Train.BatchSize)
	}
	if s := a.Search; s != nil {
		t.printf("%s: %s\n", s.Key, largest(s.Largest, s.Tight, s.Recommended, a.Headroom)+notFitting(s.NotFitting))
		if s.Refused != "" {
			t.printf("  beyond: %s\n", s.Refused)
		}
	}
}

// Batch says which batch fits, in words.
func (a *Advice) Batch() string {
	if a.Unbounded {
		return fmt.Sprintf("batch size: even %d fits", a.MaxBatchSize)
	}
	if a.SearchEnded {
		return "batch size: " + largest(a.MaxBatchSize, a.MaxIsTight, a.RecommendedBatchSize, a.Headroom) +
			", of those tried: the search ended, and larger ones may fit"
	}
	return "batch size: " + largest(a.MaxBatchSize, a.MaxIsTight, a.RecommendedBatchSize, a.Headroom) + notFitting(a.NotFitting)
}

// notFitting tells of some values below the largest that do not fit.
func notFitting(values []int64) string {
	const most = 4
	if len(values) == 0 {
		return ""
	}
	var shown []string
	for _, v := range values[max(len(values)-most, 0):] {
		shown = append(shown, fmt.Sprint(v))
	}
	more := ""
	if n := len(values) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more of those tried", n)
	}
	return fmt.Sprintf("; %s%s do not fit below it, though", strings.Join(shown, ", "), more)
}

func largest(most int64, tight bool, recommended int64, headroom float64) string {
	if most == 0 {
		return "not even the smallest fits"
	}
	s := fmt.Sprintf("%d is the largest that fits", most)
	if tight { // so near to the limit, of two values the greater may fit and the smaller not
		s = fmt.Sprintf("%d is the largest that was found to fit (TIGHT)", most)
	}
	if recommended == 0 {
		return s + fmt.Sprintf("; none leaves %.3g %% headroom", 100*headroom)
	}
	return s + fmt.Sprintf(", %d recommended (round, %.3g %% headroom)", recommended, 100*headroom)
}

// curve draws the peaks over the batch size, a bar each. The bar ends in what
// is reserved beyond the allocated; | marks what is usable.
func (t *text) curve() {
	points := t.r.Curve
	if len(points) == 0 {
		return
	}
	width := 50
	if t.o.Width > 0 {
		width = max(min(width, t.o.Width-len("  ........   ........ GiB  TIGHT")), 10)
	}
	usable := t.r.Device.UsableBytes
	scale := usable
	for _, p := range points {
		scale = max(scale, p.ReservedBytes)
	}
	if scale <= 0 {
		return
	}
	cell := func(b tensor.Bytes) int { return int(float64(b) / float64(scale) * float64(width)) }
	t.printf("\n%s (# allocated, + reserved, | usable)\n", t.bold("Peak by batch size"))
	for _, p := range points {
		bar := []rune(strings.Repeat(" ", width+1))
		for i := range bar {
			switch {
			case i < cell(p.AllocatedBytes):
				bar[i] = '#'
			case i < cell(p.ReservedBytes):
				bar[i] = '+'
			}
		}
		bar[cell(max(usable, 0))] = '|'
		t.printf("  %8d  %s %10v  %s\n", p.BatchSize, string(bar), p.ReservedBytes, t.word(p.Result))
	}
}
