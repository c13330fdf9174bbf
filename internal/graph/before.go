package graph

import (
	"fmt"
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/graph/value"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/spec"
)

// beforeFunction is the name of the statements before the loop.
const beforeFunction = "before"

// before elaborates the statements that run once before the first step. A result
// without a name is deleted at their end, unless the spec binds its name, too.
func (el *elaborator) before() {
	entries := el.spec.Before
	if len(entries) == 0 {
		return
	}
	f := el.scriptFn(beforeFunction)
	defer func() {
		el.first = f.u
		for slot, name := range f.f.Slots {
			if f.bound[slot] {
				at, ok := nameIn(entries, name)
				if !ok { // an input
					at = entries[0].At
				}
				found := value.Entered([]value.Value{{Meta: f.metas[slot].Now()}})[0]
				el.carried = append(el.carried, carried{name, f.metas[slot], found, at, f.holds[slot]})
			}
		}
	}()
	f.statements(entries, f.scope)
	f.modesBack()
	slot, ok := f.slots[running]
	if _, given := nameIn(entries, running); ok && f.bound[slot] && !given && !(hasBatch(entries) && el.isInput(running)) {
		f.bound[slot] = false
		f.emit(program.Stmt{Kind: program.Del, Targets: []int{slot}})
	}
	el.within(f, entries[0].At)
	if el.job.Scaler {
		updateScale(f.f)
	}
	f.f.Globals = len(f.f.Slots)
	el.job.Before = f.f
}

// nameIn is the first place where entries give a result that name themselves.
func nameIn(es []*spec.Entry, name string) (spec.Span, bool) {
	for _, e := range es {
		for _, n := range e.Name {
			if n.V == name {
				return n.At, true
			}
		}
		if at, ok := nameIn(e.Body, name); ok {
			return at, true
		}
	}
	return spec.Span{}, false
}

// carry binds names of the script, which are a function's first.
func (f *fn) carry(names []carried) {
	for _, c := range names {
		f.holds[f.set(c.name, c.meta)] = c.held
	}
	f.f.Globals = len(names)
}

// goOn makes the modules of an earlier function of the script, if there is one,
// those of u.
func (u *unit) goOn(from *unit) {
	if from == nil {
		return
	}
	class := *from.class
	class.Children, class.Methods, class.Applied = slices.Clone(class.Children), slices.Clone(class.Methods), slices.Clone(class.Applied)
	u.class, u.layers = &class, from.layers
	u.children, u.made, u.funcs = maps.Clone(from.children), maps.Clone(from.made), maps.Clone(from.funcs)
}

// carriesOn checks that the names of the script are bound at the end of a
// function such that the next call, which begins with them, is the same program.
func (el *elaborator) carriesOn(f *fn, entries []*spec.Entry) {
	first, next := el.carried, f.handed(el.carried)
	for _, c := range next {
		if shrinks(c.found, c.meta) {
			el.fail(c.at, "%q lives on from step to step, but the %s takes more items from a list than it puts back, which then has none left", c.name, f.f.Name)
		}
		if l := c.meta.List; l != nil && l.Counted && len(l.Items) != len(c.found.Tuple) {
			el.fail(c.at, "%q lives on from step to step and has %s at first, but %d after the %s; with a loop over it, a slice of it or its length, each step would be another program",
				c.name, spec.Plural(len(c.found.Tuple), "item"), len(l.Items), f.f.Name)
		}
	}
	if slices.EqualFunc(first, next, sameCarried) {
		return
	}
	for i, c := range next {
		if !sameSizes(c.meta, first[i].meta) {
			begin, end, index := unlike(first[i].meta, c.meta)
			of := ""
			if index != "" {
				of = " as " + c.name + index
			}
			el.fail(c.at, "%q lives on from step to step, but the %s begins with %s%s and ends with %s", c.name, f.f.Name, begin.Describe(), of, end.Describe())
		}
	}
	kept, warnings, fails := *el.kept, el.warnings, el.fails
	var again *fn
	fits := el.attempt(func() { again = el.scriptFunction(f.f.Name, entries, next) })
	*el.kept, el.warnings, el.fails = kept, warnings, fails
	for i, c := range next {
		if !fits && !sameCarried(c, first[i]) {
			el.fail(c.at, "%q lives on from step to step, but the %[2]s ends with %[3]s, with which the next one fails", c.name, f.f.Name, detailed(c.meta))
		}
	}
	for i, c := range again.handed(next) {
		if !sameCarried(c, next[i]) {
			f.changes(first[i])
			el.fail(c.at, "%q lives on from step to step, but each %s leaves another type or other strides than it finds", c.name, f.f.Name)
		}
	}
	if !sameFunc(f.f, f.u.class, again.f, again.u.class) {
		for i, c := range next {
			if !sameCarried(c, first[i]) {
				f.changes(first[i])
				el.fail(c.at, "%q lives on from step to step, but with what the %s leaves, the next would be another program", c.name, f.f.Name)
			}
		}
	}
}

