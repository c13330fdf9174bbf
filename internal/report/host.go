package report

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Host is memory of the machine that one training process and its workers
// need. Total is the most of any phase, of which Phase is that phase; Low and
// High bound it, as the sizes of processes are assumed.
type Host struct {
	ProcessBytes           tensor.Bytes `json:"process_bytes"` // Python, its libraries, the host side of CUDA; assumed
	WorkersBytes           tensor.Bytes `json:"workers_bytes"` // worker processes without their batches; assumed
	ModelBytes             tensor.Bytes `json:"model_bytes"`   // the largest model as it is built, before it moves to the GPU
	DatasetBytes           tensor.Bytes `json:"dataset_bytes"`
	LoaderBytes            tensor.Bytes `json:"loader_bytes"` // batches that are not pinned, and samples in the making
	LoaderBatches          int64        `json:"loader_batches"`
	SharedMemoryBytes      tensor.Bytes `json:"shared_memory_bytes"`       // the part of the loader's bytes in /dev/shm
	SharedMemoryLimitBytes tensor.Bytes `json:"shared_memory_limit_bytes"` // 0: not given
	PinnedBytes            tensor.Bytes `json:"pinned_bytes"`
	PinnedBatches          int64        `json:"pinned_batches"`
	OffloadedBytes         tensor.Bytes `json:"offloaded_bytes"` // kept in host memory on purpose
	SavingBytes            tensor.Bytes `json:"saving_bytes"`    // of a checkpoint while it is written
	TotalBytes             tensor.Bytes `json:"total_bytes"`
	LowBytes               tensor.Bytes `json:"low_bytes"`
	HighBytes              tensor.Bytes `json:"high_bytes"`
	Phase                  string       `json:"phase"`       // start, training or saving
	LimitBytes             tensor.Bytes `json:"limit_bytes"` // 0: not given
	Result                 string       `json:"result"`      // FITS, TIGHT (not if the assumptions are at their worst) or OOM; "" without limits
	Reason                 string       `json:"reason"`
}

// HostPhases says what a job does in each phase of Host.
var HostPhases = map[string]string{"start": "starting", "training": "training", "saving": "saving a checkpoint"}

// host prints the machine's memory.
func (t *text) host() {
	h := t.r.Host
	if h == nil {
		return
	}
	of := ""
	if n := t.r.Train.Ranks; n > 1 {
		of = fmt.Sprintf(" of each of %d processes", n)
	}
	t.printf("\nHost memory%s\n", of)
	t.printf("  total          %v, while %s; between %v and %v, as the sizes of processes are assumed\n", h.TotalBytes, HostPhases[h.Phase], h.LowBytes, h.HighBytes)
	parts := []string{fmt.Sprintf("process %v", h.ProcessBytes)}
	part := func(b tensor.Bytes, format string, args ...any) {
		if b > 0 {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if h.Phase == "start" {
		part(h.ModelBytes, "model %v (built here, then moved)", h.ModelBytes)
	}
	part(h.DatasetBytes, "data set %v", h.DatasetBytes)
	if h.Phase != "start" {
		part(h.WorkersBytes, "workers %v", h.WorkersBytes)
		part(h.LoaderBytes, "loader %v (%s)", h.LoaderBytes, batches(h.LoaderBatches))
		part(h.PinnedBytes, "pinned %v (%s, in powers of two)", h.PinnedBytes, batches(h.PinnedBatches))
		part(h.OffloadedBytes, "offloaded %v", h.OffloadedBytes)
	}
	if h.Phase == "saving" {
		part(h.SavingBytes, "checkpoint %v", h.SavingBytes)
	}
	t.printf("  of it          %s\n", strings.Join(parts, ", "))
	if h.SharedMemoryBytes > 0 {
		t.printf("  /dev/shm       %v for batches of workers (a Docker container has 64 MiB without --shm-size)\n", h.SharedMemoryBytes)
	}
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}
