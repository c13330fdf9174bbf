package allocsim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// ReplayOptions say on which device, and how, to replay a trace.
type ReplayOptions struct {
	Config         Config
	Capacity       tensor.Bytes // of the device; 0 is Unbounded
	Occupied       tensor.Bytes // of the capacity, by CUDA contexts and other processes
	MemoryFraction *float64     // set before the first event; overrides that of Config
	Device         int          // the GPU's index, for messages
	Series         bool         // keep what is reserved and allocated after each event
	StopAtOOM      bool         // stop at the first request that fails

	// MayFail, if set, names the requests that the program does without when
	// they fail: they are no OOM, though the device was asked for them.
	MayFail func(event int) bool

	// Held is what the allocator holds before the first event, as Snapshot describes
	// it. Its blocks in use are the blocks 1, 2, ... of the trace, by address.
	Held []SegmentInfo

	// Loops are events that come again before others, in the order in which they end.
	// LoopEvents bounds how many events of them are replayed; 0 is no bound. A loop
	// without an end goes on until a request fails or nothing changes any more.
	Loops      []trace.Loop
	LoopEvents int64

	// Meter counts the events that are replayed; so much of the work that it has left
	// is not for Loops.
	Meter    *limit.Meter
	KeepWork int64

	// Watch, if set, is told what the allocator does. Events of loops that come again
	// have the numbers that they have in the trace.
	Watch *Watch

	// observe, if set, sees the block of each allocation that succeeds.
	observe func(event int, b Block)
}

// Watch are functions that a replay calls.
type Watch struct {
	Block  func(event int, at Address)                              // an allocation succeeded
	Device func(event int, op DeviceOp, at Address, n tensor.Bytes) // memory was taken from the device, or returned
}

// Result is what an allocator did with a trace. Events are named by their
// index.
type Result struct {
	Stats  Stats          // at the end; its peaks are those since the last ResetPeaks event
	Driver DriverCounters // what the device did

	// The peaks of the whole trace, whatever ResetPeaks events it has.
	PeakAllocated Moment
	PeakReserved  Moment
	// Phases are the most that was allocated and reserved in each phase.
	Phases [trace.NumPhases]PhasePeaks

	Turns    int64 // of the loop without an end, which came to theirs
	CutShort bool  // LoopEvents were too few, or the work that was left

	Steps  []Step // in order; setup, if there is one, is step 0
	OOMs   []OOM  // requests that failed
	Events int    // events replayed: all, unless StopAtOOM stopped at the last of them

	// With ReplayOptions.Series, after each event; otherwise nil.
	ReservedSeries, AllocatedSeries []tensor.Bytes
}

// Moment is a state of the allocator during an event. The quantity whose peak
// it marks is at its highest, which is not always what it is after the event
// (a request that fails may map memory first); the others are as the event left
// them.
type Moment struct {
	Event         int   // the first that reached the peak; -1 if nothing ever did
	Ahead         int64 // steps by which loops had gone on
	Allocated     tensor.Bytes
	Reserved      tensor.Bytes
	Active        tensor.Bytes
	Requested     tensor.Bytes
	InactiveSplit tensor.Bytes
	Segments      int64
}

// PhasePeaks are the peaks of the events of one phase, whatever the step.
type PhasePeaks struct {
	Allocated, Reserved tensor.Bytes
}

// Step is what happened in a run of events with the same Event.Step. Its peaks
// start from what the events before left, as if the peaks were reset there: in
// a step that never exceeds that, they name the event before it.
type Step struct {
	Step                        int // the number in the trace
	Begin, End                  int // its events are Begin to End-1
	PeakAllocated, PeakReserved Moment
	EndAllocated, EndReserved   tensor.Bytes
}

// OOM is a request that failed. Ahead is by how many steps loops had gone on.
type OOM struct {
	Event int
	Ahead int64
	Err   *OOMError
}

// Replay runs the events of a trace through an allocator on a virtual device.
// Blocks whose allocation failed are skipped when they are freed. An error
// means that the options or events make no sense (a block allocated twice, freed
// twice or unknown; a negative size or stream); running out of memory is a
// result, not an error.
func Replay(events []trace.Event, opts ReplayOptions) (*Result, error) {
	return new(Replayer).Replay(events, opts)
}

