package snapshot

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/pickle"
	"github.com/memplan/memplan/internal/tensor"
)

// maxDevices bounds the index of a device.
const maxDevices = 1 << 10

// Error is a pickle that is no snapshot.
type Error struct {
	Path string // such as device_traces[0][7].action
	Msg  string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "snapshot: " + e.Msg
	}
	return "snapshot, " + e.Path + ": " + e.Msg
}

// Read reads a file that torch.cuda.memory._dump_snapshot wrote, or a pickle of what
// torch.cuda.memory._snapshot or memory_snapshot returned. An error about the contents is an *Error
// or a *pickle.Error. Keys that Read does not know are left out: each release of PyTorch adds some.
func Read(r io.Reader) (*Snapshot, error) {
	v, err := pickle.Read(r)
	if err != nil {
		return nil, err
	}
	d := &decoder{stacks: map[*pickle.List]*Stack{}}
	s := d.snapshot(v)
	if d.err != nil {
		return nil, d.err
	}
	return s, nil
}

// decoder makes a Snapshot of plain data. After the first error it does nothing.
type decoder struct {
	err    *Error
	path   []string // of the value at work
	stacks map[*pickle.List]*Stack
	seen   map[*pickle.List]bool // lists of blocks and events
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = &Error{strings.TrimPrefix(strings.Join(d.path, ""), "."), fmt.Sprintf(format, args...)}
	}
}

// in runs f with a part added to the path.
func (d *decoder) in(part string, f func()) {
	if d.err != nil {
		return
	}
	d.path = append(d.path, part)
	f()
	d.path = d.path[:len(d.path)-1]
}

// each calls f with each item of a list. A list of blocks or events is part of one segment or
// device only: one that is in several places would make a small file a large snapshot.
func (d *decoder) each(v pickle.Value, what string, f func(i int, v pickle.Value)) {
	l, ok := v.(*pickle.List)
	if !ok {
		d.fail("must be a list of %s, not %s", what, kind(v))
		return
	}
	if d.seen[l] {
		d.fail("the list is in the snapshot twice")
		return
	}
	if d.seen == nil {
		d.seen = map[*pickle.List]bool{}
	}
	d.seen[l] = true
	for i, item := range l.Items {
		if d.err != nil {
			return
		}
		d.in(fmt.Sprintf("[%d]", i), func() { f(i, item) })
	}
}

// kind names the type of a value as Python does.
func kind(v pickle.Value) string {
	switch v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case pickle.Bytes:
		return "bytes"
	case *pickle.List:
		return "list"
	case pickle.Tuple:
		return "tuple"
	}
	return "dict"
}

func (d *decoder) snapshot(v pickle.Value) *Snapshot {
	s := &Snapshot{}
	if list, ok := v.(*pickle.List); ok { // of memory_snapshot: the segments alone
		v = &pickle.Dict{Keys: []pickle.Value{"segments"}, Values: []pickle.Value{list}}
	}
	dict, ok := v.(*pickle.Dict)
	if !ok {
		d.fail("must be a dict with segments and device_traces, not %s", kind(v))
		return nil
	}
	segments, ok := dict.Get("segments")
	if !ok {
		d.fail("has no segments; torch.cuda.memory._dump_snapshot writes them")
		return nil
	}
	devices := map[int]*Device{}
	device := func(i int) *Device {
		if devices[i] == nil {
			devices[i] = &Device{Index: i}
		}
		return devices[i]
	}
	d.in("segments", func() {
		d.each(segments, "segments", func(_ int, v pickle.Value) {
			if i, seg := d.segment(v); seg != nil {
				dev := device(i)
				dev.Segments = append(dev.Segments, *seg)
			}
		})
	})
	if traces, ok := dict.Get("device_traces"); ok {
		d.in("device_traces", func() {
			d.each(traces, "lists of events", func(i int, v pickle.Value) {
				var events []Event
				d.each(v, "events", func(_ int, v pickle.Value) { events = append(events, d.event(v)) })
				if len(events) > 0 {
					device(i).Events = events
				}
			})
		})
	}
	if settings, ok := dict.Get("allocator_settings"); ok {
		s.Config = config(settings)
	}
	if list, ok := dict.Get("external_annotations"); ok {
		d.in("external_annotations", func() {
			d.each(list, "annotations", func(_ int, v pickle.Value) { s.Annotations = append(s.Annotations, d.annotation(v)) })
		})
	}
	for _, dev := range devices {
		d.order(dev)
		s.Devices = append(s.Devices, *dev)
	}
	slices.SortFunc(s.Devices, func(a, b Device) int { return a.Index - b.Index })
	return s
}

