// Package perfetto writes a trace of allocations in the Trace Event Format, which ui.perfetto.dev and
// chrome://tracing open: counters of memory, and slices of steps, phases, modules and operators.
//
// The format is JSON ("Trace Event Format", Google, 2016): ph B and E begin and end a slice, C is a
// counter, M names a process or thread; ts is in microseconds.
package perfetto

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// event is one entry of traceEvents.
type event struct {
	Name string         `json:"name"`
	Ph   string         `json:"ph"`
	Ts   int64          `json:"ts"`
	Pid  int            `json:"pid"`
	Tid  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

// The tracks of slices, outermost first.
const (
	stepTrack = 1 + iota
	phaseTrack
	moduleTrack
	operatorTrack
	numTracks
)

var trackNames = [numTracks]string{stepTrack: "step", phaseTrack: "phase", moduleTrack: "module", operatorTrack: "operator"}

// Write replays a trace, up to the first request that fails, and writes it. An event of the trace is a
// microsecond.
func Write(w io.Writer, f *trace.File, config allocsim.Config) error {
	r, err := allocsim.Replay(f.Events, allocsim.ReplayOptions{
		Config: config, Capacity: f.Capacity, Occupied: f.Occupied, MemoryFraction: f.MemoryFraction, StopAtOOM: true, Series: true,
	})
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 1<<16)
	p := &writer{w: b, f: f, first: true}
	fmt.Fprint(b, `{"otherData":{"unit":"one event of the allocator is 1 us"},"traceEvents":[`)
	for i := 1; i < numTracks; i++ {
		p.write(event{Name: "thread_name", Ph: "M", Pid: 1, Tid: i, Args: map[string]any{"name": trackNames[i]}})
	}
	p.write(event{Name: "process_name", Ph: "M", Pid: 1, Args: map[string]any{"name": "GPU memory"}})
	for i := range r.Events {
		p.event(i, r)
	}
	for track := 1; track < numTracks; track++ {
		p.end(track, int64(r.Events))
	}
	for _, o := range r.OOMs {
		p.write(event{Name: "out of memory: " + o.Err.Error(), Ph: "i", Ts: int64(o.Event), Pid: 1, Tid: operatorTrack})
	}
	fmt.Fprint(b, "\n]}\n")
	if p.err != nil {
		return p.err
	}
	return b.Flush()
}

type writer struct {
	w     *bufio.Writer
	f     *trace.File
	first bool
	err   error

	open  [numTracks]string // the slice of each track that is open
	bytes [trace.NumCategories]tensor.Bytes
}

func (p *writer) write(e event) {
	text, err := json.Marshal(e)
	if p.err == nil {
		p.err = err
	}
	if !p.first {
		p.w.WriteByte(',') //nolint:errcheck // bufio keeps the error for Flush
	}
	p.first = false
	p.w.WriteByte('\n') //nolint:errcheck // as above
	p.w.Write(text)     //nolint:errcheck // as above
}

// slice makes a name the open slice of a track; "" is none.
func (p *writer) slice(track int, name string, at int64) {
	if p.open[track] == name {
		return
	}
	p.end(track, at)
	if name != "" {
		p.write(event{Name: name, Ph: "B", Ts: at, Pid: 1, Tid: track})
	}
	p.open[track] = name
}

func (p *writer) end(track int, at int64) {
	if name := p.open[track]; name != "" {
		p.write(event{Name: name, Ph: "E", Ts: at, Pid: 1, Tid: track})
		p.open[track] = ""
	}
}

func (p *writer) event(i int, r *allocsim.Result) {
	e := &p.f.Events[i]
	at := int64(i)
	step := "setup"
	if e.Step > 0 {
		step = fmt.Sprintf("step %d", e.Step)
	}
	if step != p.open[stepTrack] { // a phase ends with its step
		p.end(phaseTrack, at)
	}
	p.slice(stepTrack, step, at)
	p.slice(phaseTrack, e.Phase.String(), at)
	p.slice(moduleTrack, named(p.f.Layers, e.Layer), at)
	p.slice(operatorTrack, named(p.f.Ops, e.Op), at)
	p.count(i, e, r)
}

func named(list []string, i int32) string {
	if int(i) < len(list) {
		return list[i]
	}
	return ""
}

// count writes the counters of an event that changes them.
func (p *writer) count(i int, e *trace.Event, r *allocsim.Result) {
	at := int64(i)
	if i == 0 || r.ReservedSeries[i] != r.ReservedSeries[i-1] {
		p.write(event{Name: "reserved", Ph: "C", Ts: at, Pid: 1, Args: map[string]any{"bytes": r.ReservedSeries[i]}})
	}
	if i > 0 && r.AllocatedSeries[i] == r.AllocatedSeries[i-1] {
		return
	}
	change := r.AllocatedSeries[i]
	if i > 0 {
		change -= r.AllocatedSeries[i-1]
	}
	if p.f.Categories == nil || int(e.ID) >= len(p.f.Categories) {
		p.write(event{Name: "allocated", Ph: "C", Ts: at, Pid: 1, Args: map[string]any{"bytes": r.AllocatedSeries[i]}})
		return
	}
	p.bytes[p.f.Categories[e.ID]] += change
	args := map[string]any{}
	for c := range trace.NumCategories {
		args[c.String()] = p.bytes[c]
	}
	p.write(event{Name: "allocated", Ph: "C", Ts: at, Pid: 1, Args: args})
}
