package accuracy

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/memplan/memplan/internal/tensor"
)

// XMemRun is one run of testdata/measured/xmem.csv.gz: a peak that NVML saw on
// a GPU, and what others estimated.
type XMemRun struct {
	Family   string // cnn or transformer
	Model    string // as torchvision or the hub names it
	Optim    string // class of torch.optim
	Batch    int64
	ZeroGrad string // "0": at the start of the step; else before the backward pass
	GPU      string // as NVML names it
	Total    tensor.Bytes
	Peak     tensor.Bytes
	OOM      bool // the run died: Peak is no peak
	// Others holds what other estimators said, by name; those that said nothing
	// are absent.
	Others map[string]tensor.Bytes
}

// xMemEstimators names the columns of other estimators.
var xMemEstimators = []struct{ Name, column string }{
	{"xMem", "xmem_est_bytes"}, {"DNNMem", "dnnmem_est_bytes"}, {"SchedTune", "schedtune_est_bytes"}, {"LLMem", "llmem_est_bytes"},
}

// LoadXMem reads the runs.
func LoadXMem(dir string) ([]*XMemRun, error) {
	rows, err := readCSV(filepath.Join(dir, "xmem.csv.gz"))
	if err != nil {
		return nil, err
	}
	var out []*XMemRun
	for _, r := range rows {
		run := &XMemRun{
			Family: r["family"], Model: r["model"], Optim: r["optimizer"], ZeroGrad: r["zero_grad_mode_effective"][:1],
			GPU: r["gpu"], OOM: r["real_oom"] == "True", Others: map[string]tensor.Bytes{},
		}
		if run.Batch, err = strconv.ParseInt(r["batch"], 10, 64); err != nil {
			return nil, fmt.Errorf("xmem.csv.gz: %w", err)
		}
		run.Total, run.Peak = csvBytes(r["gpu_total_bytes"]), csvBytes(r["measured_nvml_peak_bytes"])
		for _, e := range xMemEstimators {
			if b := csvBytes(r[e.column]); b > 0 {
				run.Others[e.Name] = b
			}
		}
		out = append(out, run)
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

// readCSV reads a compressed table: each row by the names of its columns.
func readCSV(path string) ([]map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all, err := csv.NewReader(io.LimitReader(z, 16<<20)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []map[string]string
	for _, r := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = r[i]
		}
		out = append(out, row)
	}
	return out, nil
}
