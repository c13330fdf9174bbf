package webpage

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/snapshot"
	"github.com/memplan/memplan/internal/tensor"
)

// elements reads a picture as XML, and counts its elements.
func elements(t *testing.T, picture string) map[string]int {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(picture))
	found := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			found[e.Name.Local]++
		}
	}
}

// sawtooth is a device on which as many blocks are allocated, one after another, as there are sizes, and then freed.
func sawtooth(turns, blocks int) *snapshot.Device {
	d := &snapshot.Device{}
	const base = 1 << 21
	size := tensor.Bytes(blocks+1) << 12
	for turn := range turns {
		var kinds []snapshot.Event
		for b := range blocks {
			stack := &snapshot.Stack{Frames: []snapshot.Frame{{File: fmt.Sprintf("<layer%d>", b), Name: "addmm"}, {File: fmt.Sprintf("<step %d>", turn+1), Name: "forward"}}}
			n := tensor.Bytes(512 * (1 + (b+turn)%7))
			kinds = append(kinds, snapshot.Event{Action: snapshot.Alloc, Address: uint64(base + b<<12), Size: n, Block: n, Stack: stack, Category: categoryOrder[b%len(categoryOrder)]})
		}
		d.Events = append(d.Events, kinds...)
		for _, e := range kinds {
			for _, e.Action = range []snapshot.Action{snapshot.FreeRequested, snapshot.FreeCompleted} {
				d.Events = append(d.Events, e)
			}
		}
	}
	d.Segments = []snapshot.Segment{{Address: base, Size: size, Blocks: []snapshot.Block{{Address: base, Size: size}}}}
	return d
}

// TestSVG holds that a picture of many events is small and has the peak, the limit and what fails.
func TestSVG(t *testing.T) {
	p := &Page{Verdict: "OOM", Title: "a & b", Memory: []Memory{{Name: "without a limit", Device: sawtooth(900, 70), Limit: 300 << 10, OOM: -1}}}
	p.Memory = append(p.Memory, p.Memory[0])
	p.Memory[1].Again = true
	c, err := p.Memory[0].columns()
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []int{1, 3} {
		p.Memory = append(p.Memory, slices.Repeat(p.Memory[:1], of-1)...)
		var b strings.Builder
		if err := WriteSVG(&b, p); err != nil {
			t.Fatal(err)
		}
		picture := b.String()
		if len(picture) > maxPicture {
			t.Errorf("the picture of %d panels has %d bytes", of, len(picture))
		}
		if found := elements(t, picture); found["svg"] != 1+of || found["title"] != 1 || found["desc"] != 1 || found["script"]+found["image"] != 0 {
			t.Errorf("the picture of %d panels has %v", of, found)
		}
		for _, want := range []string{"OOM  a &amp; b", ">peak " + tensor.Bytes(c.PeakAllocated).String() + "<", ">usable 300.00 KiB<", ">optimizer state<", ">step "} {
			if !strings.Contains(picture, want) {
				t.Errorf("the picture of %d panels lacks %s", of, want)
			}
		}
	}
	if err := WriteSVG(io.Discard, &Page{Title: "of reports"}); !errors.Is(err, ErrNoEvents) {
		t.Errorf("without events: %v", err)
	}
}

// TestSeries holds that what is drawn has the peaks, and that areas add up to what is allocated.
func TestSeries(t *testing.T) {
	c, err := (&Memory{Device: sawtooth(50, 64), OOM: -1}).columns()
	if err != nil {
		t.Fatal(err)
	}
	allocated, reserved := c.levels()
	if slices.Max(allocated) != c.PeakAllocated || slices.Max(reserved) != c.PeakReserved {
		t.Errorf("the levels reach %d and %d, the columns %d and %d", slices.Max(allocated), slices.Max(reserved), c.PeakAllocated, c.PeakReserved)
	}
	s := c.series(40)
	if len(s.steps) != 49 {
		t.Errorf("%d steps begin, want 49", len(s.steps))
	}
	for i, e := range s.at {
		sum := 0.0
		for g := range s.groups {
			sum += s.groups[g].values[i]
		}
		if sum != float64(allocated[e]) {
			t.Errorf("the groups have %g bytes after event %d, allocated are %d", sum, e, allocated[e])
		}
	}
	sum := int64(0)
	for _, g := range s.groups {
		sum += g.atPeak
	}
	if sum != c.PeakAllocated || !slices.Contains(s.at, s.peak) {
		t.Errorf("the groups have %d bytes at the peak, which is %d", sum, c.PeakAllocated)
	}
}

