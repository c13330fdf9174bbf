package graph

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// mention is where a statement names a value.
type mention struct {
	slot int
	at   spec.Span
}

// holder says whose value a name has: one that the user gave the name to, or the result
// of an entry without a name, for which the language chooses the name.
type holder struct {
	given bool // the user gave the name to a value
	// by is the entry without a name whose result has the name since; nil if none has.
	by        *spec.Entry
	unrelated bool // the result was not computed from the value that had the name: x = f(h)
	implied   bool // the result was, by an entry that does not name it
}

// take binds a name that the language chooses to the result of e, which x computes,
// and returns its slot.
func (f *fn) take(e *spec.Entry, name string, m value.Meta, x *program.Expr) int {
	var h holder
	s, ok := f.slots[name]
	switch _, own := f.u.shapes[name]; {
	case ok && f.holds[s].given:
		h = f.holds[s]
		h.by = e
		h.unrelated = h.unrelated || !x.Reads(s)
		h.implied = h.implied || !slices.ContainsFunc(f.named, func(n mention) bool { return n.slot == s })
	case own: // by a parameter or buffer
		h = holder{given: true, by: e, unrelated: true}
	}
	s = f.set(name, m)
	f.holds[s] = h
	return s
}

// chooses reports whether the language chooses the name of an entry's result. The keys
// of train stand for a forward whose result is called out; an input may be, too.
func (f *fn) chooses(e *spec.Entry) bool {
	if len(e.Name) == 0 || !e.Name[0].Set {
		return true
	}
	return e.Head.V == spec.HeadForward && e.Name[0].At.MadeUp() && f.u.el.isInput(e.Name[0].V)
}

// name notes that the statement under way names the value of a slot, and stops if
// the name may mean two values.
func (f *fn) name(slot int, at spec.Span) {
	if why := f.unclear(slot); why != "" {
		f.u.el.fail(at, "%s", why)
	}
	f.named = append(f.named, mention{slot, at})
}

// previous is the previous value, which an entry takes without naming it.
func (f *fn) previous(e *spec.Entry) value.Value {
	if why := f.noPrevious(); why != "" {
		f.u.el.fail(e.At, "there is no previous value to take: %s; say inputs:", why)
	}
	f.tacit = append(f.tacit, e)
	return f.cur
}

// unclear says why the name of a slot may mean two values, "" if it means one. The
// result of a chain x = f(x) may be called x as long as it is the previous value.
func (f *fn) unclear(slot int) string {
	if h := f.holds[slot]; h.by == nil || !h.unrelated && f.isPrevious(slot) {
		return ""
	}
	return f.twoValues(slot)
}

func (f *fn) twoValues(slot int) string {
	name, by := f.f.Slots[slot], f.holds[slot].by
	if len(by.Name) > 0 && by.Name[0].At.MadeUp() {
		return fmt.Sprintf("%[1]q may mean two values: the result of the model is called %[1]s, too; give the input another name", name)
	}
	return fmt.Sprintf("%[1]q may mean two values: the earlier %[1]s, and the result of %[2]s in line %[3]d, which has no name and is called %[1]s; "+
		"in line %[3]d, write name: %[1]s to use that result here, or another name to use the earlier %[1]s", name, by.Head.V, by.At.Line)
}

// isPrevious reports whether the previous value is that of a slot.
func (f *fn) isPrevious(slot int) bool {
	return f.cur.Expr != nil && f.cur.Expr.Kind == program.Local && f.cur.Expr.Slot == slot
}

// settle checks the names in the inputs of a statement. A name that is the previous
// value's may not stand beside that value, taken without the name: in
// {add: {other: x}}, x is probably another value. After that the name is as
// the user says.
func (f *fn) settle(e *spec.Entry) {
	for _, n := range f.named {
		h := &f.holds[n.slot]
		if h.by == nil {
			continue
		}
		if slices.Contains(f.tacit, e) || h.implied && len(f.tacit) > 0 {
			f.u.el.fail(n.at, "%s", f.twoValues(n.slot))
		}
		*h = holder{given: true}
	}
}