// Replayer replays traces one after another in the same arenas, which saves
// most of the garbage of replaying many. The zero Replayer is ready.
type Replayer struct {
	allocator Allocator
	driver    VirtualDriver
	live      []Block // by block ID
	known     []lifeState
	held      int      // blocks that lived before the first event
	states    []*state // rooms that are free
}

// lifeState says what became of a block ID.
type lifeState uint8

const (
	unborn lifeState = iota
	alive
	failed // out of memory; its free does nothing
	dead
)

// Replay is the function Replay.
func (p *Replayer) Replay(events []trace.Event, opts ReplayOptions) (*Result, error) {
	a := &p.allocator
	p.driver.reset(opts.Capacity, opts.Occupied)
	if err := a.init(opts.Config, &p.driver, Options{Device: opts.Device}); err != nil {
		return nil, err
	}
	if f := opts.MemoryFraction; f != nil {
		if err := a.SetMemoryFraction(*f); err != nil {
			return nil, err
		}
	}
	blocks := births(events) + 1
	p.live, p.known = slices.Grow(p.live[:0], blocks), slices.Grow(p.known[:0], blocks)
	held, err := a.restore(opts.Held, &p.driver)
	if err != nil {
		return nil, err
	}
	if p.held = len(held); p.held > 0 {
		p.live, p.known = append(p.live, Block{}), append(p.known, unborn)
	}
	for _, b := range held {
		p.live, p.known = append(p.live, b), append(p.known, alive)
	}
	r := &Result{PeakAllocated: Moment{Event: -1}, PeakReserved: Moment{Event: -1}}
	if opts.Series {
		r.ReservedSeries = make([]tensor.Bytes, 0, len(events))
		r.AllocatedSeries = make([]tensor.Bytes, 0, len(events))
	}
	if p.held > 0 {
		r.PeakAllocated = momentOf(-1, 0, &a.stats)
		r.PeakReserved = r.PeakAllocated
	}
	u := &run{Replayer: p, events: events, opts: &opts, result: r, left: opts.LoopEvents}
	if u.left == 0 {
		u.left = math.MaxInt64
	}
	loops := u.inner(0, len(events), len(opts.Loops))
	began, starts := make([]*state, len(opts.Loops)), slices.Clone(loops)
	slices.SortStableFunc(starts, func(k, l int) int { return cmp.Compare(opts.Loops[k].Begin, opts.Loops[l].Begin) })
	var peaks Stats // the peaks since the last ResetPeaks event, but for this step's
	for i, stop := 0, false; i < len(events) && !stop; i++ {
		e := &events[i]
		if u.step == nil || u.step.Step != int(e.Step) {
			peaks.raisePeaks(&a.stats)
			a.stats.resetPeaks()
			r.endStep(i, &a.stats)
			u.step = r.beginStep(i, int(e.Step), &a.stats)
		}
		for ; len(starts) > 0 && opts.Loops[starts[0]].Begin == i; starts = starts[1:] {
			began[starts[0]] = u.began(&opts.Loops[starts[0]])
		}
		var err error
		if stop, err = u.event(i, 0); err != nil {
			return nil, err
		}
		if e.Kind == trace.ResetPeaks {
			peaks = Stats{}
		}
		if opts.Series {
			r.ReservedSeries = append(r.ReservedSeries, a.stats.ReservedBytes.All.Current)
			r.AllocatedSeries = append(r.AllocatedSeries, a.stats.AllocatedBytes.All.Current)
		}
		r.Events++
		for ; !stop && len(loops) > 0 && opts.Loops[loops[0]].End == i+1; loops = loops[1:] {
			if stop, err = u.repeat(loops[0], began[loops[0]], 0); err != nil {
				return nil, err
			}
		}
	}
	for _, k := range loops { // to whose ends the replay did not come
		if began[k] != nil {
			u.states = append(u.states, began[k])
		}
	}
	r.endStep(r.Events, &a.stats)
	a.stats.raisePeaks(&peaks)
	r.Stats = a.stats
	r.Driver = p.driver.counters
	return r, nil
}

// births is how many blocks a trace names, if it numbers them by their birth.
func births(events []trace.Event) int {
	for i := len(events) - 1; i >= 0; i-- {
		if e := &events[i]; e.Kind == trace.Alloc {
			return min(max(int(e.ID), 0), len(events))
		}
	}
	return 0
}

