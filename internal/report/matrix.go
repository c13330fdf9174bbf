package report

import (
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// Matrix is one job on several GPUs.
type Matrix struct {
	Version int         `json:"memplan_matrix"`
	Spec    string      `json:"spec"`
	Model   string      `json:"model"`
	Batch   int64       `json:"batch_size"`
	Rows    []MatrixRow `json:"rows"`

	OneSequence bool   `json:"one_sequence,omitempty"` // as that of Train
	Settings    string `json:"-"`                      // as Settings has them
}

// MatrixRow is the job on one GPU.
type MatrixRow struct {
	GPU                  string       `json:"gpu"`
	DisplayName          string       `json:"display_name"`
	UsableBytes          tensor.Bytes `json:"usable_bytes"`
	PeakReservedBytes    tensor.Bytes `json:"peak_reserved_bytes"`
	DeviceBytes          tensor.Bytes `json:"device_bytes"`
	HeadroomBytes        tensor.Bytes `json:"headroom_bytes"`
	Result               string       `json:"result"`
	MaxBatchSize         int64        `json:"max_batch_size"`
	RecommendedBatchSize int64        `json:"recommended_batch_size"`
}

// Write prints the matrix as a table.
func (m *Matrix) Write(w io.Writer, o Options) error {
	printable.Fprintf(w, "%s, %s\n%s\n\n", m.Model, batch(m.Batch, m.OneSequence), m.Settings)
	t := &Table{Header: []string{"GPU", "", "usable", "reserved", "headroom", "largest batch", "recommended"},
		Numbers: []bool{false, false, true, true, true, true, true}, Width: o.Width}
	for _, r := range m.Rows {
		if m.Batch == 0 { // of a recording
			t.Rows = append(t.Rows, []string{r.GPU, r.Result, r.UsableBytes.String(), r.PeakReservedBytes.String(), r.HeadroomBytes.String(), "-", "-"})
			continue
		}
		t.Rows = append(t.Rows, []string{r.GPU, r.Result, r.UsableBytes.String(), r.PeakReservedBytes.String(), r.HeadroomBytes.String(),
			fmt.Sprint(r.MaxBatchSize), fmt.Sprint(r.RecommendedBatchSize)})
	}
	return t.Write(w)
}
