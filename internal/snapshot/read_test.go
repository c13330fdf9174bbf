package snapshot

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/pickle"
)

// segment is a snapshot's segment of one block, with changes.
func segment(changes ...pickle.Value) *pickle.Dict {
	d := dictOf("device", int64(0), "address", int64(1<<45), "total_size", int64(2<<20), "stream", int64(0), "segment_type", "small",
		"blocks", &pickle.List{Items: []pickle.Value{dictOf("size", int64(2<<20), "requested_size", int64(5), "state", "active_allocated")}})
	for i := 0; i < len(changes); i += 2 {
		d.Keys, d.Values = append(d.Keys, changes[i]), append(d.Values, changes[i+1])
	}
	return d
}

func list(items ...pickle.Value) *pickle.List { return &pickle.List{Items: items} }

// TestRefused holds that what is no snapshot is an error that says where.
func TestRefused(t *testing.T) {
	event := func(changes ...pickle.Value) pickle.Value {
		d := dictOf("action", "alloc", "addr", int64(1<<45), "size", int64(5), "stream", int64(0))
		for i := 0; i < len(changes); i += 2 {
			d.Keys, d.Values = append(d.Keys, changes[i]), append(d.Values, changes[i+1])
		}
		return dictOf("segments", list(segment()), "device_traces", list(list(d)))
	}
	shared := list(dictOf("size", int64(2<<20), "state", "inactive"))
	for _, c := range []struct {
		v    pickle.Value
		want string
	}{
		{int64(1), "snapshot: must be a dict with segments and device_traces, not int"},
		{dictOf("a", int64(1)), "snapshot: has no segments"},
		{dictOf("segments", "x"), "snapshot, segments: must be a list of segments, not str"},
		{list(int64(1)), "snapshot, segments[0]: a segment must be a dict, not int"},
		{list(segment("address", nil)), "snapshot, segments[0]: has no address"},
		{list(segment("total_size", "big")), `snapshot, segments[0].total_size: must be an int of at least 0, not "big"`},
		{list(segment("total_size", int64(1)<<62)), "segments[0].total_size: is 4611686018427387904; allowed are numbers up to"},
		{list(segment("total_size", int64(4<<20))), "segments[0].blocks: end at 0x200000200000, and the segment ends at 0x200000400000"},
		{list(segment("segment_type", "medium")), `segments[0].segment_type: is "medium"; allowed are small and large`},
		{list(segment("device", int64(5000))), "segments[0]: device is 5000"},
		{list(segment("segment_pool_id", int64(3))), "segments[0].segment_pool_id: must be a tuple of two ints"},
		{list(segment("blocks", nil)), "segments[0].blocks: must be a list of blocks, not None"},
		{list(segment("blocks", list(dictOf("size", int64(2<<20), "state", "lost")))), `segments[0].blocks[0].state: is "lost"; allowed are inactive`},
		{list(segment("blocks", list(dictOf("size", int64(512), "requested_size", int64(900), "state", "active_allocated")))), "has a requested_size of 900 and a size of 512"},
		{list(segment("blocks", list(dictOf("size", int64(0), "state", "inactive")))), "segments[0].blocks[0]: has size 0"},
		{list(segment("blocks", list(dictOf("size", int64(2<<20), "address", int64(7), "state", "inactive")))), "begins at 0x7, and the block before it ends at 0x200000000000"},
		{list(segment(), segment()), "the segments at 0x200000000000 and 0x200000000000 of device 0 overlap"},
		{list(segment("blocks", shared), segment("blocks", shared, "address", int64(1<<46))), "segments[1].blocks: the list is in the snapshot twice"},
		{event("action", "grow"), `device_traces[0][0].action: is "grow"; allowed are alloc, `},
		{event("size", int64(-1)), "device_traces[0][0].size: must be an int of at least 0, not -1"},
		{event("frames", int64(1)), "device_traces[0][0].frames: must be a list, not int"},
	} {
		var b bytes.Buffer
		if err := pickle.Write(&b, c.v); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(&b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestContradictions holds that events which the segments contradict are an error, not a replay.
func TestContradictions(t *testing.T) {
	at := uint64(1 << 45)
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{Action: Alloc, Address: at + 512, Size: 5}, "allocates at 0x200000000200, where no block is afterwards"},
		{Event{Action: FreeCompleted, Address: at, Size: 5}, "frees a block at 0x200000000000, where one is afterwards"},
		{Event{Action: FreeCompleted, Address: 5, Size: 5}, "frees a block at 0x5, where no segment is"},
		{Event{Action: FreeRequested, Address: at + 512, Size: 5}, "gives back a block at 0x200000000200"},
		{Event{Action: SegmentAlloc, Address: at, Size: 5}, "takes 5 bytes at 0x200000000000, where 2097152 bytes are afterwards"},
		{Event{Action: SegmentAlloc, Address: 5, Size: 5}, "takes memory at 0x5, where none is afterwards"},
		{Event{Action: SegmentAlloc, Address: at, Size: 2 << 20}, "the block at 0x200000000000 is in no segment when the events begin"},
	} {
		d := Device{
			Segments: []Segment{{Address: at, Size: 2 << 20, Small: true, Blocks: []Block{{Address: at, Size: 512, Requested: 5, State: Allocated}, {Address: at + 512, Size: 2<<20 - 512}}}},
			Events:   []Event{c.e},
		}
		if _, err := d.History(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.e.Action, err, c.want)
		}
	}
}

// FuzzRead: whatever the file holds, no panic, and memory in proportion to it; what is read is explained or refused,
// and written again.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob(needs.File(f, "snapshots", "*.pickle.gz"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		r, err := os.Open(path)
		if err != nil {
			f.Fatal(err)
		}
		z, err := gzip.NewReader(r)
		if err != nil {
			f.Fatal(err)
		}
		data, err := io.ReadAll(z)
		if err != nil {
			f.Fatal(err)
		}
		if r.Close(); len(data) < 20<<10 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := Read(bytes.NewReader(data))
		runtime.ReadMemStats(&after)
		if n, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1024*len(data)); n > most {
			t.Errorf("%d bytes for a file of %d", n, len(data))
		}
		if err != nil {
			return
		}
		for i := range s.Devices {
			if x, err := s.Devices[i].Explain(); err == nil && x.Allocated > x.Reserved {
				t.Errorf("%d bytes in use of %d reserved", x.Allocated, x.Reserved)
			}
		}
		if err := s.Write(io.Discard); err != nil {
			t.Error(err)
		}
	})
}
