package accuracy

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
)

// TestMeasuredTorchtitan holds the peaks of reserved memory that torchtitan published of
// Llama 3.1 8B with FSDP in eager mode to 1 %.
func TestMeasuredTorchtitan(t *testing.T) {
	dir := needs.File(t, "measured/torchtitan")
	text, err := os.ReadFile(filepath.Join(dir, "torchtitan.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rows := needs.Rows(t, "measured", "torchtitan", "rows.csv")
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			job, err := (&estimate.Recipe{Path: "torchtitan.yaml", Text: text}).Job(estimate.Key{Path: "parallel.fsdp", Value: row[0]})
			if err != nil {
				t.Fatal(err)
			}
			o, err := estimate.Run(job)
			if err != nil {
				t.Fatal(err)
			}
			want, err := strconv.ParseFloat(row[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			got := float64(o.Report().Peak.ReservedBytes) / (1 << 30)
			t.Logf("%.2f GiB, measured %.1f: %+.2f %%", got, want, 100*(got/want-1))
			if e := 100 * (got/want - 1); math.Abs(e) > 1 {
				t.Errorf("%.2f GiB, measured %.1f: %+.1f %%", got, want, e)
			}
		})
	}
}
