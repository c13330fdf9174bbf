package accuracy

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
)

// TestMeasuredLitGPT holds the peaks of allocated memory that litgpt published of LoRA and
// QLoRA to 0.5 %.
func TestMeasuredLitGPT(t *testing.T) {
	needs.Time(t, "plays models of up to 13 billion parameters")
	dir := needs.File(t, "measured/litgpt")
	text, err := os.ReadFile(filepath.Join(dir, "litgpt.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rows := needs.Rows(t, "measured", "litgpt", "rows.csv")
	for _, row := range rows {
		model, quantize, batch := row[0], row[2], row[3]
		t.Run(strings.Join([]string{model, quantize, batch}, " "), func(t *testing.T) {
			keys := []estimate.Key{{Path: "trainer.litgpt.train.micro_batch_size", Value: batch}, {Path: "trainer.litgpt.train.global_batch_size", Value: batch}}
			for _, p := range strings.Fields(row[1]) {
				name, v, _ := strings.Cut(p, "=")
				keys = append(keys, estimate.Key{Path: "params." + name, Value: v})
			}
			if quantize != "none" {
				keys = append(keys, estimate.Key{Path: "trainer.litgpt.quantize", Value: quantize}, estimate.Key{Path: "quantize.bitsandbytes", Value: `"0.42"`})
			}
			job, err := (&estimate.Recipe{Path: "litgpt.yaml", Text: text}).Job(keys...)
			if err != nil {
				t.Fatal(err)
			}
			o, err := estimate.Run(job)
			if err != nil {
				t.Fatal(err)
			}
			want, err := strconv.ParseFloat(row[4], 64)
			if err != nil {
				t.Fatal(err)
			}
			got := float64(o.Report().Peak.AllocatedBytes) / 1e9
			t.Logf("%.2f GB, measured %.2f: %+.2f %%", got, want, 100*(got/want-1))
			if e := 100 * (got/want - 1); math.Abs(e) > 0.5 {
				t.Errorf("%.2f GB, measured %.2f: %+.1f %%", got, want, e)
			}
		})
	}
}
