package report

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Host is memory of the machine that one training process and its workers
// need, of several the one that needs the most. Total is that of Phase, in
// which all processes of one machine need the most; Low and High bound it, as the
// sizes of processes and how a model is loaded are assumed. All is what all need.
type Host struct {
	ProcessBytes           tensor.Bytes `json:"process_bytes"` // Python, its libraries, the host side of CUDA; assumed
	WorkersBytes           tensor.Bytes `json:"workers_bytes"` // worker processes without their batches; assumed
	ModelBytes             tensor.Bytes `json:"model_bytes"`   // of the largest model, while it comes to the GPU: see Loading
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
	AllBytes               tensor.Bytes `json:"all_bytes"`
	AllLowBytes            tensor.Bytes `json:"all_low_bytes"`
	AllHighBytes           tensor.Bytes `json:"all_high_bytes"`
	RequestBytes           tensor.Bytes `json:"request_bytes"` // for all: processes at their largest, the model as Loading says
	// Loading is built (each process makes the model in its memory, then moves it),
	// streamed (weights are read to the GPU one by one), mapped (they are read here from
	// files that are mapped, then moved) or sharded (one process has
	// the model, the others have it on the meta device and get their parts).
	Loading    string       `json:"loading"`
	Phase      string       `json:"phase"`       // start, training or saving
	LimitBytes tensor.Bytes `json:"limit_bytes"` // 0: not given
	Result     string       `json:"result"`      // FITS, TIGHT (not if the assumptions are at their worst) or OOM; "" without limits
	Reason     string       `json:"reason"`
}

// HostPhases says what a job does in each phase of Host.
var HostPhases = map[string]string{"start": "starting", "training": "training", "saving": "saving a checkpoint"}

// host prints host memory.
func (t *text) host() {
	h := t.r.Host
	if h == nil {
		return
	}
	of, n := "", t.r.Train.Ranks
	switch {
	case n > 1 && h.Phase == "start" && h.Loading == "sharded":
		of = fmt.Sprintf(" of the first of %d processes", n)
	case n > 1:
		of = fmt.Sprintf(" of each of %d processes", n)
	}
	t.printf("\n%s\n", t.bold("Host memory"+of))
	t.printf("  total          %v, while %s\n", h.TotalBytes, HostPhases[h.Phase])
	t.printf("  uncertain      between %v and %v: %s\n", h.LowBytes, h.HighBytes, h.assumed())
	if n > 1 {
		t.printf("  all            %v on one machine; between %v and %v%s\n", h.AllBytes, h.AllLowBytes, h.AllHighBytes, h.ends())
	}
	parts := []string{fmt.Sprintf("process %v", h.ProcessBytes)}
	part := func(b tensor.Bytes, format string, args ...any) {
		if b > 0 {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if h.Phase == "start" {
		part(h.ModelBytes, "model %v (%s)", h.ModelBytes, loadings[h.Loading])
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
	t.printf("  parts          %s\n", strings.Join(parts, ", "))
	if h.SharedMemoryBytes > 0 {
		t.printf("  /dev/shm       %v for batches of workers (a Docker container has 64 MiB without --shm-size)\n", h.SharedMemoryBytes)
	}
}

// loadings says how a model comes to the GPU, by Host.Loading.
var loadings = map[string]string{
	"built":    "built here, then moved",
	"streamed": "its largest tensor: from_pretrained loads one tensor after the other to the GPU",
	"mapped":   "read here from its files, then moved",
	"sharded":  "built by one process, which sends the others their parts",
}

// assumed says what figures depend on that is assumed.
func (h *Host) assumed() string {
	if h.Phase == "start" && h.Loading != "built" {
		return "the sizes of processes and how the model is loaded are assumed"
	}
	return "the sizes of processes are assumed"
}

// ends says what the ends of a range are where one process has the model.
func (h *Host) ends() string {
	if h.Loading == "sharded" {
		return ", from a model on the meta device in all processes to one that each builds"
	}
	return ""
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}
