package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// history is what is known of the steps that were played. What a step does
// depends on which statements run in it, and on the state that it finds; where
// both were met before, what follows is known, and need not be played.
//
// A state is told by the blocks that live: each by the events of the step in
// which it was born and its place there, in the order of their birth. Beside
// them there is what optimizers count, and how many plans cuDNN searched for. A
// step that was played twice from the same state, with the same outcome, is taken
// to do so again.
type history struct {
	j         *job
	tracks    bool    // states are told; otherwise steps are compared alone
	intervals []int64 // the n of what runs in every n-th step only

	records  []record      // the setup, then the steps that were played
	at       map[int64]int // records by the number of the step
	device   lives
	machine  lives
	classes  map[[sha256.Size]byte]int32
	states   map[[sha256.Size]byte]int32
	outcomes map[situation]*outcome
	text     fingerprint
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

// record is a step that was played, or the setup.
type record struct {
	step        int64 // its number
	last        int64 // that of the last step that it and what was left out after it stand for
	begin, end  int   // its events
	live, host  tensor.Bytes
	class       int32 // steps of one class have the same events
	situation   situation
	state       int32   // that it leaves
	names       []int32 // the blocks that live then
	leftOut     bool    // steps were, after it
	hostThrough int     // the events of HostTrace up to its end
}

// situation is what decides what a step does.
type situation struct {
	state   int32
	running string // which of the intervals divide its number
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

// maxStep bounds the numbers of steps.
const maxStep = math.MaxInt32

func newHistory(j *job, tracks bool) *history {
	h := &history{
		j: j, intervals: j.intervals(), at: map[int64]int{}, classes: map[[sha256.Size]byte]int32{},
		states: map[[sha256.Size]byte]int32{}, outcomes: map[situation]*outcome{}, text: fingerprint{sum: sha256.New()},
	}
	h.tracks = tracks && len(h.intervals) > 0
	h.add(0)
	return h
}

// period is the number of steps after which all that runs in every n-th step comes
// round together, 0 if that is beyond maxStep; of what runs rarer than in every
// most-th step nothing is asked, unless that is 0.
func (h *history) period(most int64) int64 {
	p := int64(1)
	for _, e := range h.intervals {
		switch q := lcm(p, e); {
		case most > 0 && q > most:
		case q > maxStep:
			return 0
		default:
			p = q
		}
	}
	return p
}

// intervals lists the n of what runs in every n-th step only.
func (j *job) intervals() []int64 {
	var out []int64
	add := func(body []program.Stmt) {
		for i := range body {
			out = append(out, max(body[i].Every, 1))
		}
	}
	add(j.prog.Step.Body)
	if e := j.prog.Eval; e != nil {
		out = append(out, e.Every)
		add(e.Fn.Body)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(e int64) bool { return e == 1 })
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// last is the record of the step that was played last.
func (h *history) last() *record { return &h.records[len(h.records)-1] }

// add takes in a step that was played.
func (h *history) add(n int64) {
	r := record{step: n, last: n, end: len(h.j.Trace().Events), hostThrough: len(h.j.HostTrace().Events)}
	r.live, r.host = h.j.Alive()
	number, hostBegin := int32(len(h.records)), 0
	if number > 0 {
		before := h.last()
		r.begin, hostBegin = before.end, before.hostThrough
		r.situation = situation{before.state, h.running(n)}
	}
	var text *fingerprint
	if h.tracks {
		text = &h.text
		text.reset()
	}
	h.device.take(h.j.Trace().Events, r.begin, number, text)
	h.machine.take(h.j.HostTrace().Events, hostBegin, number, text)
	h.at[n] = len(h.records)
	if !h.tracks {
		h.records = append(h.records, r)
		return
	}
	r.class = text.number(h.classes)
	h.records = append(h.records, r)
	h.last().state = h.state()
	h.last().names = slices.Clone(h.device.names)
	if number == 0 {
		return
	}
	o := h.outcomes[r.situation]
	if o == nil {
		o = &outcome{}
		h.outcomes[r.situation] = o
	}
	if o.class != r.class || o.state != h.last().state {
		*o = outcome{class: r.class, state: h.last().state}
	}
	o.times++
}

// take follows the events of a step from begin on and writes them to a text, if
// there is one, such that alike steps read alike: a block by its place in the step
// in which it was born.
func (l *lives) take(events []trace.Event, begin int, number int32, text *fingerprint) {
	for i := begin; i < len(events); i++ {
		e := &events[i]
		own := uint64(1)
		switch e.Kind {
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
			if l.birth[e.ID].record != number {
				own = 0
			}
		}
		if text == nil {
			continue
		}
		offset, bytes := int32(0), e.Bytes
		if e.Kind == trace.Alloc || e.Kind == trace.Free {
			b := l.birth[e.ID]
			offset, bytes = b.offset, events[b.event].Bytes
		}
		text.add(uint64(e.Kind)|uint64(e.Phase)<<8|uint64(e.Thread)<<16|own<<24|uint64(uint16(e.Stream))<<32, uint64(offset), uint64(bytes))
	}
	if text != nil {
		l.names = slices.DeleteFunc(l.names, func(id int32) bool { return l.gone[id] })
		text.add(math.MaxUint64)
	}
}

// state numbers the state that the last step leaves.
func (h *history) state() int32 {
	text := &h.text
	text.reset()
	for _, l := range []*lives{&h.device, &h.machine} {
		for _, id := range l.names {
			b := l.birth[id]
			text.add(uint64(h.records[b.record].class), uint64(b.offset))
		}
		text.add(math.MaxUint64)
	}
	for i, n := range h.j.stepped {
		text.add(uint64(min(n, h.j.warmUp(i))))
	}
	text.add(uint64(h.j.Searched()))
	return text.number(h.states)
}

// running tells which statements run in a step, beside those that always do.
func (h *history) running(n int64) string {
	out := make([]byte, len(h.intervals))
	for i, e := range h.intervals {
		if n%e == 0 {
			out[i] = 1
		}
	}
	return string(out)
}

// trusted reports whether the step of a record was played twice from the same
// state, and did the same.
func (h *history) trusted(r *record) bool {
	o := h.outcomes[r.situation]
	return o.times > 1 && o.class == r.class && o.state == r.state
}

// ahead is how many steps after step n run the same statements as those after
// step m, one by one; -1: all.
func (h *history) ahead(m, n int64) int64 {
	first := int64(-1)
	for _, e := range h.intervals {
		if (n-m)%e == 0 {
			continue
		}
		next := min((n/e+1)*e, (m/e+1)*e+n-m)
		if first < 0 || next < first {
			first = next
		}
	}
	if first < 0 {
		return -1
	}
	return first - n - 1
}

// minLeftOut is how many steps are worth leaving out.
const minLeftOut = 8

// leaveOut looks for steps that come next and are known: the last ones, from a
// state on that is that of now, again and again. It returns nil if there are none,
// or too few.
func (h *history) leaveOut() *trace.Loop {
	r := h.last()
	n := r.last
	var most *trace.Loop
	var from *record
	for i := len(h.records) - 1; i > 0 && h.trusted(&h.records[i]); i-- {
		before := &h.records[i-1]
		if before.state != r.state {
			continue
		}
		l := &trace.Loop{Begin: before.end, End: r.end, Steps: n - before.last}
		left := h.ahead(before.last, n)
		if left >= 0 {
			l.Turns = min(left, maxStep-n) / l.Steps
			if l.Turns*l.Steps < minLeftOut || most != nil && l.Turns*l.Steps <= most.Turns*most.Steps {
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
	r.last += most.Turns * most.Steps
	r.leftOut = true
	return most
}

// alike reports whether the last step and the one a period before are equal event
// for event: the same calls in the same order, on blocks that were born at the same
// place of steps equally long ago.
func (h *history) alike(period int64) bool {
	r := h.last()
	k, found := h.at[r.step-period]
	if !found || k == 0 {
		return false
	}
	events := h.j.Trace().Events
	before := &h.records[k]
	a, b := events[before.begin:before.end], events[r.begin:r.end]
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if x.Kind != y.Kind || x.Bytes != y.Bytes || x.Phase != y.Phase || x.Thread != y.Thread {
			return false
		}
		if x.Kind != trace.Free {
			continue
		}
		bx, by := h.device.birth[x.ID], h.device.birth[y.ID]
		if h.records[by.record].step-h.records[bx.record].step != period || bx.offset != by.offset {
			return false
		}
	}
	return true
}

// forEver is the loop of the last period, which goes on as it was: a turn knows a
// block by the name of the one that was born at the same place a period before. The
// steps after the given one are each alike to that a period before; where blocks
// that are freed were born earlier, later turns free others, and there is none yet.
func (h *history) forEver(period, steady int64) *trace.Loop {
	r := h.last()
	l := &trace.Loop{Begin: h.records[h.at[r.step-period]].end, End: r.end, Steps: period}
	events := h.j.Trace().Events
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
		next := h.records[b.record].step + period
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
