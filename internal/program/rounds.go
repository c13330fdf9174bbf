package program

import (
	"reflect"
	"slices"
)

// Rounds is a stretch of a body that says the same several times, such as the microbatches
// of a step that accumulates gradients.
type Rounds struct {
	Begin, Len, N int // statements from Begin on, Len in each of N rounds; N is 0 if there are none

	// Slot is that of the list of which each round takes an item, the first that of Index
	// and each other the next one; below 0: no list.
	Slot, Index int
}

// RoundsOf finds the rounds of a body: each has one backward pass, and they differ in
// nothing but the item of one list.
func RoundsOf(body []Stmt) Rounds {
	var passes []int
	for i := range body {
		if body[i].Kind == Backward {
			passes = append(passes, i)
		}
	}
	best := Rounds{Slot: -1}
	for k := 0; k+1 < len(passes); {
		last := k + 1
		size := passes[last] - passes[k]
		for last+1 < len(passes) && passes[last+1]-passes[last] == size {
			last++
		}
		if r := roundsAt(body, passes[k], passes[last], size); r.N > best.N {
			best = r
		}
		k = last
	}
	return best
}

// roundsAt are the rounds around backward passes from first to last, size apart.
func roundsAt(body []Stmt, first, last, size int) Rounds {
	r := Rounds{Len: size, Slot: -1}
	var uses []use // of items that differ from one round to the next
	same := func(i int) bool {
		more, ok := sameStmt(&body[i], &body[i+size], uses)
		if ok {
			for k := len(uses); k < len(more); k++ {
				more[k].at = i
			}
			uses = more
		}
		return ok
	}
	for i := first; i+size <= last; i++ {
		if !same(i) {
			return Rounds{Slot: -1}
		}
	}
	for r.Begin = first; r.Begin > 0 && same(r.Begin-1); r.Begin-- {
	}
	end := last + 1
	for ; end < len(body) && same(end-size); end++ {
	}
	r.N = (end - r.Begin) / size
	for i, u := range uses {
		index := u.index - (u.at-r.Begin)/size
		if i == 0 {
			r.Slot, r.Index = u.slot, index
		}
		if u.slot != r.Slot || index != r.Index || u.index < 0 {
			return Rounds{Slot: -1}
		}
	}
	return r
}

// use is the item of a list that a statement takes.
type use struct{ at, slot, index int }

// sameStmt reports whether two statements say the same, but for items of lists of which the
// second takes the next one: these are added to uses.
func sameStmt(a, b *Stmt, uses []use) ([]use, bool) {
	x, y := *a, *b
	ok := x.repeats() && len(x.Values) == len(y.Values)
	and := func(e, f *Expr) {
		if ok {
			uses, ok = sameExpr(e, f, uses)
		}
	}
	and(x.Value, y.Value)
	and(x.Requires, y.Requires)
	for i := 0; ok && i < len(x.Values); i++ {
		and(x.Values[i], y.Values[i])
	}
	x.Value, x.Requires, x.Values = nil, nil, nil
	y.Value, y.Requires, y.Values = nil, nil, nil
	return uses, ok && reflect.DeepEqual(x, y)
}

// repeats reports whether a statement may be one of a round: no list grows by it, no
// attribute changes, and it counts no steps.
func (s *Stmt) repeats() bool {
	switch s.Kind {
	case Assign, ListNew, Del, Expression, Batch, Backward, ZeroGrad, EmptyCache, SetMode:
		return s.Every <= 1
	case KeepValue:
		return s.Every <= 1 && (s.Keep.Item || s.Keep.Sum)
	}
	return false
}

// sameExpr is sameStmt for expressions.
func sameExpr(a, b *Expr, uses []use) ([]use, bool) {
	if a == nil || b == nil {
		return uses, a == b
	}
	x, y := *a, *b
	if x.Kind == Pop || len(x.Args) != len(y.Args) || x.Row != y.Row || x.Func != y.Func || x.Forward != y.Forward || x.Sig != y.Sig {
		return uses, false
	}
	ok := true
	for i := range x.Args {
		if uses, ok = sameExpr(x.Args[i], y.Args[i], uses); !ok {
			return uses, false
		}
	}
	if x.Kind == Item && y.Index == x.Index+1 {
		uses = append(slices.Clip(uses), use{slot: x.Slot, index: x.Index})
		y.Index = x.Index
	}
	x.Args, x.Row, x.Func, x.Forward, x.Sig = nil, nil, nil, nil, nil
	y.Args, y.Row, y.Func, y.Forward, y.Sig = nil, nil, nil, nil, nil
	return uses, reflect.DeepEqual(x, y)
}
