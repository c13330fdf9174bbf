package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/tensor"
)

// TestProse holds where lines are broken.
func TestProse(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"short", "short"},
		{"", ""},
		{"one two three four five six", "one two three four\n  five six"},
		{"  name    one two three four", "  name    one two\n    three four"},
		{"  - one two three four five", "  - one two three\n    four five"},
		{"  12. one two three four", "  12. one two\n      three four"},
		{"  id    one two three", "  id    one two\n        three"},
		{"tried to allocate 1.54 GiB, 208.00 MiB free", "tried to allocate\n  1.54 GiB,\n  208.00 MiB free"},
		{"a share of 12 % of all there is", "a share of 12 % of\n  all there is"},
		{"averyveryverylongwordofmany letters", "averyveryverylongwordofmany\n  letters"},
		{"\x1b[1;31mOOM\x1b[0m  one two three f", "\x1b[1;31mOOM\x1b[0m  one two three\n     f"},
	} {
		var b strings.Builder
		p := NewProse(&b, 18)
		for i := range len(c.line) { // in pieces
			if _, err := p.Write([]byte{c.line[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if b.String() != c.want {
			t.Errorf("%q is broken into %q, want %q", c.line, b.String(), c.want)
		}
	}
}

// TestNarrowTable holds what becomes of tables that are wider than the terminal.
func TestNarrowTable(t *testing.T) {
	tab := Table{
		Header: []string{"Layer", "kind", "count", "none", "total"}, Numbers: []bool{false, false, true, true, true}, Spare: []int{1},
		Rows: [][]string{{"blocks.0.attention", "Linear", "12", "-", "1.00 GiB"}, {"head", "Linear", "1", "-", "2.00 MiB"}},
	}
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "  Layer               kind    count  none     total\n"},
		{60, "  Layer               kind    count  none     total\n"},
		{48, "  Layer               kind    count     total\n"},
		{40, "  Layer               count     total\n"},
		{30, "  Layer\n  - blocks.0.attention\n    kind Linear, count 12\n    total 1.00 GiB\n  - head\n    kind Linear, count 1\n    total 2.00 MiB\n"},
	} {
		tab.Width = c.width
		var b strings.Builder
		if err := tab.Write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), c.want) {
			t.Errorf("in %d columns the table is\n%swant\n%s", c.width, b.String(), c.want)
		}
		for line := range strings.Lines(b.String()) {
			if n := columns(strings.TrimSuffix(line, "\n")); c.width > 0 && n > c.width {
				t.Errorf("in %d columns a line has %d: %s", c.width, n, line)
			}
		}
	}
}

// TestSpark holds the line of the steps, with and without colours.
func TestSpark(t *testing.T) {
	s := &Spark{Begins: []SparkStep{{0, 1}, {40, 2}}}
	for i := range 80 {
		s.Allocated = append(s.Allocated, tensor.Bytes(i%40+1)*tensor.MiB)
	}
	r := &Report{}
	r.Device.UsableBytes = 39 * tensor.MiB
	draw := func(o Options) string {
		var b strings.Builder
		o.Spark = s
		if err := Formats.Lookup("text").Write(&b, r, o); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(b.String(), " events")
		text, _, _ := strings.Cut(rest, "\n\n")
		return text
	}
	if got, want := draw(Options{Width: 42}), ", up to 40.00 MiB; !: more than the 39.00 MiB that are usable\n                     "+
		"!                   !\n  ▁▁▂▂▂▃▃▄▄▄▅▅▆▆▆▇▇███▁▁▂▂▂▃▃▄▄▄▅▅▆▆▆▇▇███\n  step 1              step 2"; got != want {
		t.Errorf("the line is %s\nwant %s", got, want)
	}
	s.ASCII = true
	if got := draw(Options{Width: 42}); !strings.Contains(got, "\n  __...--::") || strings.Contains(got, "▁") {
		t.Errorf("in ASCII the line is %s", got)
	}
	if got := draw(Options{Width: 42, Color: true}); strings.Count(got, red) != 2 || strings.Count(got, cyan) != 2 {
		t.Errorf("in colour the line is %q", got)
	}
	s.Allocated = s.Allocated[:3]
	if got := draw(Options{Width: 42}); !strings.Contains(got, fmt.Sprintf("\n  %s\n", "-+#")) {
		t.Errorf("of 3 events the line is %q", got)
	}
}
