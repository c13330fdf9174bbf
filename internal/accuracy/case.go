package accuracy

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// Case is the comparison of one recording with its prediction. What does not
// apply to a suite is empty.
type Case struct {
	Name, Family string

	Precision, Optimizer, Arch string

	Skipped    string // what is not modelled; "" if compared
	Equal      bool   // the event lists, in setup and each step
	Difference string // the first one, or why nothing was predicted
	Steps      []StepPeaks
	PeaksOnly  bool   // nothing but peaks of allocated memory was recorded
	Live       bool   // no reserved memory was recorded
	Torch      string // the release of a case of suites releases and gpu
	Real       bool   // recorded on a real GPU, whose cuDNN took workspaces: they are in recorded peaks, and not in the prediction

	// Rows are the operators that ran, Derived those whose derivatives did, where
	// the event lists are equal.
	Rows, Derived []*op.Op

	files func(name string) ([]byte, error) // that the spec names
}

// StepPeaks are predicted and recorded peaks of a step.
type StepPeaks struct {
	Allocated, RecordedAllocated tensor.Bytes
	Reserved, RecordedReserved   tensor.Bytes
}

// Exact reports whether nothing differs: neither events nor, but for workspaces, peaks.
func (c *Case) Exact() bool {
	if c.Real {
		return c.Equal
	}
	for _, s := range c.Steps {
		if s.Allocated != s.RecordedAllocated || !c.Live && s.Reserved != s.RecordedReserved {
			return false
		}
	}
	return c.Equal
}

// Unequal describes what differs: the events, or else the peaks; "" if nothing
// does or nothing was compared.
func (c *Case) Unequal() string {
	switch {
	case c.Skipped != "" || c.Exact():
		return ""
	case !c.Equal || c.PeaksOnly:
		return c.Difference
	}
	for i, s := range c.Steps {
		if s.Allocated != s.RecordedAllocated || !c.Live && s.Reserved != s.RecordedReserved {
			return fmt.Sprintf("the events are equal, but the peaks of step %d are %d bytes allocated and %d reserved, recorded %d and %d",
				i+1, int64(s.Allocated), int64(s.Reserved), int64(s.RecordedAllocated), int64(s.RecordedReserved))
		}
	}
	return ""
}
