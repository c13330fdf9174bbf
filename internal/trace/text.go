package trace

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/memplan/memplan/internal/printable"
)

// WriteText writes a trace for people, one line per event: its index, what it
// does, and what is known of why. A block is shown by its number, a free with
// the block's size.
//
//	12  alloc       7        4096 B  activations      step 1 forward, aten::mm in layers.0
//	13  free        7        4096 B
func WriteText(w io.Writer, t *Trace) error {
	out := bufio.NewWriter(w)
	sizes := map[int32]int64{}
	for i := range t.Events {
		e := &t.Events[i]
		var line string
		switch e.Kind {
		case Alloc, Free:
			verb := "free"
			if e.Kind == Alloc {
				verb = "alloc"
				sizes[e.ID] = int64(e.Bytes)
			}
			role := ""
			if e.Kind == Alloc && e.ID >= 0 && int(e.ID) < len(t.Categories) {
				role = t.Categories[e.ID].String()
			}
			line = fmt.Sprintf("%8d  %-5s %7d %14d B  %-16s %s", i, verb, e.ID, sizes[e.ID], role, t.why(e))
		case EmptyCache:
			line = fmt.Sprintf("%8d  empty cache", i)
		case ResetPeaks:
			line = fmt.Sprintf("%8d  reset peaks", i)
		case SetStream:
			line = fmt.Sprintf("%8d  stream %d", i, e.Stream)
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	return out.Flush()
}

// why tells the context of an event: step and phase, operator and module, and
// stream and thread if they are not the default ones. It says nothing of the
// setup of a trace without operators, which is what a bare recording is.
func (t *Trace) why(e *Event) string {
	var b strings.Builder
	if e.Step > 0 || e.Phase != Setup {
		fmt.Fprintf(&b, "step %d %s", e.Step, e.Phase)
	} else if len(t.Ops) > 0 {
		b.WriteString(e.Phase.String())
	}
	name := func(prefix string, names []string, i int32) {
		if i > 0 && int(i) < len(names) {
			b.WriteString(prefix + printable.Text(names[i]))
		}
	}
	name(", ", t.Ops, e.Op)
	name(" in ", t.Layers, e.Layer)
	if e.Thread != 0 {
		fmt.Fprintf(&b, ", thread %d", e.Thread)
	}
	if e.Stream != 0 {
		fmt.Fprintf(&b, ", stream %d", e.Stream)
	}
	return strings.TrimPrefix(b.String(), ", ")
}