// changes stops at a number of the script that f gives another value.
func (f *fn) changes(c carried) {
	if c.meta.Number != nil {
		f.u.el.fail(c.at, "%[1]q lives on from step to step, but the %[2]s changes it, and a number of before: is known before the program runs; {keep: {of: loss, item: true, sum: true, in: %[1]s}} in the step is a running sum", c.name, f.f.Name)
	}
}

// handed are the names of the script as a function leaves them.
func (f *fn) handed(names []carried) []carried {
	out := slices.Clone(names)
	for slot := range out {
		c := &out[slot]
		if !f.bound[slot] {
			f.u.el.fail(c.at, "%q lives on from step to step, but the %s deletes it; bind it again, or delete it in before:", c.name, f.f.Name)
		}
		if by := f.holds[slot].by; by != nil && by != c.held.by {
			f.u.el.fail(by.At, "the result of %[1]s has no name and would be %[2]s, which lives on from step to step; write name: %[2]s if that is meant, another name if not", by.Head.V, c.name)
		}
		c.meta = f.metas[slot]
	}
	return out
}

func sameCarried(a, b carried) bool {
	return a.meta.Lost || b.meta.Lost || a.meta.Key() == b.meta.Key()
}

// shrinks reports whether a list, or one in it, has fewer items than it had.
func shrinks(had, has value.Meta) bool {
	items := has.Now().Tuple
	if had.List != nil && has.List != nil && len(items) < len(had.Tuple) {
		return true
	}
	for i := range min(len(items), len(had.Tuple)) {
		if shrinks(had.Tuple[i], items[i]) {
			return true
		}
	}
	return false
}

// sameSizes reports whether two values are tensors, or tuples of tensors, of the
// same sizes.
func sameSizes(a, b value.Meta) bool {
	if (a.Tensor == nil) != (b.Tensor == nil) || len(a.Tuple) != len(b.Tuple) {
		return a.Lost || b.Lost
	}
	for i := range a.Tuple {
		if !sameSizes(a.Tuple[i], b.Tuple[i]) {
			return false
		}
	}
	return a.Tensor == nil || a.Tensor.Size == b.Tensor.Size
}

// unlike are the first values that differ in two lists or tuples of equal length, and
// where they stand in them, such as [0][1]; of others the values themselves.
func unlike(a, b value.Meta) (x, y value.Meta, index string) {
	if len(a.Tuple) == len(b.Tuple) {
		for i := range a.Tuple {
			if !sameSizes(a.Tuple[i], b.Tuple[i]) {
				x, y, index = unlike(a.Tuple[i], b.Tuple[i])
				return x, y, fmt.Sprintf("[%d]%s", i, index)
			}
		}
	}
	return a, b, ""
}

// detailed names a value with the type of a tensor.
func detailed(m value.Meta) string {
	if m.Tensor == nil {
		return m.Describe()
	}
	return m.Describe() + " of " + m.Tensor.DType.String()
}