// TestThin holds that a page of very many events is small, and has the peak.
func TestThin(t *testing.T) {
	m := Memory{Name: "a", Device: sawtooth(20, 70), OOM: -1}
	whole, err := m.columns()
	if err != nil {
		t.Fatal(err)
	}
	whole.OOM = len(whole.Kinds) - 1
	thin, err := m.columns()
	if err != nil {
		t.Fatal(err)
	}
	thin.OOM = len(thin.Kinds) - 1
	thin.thin(500)
	if n := len(thin.Kinds); n > 500 || n < 400 || n+thin.Left != len(whole.Kinds) || thin.OOM != n-1 || thin.LeftBelow != 3584 {
		t.Errorf("of %d events %d are there and %d left out, up to %d bytes; the last is %d", len(whole.Kinds), n, thin.Left, thin.LeftBelow, thin.OOM)
	}
	allocated, reserved := thin.levels()
	if slices.Max(allocated) != whole.PeakAllocated || slices.Max(reserved) != whole.PeakReserved {
		t.Errorf("the peaks are %d and %d, want %d and %d", slices.Max(allocated), slices.Max(reserved), whole.PeakAllocated, whole.PeakReserved)
	}
	if s := thin.series(40); len(s.groups) == 0 || len(thin.At) != len(thin.BornBy) || len(thin.Doing) != len(thin.Kinds) {
		t.Errorf("%d blocks, %d works, %d events, %d of work", len(thin.At), len(thin.BornBy), len(thin.Kinds), len(thin.Doing))
	}
	if testing.Short() {
		return
	}
	for name, d := range map[string]*snapshot.Device{"a million events": sawtooth(5000, 97), "a million blocks": held(1_000_000)} {
		var b strings.Builder
		if err := Write(&b, &Page{Title: name, Memory: []Memory{{Name: "a", Device: d, OOM: -1}}}); err != nil {
			t.Fatal(err)
		}
		if b.Len() > maxPage {
			t.Errorf("the page of %s has %d bytes", name, b.Len())
		}
	}
}

// held is a device on which so many blocks are in use before its only event.
func held(blocks int) *snapshot.Device {
	const base = 1 << 21
	s := snapshot.Segment{Address: base, Size: tensor.Bytes(blocks+1) << 10, Small: true}
	for b := range blocks {
		stack := &snapshot.Stack{Frames: []snapshot.Frame{{File: fmt.Sprintf("train%d.py", b%5000), Line: int64(b), Name: "step"}}}
		s.Blocks = append(s.Blocks, snapshot.Block{Address: base + uint64(b)<<10, Size: 1024, Requested: 1000, State: snapshot.Allocated, Stack: stack})
	}
	at := uint64(base + blocks<<10)
	s.Blocks = append(s.Blocks, snapshot.Block{Address: at, Size: 1024, Requested: 1000, State: snapshot.Allocated})
	return &snapshot.Device{Segments: []snapshot.Segment{s}, Events: []snapshot.Event{{Action: snapshot.Alloc, Address: at, Size: 1000, Block: 1024}}}
}

// TestThinHeld holds that blocks are left out that were there before the events, and that what they hold is kept.
func TestThinHeld(t *testing.T) {
	m := Memory{Name: "a", Device: held(3000), OOM: -1}
	whole, err := m.columns()
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.columns()
	if err != nil {
		t.Fatal(err)
	}
	c.thin(500)
	if c.Held != 499 || len(c.Kinds) != 1 || c.Left != 0 || c.Rest != 2501*1024 || c.LeftBelow != 1024 {
		t.Errorf("%d blocks and %d events are there; left out are %d events and %d bytes, in blocks of up to %d", c.Held, len(c.Kinds), c.Left, c.Rest, c.LeftBelow)
	}
	if allocated, _ := c.levels(); slices.Max(allocated) != whole.PeakAllocated || whole.PeakAllocated != 3001*1024 {
		t.Errorf("the peak is %d, want %d", slices.Max(allocated), whole.PeakAllocated)
	}
}
