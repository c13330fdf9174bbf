package snapshot

import (
	"cmp"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Explanation is what a device's memory was used for.
type Explanation struct {
	Device    int          `json:"device"`
	Moment    string       `json:"moment"` // the state that is described: "oom" or "end"
	Reserved  tensor.Bytes `json:"reserved_bytes"`
	Allocated tensor.Bytes `json:"allocated_bytes"` // blocks in use
	Requested tensor.Bytes `json:"requested_bytes"` // what they were asked for
	Events    int          `json:"events"`
	Complete  bool         `json:"complete"` // the events begin with an empty allocator

	Failure *Failure `json:"failure,omitempty"` // the last request that failed
	Holders []Holder `json:"holders"`           // by bytes
	Leaks   []Leak   `json:"leaks"`             // by bytes
	Cached  Cached   `json:"cached"`
	Stuck   []Stuck  `json:"stuck"` // by cached bytes
}

// Failure is a request that failed.
type Failure struct {
	Bytes     tensor.Bytes `json:"bytes"`           // rounded to 512
	Free      tensor.Bytes `json:"free_bytes"`      // of the device
	Available tensor.Bytes `json:"available_bytes"` // reserved then, and free
	Where     Place        `json:"where"`
	event     int
}

// Holder is memory in use that was allocated in one place.
type Holder struct {
	Where  Place        `json:"where"`
	Bytes  tensor.Bytes `json:"bytes"` // of blocks
	Blocks int          `json:"blocks"`
}

// Stuck is a segment with cached memory that cannot be given back to the device, as a part of the segment is in
// use.
type Stuck struct {
	Address uint64       `json:"address"`
	Bytes   tensor.Bytes `json:"bytes"`
	Cached  tensor.Bytes `json:"cached_bytes"`
	Largest tensor.Bytes `json:"largest_bytes"` // the largest cached block
	Where   Place        `json:"where"`         // what holds most of the segment
	Blocks  int          `json:"blocks"`        // in use
}

// Cached is memory that is reserved and not in use.
type Cached struct {
	Bytes   tensor.Bytes `json:"bytes"`
	Whole   tensor.Bytes `json:"whole_bytes"`   // in segments of which nothing is in use
	Largest tensor.Bytes `json:"largest_bytes"` // the largest block
	Blocks  int          `json:"blocks"`
}

// Explain describes the memory of a device: at its last request that failed or, if none did, at the
// end of the recording.
func (d *Device) Explain() (*Explanation, error) {
	h, err := d.History()
	if err != nil {
		return nil, err
	}
	x := &Explanation{Device: d.Index, Moment: "end", Events: len(d.Events), Complete: len(h.Held) == 0, Stuck: []Stuck{}}
	at := len(d.Events)
	if x.Failure = d.failure(h); x.Failure != nil {
		x.Moment, at = "oom", x.Failure.event
	}
	segments := d.Segments
	if at < len(d.Events) {
		past := Device{Index: d.Index, Segments: d.Segments, Events: d.Events[at:]}
		if segments, err = past.Begin(); err != nil {
			return nil, err
		}
	}
	births := d.births(at)
	groups := map[string]*Holder{}
	for i := range segments {
		s := &segments[i]
		x.Reserved += s.Size
		used := tensor.Bytes(0)
		stuck := Stuck{Address: s.Address, Bytes: s.Size}
		most := tensor.Bytes(0)
		for j := range s.Blocks {
			b := &s.Blocks[j]
			if b.State == Inactive {
				x.Cached.Bytes += b.Size
				x.Cached.Blocks++
				x.Cached.Largest = max(x.Cached.Largest, b.Size)
				stuck.Cached += b.Size
				stuck.Largest = max(stuck.Largest, b.Size)
				continue
			}
			used += b.Size
			stuck.Blocks++
			x.Requested += b.Requested
			stack := b.Stack
			if n, ok := births[b.Address]; ok {
				stack = d.Events[n].Stack
			}
			where := stack.place()
			if b.Size > most {
				most, stuck.Where = b.Size, where
			}
			key := strings.Join(where.Lines, "\n") + "\n\n" + where.Call
			if groups[key] == nil {
				groups[key] = &Holder{Where: where}
			}
			groups[key].Bytes += b.Size
			groups[key].Blocks++
		}
		x.Allocated += used
		if used == 0 {
			x.Cached.Whole += s.Size
		} else if used < s.Size {
			x.Stuck = append(x.Stuck, stuck)
		}
	}
	for _, g := range groups {
		x.Holders = append(x.Holders, *g)
	}
	slices.SortFunc(x.Holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Where.String(), b.Where.String()))
	})
	slices.SortStableFunc(x.Stuck, func(a, b Stuck) int { return cmp.Compare(b.Cached, a.Cached) })
	x.Leaks = leaks(d.Events[:at], births)
	return x, nil
}

// failure is the last request that failed.
func (d *Device) failure(h *History) *Failure {
	for i := len(d.Events) - 1; i >= 0; i-- {
		e := &d.Events[i]
		if e.Action == OOM {
			n, _ := slices.BinarySearch(h.Of, i)
			return &Failure{
				Bytes: e.Size, Free: tensor.Bytes(e.Address), Available: tensor.Bytes(e.Address) + h.Reserved[n],
				Where: e.Stack.place(), event: i,
			}
		}
	}
	return nil
}

// births are the events that allocated the blocks in use before event at, by address.
func (d *Device) births(at int) map[uint64]int {
	births := map[uint64]int{}
	for i := range d.Events[:at] {
		switch e := &d.Events[i]; e.Action {
		case Alloc:
			births[e.Address] = i
		case FreeCompleted:
			delete(births, e.Address)
		}
	}
	return births
}
