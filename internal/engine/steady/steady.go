// Package steady tells from the events of steps which of them are alike, and which need
// not be played since what they do is known. Events and sums come in by [Job], loops of
// a trace go out; it knows nothing of what is played.
package steady

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// History is what is known of the steps that were played. What a step does
// depends on which statements run in it, and on the state that it finds; where
// both were met before, what follows is known, and need not be played.
//
// A state is told by the blocks that live: each by the events of the step in
// which it was born and its place there, in the order of their birth. Beside
// them there is what the job counts. A step that was played twice from the same
// state, with the same outcome, is taken to do so again.
type History struct {
	job       Job
	Tracks    bool       // states are told; otherwise steps are compared alone
	Intervals []Interval // of what runs in some steps only
	first     int64      // number of the first step

	records  []Record      // the setup, then the steps that were played
	at       map[int64]int // records by the number of the step
	device   lives
	machine  lives
	classes  map[[sha256.Size]byte]int32
	states   map[[sha256.Size]byte]int32
	outcomes map[situation]*outcome
	text     fingerprint
}

// Interval is in which steps something runs: those whose number leaves Rest, divided by
// Every.
type Interval struct{ Every, Rest int64 }

// Job is whose steps they are.
type Job interface {
	// Events are those on the device and those of host memory.
	Events() (device, host []trace.Event)
	// Alive is the sum of the blocks that live there.
	Alive() (device, host tensor.Bytes)
	// Counted is on what a step depends beside the blocks that live.
	Counted() []uint64
}

// fingerprint is the hash of a text that is written piece by piece.
type fingerprint struct {
	sum hash.Hash // SHA-256
	buf []byte    // not yet hashed
}

// reset begins a text.
func (f *fingerprint) reset() { f.sum.Reset(); f.buf = f.buf[:0] }

// add appends numbers to the text.
func (f *fingerprint) add(numbers ...uint64) {
	if len(f.buf) >= 1<<12 {
		f.sum.Write(f.buf)
		f.buf = f.buf[:0]
	}
	for _, n := range numbers {
		f.buf = binary.LittleEndian.AppendUint64(f.buf, n)
	}
}

// number numbers the text, the same by the same number.
func (f *fingerprint) number(known map[[sha256.Size]byte]int32) int32 {
	f.sum.Write(f.buf)
	key := [sha256.Size]byte(f.sum.Sum(nil))
	n, ok := known[key]
	if !ok {
		n = int32(len(known))
		known[key] = n
	}
	return n
}

// Record is a step that was played, or the setup.
type Record struct {
	Step        int64 // its number
	Last        int64 // that of the last step that it and what was left out after it stand for
	begin, End  int   // its events
	Live, Host  tensor.Bytes
	class       int32 // steps of one class have the same events
	situation   situation
	state       int32   // that it leaves
	names       []int32 // the blocks that live then
	LeftOut     bool    // steps were, after it
	hostThrough int     // the events of host memory up to its end
}

// situation is what decides what a step does.
type situation struct {
	state   int32
	running string // in which of the intervals it is
}

// outcome is what steps did in a situation: how often in a row the same.
type outcome struct {
	class, state int32
	times        int
}

// lives follows the blocks of one trace.
type lives struct {
	birth []birth // by block
	names []int32 // of those that live, the oldest first
	gone  []bool
}

// birth is where a block was born: an event, of a record, with so many before it
// there.
type birth struct{ event, record, offset int32 }

// MaxStep bounds the numbers of steps.
const MaxStep = math.MaxInt32

// New returns the history of a job of which the setup was played. With tracks, states are
// told where statements run in the steps of intervals only; first is the number of the
// first step.
func New(job Job, intervals []Interval, first int64, tracks bool) *History {
	h := &History{
		job: job, Intervals: intervals, first: first, at: map[int64]int{}, classes: map[[sha256.Size]byte]int32{},
		states: map[[sha256.Size]byte]int32{}, outcomes: map[situation]*outcome{}, text: fingerprint{sum: sha256.New()},
	}
	h.Tracks = tracks && len(h.Intervals) > 0
	h.Add(0)
	return h
}

