package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// Read reads a trace file; File says what it may hold. Everything is checked:
// what Read returns can be replayed. An error about the contents is a
// *ReadError.
func Read(r io.Reader) (*File, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading a trace: %w", err)
	}
	d := &reader{scanner: scanner{data: data, event: -1}, blocks: map[int64]blockRef{}}
	d.file()
	if d.err != nil {
		return nil, d.err
	}
	return &d.out, nil
}

// reader turns the JSON into a File.
type reader struct {
	scanner
	out File
	own bool // "memplan_trace" was there

	// The tables of memplan's own traces.
	categories []Category
	phases     []Phase
	contexts   []context

	blocks  map[int64]blockRef // by the file's id
	born    int32
	current context
}

// blockRef is what became of an id of the file.
type blockRef struct {
	id    int32 // the block, by birth
	freed int   // the event that freed it; -1 while it lives
}

// members are the members of a trace file, in the order in which Write writes
// them. own marks those of memplan's own traces.
var members = []struct {
	name string
	own  bool
	read func(*reader)
}{
	{"memplan_trace", true, (*reader).version},
	{"config", false, func(d *reader) { d.out.Config = d.string(`"config"`) }},
	{"torch", false, func(d *reader) { d.out.Torch = d.string(`"torch"`) }},
	{"capacity_bytes", false, func(d *reader) { d.bytes(`"capacity_bytes"`, &d.out.Capacity) }},
	{"occupied_bytes", false, func(d *reader) { d.bytes(`"occupied_bytes"`, &d.out.Occupied) }},
	{"memory_fraction", false, (*reader).fraction},
	{"categories", true, (*reader).categoryTable},
	{"phases", true, (*reader).phaseTable},
	{"ops", true, func(d *reader) { d.out.Ops = d.strings(`"ops"`) }},
	{"layers", true, func(d *reader) { d.out.Layers = d.strings(`"layers"`) }},
	{"contexts", true, (*reader).contextTable},
	{"events", false, (*reader).events},
}

func (d *reader) file() {
	d.expect('{', "at the start of a trace")
	seen := map[string]bool{}
	for first := true; d.more(&first, '}', "after a member"); {
		d.peek()
		at := d.pos
		name := d.string("the name of a member")
		d.expect(':', "after the name of a member")
		d.member(name, at, seen)
	}
	if d.err == nil && d.peek() != 0 || d.pos < len(d.data) {
		d.fail(d.pos, "expected nothing after the trace, found %s", d.found())
	}
	if !seen["events"] {
		d.fail(d.pos, `the trace has no "events"`)
	}
}

// member reads one member of the file.
func (d *reader) member(name string, at int, seen map[string]bool) {
	i := slices.IndexFunc(members, func(m struct {
		name string
		own  bool
		read func(*reader)
	}) bool {
		return m.name == name
	})
	switch {
	case d.err != nil:
	case i >= 0 && seen[name]:
		d.fail(at, "member %q is given twice", name)
	case name == "memplan_trace" && len(seen) > 0:
		d.fail(at, `"memplan_trace" must be the first member`)
	case i >= 0 && members[i].own && seen["events"]:
		if d.own {
			d.fail(at, `%q must come before "events"`, name)
		}
		d.skip(0)
	case i >= 0 && (d.own || !members[i].own || name == "memplan_trace"):
		members[i].read(d)
	case d.own:
		var names []string
		for _, m := range members {
			names = append(names, m.name)
		}
		d.fail(at, "unknown member %q; allowed are %s", name, strings.Join(names, ", "))
	default:
		d.skip(0)
	}
	seen[name] = true
}

func (d *reader) version() {
	d.integer(`"memplan_trace"`, 1, 1)
	d.own = true
}

// bytes reads a size; null stands for none.
func (d *reader) bytes(what string, to *tensor.Bytes) {
	if !d.null() {
		*to = tensor.Bytes(d.integer(what, 0, tensor.MaxBytes))
	}
}

func (d *reader) fraction() {
	if d.null() {
		return
	}
	d.peek()
	at := d.pos
	f := d.number(`"memory_fraction"`)
	if f < 0 || f > 1 {
		d.fail(at, `"memory_fraction" is %v; allowed are numbers from 0 to 1, and null`, f)
	}
	d.out.MemoryFraction = &f
}

// names reads a table of names out of a fixed set, and returns their indices.
func (d *reader) names(what string, allowed []string) []int {
	var list []int
	d.expect('[', "before the list of "+what)
	for first := true; d.more(&first, ']', "in the list of "+what); {
		d.peek()
		at := d.pos
		name := d.string(what)
		i := slices.Index(allowed, name)
		if i < 0 {
			d.fail(at, "%s has %q; allowed are %s", what, name, strings.Join(allowed, ", "))
		}
		list = append(list, i)
	}
	return list
}

func (d *reader) categoryTable() {
	at := d.pos
	for _, i := range d.names(`"categories"`, categoryNames[:]) {
		d.categories = append(d.categories, Category(i))
	}
	if len(d.categories) == 0 {
		d.fail(at, `"categories" is empty; allowed are %s`, strings.Join(categoryNames[:], ", "))
	}
	d.out.Categories = make([]Category, 1)
}

