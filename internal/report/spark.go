package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// Spark is what a line of a terminal shows of the steps.
type Spark struct {
	Allocated []tensor.Bytes // after each event
	Begins    []SparkStep
	ASCII     bool // the terminal has no other characters
}

// SparkStep is the event with which a step begins.
type SparkStep struct{ Event, Step int }

// levels are the characters of a line, the lowest first.
var levels = map[bool][]rune{false: []rune(" ▁▂▃▄▅▆▇█"), true: []rune(" _.-:=+*#")}

// spark draws what is allocated over the events, the most of each part of them. What is more than the GPU has is
// in another colour, and with a ! above it.
func (t *text) spark() {
	s := t.o.Spark
	if s == nil || len(s.Allocated) == 0 {
		return
	}
	usable := t.r.Device.UsableBytes
	n := min(min(t.o.Width, lineWidth)-2, len(s.Allocated))
	column := func(event int) int { return event * n / len(s.Allocated) }
	most := make([]tensor.Bytes, n)
	peak := tensor.Bytes(0)
	for i, b := range s.Allocated {
		c := column(i)
		most[c] = max(most[c], b)
		peak = max(peak, b)
	}
	if peak == 0 || n <= 0 {
		return
	}
	runes := levels[s.ASCII]
	var line, above strings.Builder
	for c := 0; c < n; {
		high, from := most[c] > usable, c
		var run []rune
		for ; c < n && (most[c] > usable) == high; c++ {
			run = append(run, runes[int(math.Ceil(float64(most[c])/float64(peak)*float64(len(runes)-1)))])
		}
		color, mark := cyan, " "
		if high {
			color, mark = red, "!"
		}
		line.WriteString(t.o.Color.paint(color, string(run)))
		above.WriteString(strings.Repeat(mark, c-from))
	}
	over := peak > usable
	below, end := strings.Builder{}, 0
	for _, b := range s.Begins {
		name := fmt.Sprintf("step %d", b.Step)
		if at := column(b.Event); (at > end || end == 0) && at+len(name) <= n {
			below.WriteString(strings.Repeat(" ", at-end) + name)
			end = at + len(name)
		}
	}
	said := ""
	if over {
		said = fmt.Sprintf("; !: more than the %v that are usable", usable)
	}
	t.printf("%s over %d events, up to %v%s\n", t.bold("Allocated"), len(s.Allocated), peak, said)
	if over {
		t.printf("  %s\n", strings.TrimRight(above.String(), " "))
	}
	t.printf("  %s\n  %s\n\n", printable.Verbatim(line.String()), below.String())
}

// bold marks a heading, if colours are wanted.
func (t *text) bold(s string) printable.Verbatim { return t.o.Color.Bold(s) }
