package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

func read(s string) (*File, error) { return Read(strings.NewReader(s)) }

// TestReadRecorded reads the plain format that any recorder can write.
func TestReadRecorded(t *testing.T) {
	f, err := read(`{
  "name": "x", "events_of_mine": [1, {"events": []}],
  "config": "max_split_size_mb:64", "torch": "2.6", "capacity_bytes": 1000, "occupied_bytes": 10, "memory_fraction": 0.25,
  "events": [["a", 140733193388032, 5], ["a", -1, 0], ["s", 2], ["f", 140733193388032],
    ["a", 140733193388032, 7], ["e"], ["r"], ["s", 0], ["f", -1]],
  "expected": {"reserved": [1, 2.5e3, null, true, "é\n"]}
}`)
	if err != nil {
		t.Fatal(err)
	}
	quarter := 0.25
	want := &File{
		Config: "max_split_size_mb:64", Torch: "2.6", Capacity: 1000, Occupied: 10, MemoryFraction: &quarter,
		Trace: Trace{Events: []Event{
			{Kind: Alloc, ID: 1, Bytes: 5},
			{Kind: Alloc, ID: 2},
			{Kind: SetStream, Stream: 2},
			{Kind: Free, ID: 1, Stream: 2},
			{Kind: Alloc, ID: 3, Bytes: 7, Stream: 2}, // the id again, a new block
			{Kind: EmptyCache, Stream: 2},
			{Kind: ResetPeaks, Stream: 2},
			{Kind: SetStream},
			{Kind: Free, ID: 2},
		}},
	}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
}

// TestReadOwn reads memplan's own format.
func TestReadOwn(t *testing.T) {
	f, err := read(`{"memplan_trace": 1,
"categories": ["workspace", "gradients"], "phases": ["setup", "backward"],
"ops": ["", "mm"], "layers": ["", "fc"],
"contexts": [[0,0,0,0,0,0], [3,1,1,1,1,5]],
"events": [["a",1,10,0], ["a",2,20,1,1], ["f",1], ["s",4], ["e",0]]}`)
	if err != nil {
		t.Fatal(err)
	}
	in := Event{Step: 3, Phase: Backward, Op: 1, Layer: 1, Thread: 1, Stream: 5}
	with := func(e Event, stream int16, kind Kind, id int32, n tensor.Bytes) Event {
		e.Stream, e.Kind, e.ID, e.Bytes = stream, kind, id, n
		return e
	}
	want := Trace{
		Events: []Event{
			{Kind: Alloc, ID: 1, Bytes: 10},
			with(in, 5, Alloc, 2, 20),
			with(in, 5, Free, 1, 0),
			with(in, 4, SetStream, 0, 0),
			{Kind: EmptyCache},
		},
		Ops: []string{"", "mm"}, Layers: []string{"", "fc"},
		Categories: []Category{0, Workspace, Gradients},
	}
	if !reflect.DeepEqual(f.Trace, want) {
		t.Errorf("got  %+v\nwant %+v", f.Trace, want)
	}
}

