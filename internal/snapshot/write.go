package snapshot

import (
	"fmt"
	"io"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/pickle"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Write writes a snapshot as torch.cuda.memory._dump_snapshot does; Read and PyTorch's memory_viz read it.
func (s *Snapshot) Write(w io.Writer) error {
	e := encoder{stacks: map[*Stack]*pickle.List{nil: {}}, frames: map[Frame]*pickle.Dict{}}
	segments, traces := &pickle.List{}, &pickle.List{}
	for i := range s.Devices {
		d := &s.Devices[i]
		for k := range d.Segments {
			segments.Items = append(segments.Items, e.segment(d.Index, &d.Segments[k]))
		}
		for len(traces.Items) <= d.Index {
			traces.Items = append(traces.Items, &pickle.List{})
		}
		events := traces.Items[d.Index].(*pickle.List)
		for k := range d.Events {
			events.Items = append(events.Items, e.event(&d.Events[k]))
		}
	}
	annotations := &pickle.List{}
	for i := range s.Annotations {
		a := &s.Annotations[i]
		stage := "START"
		if a.End {
			stage = "END"
		}
		annotations.Items = append(annotations.Items, dictOf("stage", stage, "name", a.Name, "device", int64(a.Device), "time_us", a.Microsecs))
	}
	return pickle.Write(w, dictOf(
		"segments", segments, "device_traces", traces,
		"allocator_settings", dictOf("PYTORCH_CUDA_ALLOC_CONF", s.Config),
		"external_annotations", annotations,
	))
}

// dictOf makes a dict of keys and values in turn.
func dictOf(items ...pickle.Value) *pickle.Dict {
	d := &pickle.Dict{}
	for i := 0; i < len(items); i += 2 {
		d.Keys, d.Values = append(d.Keys, items[i]), append(d.Values, items[i+1])
	}
	return d
}

type encoder struct {
	stacks map[*Stack]*pickle.List
	frames map[Frame]*pickle.Dict
}

func (e *encoder) stack(s *Stack) *pickle.List {
	l, ok := e.stacks[s]
	if !ok {
		l = &pickle.List{}
		for _, f := range s.Frames {
			d, ok := e.frames[f]
			if !ok {
				d = dictOf("name", f.Name, "filename", f.File, "line", f.Line)
				e.frames[f] = d
			}
			l.Items = append(l.Items, d)
		}
		e.stacks[s] = l
	}
	return l
}

func (e *encoder) segment(device int, s *Segment) *pickle.Dict {
	blocks := &pickle.List{}
	var allocated, active, requested tensor.Bytes
	states := [...]string{Inactive: "inactive", Allocated: "active_allocated", Pending: "active_pending_free"}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State != Inactive {
			active += b.Size
			requested += b.Requested
		}
		if b.State == Allocated {
			allocated += b.Size
		}
		blocks.Items = append(blocks.Items, dictOf("address", int64(b.Address), "size", int64(b.Size),
			"requested_size", int64(b.Requested), "state", states[b.State], "frames", e.stack(b.Stack)))
	}
	kind := "large"
	if s.Small {
		kind = "small"
	}
	return dictOf("device", int64(device), "address", int64(s.Address), "total_size", int64(s.Size),
		"allocated_size", int64(allocated), "active_size", int64(active), "requested_size", int64(requested),
		"stream", s.Stream, "segment_type", kind, "segment_pool_id", pickle.Tuple{s.Pool[0], s.Pool[1]},
		"is_expandable", s.Expandable, "frames", e.stack(nil), "blocks", blocks)
}

func (e *encoder) event(v *Event) *pickle.Dict {
	address := "addr"
	if v.Action == OOM {
		address = "device_free"
	}
	d := dictOf("action", v.Action.String(), address, int64(v.Address), "size", int64(v.Size), "stream", v.Stream,
		"time_us", v.Microsecs, "frames", e.stack(v.Stack))
	if v.Category != "" {
		d.Keys, d.Values = append(d.Keys, "category"), append(d.Values, v.Category)
	}
	if v.Annotation != "" {
		d.Keys, d.Values = append(d.Keys, "user_metadata"), append(d.Values, v.Annotation)
	}
	return d
}

// Of replays a trace, up to the first request that fails, and returns the snapshot that PyTorch would dump then. The frames of a block name the
// operator that allocates it, the module at work, and the step and phase. The time of an event is
// its number, in microseconds.
func Of(f *trace.File, config allocsim.Config) (*Snapshot, error) {
	m := &maker{f: f, blocks: make([]placed, 1), living: map[uint64]*Stack{}, stacks: map[stackKey]*Stack{}}
	var p allocsim.Replayer
	r, err := p.Replay(f.Events, allocsim.ReplayOptions{
		Config: config, Capacity: f.Capacity, Occupied: f.Occupied, MemoryFraction: f.MemoryFraction,
		StopAtOOM: true, Series: true, Watch: &allocsim.Watch{Block: m.block, Device: m.device},
	})
	if err != nil {
		return nil, err
	}
	m.events(r.Events, r)
	m.sizes(r.AllocatedSeries)
	d := Device{Events: m.out, Segments: m.segments(p.Snapshot())}
	// memory_viz colours by category if there are any, and fails unless one of them is unknown.
	if f.Categories != nil {
		d.Events = append(d.Events, Event{Action: Dumped, Category: "unknown", Microsecs: int64(len(f.Events))})
	}
	return &Snapshot{Devices: []Device{d}, Config: f.Config}, nil
}

