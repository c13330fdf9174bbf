package report

import (
	"fmt"

	"github.com/memplan/memplan/internal/tensor"
)

// Rank is what one process of a job needs whose processes do different things.
type Rank struct {
	Rank               int64        `json:"rank"`
	Parameters         int64        `json:"parameters"` // elements
	PeakAllocatedBytes tensor.Bytes `json:"peak_allocated_bytes"`
	PeakReservedBytes  tensor.Bytes `json:"peak_reserved_bytes"`
	HeadroomBytes      tensor.Bytes `json:"headroom_bytes"`
	Result             string       `json:"result"` // FITS, TIGHT or OOM
}

// ranks prints the table of all processes.
func (t *text) ranks() error {
	if len(t.r.Ranks) == 0 {
		return nil
	}
	tab := &Table{Header: []string{"Rank", "parameters", "peak allocated", "peak reserved", "headroom", "result"}, Numbers: []bool{true, true, true, true, true, false}}
	for _, k := range t.r.Ranks {
		tab.Rows = append(tab.Rows, []string{fmt.Sprint(k.Rank), Count(k.Parameters), k.PeakAllocatedBytes.String(), k.PeakReservedBytes.String(), k.HeadroomBytes.String(), k.Result})
	}
	err := t.table(tab)
	t.printf("  the other figures are those of rank %d\n\n", *t.r.Train.Rank)
	return err
}
