package snapshot

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// Trial is a replay of a device's events under other circumstances.
type Trial struct {
	Name         string       `json:"name"`
	AllocConf    string       `json:"alloc_conf"`
	Capacity     tensor.Bytes `json:"available_bytes,omitempty"` // to PyTorch; 0: no limit
	PeakReserved tensor.Bytes `json:"peak_reserved_bytes"`
	OOM          bool         `json:"oom"`
}

// Circumstances are what a replay may change.
type Circumstances struct {
	Name      string
	AllocConf string       // PYTORCH_CUDA_ALLOC_CONF
	Capacity  tensor.Bytes // available to PyTorch; 0: as recorded, if a request failed, else no limit
	Unlimited bool         // whatever Capacity and the recording say
	Torch     torchver.Version
}

// alternatives are the settings of the allocator against fragmentation, which Trials replays.
var alternatives = []string{"expandable_segments:True", "max_split_size_mb:64", "max_split_size_mb:256", "max_split_size_mb:1024"}

// Trials replays the events up to the last request that failed, or all if none did: as recorded,
// with as much memory as suffices, with settings against fragmentation, and under further circumstances.
func (d *Device) Trials(recorded Circumstances, further []Circumstances, m *limit.Meter) ([]Trial, error) {
	h, err := d.History()
	if err != nil {
		return nil, err
	}
	h.upToFailure(d)
	recorded.Name = "as recorded"
	all := []Circumstances{recorded}
	for _, conf := range alternatives {
		if conf != recorded.AllocConf {
			all = append(all, Circumstances{Name: conf, AllocConf: conf, Capacity: recorded.Capacity, Torch: recorded.Torch})
		}
	}
	var out []Trial
	for _, c := range append(all, further...) {
		t, err := h.try(c, m)
		if err != nil {
			return nil, err
		}
		out = append(out, *t)
	}
	if out[0].OOM {
		t, err := h.least(recorded, m)
		if err != nil {
			return nil, err
		}
		out = slices.Insert(out, 1, *t)
	}
	return out, nil
}

// least finds how much memory must be available so that no request fails, to a mebibyte.
func (h *History) least(c Circumstances, m *limit.Meter) (*Trial, error) {
	c.Name, c.Unlimited = "with more memory", true
	found, err := h.try(c, m)
	if err != nil {
		return nil, err
	}
	c.Unlimited = false
	low, high := h.Available, found.PeakReserved // fails, suffices
	for high-low > tensor.MiB {
		c.Capacity = low + (high-low)/2
		t, err := h.try(c, m)
		switch {
		case err != nil:
			return nil, err
		case t.OOM:
			low = c.Capacity
		default:
			high, found = c.Capacity, t
		}
	}
	found.Capacity = high
	return found, nil
}

// upToFailure ends the history with the last request that failed, and leaves those out that failed before:
// the program went on without their memory.
func (h *History) upToFailure(d *Device) {
	last := -1
	for i, n := range h.Of {
		if d.Events[n].Action == OOM {
			last = i
		}
	}
	if last < 0 {
		return
	}
	kept := *h
	kept.Events, kept.Of, kept.Reserved = nil, nil, nil
	for i := range last + 1 {
		if d.Events[h.Of[i]].Action == OOM && i < last {
			continue
		}
		kept.Events, kept.Of, kept.Reserved = append(kept.Events, h.Events[i]), append(kept.Of, h.Of[i]), append(kept.Reserved, h.Reserved[i])
	}
	*h = kept
}

func (h *History) try(c Circumstances, m *limit.Meter) (*Trial, error) {
	conf, err := allocsim.ParseConfig(c.AllocConf, c.Torch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	capacity := c.Capacity
	if capacity == 0 {
		capacity = h.Available
	}
	if c.Unlimited {
		capacity = 0
	}
	r, err := allocsim.Replay(h.Events, allocsim.ReplayOptions{Config: conf, Capacity: capacity, Held: h.Held, Meter: m})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return &Trial{
		Name: c.Name, AllocConf: c.AllocConf, Capacity: capacity,
		PeakReserved: r.PeakReserved.Reserved, OOM: len(r.OOMs) > 0,
	}, nil
}