// TestReadErrors lists what is refused, where, and in which words.
func TestReadErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		// Syntax.
		{``, `line 1, column 1: expected "{" at the start of a trace, found the end of the file`},
		{`[]`, `line 1, column 1: expected "{" at the start of a trace, found "["`},
		{`{}`, `line 1, column 3: the trace has no "events"`},
		{`{"events": []} x`, `line 1, column 16: expected nothing after the trace, found "x"`},
		{"{\"events\": []}\n{}", `line 2, column 1: expected nothing after the trace`},
		{`{"events": [`, `line 1, column 13: event 0: expected "[" before an event, found the end of the file`},
		{"{\"events\": [\n[\"e\"]\n[\"e\"]]}", `line 3, column 1: event 1: expected "," or "]" after an event, found "["`},
		{`{"events": [["e"],]}`, `line 1, column 19: event 1: expected "[" before an event, found "]"`},
		{`{"events" [`, `line 1, column 11: expected ":" after the name of a member, found "["`},
		{`{"x": tru, "events": []}`, `line 1, column 7: expected a value, found "t"`},
		{`{"x": 1.2.3, "events": []}`, `line 1, column 7: a value is 1.2.3; allowed are numbers`},
		{`{"x": "abc`, `line 1, column 7: a value is a string without end`},
		{`{"x": "\q", "events": []}`, `line 1, column 7: a value is no valid string`},
		{`{x: 1}`, `line 1, column 2: the name of a member must be a string, found "x"`},
		{`{"x": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `, "events": []}`, `values are nested more than 100 deep`},

		// Members.
		{`{"events": [], "events": []}`, `line 1, column 16: member "events" is given twice`},
		{`{"config": 5, "events": []}`, `line 1, column 12: "config" must be a string, found "5"`},
		{`{"capacity_bytes": -1, "events": []}`, `"capacity_bytes" is -1; allowed are whole numbers from 0 to 1125899906842624`},
		{`{"capacity_bytes": 1.5, "events": []}`, `"capacity_bytes" is 1.5; allowed are whole numbers`},
		{`{"capacity_bytes": "8GiB", "events": []}`, `"capacity_bytes" is "8GiB"; allowed are whole numbers`},
		{`{"memory_fraction": 1.5, "events": []}`, `line 1, column 21: "memory_fraction" is 1.5; allowed are numbers from 0 to 1, and null`},
		{`{"memory_fraction": [], "events": []}`, `"memory_fraction" is "["; allowed are numbers`},

		// Events.
		{`{"events": [["x", 1]]}`, `line 1, column 14: event 0: unknown event "x"; allowed are "a" (allocate), "f" (free), "e" (empty_cache), "s" (stream) and "r" (reset peaks)`},
		{`{"events": [["alloc", 1]]}`, `event 0: unknown event "alloc"; allowed are`},
		{`{"events": [[1]]}`, `event 0: the kind of an event must be a string, found "1"`},
		{`{"events": [{}]}`, `event 0: expected "[" before an event, found "{"`},
		{`{"events": [["a"]]}`, `event 0: expected "," in an allocation, found "]"`},
		{`{"events": [["a", 1]]}`, `event 0: expected "," in an allocation, found "]"`},
		{`{"events": [["a", 1, 2, 3]]}`, `event 0: expected "]" at the end of an event, found ","`},
		{`{"events": [["a", "1", 2]]}`, `event 0: the id of a block is "1"; allowed are whole numbers`},
		{`{"events": [["a", 1, -2]]}`, `line 1, column 22: event 0: the size of an allocation is -2; allowed are whole numbers from 0 to 1125899906842624`},
		{`{"events": [["a", 1, 1125899906842625]]}`, `event 0: the size of an allocation is 1125899906842625; allowed`},
		{`{"events": [["a", 1, 18446744073709551617]]}`, `event 0: the size of an allocation is 18446744073709551617; allowed`},
		{`{"events": [["a", 1, 1e3]]}`, `event 0: the size of an allocation is 1e3; allowed`},
		{`{"events": [["a", 1, 007]]}`, `event 0: the size of an allocation is 007; allowed`},
		{`{"events": [["a", 9223372036854775808, 7]]}`, `event 0: the id of a block is 9223372036854775808; allowed are whole numbers from -9223372036854775808 to 9223372036854775807`},
		{"{\"events\": [\n[\"a\", 1, 2],\n[\"a\", 1, 2]]}", `line 3, column 7: event 1: block 1 is allocated again, but it was not freed; allowed is an id that is not in use`},
		{`{"events": [["f", 1]]}`, `event 0: free of block 1, which was never allocated`},
		{`{"events": [["a", 7, 2], ["f", 7], ["f", 7]]}`, `event 2: free of block 7, which event 1 freed already`},
		{`{"events": [["s", -1]]}`, `event 0: the number of a stream is -1; allowed are whole numbers from 0 to 32767`},
		{`{"events": [["s", 40000]]}`, `event 0: the number of a stream is 40000; allowed`},
		{`{"events": [["s"]]}`, `event 0: expected "," before the number of a stream, found "]"`},

		// memplan's own members.
		{`{"memplan_trace": 2, "events": []}`, `"memplan_trace" is 2; allowed are whole numbers from 1 to 1`},
		{`{"config": "", "memplan_trace": 1, "events": []}`, `"memplan_trace" must be the first member`},
		{`{"memplan_trace": 1, "capcity": 5, "events": []}`, `unknown member "capcity"; allowed are memplan_trace, config, torch, capacity_bytes,`},
		{`{"memplan_trace": 1, "layers": ["", "a\u001b[2J"], "events": []}`, `"layers" has a control character in "a\x1b[2J"; names are printed`},
		{`{"memplan_trace": 1, "events": [], "ops": []}`, `"ops" must come before "events"`},
		{`{"memplan_trace": 1, "categories": ["fish"], "events": []}`, `line 1, column 37: "categories" has "fish"; allowed are parameters, gradients,`},
		{`{"memplan_trace": 1, "categories": [], "events": []}`, `"categories" is empty; allowed are parameters,`},
		{`{"memplan_trace": 1, "phases": ["night"], "events": []}`, `"phases" has "night"; allowed are setup, input,`},
		{`{"memplan_trace": 1, "contexts": [[0,1,0,0,0,0]], "events": []}`, `the phase of a context is 1; allowed are whole numbers from 0 to 0`},
		{`{"memplan_trace": 1, "ops": ["", "mm"], "contexts": [[0,0,2,0,0,0]], "events": []}`, `the op of a context is 2; allowed are whole numbers from 0 to 1`},
		{`{"memplan_trace": 1, "contexts": [[0,0,0,0,0]], "events": []}`, `expected "," in a context, found "]"`},
		{`{"memplan_trace": 1, "events": [["e", 0]]}`, `event 0: the event has a context, but there are no "contexts"`},
		{`{"memplan_trace": 1, "contexts": [[0,0,0,0,0,0]], "events": [["e", 1]]}`, `event 0: the context of an event is 1; allowed are whole numbers from 0 to 0`},
		{`{"memplan_trace": 1, "categories": ["inputs"], "events": [["a", 1, 2]]}`, `event 0: expected "," before the category of an allocation, found "]"`},
		{`{"memplan_trace": 1, "categories": ["inputs"], "events": [["a", 1, 2, 1]]}`, `event 0: the category of an allocation is 1; allowed are whole numbers from 0 to 0`},
	} {
		_, err := read(c.in)
		var e *ReadError
		if err == nil || !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s\n got %v\nwant %s", c.in, err, c.want)
		}
	}
}

func TestReadPassesIOErrors(t *testing.T) {
	broken := errors.New("broken pipe")
	if _, err := Read(&failingReader{broken}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

type failingReader struct{ err error }

func (r *failingReader) Read([]byte) (int, error) { return 0, r.err }

// randomFile makes a trace in which anything may be given or missing.
func randomFile(r *rand.Rand) *File {
	f := &File{Trace: Trace{Events: []Event{}}}
	maybe := func() bool { return r.IntN(2) == 0 }
	if maybe() {
		f.Config = "expandable_segments:True"
	}
	if maybe() {
		f.Capacity = tensor.Bytes(r.Int64N(tensor.MaxBytes))
		f.Occupied = tensor.Bytes(r.Int64N(tensor.MaxBytes))
	}
	if maybe() {
		f.Torch = "2.9"
	}
	if maybe() {
		v := r.Float64()
		f.MemoryFraction = &v
	}
	if maybe() {
		f.Ops = []string{"", "aten::mm", `a "quoted" <op>`}
	}
	if maybe() {
		f.Layers = []string{"", "layers.0", "ünïcode"}
	}
	if maybe() {
		f.Categories = []Category{0}
	}
	var c context
	marks := maybe()
	var live []int32
	born := int32(0)
	for range r.IntN(200) {
		if r.IntN(4) == 0 {
			c = context{step: int32(r.IntN(4)), phase: Phase(r.IntN(int(NumPhases))), thread: uint8(r.IntN(3))}
			c.op, c.layer = int32(r.IntN(max(len(f.Ops), 1))), int32(r.IntN(max(len(f.Layers), 1)))
			if maybe() {
				c.stream = int16(r.IntN(3))
			}
		}
		var e Event
		c.apply(&e)
		switch k := r.IntN(20); {
		case k < 10:
			born++
			e.Kind, e.ID, e.Bytes = Alloc, born, tensor.Bytes(r.Int64N(1<<r.IntN(50)))
			live = append(live, born)
			if f.Categories != nil {
				f.Categories = append(f.Categories, Category(r.IntN(int(NumCategories))))
			}
		case k < 17 && len(live) > 0:
			i := r.IntN(len(live))
			e.Kind, e.ID = Free, live[i]
			live = append(live[:i], live[i+1:]...)
		case k == 17:
			e.Kind = EmptyCache
		case k == 18:
			e.Kind = ResetPeaks
		case k == 19 && marks:
			c.stream = int16(r.IntN(4))
			e.Kind, e.Stream = SetStream, c.stream
		default:
			continue
		}
		f.Events = append(f.Events, e)
	}
	return f
}

// TestRoundTrip reads what Write wrote.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(300) {
		want := randomFile(rand.New(rand.NewPCG(seed, 0)))
		var b bytes.Buffer
		if err := Write(&b, want); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !json.Valid(b.Bytes()) {
			t.Fatalf("seed %d: invalid JSON:\n%s", seed, b.String())
		}
		got, err := Read(&b)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, b.String())
		}
		if len(got.Events) == 0 {
			got.Events = []Event{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n got %+v\nwant %+v", seed, got, want)
		}
	}
}

// TestWriteCompact shows what a small trace looks like on disk.
func TestWriteCompact(t *testing.T) {
	f := &File{Config: "max_split_size_mb:64", Capacity: 1 << 30, Trace: Trace{
		Events: []Event{
			{Kind: Alloc, ID: 1, Bytes: 4096},
			{Kind: Alloc, ID: 2, Bytes: 512, Step: 1, Phase: Forward, Op: 1, Layer: 1},
			{Kind: Alloc, ID: 3, Bytes: 512, Step: 1, Phase: Forward, Op: 1, Layer: 1},
			{Kind: Free, ID: 2, Step: 1, Phase: Backward, Thread: 1},
		},
		Ops: []string{"", "aten::mm"}, Layers: []string{"", "fc"},
		Categories: []Category{0, Parameters, Activations, Temporaries},
	}}
	var b bytes.Buffer
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	const want = `{"memplan_trace":1,
"config":"max_split_size_mb:64",
"capacity_bytes":1073741824,
"categories":["parameters","gradients","optimizer_state","activations","inputs","temporaries","workspace"],
"phases":["setup","input","forward","backward","clip","optimizer","zero_grad","other","return","eval"],
"ops":["","aten::mm"],
"layers":["","fc"],
"contexts":[
[0,0,0,0,0,0],
[1,2,1,1,0,0],
[1,3,0,0,1,0]],
"events":[
["a",1,4096,0],
["a",2,512,3,1],
["a",3,512,5],
["f",2,2]
]}
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		f    File
		want string
	}{
		{File{Trace: Trace{Events: []Event{{Kind: numKinds}}}}, "event 0 of a trace: unknown kind"},
		{File{Trace: Trace{Events: []Event{{ID: 3}}, Categories: []Category{0}}}, "event 0 of a trace: block 3 has no category"},
	} {
		if err := Write(&bytes.Buffer{}, &c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestWriteText(t *testing.T) {
	tr := &Trace{
		Events: []Event{
			{Kind: Alloc, ID: 1, Bytes: 4096},
			{Kind: Alloc, ID: 2, Bytes: 512, Step: 1, Phase: Forward, Op: 1, Layer: 1},
			{Kind: EmptyCache},
			{Kind: Free, ID: 2, Step: 1, Phase: Backward, Thread: 1, Stream: 2},
			{Kind: SetStream, Stream: 2},
			{Kind: ResetPeaks},
		},
		Ops: []string{"", "aten::mm"}, Layers: []string{"", "fc"},
		Categories: []Category{0, Parameters, Activations},
	}
	var b bytes.Buffer
	if err := WriteText(&b, tr); err != nil {
		t.Fatal(err)
	}
	bare := &Trace{Events: []Event{{Kind: Alloc, ID: 1, Bytes: 1 << 40}, {Kind: Free, ID: 1}}}
	if err := WriteText(&b, bare); err != nil {
		t.Fatal(err)
	}
	const want = `       0  alloc       1           4096 B  parameters       setup
       1  alloc       2            512 B  activations      step 1 forward, aten::mm in fc
       2  empty cache
       3  free        2            512 B                   step 1 backward, thread 1, stream 2
       4  stream 2
       5  reset peaks
       0  alloc       1  1099511627776 B
       1  free        1  1099511627776 B
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"events":[["a",1,5],["f",1],["e"],["s",3],["r"]]}`,
		`{"config":"x","capacity_bytes":5,"memory_fraction":0.5,"events":[]}`,
		`{"memplan_trace":1,"categories":["inputs"],"phases":["setup"],"ops":[""],"layers":[""],"contexts":[[0,0,0,0,0,0]],"events":[["a",1,2,0,0]]}`,
		`{"x":[1,2.5e3,null,true,"\u00e9"],"events":[]}`,
		`{"x":1.2.3}`, `{"events":[["a",1`, `[[[[`, `{"a":"\`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Read(bytes.NewReader(data))
		if err != nil {
			var e *ReadError
			if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || e.Event < -1 || e.Message == "" {
				t.Fatalf("bad error %#v", err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("read what is not JSON")
		}
		var b bytes.Buffer
		if err := Write(&b, file); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&b)
		if err != nil || !reflect.DeepEqual(again, file) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, file)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var s strings.Builder
	s.WriteString(`{"events":[["e"]`)
	for i := range 50_000 {
		fmt.Fprintf(&s, `,["a",%d,%d],["f",%d]`, i, i*1000, i)
	}
	s.WriteString(`]}`)
	b.SetBytes(int64(s.Len()))
	for b.Loop() {
		if _, err := read(s.String()); err != nil {
			b.Fatal(err)
		}
	}
}
