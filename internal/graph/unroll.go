package graph

import "github.com/memplan/memplan/internal/spec"

// Limits on what one spec may unroll to.
const (
	maxStatements = 200_000
	maxNesting    = 40

	// statementBytes is what a statement takes in the program, with its module,
	// at the most but for rare ones.
	statementBytes = 4 << 10
	// statementWork is the work that there is in elaborating it.
	statementWork = 300
)

// expand calls f for each time an entry stands for: not at all if its
// condition is false, once, or once a turn of repeat and for. i is -1 unless
// the entry is repeated.
func (u *unit) expand(e *spec.Entry, sc *scope, f func(sc *scope, i int)) {
	el := u.el
	room := func(turns int64) {
		if turns > int64(maxStatements-el.statements) {
			el.tooLarge(e.At, "the spec unrolls to more than %d statements", maxStatements)
		}
	}
	loop := func(turns int64) { room(saturating(turns, 1+u.least(e.Body, sc))) }
	turn := func(sc *scope, i int) {
		room(1)
		el.statements++
		el.meter.Work(statementWork)
		el.meter.Hold(statementBytes)
		if e.If != nil && !spec.Truth(el.eval(e.If, sc)) {
			return
		}
		f(sc, i)
	}
	switch {
	case e.Repeat != nil:
		n := el.evalInt(e.Repeat, sc, "repeat")
		if n < 0 {
			el.fail(e.Repeat.Span, "repeat must not be negative, but is %d", n)
		}
		loop(n)
		for i := range n {
			s := sc
			if e.As.Set {
				s = sc.with(map[string]any{e.As.V: i})
			}
			turn(s, int(i))
		}
	case len(e.For) > 0:
		var lists []looped
		for _, l := range e.For {
			list := u.looped(l, e, sc)
			if len(lists) > 0 && list.n != lists[0].n {
				el.fail(l.In.Span, "the lists of for must have the same length, not %d and %d items", lists[0].n, list.n)
			}
			lists = append(lists, list)
		}
		loop(int64(lists[0].n))
		for i := range lists[0].n {
			vars := map[string]any{}
			for _, l := range lists {
				l.bind(i, vars)
			}
			turn(sc.with(vars), i)
		}
	default:
		turn(sc, -1)
	}
}

// least is how many statements entries unroll to at the least, so that loops in
// loops are refused before they are unrolled. What is not known yet counts as
// nothing: conditions, what they and return leave out, and the loops whose number
// of turns follows from variables of others.
func (u *unit) least(es []*spec.Entry, sc *scope) int64 {
	var n int64
	for _, e := range es {
		turns, inner := int64(1), sc
		switch {
		case e.Repeat != nil:
			x, _ := e.Repeat.Eval(sc)
			turns, _ = x.(int64)
			inner = sc.with(map[string]any{e.As.V: spec.Invalid{}})
		case len(e.For) > 0:
			x, _ := e.For[0].In.Eval(sc)
			list, _ := x.([]any) // none of values, which may be made in between
			turns = int64(len(list))
			vars := map[string]any{}
			for _, l := range e.For {
				for _, v := range l.Vars {
					vars[v.V] = spec.Invalid{}
				}
			}
			inner = sc.with(vars)
		}
		each := int64(1)
		if e.If == nil && turns > 0 {
			each += u.least(e.Body, inner)
		}
		n = min(n+saturating(turns, each), maxStatements+1)
		if e.Head.V == spec.HeadReturn {
			break
		}
	}
	return n
}

// saturating multiplies two counts of statements, up to one that is too many.
func saturating(a, b int64) int64 {
	if a > 0 && b > maxStatements/a {
		return maxStatements + 1
	}
	return a * b
}
