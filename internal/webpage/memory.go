package webpage

import (
	"errors"

	"github.com/memplan/memplan/internal/snapshot"
	"github.com/memplan/memplan/internal/tensor"
)

// Memory is the events of a device.
type Memory struct {
	Name   string // such as "without a limit"
	Device *snapshot.Device
	Limit  tensor.Bytes // what can be reserved; 0: not known
	// OOM is the time of the request that fails at the limit, if the events themselves go on; -1 if
	// none does.
	OOM int64
	// Again says that the events are those of the memory before it, with a limit.
	Again bool
}

// ErrNoEvents says that there are no events to be drawn.
var ErrNoEvents = errors.New("there are no events to be drawn; reports have figures alone")

// columns are the events of a device as page.js reads them. Blocks are numbered as they come: first those that
// were there before the first event, then those of the events 'a'.
type columns struct {
	Name       string   `json:"name"`
	Limit      int64    `json:"limit"`
	Categories []string `json:"categories"` // none: not known
	Works      []work   `json:"works"`

	Held   int        `json:"held"`   // blocks before the first event
	Ranges [][2]int64 `json:"ranges"` // segments before the first event: address, bytes

	At       []int64 `json:"at"`    // of each block: its address,
	Bytes    []int64 `json:"bytes"` // what was requested,
	Block    []int64 `json:"block"` // its size,
	Category []int   `json:"category"`
	BornBy   []int   `json:"by"` // what allocated it

	Kinds string     `json:"kinds"` // of events: a letter for each
	Doing []int      `json:"doing"` // the program's work during each event
	Freed []int      `json:"freed"` // the blocks of the events 'f'
	Moved [][2]int64 `json:"moved"` // the address and size of each segment of the events A, F, M, U
	Tried [][2]int64 `json:"tried"` // what each event 'o' asked for, and what was free

	OOM           int   `json:"oom"` // the event at which a request fails; -1: none
	PeakAllocated int64 `json:"peak_allocated"`
	PeakReserved  int64 `json:"peak_reserved"`

	Left      int   `json:"left"`       // events that are left out, as there are too many,
	LeftBelow int64 `json:"left_below"` // how large the largest block is that is left out,
	Rest      int64 `json:"rest"`       // and what is in blocks that are left out and live all the time
}

// work is snapshot.Work.
type work struct {
	Operator string   `json:"o"`
	Module   string   `json:"m"`
	Phase    string   `json:"p,omitempty"`
	Step     int      `json:"s,omitempty"`
	Lines    []string `json:"l,omitempty"`
}

// kinds are the letters of events that change memory.
var kinds = map[snapshot.Action]byte{
	snapshot.Alloc: 'a', snapshot.FreeCompleted: 'f', snapshot.SegmentAlloc: 'A', snapshot.SegmentFree: 'F',
	snapshot.SegmentMap: 'M', snapshot.SegmentUnmap: 'U', snapshot.OOM: 'o',
}

// filler makes columns of a device.
type filler struct {
	columns
	works      map[*snapshot.Stack]int
	categories map[string]int
	living     map[uint64]int // blocks by address

	allocated, reserved int64
}

// columns turns the events into columns.
func (m *Memory) columns() (*columns, error) {
	begin, err := m.Device.Begin()
	if err != nil {
		return nil, err
	}
	f := &filler{works: map[*snapshot.Stack]int{}, categories: map[string]int{}, living: map[uint64]int{}}
	f.Name, f.Limit, f.OOM = m.Name, int64(m.Limit), -1
	f.Ranges, f.Moved, f.Tried, f.Freed, f.Categories = [][2]int64{}, [][2]int64{}, [][2]int64{}, []int{}, []string{}
	for i := range begin {
		s := &begin[i]
		f.Ranges = append(f.Ranges, [2]int64{int64(s.Address), int64(s.Size)})
		f.reserved += int64(s.Size)
		for j := range s.Blocks {
			if b := &s.Blocks[j]; b.State != snapshot.Inactive {
				f.block(b.Address, b.Requested, b.Size, b.Stack, "")
			}
		}
	}
	f.Held = len(f.At)
	f.PeakAllocated, f.PeakReserved = f.allocated, f.reserved
	letters := make([]byte, 0, len(m.Device.Events))
	for i := range m.Device.Events {
		e := &m.Device.Events[i]
		kind, ok := kinds[e.Action]
		if !ok || !f.event(e) {
			continue
		}
		if m.OOM >= 0 && f.OOM < 0 && e.Microsecs >= m.OOM || kind == 'o' {
			f.OOM = len(letters)
		}
		letters = append(letters, kind)
		f.Doing = append(f.Doing, f.work(e.Stack))
		f.PeakAllocated, f.PeakReserved = max(f.PeakAllocated, f.allocated), max(f.PeakReserved, f.reserved)
	}
	f.Kinds = string(letters)
	return &f.columns, nil
}

// event adds what an event does; false: it frees what is not known.
func (f *filler) event(e *snapshot.Event) bool {
	switch e.Action {
	case snapshot.Alloc:
		size := e.Block
		if size == 0 {
			size = max(e.Size, 1).CeilTo(512)
		}
		f.block(e.Address, e.Size, size, e.Stack, e.Category)
	case snapshot.FreeCompleted:
		n, ok := f.living[e.Address]
		if !ok {
			return false
		}
		delete(f.living, e.Address)
		f.Freed = append(f.Freed, n)
		f.allocated -= f.Block[n]
	case snapshot.OOM:
		f.Tried = append(f.Tried, [2]int64{int64(e.Size), int64(e.Address)})
	default:
		f.Moved = append(f.Moved, [2]int64{int64(e.Address), int64(e.Size)})
		if e.Action == snapshot.SegmentAlloc || e.Action == snapshot.SegmentMap {
			f.reserved += int64(e.Size)
		} else {
			f.reserved -= int64(e.Size)
		}
	}
	return true
}

func (f *filler) block(at uint64, requested, size tensor.Bytes, by *snapshot.Stack, category string) {
	c := -1
	if category != "" {
		n, ok := f.categories[category]
		if !ok {
			n = len(f.Categories)
			f.categories[category] = n
			f.Categories = append(f.Categories, category)
		}
		c = n
	}
	f.living[at] = len(f.At)
	f.At, f.Bytes, f.Block = append(f.At, int64(at)), append(f.Bytes, int64(requested)), append(f.Block, int64(size))
	f.Category, f.BornBy = append(f.Category, c), append(f.BornBy, f.work(by))
	f.allocated += int64(size)
}

func (f *filler) work(s *snapshot.Stack) int {
	n, ok := f.works[s]
	if !ok {
		n = len(f.Works)
		f.works[s] = n
		w := s.Work()
		f.Works = append(f.Works, work{w.Operator, w.Module, w.Phase, w.Step, w.Lines})
	}
	return n
}