// Period is the number of steps after which all that runs in every n-th step comes
// round together, 0 if that is beyond MaxStep; of what runs rarer than in every
// most-th step nothing is asked, unless that is 0.
func (h *History) Period(most int64) int64 {
	p := int64(1)
	for _, e := range h.Intervals {
		switch q := lcm(p, e.Every); {
		case most > 0 && q > most:
		case q > MaxStep:
			return 0
		default:
			p = q
		}
	}
	return p
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Of is the record of step n, nil if it was not played.
func (h *History) Of(n int64) *Record {
	if k, found := h.at[n]; found {
		return &h.records[k]
	}
	return nil
}

// Last is the record of the step that was played last.
func (h *History) Last() *Record { return &h.records[len(h.records)-1] }

// Add takes in a step that was played.
func (h *History) Add(n int64) {
	events, host := h.job.Events()
	r := Record{Step: n, Last: n, End: len(events), hostThrough: len(host)}
	r.Live, r.Host = h.job.Alive()
	number, hostBegin := int32(len(h.records)), 0
	if number > 0 {
		before := h.Last()
		r.begin, hostBegin = before.End, before.hostThrough
		r.situation = situation{before.state, h.running(n)}
	}
	var text *fingerprint
	if h.Tracks {
		text = &h.text
		text.reset()
	}
	h.device.take(events, r.begin, number, text)
	h.machine.take(host, hostBegin, number, text)
	h.at[n] = len(h.records)
	if !h.Tracks {
		h.records = append(h.records, r)
		return
	}
	r.class = text.number(h.classes)
	h.records = append(h.records, r)
	h.Last().state = h.state()
	h.Last().names = slices.Clone(h.device.names)
	if number == 0 {
		return
	}
	o := h.outcomes[r.situation]
	if o == nil {
		o = &outcome{}
		h.outcomes[r.situation] = o
	}
	if o.class != r.class || o.state != h.Last().state {
		*o = outcome{class: r.class, state: h.Last().state}
	}
	o.times++
}

// take follows the events of a step from begin on and writes them to a text, if there is one.
func (l *lives) take(events []trace.Event, begin int, number int32, text *fingerprint) {
	if blocks := (len(events) - begin) / 2; cap(l.birth)-len(l.birth) < blocks { // most are freed, too
		blocks = max(blocks, 2*len(l.birth)) // and the next steps are about as long
		l.birth, l.gone = slices.Grow(l.birth, blocks), slices.Grow(l.gone, blocks)
	}
	for i := begin; i < len(events); i++ {
		switch e := &events[i]; e.Kind {
		case trace.Alloc:
			for len(l.birth) <= int(e.ID) {
				l.birth, l.gone = append(l.birth, birth{}), append(l.gone, false)
			}
			l.birth[e.ID] = birth{int32(i), number, int32(i - begin)}
			if text != nil {
				l.names = append(l.names, e.ID)
			}
		case trace.Free:
			l.gone[e.ID] = true
		}
	}
	if text != nil {
		l.write(events, begin, number, text)
		l.names = slices.DeleteFunc(l.names, func(id int32) bool { return l.gone[id] })
	}
}

// write writes the events of a step to a text such that alike steps read alike: a block by its
// place in the step, and one of the time before by its age among those that the step frees.
// Which others are freed, the state tells that is left.
func (l *lives) write(events []trace.Event, begin int, number int32, text *fingerprint) {
	others := l.others(events[begin:], number)
	for i := begin; i < len(events); i++ {
		e := &events[i]
		own, offset, bytes := uint64(1), int32(0), e.Bytes
		if e.Kind == trace.Alloc || e.Kind == trace.Free {
			b := l.birth[e.ID]
			offset, bytes = b.offset, events[b.event].Bytes
			if b.record != number {
				own, offset = 0, age(others, e.ID)
			}
		}
		text.add(uint64(e.Kind)|uint64(e.Phase)<<8|uint64(e.Thread)<<16|own<<24|uint64(uint16(e.Stream))<<32, uint64(offset), uint64(bytes))
	}
	text.add(math.MaxUint64)
}

// others lists the blocks of the time before a record that its events free, the oldest first:
// blocks are numbered by their birth.
func (l *lives) others(events []trace.Event, record int32) (ids []int32) {
	for i := range events {
		if e := &events[i]; e.Kind == trace.Free && l.birth[e.ID].record != record {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// age is the place of a block among others.
func age(others []int32, id int32) int32 {
	k, _ := slices.BinarySearch(others, id)
	return int32(k)
}

// state numbers the state that the last step leaves.
func (h *History) state() int32 {
	text := &h.text
	text.reset()
	for _, l := range []*lives{&h.device, &h.machine} {
		for _, id := range l.names {
			b := l.birth[id]
			text.add(uint64(h.records[b.record].class), uint64(b.offset))
		}
		text.add(math.MaxUint64)
	}
	text.add(h.job.Counted()...)
	return text.number(h.states)
}

// running tells which statements run in a step, beside those that always do.
func (h *History) running(n int64) string {
	out := make([]byte, len(h.Intervals))
	for i, e := range h.Intervals {
		if (n-1+h.first)%e.Every == e.Rest {
			out[i] = 1
		}
	}
	return string(out)
}

// trusted reports whether the step of a record was played twice from the same
// state, and did the same.
func (h *History) trusted(r *Record) bool {
	o := h.outcomes[r.situation]
	return o.times > 1 && o.class == r.class && o.state == r.state
}

// ahead is how many steps after step n run the same statements as those after
// step m, one by one; -1: all.
func (h *History) ahead(m, n int64) int64 {
	first := int64(-1)
	for _, e := range h.Intervals {
		if (n-m)%e.Every == 0 {
			continue
		}
		next := min(h.next(n, e), h.next(m, e)+n-m)
		if first < 0 || next < first {
			first = next
		}
	}
	if first < 0 {
		return -1
	}
	return first - n - 1
}

// next is the first step after step n that is in an interval.
func (h *History) next(n int64, e Interval) int64 {
	return n + 1 + ((e.Rest-n-h.first)%e.Every+e.Every)%e.Every
}

// Begins is the first step that is in an interval.
func (h *History) Begins(e Interval) int64 { return h.next(0, e) }

// How many steps are worth leaving out, or how many events of fewer steps.
const (
	minLeftOut       = 8
	minLeftOutEvents = 1 << 16
)

// LeaveOut looks for steps that come next and are known: the last ones, from a
// state on that is that of now, again and again. It returns nil if there are none,
// or too few.
func (h *History) LeaveOut() *trace.Loop {
	r := h.Last()
	n := r.Last
	var most *trace.Loop
	var from *Record
	for i := len(h.records) - 1; i > 0 && h.trusted(&h.records[i]); i-- {
		before := &h.records[i-1]
		if before.state != r.state {
			continue
		}
		l := &trace.Loop{Begin: before.End, End: r.End, Steps: n - before.Last}
		left := h.ahead(before.Last, n)
		if left >= 0 {
			l.Turns = min(left, MaxStep-n) / l.Steps
			few := l.Turns*l.Steps < minLeftOut && l.Turns*int64(l.End-l.Begin) < minLeftOutEvents
			if few || most != nil && l.Turns*l.Steps <= most.Turns*most.Steps {
				continue
			}
		}
		most, from = l, before
		if left < 0 {
			break
		}
	}
	if most == nil {
		return nil
	}
	for k, was := range from.names {
		if is := r.names[k]; is != was {
			most.Names = append(most.Names, trace.Rename{From: is, To: was})
		}
	}
	r.Last += most.Turns * most.Steps
	r.LeftOut = true
	return most
}

// Alike reports whether the last step and the one a period before are equal event
// for event: the same calls in the same order, on blocks that were born at the same
// place of steps equally long ago. Where each step frees all that the one before it
// left, in the same order, the place does not matter in the step before the last: that of
// the first step is another, as that step allocates more.
func (h *History) Alike(period int64) bool {
	r := h.Last()
	k, found := h.at[r.Step-period]
	if !found || k == 0 {
		return false
	}
	events, _ := h.job.Events()
	before := &h.records[k]
	a, b := events[before.begin:before.End], events[r.begin:r.End]
	if len(a) != len(b) {
		return false
	}
	left, moved, older, swapped := 0, false, false, false
	ofA, ofB := h.device.others(a, int32(k)), h.device.others(b, int32(h.at[r.Step]))
	for i := range a {
		x, y := &a[i], &b[i]
		if y.Kind == trace.Alloc && !h.device.gone[y.ID] {
			left++
		}
		if x.Kind != y.Kind || x.Bytes != y.Bytes || x.Phase != y.Phase || x.Thread != y.Thread {
			return false
		}
		if x.Kind != trace.Free {
			continue
		}
		bx, by := h.device.birth[x.ID], h.device.birth[y.ID]
		if h.records[by.record].Step-h.records[bx.record].Step != period {
			return false
		}
		own := h.records[by.record].Step == r.Step
		switch {
		case own && bx.offset != by.offset:
			return false
		case !own:
			moved = moved || bx.offset != by.offset
			older = older || h.records[by.record].Step != r.Step-1
			swapped = swapped || age(ofA, x.ID) != age(ofB, y.ID) || events[bx.event].Bytes != events[by.event].Bytes
		}
	}
	return !moved || period == 1 && !older && !swapped && len(ofB) == left
}

// ForEver is the loop of the last period, which goes on as it was: a turn knows a
// block by the name of the one that was born at the same place a period before. The
// steps after the given one are each alike to that a period before; where blocks
// that are freed were born earlier, later turns free others, and there is none yet.
func (h *History) ForEver(period, steady int64) *trace.Loop {
	r := h.Last()
	l := &trace.Loop{Begin: h.records[h.at[r.Step-period]].End, End: r.End, Steps: period}
	events, _ := h.job.Events()
	var older []int32 // names that a turn uses of blocks from before it
	seen := map[int32]bool{}
	use := func(id int32) {
		if b := h.device.birth[id]; int(b.event) < l.Begin && !seen[id] {
			seen[id] = true
			older = append(older, id)
		}
	}
	for i := l.Begin; i < l.End; i++ {
		if events[i].Kind == trace.Free {
			use(events[i].ID)
		}
	}
	for len(older) > 0 {
		id := older[0]
		older = older[1:]
		b := h.device.birth[id]
		next := h.records[b.record].Step + period
		if next <= steady {
			return nil
		}
		k := h.at[next]
		now := events[h.records[k].begin+int(b.offset)].ID
		l.Names = append(l.Names, trace.Rename{From: now, To: id})
		use(now)
	}
	return l
}