func (d *reader) phaseTable() {
	for _, i := range d.names(`"phases"`, phaseNames[:]) {
		d.phases = append(d.phases, Phase(i))
	}
}

func (d *reader) contextTable() {
	d.expect('[', `before the list of "contexts"`)
	for first := true; d.more(&first, ']', `in the list of "contexts"`); {
		var c context
		d.expect('[', "before a context")
		c.step = int32(d.integer("the step of a context", 0, maxStep))
		d.expect(',', "in a context")
		phase := d.index("the phase of a context", len(d.phases))
		d.expect(',', "in a context")
		c.op = int32(d.index("the op of a context", len(d.out.Ops)))
		d.expect(',', "in a context")
		c.layer = int32(d.index("the layer of a context", len(d.out.Layers)))
		d.expect(',', "in a context")
		c.thread = uint8(d.integer("the thread of a context", 0, maxThread))
		d.expect(',', "in a context")
		c.stream = int16(d.integer("the stream of a context", 0, maxStream))
		d.expect(']', "after a context")
		if phase < len(d.phases) {
			c.phase = d.phases[phase]
		}
		d.contexts = append(d.contexts, c)
	}
}

// index reads an index of a table of n rows; where the table is missing, 0
// stands for nothing.
func (d *reader) index(what string, n int) int {
	return int(d.integer(what, 0, int64(max(n-1, 0))))
}

func (d *reader) events() {
	if len(d.contexts) > 0 {
		d.current = d.contexts[0]
	}
	d.expect('[', `before "events"`)
	d.event = 0
	for first := true; d.more(&first, ']', "after an event"); d.event++ {
		e := d.readEvent()
		if d.err == nil {
			d.out.Events = append(d.out.Events, e)
		}
	}
	d.event = -1
}

func (d *reader) readEvent() (e Event) {
	d.expect('[', "before an event")
	e.Kind = d.kind()
	switch e.Kind {
	case Alloc:
		at, id := d.id("in an allocation")
		d.expect(',', "in an allocation")
		e.Bytes = tensor.Bytes(d.integer("the size of an allocation", 0, tensor.MaxBytes))
		e.ID = d.birth(at, id)
		if d.categories != nil {
			d.expect(',', "before the category of an allocation")
			i := d.index("the category of an allocation", len(d.categories))
			d.out.Categories = append(d.out.Categories, d.categories[i])
		}
	case Free:
		at, id := d.id("in a free")
		e.ID = d.death(at, id)
	case SetStream:
		d.expect(',', "before the number of a stream")
		d.current.stream = int16(d.integer("the number of a stream", 0, maxStream))
	}
	if d.own && d.take(',') {
		if len(d.contexts) == 0 {
			d.fail(d.pos, `the event has a context, but there are no "contexts"`)
			return e
		}
		d.current = d.contexts[d.index("the context of an event", len(d.contexts))]
	}
	d.expect(']', "at the end of an event")
	d.current.apply(&e)
	return e
}

// kind reads the letter of an event.
func (d *reader) kind() Kind {
	d.peek()
	at := d.pos
	letter := ""
	if rest := d.data[at:]; d.err == nil && len(rest) >= 3 && rest[0] == '"' && rest[2] == '"' {
		letter = string(rest[1:2]) // one byte: no allocation
		d.pos += 3
	} else {
		letter = d.string("the kind of an event")
	}
	for k, l := range kindLetters {
		if len(letter) == 1 && letter[0] == l {
			return Kind(k)
		}
	}
	d.fail(at, `unknown event %s; allowed are "a" (allocate), "f" (free), "e" (empty_cache), "s" (stream) and "r" (reset peaks)`,
		strconv.QuoteToASCII(letter))
	return 0
}

// id reads a comma and a block id, and returns where the id stands.
func (d *reader) id(where string) (at int, id int64) {
	d.expect(',', where)
	d.peek()
	at = d.pos
	return at, d.integer("the id of a block", -1<<63, 1<<63-1)
}

// birth numbers a new block.
func (d *reader) birth(at int, id int64) int32 {
	if b, ok := d.blocks[id]; ok && b.freed < 0 {
		d.fail(at, "block %d is allocated again, but it was not freed; allowed is an id that is not in use", id)
	}
	if d.born == maxBlocks {
		d.fail(at, "the trace has more than %d allocations", maxBlocks)
	}
	if d.err != nil {
		return 0
	}
	d.born++
	d.blocks[id] = blockRef{d.born, -1}
	return d.born
}

// death looks a freed block up.
func (d *reader) death(at int, id int64) int32 {
	b, ok := d.blocks[id]
	switch {
	case d.err != nil:
	case !ok:
		d.fail(at, "free of block %d, which was never allocated", id)
	case b.freed >= 0:
		d.fail(at, "free of block %d, which event %d freed already", id, b.freed)
	default:
		d.blocks[id] = blockRef{b.id, d.event}
	}
	return b.id
}
