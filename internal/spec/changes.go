package spec

import "strconv"

// Change is a value of a spec that another one does not have at its path.
type Change struct {
	Path     string // keys joined by dots, items of lists by their number from 0
	At       Span   // in the spec that has it
	Was, Now string // of scalars; "" if there was none
}

// ChangesSince lists what s has and older has not, or has otherwise, in the order
// of the file. The order of keys does not count, and neither do names and
// comments.
func (s *Spec) ChangesSince(older *Spec) []Change { return changes(s.root, older.root) }

func changes(now, was *Value) []Change {
	var out []Change
	var walk func(path string, at Span, now, was *Value)
	walk = func(path string, at Span, now, was *Value) {
		join := func(k string) string {
			if path == "" {
				return k
			}
			return path + "." + k
		}
		switch {
		case was == nil || was.Kind != now.Kind:
			c := Change{Path: path, At: at, Now: now.short()}
			if was != nil {
				c.Was = was.short()
			}
			out = append(out, c)
		case now.Kind == Map:
			for _, p := range now.Pairs {
				if key := join(p.Key.Str); key != "name" {
					walk(key, p.Key.Span, p.Value, was.Get(p.Key.Str))
				}
			}
		case now.Kind == List:
			for i, it := range now.Items {
				var before *Value
				if i < len(was.Items) {
					before = was.Items[i]
				}
				walk(join(strconv.Itoa(i)), it.Span, it, before)
			}
		case now.Str != was.Str:
			out = append(out, Change{path, now.Span, was.short(), now.short()})
		}
	}
	walk("", Span{}, now, was)
	return out
}

// short is a scalar's text.
func (v *Value) short() string {
	if v.Kind == List || v.Kind == Map {
		return ""
	}
	return shorten(v.Str)
}
