package allocsim

import "github.com/memplan/memplan/internal/tensor"

// Simulation is the outcome of a replay as `memplan simulate` prints it in
// JSON. Its names and their order are a contract; a change that breaks readers
// raises SimulationVersion. Sizes are in bytes.
type Simulation struct {
	Version         int     `json:"memplan_simulation"`
	Allocated       Level   `json:"allocated"`
	Reserved        Level   `json:"reserved"`
	Active          Level   `json:"active"`
	Requested       Level   `json:"requested"`
	InactiveSplit   Level   `json:"inactive_split"`
	Segments        int64   `json:"segments"`
	NumAllocRetries int64   `json:"num_alloc_retries"`
	NumOOMs         int64   `json:"num_ooms"`
	NumDeviceAlloc  int64   `json:"num_device_alloc"`
	NumDeviceFree   int64   `json:"num_device_free"`
	OOMEvents       []int   `json:"oom_events"`       // indices of the requests that failed
	Series          *Series `json:"series,omitempty"` // if it was kept
}

// SimulationVersion is the version of the JSON of Simulation.
const SimulationVersion = 1

// Level is a quantity at the end of a trace and at its highest since the last
// reset of the peaks.
type Level struct {
	Current tensor.Bytes `json:"current_bytes"`
	Peak    tensor.Bytes `json:"peak_bytes"`
}

// Series holds two quantities after each event.
type Series struct {
	Reserved  []tensor.Bytes `json:"reserved_bytes"`
	Allocated []tensor.Bytes `json:"allocated_bytes"`
}

// Simulation returns the result in its JSON form.
func (r *Result) Simulation() *Simulation {
	level := func(p PoolStat[tensor.Bytes]) Level { return Level{p.All.Current, p.All.Peak} }
	s := &Simulation{
		Version:         SimulationVersion,
		Allocated:       level(r.Stats.AllocatedBytes),
		Reserved:        level(r.Stats.ReservedBytes),
		Active:          level(r.Stats.ActiveBytes),
		Requested:       level(r.Stats.RequestedBytes),
		InactiveSplit:   level(r.Stats.InactiveSplitBytes),
		Segments:        r.Stats.Segment.All.Current,
		NumAllocRetries: r.Stats.NumAllocRetries,
		NumOOMs:         r.Stats.NumOOMs,
		NumDeviceAlloc:  r.Stats.NumDeviceAlloc,
		NumDeviceFree:   r.Stats.NumDeviceFree,
		OOMEvents:       make([]int, 0, len(r.OOMs)),
	}
	for _, o := range r.OOMs {
		s.OOMEvents = append(s.OOMEvents, o.Event)
	}
	if r.ReservedSeries != nil {
		s.Series = &Series{r.ReservedSeries, r.AllocatedSeries}
	}
	return s
}