// maker makes the events of a snapshot while a trace is replayed.
type maker struct {
	f      *trace.File
	out    []Event
	done   int               // events of the trace that are in out
	blocks []placed          // by ID
	living map[uint64]*Stack // of blocks in use, by address
	stacks map[stackKey]*Stack
}

// placed is a block where it was allocated; at 0 if it was not.
type placed struct {
	at    allocsim.Address
	bytes tensor.Bytes
}

// stackKey is what makes the frames of an event.
type stackKey struct {
	op, layer, step int32
	phase           trace.Phase
}

func (m *maker) stack(e *trace.Event) *Stack {
	key := stackKey{e.Op, e.Layer, e.Step, e.Phase}
	s, ok := m.stacks[key]
	if !ok {
		name := func(list []string, i int32, otherwise string) string {
			if int(i) < len(list) && list[i] != "" {
				return list[i]
			}
			return otherwise
		}
		s = &Stack{Frames: []Frame{
			{File: "<" + name(m.f.Layers, e.Layer, "program") + ">", Name: name(m.f.Ops, e.Op, e.Phase.String())},
			{File: fmt.Sprintf("<step %d>", e.Step), Name: e.Phase.String()},
		}}
		m.stacks[key] = s
	}
	return s
}

func (m *maker) add(i int, action Action, at allocsim.Address, n tensor.Bytes) {
	e := &m.f.Events[i]
	out := Event{Action: action, Address: uint64(at), Size: n, Stream: int64(e.Stream), Microsecs: int64(i), Stack: m.stack(e)}
	if action <= FreeCompleted && int(e.ID) < len(m.f.Categories) {
		out.Category = m.f.Categories[e.ID].String()
	}
	m.out = append(m.out, out)
}

// block notes where a block is.
func (m *maker) block(i int, at allocsim.Address) {
	m.events(i, nil)
	e := &m.f.Events[i]
	for int(e.ID) >= len(m.blocks) {
		m.blocks = append(m.blocks, placed{})
	}
	m.blocks[e.ID] = placed{at, e.Bytes}
	m.add(i, Alloc, at, e.Bytes)
	m.living[uint64(at)] = m.stack(e)
	m.done = i + 1
}

// device notes memory that was taken or returned during an event.
func (m *maker) device(i int, op allocsim.DeviceOp, at allocsim.Address, n tensor.Bytes) {
	m.events(i, nil)
	m.add(i, []Action{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap}[op], at, n)
}

// events adds the frees, up to an event, and at the end the requests that failed.
func (m *maker) events(to int, r *allocsim.Result) {
	for ; m.done < to; m.done++ {
		e := &m.f.Events[m.done]
		if e.Kind == trace.Free && int(e.ID) < len(m.blocks) && m.blocks[e.ID].at != 0 {
			b := m.blocks[e.ID]
			m.add(m.done, FreeRequested, b.at, b.bytes)
			m.add(m.done, FreeCompleted, b.at, b.bytes)
			delete(m.living, uint64(b.at))
		}
	}
	if r == nil {
		return
	}
	for _, o := range r.OOMs {
		e := &m.f.Events[o.Event]
		m.out = append(m.out, Event{
			Action: OOM, Address: uint64(o.Err.Free), Size: e.Bytes.CeilTo(512), Stream: int64(e.Stream),
			Microsecs: int64(o.Event), Stack: m.stack(e),
		})
	}
}

// sizes fills in how large the blocks are, from what is allocated after each event.
func (m *maker) sizes(allocated []tensor.Bytes) {
	for k := range m.out {
		if e := &m.out[k]; e.Action == Alloc {
			e.Block = allocated[e.Microsecs]
			if e.Microsecs > 0 {
				e.Block -= allocated[e.Microsecs-1]
			}
		}
	}
}

// segments are those that the replay left.
func (m *maker) segments(infos []allocsim.SegmentInfo) []Segment {
	var out []Segment
	for _, info := range infos {
		s := Segment{
			Address: uint64(info.Address), Size: info.TotalSize, Stream: int64(info.Stream),
			Small: info.SegmentType == "small", Expandable: info.IsExpandable,
		}
		for _, b := range info.Blocks {
			block := Block{Address: uint64(b.Address), Size: b.Size, Requested: b.RequestedSize, State: stateNames[b.State]}
			if block.State != Inactive {
				block.Stack = m.living[block.Address]
			}
			s.Blocks = append(s.Blocks, block)
		}
		out = append(out, s)
	}
	return out
}
