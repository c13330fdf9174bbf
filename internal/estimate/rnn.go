package estimate

import (
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/tensor"
)

// rnnSpaces sums what lives at the peak in the place of cuDNN's reserves and
// workspaces for recurrent layers.
func (o *Outcome) rnnSpaces() tensor.Bytes {
	tr := o.Played.Trace
	if !slices.ContainsFunc(aten.RNNSpaces(), func(name string) bool { return slices.Contains(tr.Ops, name) }) {
		return 0
	}
	var sum tensor.Bytes
	for _, i := range allocsim.LiveAt(tr.Events, o.Free.PeakAllocated.Event) {
		if e := &tr.Events[i]; slices.Contains(aten.RNNSpaces(), tr.Ops[e.Op]) {
			sum += e.Bytes
		}
	}
	return sum
}
