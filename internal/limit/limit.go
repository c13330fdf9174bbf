// Package limit bounds what one job may take of the machine that plans it: work
// and memory, which are counted and so the same on all machines, and time.
//
// A Budget is that of one job. What computes it counts on a Meter, which panics
// where a limit is met or the command is interrupted; Catch makes an error of that
// where the job began. A Budget or Meter that is nil bounds nothing.
package limit

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/memplan/memplan/internal/tensor"
)

// What a job may take unless the command line says otherwise.
const (
	DefaultMemory = 4 * tensor.GiB
	DefaultTime   = 5 * time.Minute
)

// What a spec in a check may take unless the command line says otherwise: less, as
// it may be untrusted, and no more than 2 seconds of one core: a step of a
// model of 405 billion parameters takes 2.3 million, with four accumulated batches 8.0.
const (
	CheckMemory = tensor.GiB
	CheckWork   = 15_000_000
)

// WorkPerSecond is the work that a limit of time allows for each of its seconds. A
// unit is a step of an expression, half an event that is replayed, or the like:
// about 50 nanoseconds of one core of an AMD EPYC. What takes longer counts as
// several, such that the time for a unit is nearly the same in all that a job does.
const WorkPerSecond = 20_000_000

// The flags that raise the limits.
const (
	MemoryFlag = "max-memory"
	TimeFlag   = "max-time"
)

// Limits are what one job may take; 0 is no limit.
type Limits struct {
	Memory tensor.Bytes
	Time   time.Duration
	Work   int64 // 0: what Time allows
}

// Error says which limit a job met.
type Error struct {
	Flag string // that raises the limit
	Msg  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (--%s raises the limit)", e.Msg, e.Flag) }

func memoryError(most tensor.Bytes) *Error {
	return &Error{MemoryFlag, fmt.Sprintf("stopped: computing this takes more than %v of memory", most)}
}

// Late is the error of what takes more time than there is for it.
func Late(what string, most time.Duration) *Error {
	return &Error{TimeFlag, fmt.Sprintf("stopped: %s takes more than %v", what, most)}
}

func timeError(most time.Duration) *Error {
	return Late("computing this", most)
}

func workError(units int64) *Error {
	return &Error{TimeFlag, fmt.Sprintf("stopped: computing this takes more than %d steps of work", units)}
}

// Budget is what one job may still take. It may be used by several goroutines.
type Budget struct {
	limits  Limits
	units   int64 // of work; 0: no limit
	work    atomic.Int64
	held    atomic.Int64 // bytes
	stopped atomic.Pointer[stop]

	ctx    context.Context
	cancel context.CancelCauseFunc
	end    func()
}

// stop is the panic of a meter.
type stop struct{ err error }

// New opens the budget of a job; Close ends it. When a limit is met the context
// of the budget ends, and when ctx ends the job does.
func New(ctx context.Context, l Limits) *Budget {
	if l.Work == 0 {
		l.Work = int64(l.Time.Seconds() * WorkPerSecond)
	}
	b := &Budget{limits: l, units: l.Work}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(ctx, func() { b.stop(context.Cause(ctx)) })
	b.end = func() { unwatch() }
	if l.Time > 0 {
		clock := time.AfterFunc(l.Time, func() { b.stop(timeError(l.Time)) })
		b.end = func() { unwatch(); clock.Stop() }
	}
	return b
}

// Close gives up what the budget holds in the program itself.
func (b *Budget) Close() {
	if b != nil {
		b.end()
		b.cancel(nil)
	}
}

// Context ends with the budget; Err says why. Without a budget it is ctx.
func (b *Budget) Context(ctx context.Context) context.Context {
	if b == nil {
		return ctx
	}
	return b.ctx
}

// in is the key of a budget in a context.
type in struct{}

// In gives a context the budget of what is done with it.
func In(ctx context.Context, b *Budget) context.Context { return context.WithValue(ctx, in{}, b) }

// Of is the budget that In gave a context; nil: none.
func Of(ctx context.Context) *Budget {
	b, _ := ctx.Value(in{}).(*Budget)
	return b
}

// stop ends the job with an error, unless it is ended already.
func (b *Budget) stop(err error) {
	if b.stopped.CompareAndSwap(nil, &stop{err}) {
		b.cancel(err)
	}
}

// Err is why the job was ended; nil: it was not.
func (b *Budget) Err() error {
	if b != nil {
		if s := b.stopped.Load(); s != nil {
			return s.err
		}
	}
	return nil
}

// Work is the work that was counted so far, by meters that are closed and, but for
// a little, by others.
func (b *Budget) Work() int64 { return b.work.Load() }

// Held are the bytes that are counted at present.
func (b *Budget) Held() tensor.Bytes { return tensor.Bytes(b.held.Load()) }

// Catch turns the panic of a meter into an error.
func Catch(err *error) { Caught(recover(), err) }

// Caught is Catch for what was recovered.
func Caught(r any, err *error) {
	switch r := r.(type) {
	case nil:
	case *stop:
		*err = r.err
	default:
		panic(r)
	}
}

// How much a meter counts by itself before the budget knows.
const (
	someWork  = 4096
	someBytes = 1 << 20
)

// Meter counts for a budget, in one goroutine.
type Meter struct {
	b           *Budget
	work, bytes int64 // not yet told
	held        int64 // told
}

// Meter makes a meter; Close gives the bytes back that it counted.
func (b *Budget) Meter() *Meter {
	if b == nil {
		return nil
	}
	return &Meter{b: b}
}

// Work counts work before or after it is done: before, if it may be much.
func (m *Meter) Work(n int64) {
	if m == nil {
		return
	}
	if m.work += n; m.work >= someWork {
		m.tell()
	}
}

// heldPerWork is how many bytes there are for the work of a unit: memory that is new
// to the process costs a fault for each page.
const heldPerWork = 32

// Hold counts bytes that are kept until the meter is closed, and the work in
// getting them.
func (m *Meter) Hold(n tensor.Bytes) {
	if m == nil {
		return
	}
	m.work += int64(n) / heldPerWork
	if m.bytes += int64(n); m.bytes >= someBytes || m.work >= someWork {
		m.tell()
	}
}

// Left is the work that may still be done, the most there is without a limit: for
// what may be cut short.
func (m *Meter) Left() int64 {
	if m == nil || m.b.units == 0 {
		return math.MaxInt64
	}
	return max(0, m.b.units-m.b.work.Load()-m.work)
}

// Limit is the work that all jobs of the budget may do, the most there is without a limit.
func (m *Meter) Limit() int64 {
	if m == nil || m.b.units == 0 {
		return math.MaxInt64
	}
	return m.b.units
}

// tell adds to the budget what was counted, and ends the job if it is too much.
func (m *Meter) tell() {
	b := m.b
	work, held := b.work.Add(m.work), b.held.Add(m.bytes)
	m.held += m.bytes
	m.work, m.bytes = 0, 0
	switch {
	case b.units > 0 && work > b.units:
		b.stop(workError(b.units))
	case b.limits.Memory > 0 && held > int64(b.limits.Memory):
		b.stop(memoryError(b.limits.Memory))
	}
	if s := b.stopped.Load(); s != nil {
		panic(s)
	}
}

// Check ends the job if a limit is met or the command is interrupted.
func (m *Meter) Check() {
	if m != nil {
		m.tell()
	}
}

// Close gives back the bytes that were counted.
func (m *Meter) Close() {
	if m != nil {
		m.b.work.Add(m.work)
		m.b.held.Add(-m.held)
		m.work, m.bytes, m.held = 0, 0, 0
	}
}
