package trace

// Unrolled returns the trace with the turns of loops where they come, up to the end of a step; nil if it would have
// more than so many events. Blocks of a turn have names of their own.
func (t *Trace) Unrolled(loops []Loop, step int64, most int) *Trace {
	u := &unroller{t: t, loops: loops, step: step, most: most, names: make([]int32, 1), out: &Trace{Ops: t.Ops, Layers: t.Layers}}
	if t.Categories != nil {
		u.out.Categories = make([]Category, 1)
	}
	for i := range t.Events {
		if !u.event(i, 0) || !u.ending(i+1, 0, 0, len(loops)) {
			break
		}
	}
	if len(u.out.Events) > most {
		return nil
	}
	return u.out
}

type unroller struct {
	t     *Trace
	loops []Loop
	step  int64
	most  int
	names []int32 // of blocks in out, by their names in t
	born  int32
	out   *Trace
}

// event adds an event whose step is so many ahead of its own. It reports whether there are more to come.
func (u *unroller) event(i int, ahead int64) bool {
	e := u.t.Events[i]
	if int64(e.Step)+ahead > u.step || len(u.out.Events) > u.most {
		return false
	}
	e.Step += int32(ahead)
	for int(e.ID) >= len(u.names) {
		u.names = append(u.names, 0)
	}
	if e.Kind == Alloc {
		u.born++
		u.names[e.ID] = u.born
		if u.out.Categories != nil {
			c := Temporaries
			if int(e.ID) < len(u.t.Categories) {
				c = u.t.Categories[e.ID]
			}
			u.out.Categories = append(u.out.Categories, c)
		}
	}
	e.ID = u.names[e.ID]
	u.out.Events = append(u.out.Events, e)
	return true
}

// ending adds the turns of those loops before the given one that begin at an event or later and end before another.
func (u *unroller) ending(end int, ahead int64, begin, before int) bool {
	for k := range u.loops[:before] {
		if l := &u.loops[k]; l.End == end && l.Begin >= begin && l.Begin < l.End && !u.turns(k, ahead) {
			return false
		}
	}
	return true
}

// turns adds the turns of a loop.
func (u *unroller) turns(k int, ahead int64) bool {
	l := &u.loops[k]
	for turn := int64(1); l.Turns == 0 || turn <= l.Turns; turn++ {
		moved := make([]int32, len(l.Names))
		for i, n := range l.Names {
			moved[i] = u.names[n.From]
		}
		for i, n := range l.Names {
			for int(n.To) >= len(u.names) {
				u.names = append(u.names, 0)
			}
			u.names[n.To] = moved[i]
		}
		for i := l.Begin; i < l.End; i++ {
			if !u.event(i, ahead+turn*l.Steps) || !u.ending(i+1, ahead+turn*l.Steps, l.Begin, k) {
				return false
			}
		}
	}
	return true
}
