package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/memplan/memplan/internal/printable"
)

// Write writes f in the JSON format of File, one event to a line. Read of the
// result gives f again; blocks that are not numbered by birth are renumbered.
func Write(w io.Writer, f *File) error {
	out := bufio.NewWriter(w)
	t := newContextTable(f.Events)
	head := func(name string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("writing %s of a trace: %w", name, err)
		}
		fmt.Fprintf(out, "%q:%s,\n", name, printable.JSON(string(text)))
		return nil
	}
	fmt.Fprint(out, "{\"memplan_trace\":1,\n")
	for _, m := range []struct {
		name  string
		value any
		given bool
	}{
		{"config", f.Config, f.Config != ""},
		{"torch", f.Torch, f.Torch != ""},
		{"capacity_bytes", f.Capacity, f.Capacity != 0},
		{"occupied_bytes", f.Occupied, f.Occupied != 0},
		{"memory_fraction", f.MemoryFraction, f.MemoryFraction != nil},
		{"categories", categoryNames, f.Categories != nil},
		{"phases", phaseNames, len(t.rows) > 0},
		{"ops", f.Ops, f.Ops != nil},
		{"layers", f.Layers, f.Layers != nil},
	} {
		if m.given {
			if err := head(m.name, m.value); err != nil {
				return err
			}
		}
	}
	line := make([]byte, 0, 80)
	if len(t.rows) > 0 {
		out.WriteString("\"contexts\":[")
		for i, c := range t.rows {
			line = append(line[:0], separator(i)...)
			for j, v := range [...]int64{int64(c.step), int64(c.phase), int64(c.op), int64(c.layer), int64(c.thread), int64(c.stream)} {
				line = strconv.AppendInt(append(line, "[,,,,,"[j]), v, 10)
			}
			out.Write(append(line, ']'))
		}
		out.WriteString("],\n")
	}
	out.WriteString("\"events\":[")
	current := t.first()
	for i := range f.Events {
		var err error
		if line, err = appendEvent(append(line[:0], separator(i)...), f, i, t, &current); err != nil {
			return err
		}
		out.Write(line)
	}
	out.WriteString("\n]}\n")
	return out.Flush() // bufio keeps the first error of all writes
}

func separator(i int) string {
	if i == 0 {
		return "\n"
	}
	return ",\n"
}

// appendEvent appends event i; current is the context that a reader has before
// it, and then after it.
func appendEvent(line []byte, f *File, i int, t *contextTable, current *context) ([]byte, error) {
	e := &f.Events[i]
	if e.Kind >= numKinds {
		return nil, fmt.Errorf("writing event %d of a trace: unknown kind %d", i, e.Kind)
	}
	number := func(v int64) { line = strconv.AppendInt(append(line, ','), v, 10) }
	line = append(line, '[', '"', kindLetters[e.Kind], '"')
	switch e.Kind {
	case Alloc:
		number(int64(e.ID))
		number(int64(e.Bytes))
		if f.Categories != nil {
			if e.ID < 0 || int(e.ID) >= len(f.Categories) {
				return nil, fmt.Errorf("writing event %d of a trace: block %d has no category", i, e.ID)
			}
			number(int64(f.Categories[e.ID]))
		}
	case Free:
		number(int64(e.ID))
	case SetStream:
		number(int64(e.Stream))
		current.stream = e.Stream
	}
	if c := contextOf(e); c != *current {
		number(int64(t.index[c]))
		*current = c
	}
	return append(line, ']'), nil
}

// contextTable numbers the contexts that events change to.
type contextTable struct {
	rows  []context
	index map[context]int
}

// newContextTable lists the first event's context and every one that an event
// changes to; nothing, if all contexts follow from the changes of stream.
func newContextTable(events []Event) *contextTable {
	t := &contextTable{index: map[context]int{}}
	if len(events) == 0 {
		return t
	}
	t.add(contextOf(&events[0]))
	plain := true
	var stream context // what a reader has in mind without any table
	current := t.first()
	for i := range events {
		e := &events[i]
		if e.Kind == SetStream {
			current.stream, stream.stream = e.Stream, e.Stream
		}
		c := contextOf(e)
		plain = plain && c == stream
		if c != current {
			t.add(c)
			current = c
		}
	}
	if plain {
		return &contextTable{}
	}
	return t
}

func (t *contextTable) add(c context) {
	if _, ok := t.index[c]; !ok {
		t.index[c] = len(t.rows)
		t.rows = append(t.rows, c)
	}
}

// first returns the context that a reader begins with.
func (t *contextTable) first() context {
	if len(t.rows) == 0 {
		return context{}
	}
	return t.rows[0]
}
