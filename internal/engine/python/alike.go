package python

import "slices"

// Alike reports whether no statement does other things with b than with a, once the names of
// the frame that hold a, or parts of it, hold those of b: tensors and tuples that differ in
// nothing but their memory.
func (p *Interp) Alike(fr *Frame, a, b Value) bool {
	names := int32(0)
	for _, v := range fr.Slots {
		if v.T != nil && v.T == a.T || v.List != nil && v.List == a.List {
			names++
		}
	}
	switch {
	case a.T != nil && b.T != nil:
		return p.AlikeBut(a.T, b.T, names)
	case a.List != nil && b.List != nil:
		return a.List.refs-int(names) == b.List.refs && slices.EqualFunc(a.List.Items, b.List.Items, func(a, b Value) bool { return p.Alike(fr, a, b) })
	}
	return a == b
}

// Rename has the names of a frame that hold a, or parts of it, hold those of b, which is
// alike.
func (p *Interp) Rename(fr *Frame, a, b Value) {
	for i, v := range fr.Slots {
		if v.T != nil && v.T == a.T || v.List != nil && v.List == a.List {
			p.Store(fr, i, p.Hold(b))
		}
	}
	if a.List != nil {
		for i := range a.List.Items {
			p.Rename(fr, a.List.Items[i], b.List.Items[i])
		}
	}
}
