package program

// Statements lists the statements of a function, those of closures in it
// included.
func (f *Func) Statements() []*Stmt {
	var out []*Stmt
	for i := range f.Body {
		s := &f.Body[i]
		out = append(out, s)
		if s.Closure != nil {
			out = append(out, s.Closure.Statements()...)
		}
	}
	return out
}