// order sorts the segments of a device, which must not overlap.
func (d *decoder) order(dev *Device) {
	slices.SortFunc(dev.Segments, func(a, b Segment) int { return cmp.Compare(a.Address, b.Address) })
	for i := 1; i < len(dev.Segments); i++ {
		if a, b := &dev.Segments[i-1], &dev.Segments[i]; a.Address+uint64(a.Size) > b.Address {
			d.fail("the segments at %#x and %#x of device %d overlap", a.Address, b.Address, dev.Index)
		}
	}
}

// config is the PYTORCH_CUDA_ALLOC_CONF of allocator_settings.
func config(settings pickle.Value) string {
	if dict, ok := settings.(*pickle.Dict); ok {
		for _, key := range []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} {
			if v, _ := dict.Get(key); v != nil && v != "" {
				if s, ok := v.(string); ok {
					return s
				}
			}
		}
	}
	return ""
}

// dict checks that a value is a dict.
func (d *decoder) dict(v pickle.Value, what string) *pickle.Dict {
	dict, ok := v.(*pickle.Dict)
	if !ok {
		d.fail("%s must be a dict, not %s", what, kind(v))
		return &pickle.Dict{}
	}
	return dict
}

// number is a key's integer of at least low; def if the key is absent or None.
func (d *decoder) number(dict *pickle.Dict, key string, low, def int64) int64 {
	v, _ := dict.Get(key)
	if v == nil {
		return def
	}
	n, ok := v.(int64)
	if !ok || n < low {
		d.in("."+key, func() { d.fail("must be an int of at least %d, not %v", low, shown(v)) })
		return def
	}
	return n
}

// needed is number of a key that must be there.
func (d *decoder) needed(dict *pickle.Dict, key string, low int64) int64 {
	if v, _ := dict.Get(key); v == nil {
		d.fail("has no %s", key)
	}
	return d.number(dict, key, low, low)
}

func shown(v pickle.Value) any {
	switch v := v.(type) {
	case int64, float64, bool:
		return v
	case string:
		return fmt.Sprintf("%.40q", v)
	}
	return kind(v)
}

// size is a number of bytes.
func (d *decoder) size(dict *pickle.Dict, key string) tensor.Bytes {
	n := d.needed(dict, key, 0)
	if n > int64(tensor.MaxBytes) {
		d.in("."+key, func() { d.fail("is %d; allowed are numbers up to %d", n, int64(tensor.MaxBytes)) })
	}
	return tensor.Bytes(n)
}

// word is a key's string; "" if it is absent.
func (d *decoder) word(dict *pickle.Dict, key string) string {
	v, _ := dict.Get(key)
	s, ok := v.(string)
	if v != nil && !ok {
		d.in("."+key, func() { d.fail("must be a str, not %s", kind(v)) })
	}
	return s
}

func (d *decoder) segment(v pickle.Value) (device int, _ *Segment) {
	dict := d.dict(v, "a segment")
	if d.err != nil {
		return 0, nil
	}
	device = int(d.number(dict, "device", 0, 0))
	if device >= maxDevices {
		d.fail("device is %d; allowed are numbers below %d", device, maxDevices)
	}
	s := &Segment{
		Address: uint64(d.needed(dict, "address", 1)),
		Size:    d.size(dict, "total_size"),
		Stream:  d.number(dict, "stream", -1<<63, 0),
		Pool:    d.pool(dict),
	}
	switch t := d.word(dict, "segment_type"); t {
	case "small":
		s.Small = true
	case "large":
	default:
		d.in(".segment_type", func() { d.fail("is %.40q; allowed are small and large", t) })
	}
	if e, _ := dict.Get("is_expandable"); e != nil {
		s.Expandable, _ = e.(bool)
	}
	blocks, _ := dict.Get("blocks")
	at := s.Address
	d.in(".blocks", func() {
		d.each(blocks, "blocks", func(_ int, v pickle.Value) {
			b := d.block(v, at)
			if b.Address != at {
				d.fail("begins at %#x, and the block before it ends at %#x", b.Address, at)
			}
			at += uint64(b.Size)
			s.Blocks = append(s.Blocks, b)
		})
		if end := s.Address + uint64(s.Size); at != end {
			d.fail("end at %#x, and the segment ends at %#x", at, end)
		}
	})
	return device, s
}

