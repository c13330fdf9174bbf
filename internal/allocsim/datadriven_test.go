package allocsim

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// TestDatadriven runs the notebooks in testdata. Their commands:
//
//	parse        one PYTORCH_CUDA_ALLOC_CONF string per line, after "version N" if given
//	round        one request size per line: the block, pool and segment for it
//	new          a fresh allocator; lines "conf C", "capacity SIZE", "fraction F"
//	run          one operation per line, see (*notebook).operation
//	dump         Allocator.Dump
//	stats        the named statistics, one per line; all that are not zero if none is named
//
// Sizes are sums such as 20MiB-512. Addresses are printed less the first one.
func TestDatadriven(t *testing.T) {
	datadriven.Walk(t, "testdata/notebooks", func(t *testing.T, path string) {
		n := &notebook{t: t}
		n.create("")
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "parse":
				return parseAll(d.Input)
			case "round":
				return n.round(d.Input)
			case "new":
				return n.create(d.Input)
			case "run":
				return n.run(d.Input)
			case "dump":
				var b strings.Builder
				if err := n.a.Dump(&b); err != nil {
					t.Fatal(err)
				}
				return b.String()
			case "stats":
				return n.stats(d.Input)
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// notebook is an allocator with names for its blocks.
type notebook struct {
	t      *testing.T
	a      *Allocator
	blocks map[string]Block
	events fakeEvents
}

// fakeEvents keeps the work of some streams from being done.
type fakeEvents struct {
	busy  map[int16]bool
	marks []int16 // the stream of each mark
}

func (f *fakeEvents) Record(stream int16) uint64 {
	f.marks = append(f.marks, stream)
	return uint64(len(f.marks) - 1)
}
func (f *fakeEvents) Done(event uint64) bool { return !f.busy[f.marks[event]] }
func (f *fakeEvents) Wait(event uint64)      { delete(f.busy, f.marks[event]) }

func (n *notebook) create(input string) string {
	var cfg Config
	var capacity tensor.Bytes
	var fraction string
	for _, line := range lines(input) {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "conf":
			var err error
			if cfg, err = ParseConfig(value, torchver.Recorded); err != nil {
				return err.Error()
			}
		case "capacity":
			capacity = n.size(value)
		case "fraction":
			fraction = value
		default:
			n.t.Fatalf("unknown setting %q", line)
		}
	}
	n.blocks = map[string]Block{}
	n.events = fakeEvents{busy: map[int16]bool{}}
	var err error
	if n.a, err = New(cfg, NewVirtualDriver(capacity), Options{Events: &n.events}); err != nil {
		return err.Error()
	}
	if fraction != "" {
		return n.operation("fraction " + fraction)
	}
	return ""
}

func lines(input string) []string {
	var list []string
	for _, line := range strings.Split(input, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// size reads a sum such as 20MiB-512.
func (n *notebook) size(s string) tensor.Bytes {
	sign := tensor.Bytes(1)
	end := strings.LastIndexAny(s, "+-")
	rest := tensor.Bytes(0)
	if end > 0 {
		if s[end] == '-' {
			sign = -1
		}
		rest = n.size(s[:end])
	}
	v, err := tensor.ParseBytes(s[end+1:])
	if err != nil {
		n.t.Fatal(err)
	}
	return rest + sign*v
}

func (n *notebook) round(input string) string {
	var b strings.Builder
	for _, line := range lines(input) {
		size := n.a.cfg.roundSize(n.size(line))
		fmt.Fprintf(&b, "%-12s -> %d, %s pool, segment of %d\n", line, int64(size), poolNames[poolFor(size)], int64(n.a.cfg.segmentSize(size)))
	}
	return b.String()
}

func (n *notebook) run(input string) string {
	var b strings.Builder
	for _, line := range lines(input) {
		if out := n.operation(line); out != "" {
			b.WriteString(out + "\n")
		}
	}
	s := n.a.Stats()
	fmt.Fprintf(&b, "allocated %d, reserved %d\n", int64(s.AllocatedBytes.All.Current), int64(s.ReservedBytes.All.Current))
	return b.String()
}

// operation does one of
//
//	NAME... = alloc SIZE [on STREAM]
//	free NAME...
//	record NAME STREAM       Tensor.record_stream
//	busy STREAM              its work is not done from here on
//	idle STREAM              its work is done
//	empty | reset peaks | fraction F
func (n *notebook) operation(line string) string {
	if names, call, ok := strings.Cut(line, " = alloc "); ok {
		size, stream, _ := strings.Cut(call, " on ")
		s, _ := strconv.Atoi(stream)
		var out []string
		for _, name := range strings.Fields(names) {
			b, err := n.a.Alloc(n.size(size), int16(s))
			if err != nil {
				out = append(out, fmt.Sprintf("%s: %v", name, err))
				continue
			}
			n.blocks[name] = b
			if b.Address == 0 {
				out = append(out, fmt.Sprintf("%s: no memory", name))
				continue
			}
			out = append(out, fmt.Sprintf("%s: %d at %d", name, int64(n.a.blocks[b.index].size), uint64(b.Address-virtualBase)))
		}
		return strings.Join(out, "\n")
	}
	f := strings.Fields(line)
	switch f[0] {
	case "free":
		for _, name := range f[1:] {
			b, ok := n.blocks[name]
			if !ok {
				n.t.Fatalf("%q: no block %q", line, name)
			}
			n.a.Free(b)
			delete(n.blocks, name)
		}
	case "record", "busy", "idle":
		s, err := strconv.Atoi(f[len(f)-1])
		if err != nil {
			n.t.Fatal(err)
		}
		switch stream := int16(s); f[0] {
		case "record":
			n.a.RecordStream(n.blocks[f[1]], stream)
		case "busy":
			n.events.busy[stream] = true
		case "idle":
			delete(n.events.busy, stream)
		}
	case "empty":
		if err := n.a.EmptyCache(); err != nil {
			return err.Error()
		}
	case "reset":
		n.a.ResetPeaks()
	case "fraction":
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			n.t.Fatal(err)
		}
		if err := n.a.SetMemoryFraction(v); err != nil {
			return err.Error()
		}
	default:
		n.t.Fatalf("unknown operation %q", line)
	}
	return ""
}

// stats prints statistics by their JSON names.
func (n *notebook) stats(input string) string {
	s := n.a.Stats()
	want := lines(input)
	var b strings.Builder
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("json")
		if len(want) > 0 && !strings.Contains(" "+strings.Join(want, " ")+" ", " "+name+" ") || len(want) == 0 && v.Field(i).IsZero() {
			continue
		}
		fmt.Fprintf(&b, "%-20s %s\n", name, statText(v.Field(i).Interface()))
	}
	return b.String()
}

func statText(v any) string {
	switch s := v.(type) {
	case PoolStat[tensor.Bytes]:
		return statText(s.All) + " (small " + statText(s.Small) + ", large " + statText(s.Large) + ")"
	case PoolStat[int64]:
		return statText(s.All) + " (small " + statText(s.Small) + ", large " + statText(s.Large) + ")"
	case Stat[tensor.Bytes]:
		return fmt.Sprintf("%d peak %d +%d -%d", int64(s.Current), int64(s.Peak), int64(s.Allocated), int64(s.Freed))
	case Stat[int64]:
		return fmt.Sprintf("%d peak %d +%d -%d", s.Current, s.Peak, s.Allocated, s.Freed)
	}
	return fmt.Sprint(v)
}

// parseAll parses each line, and prints the options or the error with a caret.
func parseAll(input string) string {
	version := torchver.Recorded
	var b strings.Builder
	for _, line := range strings.Split(input, "\n") {
		if rest, ok := strings.CutPrefix(line, "version "); ok {
			v, err := torchver.Parse(rest)
			if err != nil {
				return err.Error()
			}
			version = v
			continue
		}
		conf := strings.Trim(line, `"`)
		c, err := ParseConfig(conf, version)
		if err != nil {
			e := err.(*ConfigError)
			fmt.Fprintf(&b, "%s\n%s%s\n%s\n", conf, strings.Repeat(" ", e.Offset), strings.Repeat("^", max(e.Length, 1)), e)
			continue
		}
		fmt.Fprintf(&b, "%q", c.String())
		if len(c.NotModelled) > 0 {
			fmt.Fprintf(&b, ", not modelled: %s", strings.Join(c.NotModelled, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}
