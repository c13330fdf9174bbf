package plan

import (
	"context"
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// Trace is a list of allocations and frees, with the allocator's options, the
// version of PyTorch and the device's memory. docs/report.md describes its JSON.
type Trace = trace.File

// Event is one call into the allocator.
type Event = trace.Event

// The kinds of events.
const (
	Alloc      = trace.Alloc // of Bytes, as block ID: the number of its birth, from 1
	Free       = trace.Free  // of block ID
	EmptyCache = trace.EmptyCache
	ResetPeaks = trace.ResetPeaks
)

// ReadTrace reads a trace from JSON.
func ReadTrace(r io.Reader) (*Trace, error) { return trace.Read(r) }

// WriteTrace writes a trace as ReadTrace reads it.
func WriteTrace(w io.Writer, t *Trace) error { return trace.Write(w, t) }

// Simulation is what memplan simulate --format json prints: what the allocator held at
// the end and at its peaks, its retries and failures.
type Simulation = allocsim.Simulation

// Failure is a request that failed: its event, and PyTorch's message.
type Failure = allocsim.OOM

// ReplayOptions say what to keep, and what a replay may take.
type ReplayOptions struct {
	Series bool // reserved and allocated memory after each event
	Limits Limits
}

// Replayed is a trace that was replayed.
type Replayed struct {
	Simulation *Simulation
	Events     int       // that were replayed
	Failures   []Failure // after which the replay went on

	replayer allocsim.Replayer
}

// Replay runs a trace through PyTorch's caching allocator, on a device of the trace's
// capacity. A request that fails is skipped.
func Replay(ctx context.Context, t *Trace, o ReplayOptions) (p *Replayed, err error) {
	ver := torchver.Default
	if t.Torch != "" {
		if ver, err = torchver.Parse(t.Torch); err != nil {
			return nil, fmt.Errorf("\"torch\": %w", err)
		}
	}
	cfg, err := allocsim.ParseConfig(t.Config, ver)
	if err != nil {
		return nil, err
	}
	b, done, err := budget(ctx, o.Limits)
	if err != nil {
		return nil, err
	}
	defer done()
	m := b.Meter()
	defer m.Close()
	defer limit.Catch(&err)
	p = new(Replayed)
	r, err := p.replayer.Replay(t.Events, allocsim.ReplayOptions{
		Config: cfg, Capacity: t.Capacity, Occupied: t.Occupied, MemoryFraction: t.MemoryFraction, Series: o.Series, Meter: m,
	})
	if err != nil {
		return nil, err
	}
	p.Simulation, p.Events, p.Failures = r.Simulation(), r.Events, r.OOMs
	return p, nil
}

// WriteMap draws the segments and blocks that the allocator has at the end.
func (p *Replayed) WriteMap(w io.Writer) error { return p.replayer.Dump(w) }