// play gives one event to the allocator.
func (p *Replayer) play(i int, e *trace.Event, total int, opts *ReplayOptions) (*OOMError, error) {
	a := &p.allocator
	if w := opts.Watch; w != nil {
		p.driver.watch = func(op DeviceOp, at Address, n tensor.Bytes) { w.Device(i, op, at, n) }
	}
	switch e.Kind {
	case trace.Alloc:
		if err := p.bear(e.ID, total); err != nil {
			return nil, err
		}
		b, err := a.Alloc(e.Bytes, e.Stream)
		if err != nil {
			p.known[e.ID] = failed
			var oom *OOMError
			if errors.As(err, &oom) {
				return oom, nil
			}
			return nil, err
		}
		p.live[e.ID] = b
		if opts.observe != nil {
			opts.observe(i, b)
		}
		if opts.Watch != nil {
			opts.Watch.Block(i, b.Address)
		}
	case trace.Free:
		switch {
		case e.ID <= 0 || int(e.ID) >= len(p.known) || p.known[e.ID] == unborn:
			return nil, fmt.Errorf("free of block %d, which was never allocated", e.ID)
		case p.known[e.ID] == dead:
			return nil, fmt.Errorf("free of block %d, which was freed before", e.ID)
		case p.known[e.ID] == alive:
			a.Free(p.live[e.ID])
		}
		p.known[e.ID] = dead
	case trace.EmptyCache:
		return nil, a.EmptyCache()
	case trace.ResetPeaks:
		a.ResetPeaks()
	case trace.SetStream:
	default:
		return nil, fmt.Errorf("unknown kind %d", e.Kind)
	}
	return nil, nil
}

// bear makes room for block id. The ids of a trace count its allocations, so
// that one larger than the number of events is a mistake, not a reason to
// allocate gigabytes.
func (p *Replayer) bear(id int32, total int) error {
	if id <= 0 || int(id) > total {
		return fmt.Errorf("allocation of block %d; allowed are ids from 1 to the number of events", id)
	}
	for int(id) >= len(p.known) {
		p.known = append(p.known, unborn)
		p.live = append(p.live, Block{})
	}
	if p.known[id] != unborn {
		return fmt.Errorf("block %d is allocated twice", id)
	}
	p.known[id] = alive
	return nil
}

// note keeps the peaks up to date after an event.
func (r *Result) note(i int, ahead int64, step *Step, s *Stats) {
	if peak := s.AllocatedBytes.All.Peak; peak > step.PeakAllocated.Allocated {
		step.PeakAllocated = momentOf(i, ahead, s)
		step.PeakAllocated.Allocated = peak
		if peak > r.PeakAllocated.Allocated {
			r.PeakAllocated = step.PeakAllocated
		}
	}
	if peak := s.ReservedBytes.All.Peak; peak > step.PeakReserved.Reserved {
		step.PeakReserved = momentOf(i, ahead, s)
		step.PeakReserved.Reserved = peak
		if peak > r.PeakReserved.Reserved {
			r.PeakReserved = step.PeakReserved
		}
	}
}

// momentOf returns the state after event i.
func momentOf(i int, ahead int64, s *Stats) Moment {
	return Moment{
		Event:         i,
		Ahead:         ahead,
		Allocated:     s.AllocatedBytes.All.Current,
		Reserved:      s.ReservedBytes.All.Current,
		Active:        s.ActiveBytes.All.Current,
		Requested:     s.RequestedBytes.All.Current,
		InactiveSplit: s.InactiveSplitBytes.All.Current,
		Segments:      s.Segment.All.Current,
	}
}

// beginStep starts a step before event i, at the level of the event before.
func (r *Result) beginStep(i, number int, s *Stats) *Step {
	m := momentOf(i-1, 0, s)
	r.Steps = append(r.Steps, Step{Step: number, Begin: i, PeakAllocated: m, PeakReserved: m})
	return &r.Steps[len(r.Steps)-1]
}

// endStep closes the last step before event i.
func (r *Result) endStep(i int, s *Stats) {
	if len(r.Steps) == 0 {
		return
	}
	step := &r.Steps[len(r.Steps)-1]
	step.End = i
	step.EndAllocated = s.AllocatedBytes.All.Current
	step.EndReserved = s.ReservedBytes.All.Current
}

// Dump writes the state in which the last replay left the allocator; see
// Allocator.Dump.
func (p *Replayer) Dump(w io.Writer) error { return p.allocator.Dump(w) }

// Snapshot describes what the last replay left the allocator holding; see Allocator.Snapshot.
func (p *Replayer) Snapshot() []SegmentInfo { return p.allocator.Snapshot() }