func (d *decoder) pool(dict *pickle.Dict) (p [2]int64) {
	v, _ := dict.Get("segment_pool_id")
	items, ok := v.(pickle.Tuple)
	if v == nil {
		return p
	}
	for i := range p {
		var n int64
		if ok = ok && len(items) == len(p); ok {
			n, ok = items[i].(int64)
		}
		p[i] = n
	}
	if !ok {
		d.in(".segment_pool_id", func() { d.fail("must be a tuple of two ints") })
	}
	return p
}

// stateNames are PyTorch's names of states; pending blocks have had two.
var stateNames = map[string]State{
	"inactive": Inactive, "active_allocated": Allocated, "active_pending_free": Pending, "active_awaiting_free": Pending,
}

// block reads a block, which begins at an address unless it says another.
func (d *decoder) block(v pickle.Value, at uint64) Block {
	dict := d.dict(v, "a block")
	b := Block{Address: uint64(d.number(dict, "address", 1, int64(at))), Size: d.size(dict, "size")}
	if d.err == nil && b.Size == 0 {
		d.fail("has size 0")
	}
	name := d.word(dict, "state")
	state, ok := stateNames[name]
	if !ok {
		d.in(".state", func() { d.fail("is %.40q; allowed are inactive, active_allocated and active_pending_free", name) })
	}
	b.State = state
	if state != Inactive {
		b.Requested = tensor.Bytes(d.number(dict, "requested_size", 0, 0))
		if b.Requested > b.Size {
			d.fail("has a requested_size of %d and a size of %d", b.Requested, b.Size)
		}
	}
	b.Stack = d.stack(dict)
	return b
}

func (d *decoder) event(v pickle.Value) Event {
	dict := d.dict(v, "an event")
	name := d.word(dict, "action")
	i := slices.Index(actionNames[:], name)
	if i < 0 {
		d.in(".action", func() { d.fail("is %.40q; allowed are %s", name, strings.Join(actionNames[:], ", ")) })
		return Event{}
	}
	e := Event{
		Action:    Action(i),
		Stream:    d.number(dict, "stream", -1<<63, 0),
		Microsecs: d.number(dict, "time_us", 0, 0),
		Stack:     d.stack(dict),
		Category:  d.word(dict, "category"),
	}
	address := "addr"
	if e.Action == OOM {
		address = "device_free"
	}
	if e.Action == UserDefined || e.Action == Dumped {
		e.Address = uint64(d.number(dict, address, 0, 0))
		e.Annotation = d.word(dict, "user_metadata")
		return e
	}
	e.Address = uint64(d.needed(dict, address, 0))
	e.Size = d.size(dict, "size")
	return e
}

// stack reads frames. Those of equal stacks are one list in the pickle, and one Stack here.
func (d *decoder) stack(dict *pickle.Dict) *Stack {
	v, _ := dict.Get("frames")
	if v == nil {
		return nil
	}
	l, ok := v.(*pickle.List)
	if !ok {
		d.in(".frames", func() { d.fail("must be a list, not %s", kind(v)) })
		return nil
	}
	if s, ok := d.stacks[l]; ok {
		return s
	}
	var s *Stack
	if len(l.Items) > 0 {
		s = &Stack{Frames: make([]Frame, 0, len(l.Items))}
	}
	for _, item := range l.Items {
		f := d.dict(item, "a frame")
		s.Frames = append(s.Frames, Frame{d.word(f, "filename"), d.number(f, "line", 0, 0), d.word(f, "name")})
	}
	d.stacks[l] = s
	return s
}

func (d *decoder) annotation(v pickle.Value) Annotation {
	dict := d.dict(v, "an annotation")
	return Annotation{
		Name:      d.word(dict, "name"),
		End:       d.word(dict, "stage") == "END",
		Device:    int(d.number(dict, "device", -1, 0)),
		Microsecs: d.number(dict, "time_us", 0, 0),
	}
}
