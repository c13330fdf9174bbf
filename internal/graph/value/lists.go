package value

// Entered is what a function knows of its arguments: lists are other objects, since
// what is found of a function holds for all calls with arguments like these.
func Entered(args []Value) []Meta {
	m := matching{}
	out := make([]Meta, len(args))
	for i, a := range args {
		out[i] = m.copied(a.Meta)
	}
	return out
}

// Left is what a call with these arguments returns. Entered is what the function
// knew of them; it may have changed lists, and may return them.
func Left(entered []Meta, args []Value, rets []Meta) []Meta {
	m := matching{}
	for i := range entered {
		m.pair(entered[i], args[i].Meta)
	}
	changed := map[*List][]Meta{}
	for inner := range m {
		if inner.Changed {
			changed[inner] = nil
		}
	}
	for inner := range changed {
		items := make([]Meta, len(inner.Items))
		for i, x := range inner.Items {
			items[i] = m.copied(x)
		}
		changed[inner] = items
	}
	for inner, items := range changed {
		outer := m[inner]
		outer.Items, outer.Changed = items, true
	}
	out := make([]Meta, len(rets))
	for i, r := range rets {
		out[i] = m.copied(r).Now()
	}
	return out
}

// matching holds which list of a caller each list of a function is.
type matching map[*List]*List

// pair walks what a function knew of an argument and the argument.
func (m matching) pair(inner, outer Meta) {
	if inner.Tuple == nil || outer.Tuple == nil {
		return
	}
	in := inner.Tuple
	if inner.List != nil {
		if _, ok := m[inner.List]; ok || outer.List == nil {
			return
		}
		m[inner.List] = outer.List
	}
	for i, x := range outer.Now().Tuple {
		if i < len(in) {
			m.pair(in[i], x)
		}
	}
}

// copied is x with the caller's lists in the place of the function's, and with new
// ones for those that it made.
func (m matching) copied(x Meta) Meta {
	if x.Tuple == nil {
		return x
	}
	if outer, ok := m[x.List]; ok && x.List != nil {
		x.List = outer
		return x.Now()
	}
	if x.List != nil {
		l := &List{}
		m[x.List] = l
		defer func() { l.Items = x.Tuple }()
		x.List, x.Tuple = l, x.Now().Tuple
	}
	tuple := make([]Meta, len(x.Tuple))
	for i, it := range x.Tuple {
		tuple[i] = m.copied(it)
	}
	x.Tuple = tuple
	return x
}

// Remember notes what lists hold, and the lists in them. What it returns puts that back.
func Remember(metas []Meta) (put func()) {
	held := map[*List]List{}
	var note func(ms []Meta)
	note = func(ms []Meta) {
		for _, m := range ms {
			if m.List == nil {
				note(m.Tuple)
			} else if _, ok := held[m.List]; !ok {
				held[m.List] = *m.List
				note(m.List.Items)
			}
		}
	}
	note(metas)
	return func() {
		for l, was := range held {
			*l = was
		}
	}
}
