package program

import "github.com/memplan/memplan/internal/op"

// Checkpoint says that a module or function is called through
// torch.utils.checkpoint: autograd keeps its arguments in the place of what it
// computes, which the backward pass computes again.
type Checkpoint struct {
	Reentrant bool     // use_reentrant=True: an autograd.Function that runs a backward pass of its own
	Save      []*op.Op // operators whose results are kept (create_selective_checkpoint_contexts)
	Alternate []*op.Op // of Save those of which every second call is recomputed

	// Segments is of checkpoint_sequential, which cuts a list of modules into so
	// many parts; 0: the call is one part. The modules are those of an
	// nn.Sequential, or those of Chain.
	Segments int64
	Chain    []int // children of the class at work
}

// Segment is a run of the modules of checkpoint_sequential, from the first to
// before the second.
type Segment struct {
	From, To   int
	Checkpoint bool
}

// Cut divides n modules as checkpoint_sequential does: parts of equal length,
// of which the last takes what is left over and is not checkpointed.
func (c *Checkpoint) Cut(n int) []Segment {
	size := n / int(c.Segments)
	var out []Segment
	for from := 0; from < size*int(c.Segments-1); from += size {
		out = append(out, Segment{from, from + size, true})
	}
	return append(out, Segment{size * int(c.Segments-1), n, false})
}

// CheckpointCalls makes the calls of some children go through
// torch.utils.checkpoint and returns them. The functions of c are replaced; those
// of other classes stay as they are.
func (c *Class) CheckpointCalls(to *Checkpoint, children map[int]bool) (changed []*Expr) {
	funcs := map[*Func]*Func{}
	var expr func(e *Expr) *Expr
	exprs := func(es []*Expr) []*Expr {
		if es == nil {
			return nil
		}
		out := make([]*Expr, len(es))
		for i, e := range es {
			out[i] = expr(e)
		}
		return out
	}
	expr = func(e *Expr) *Expr {
		if e == nil {
			return nil
		}
		out := *e
		out.Args = exprs(e.Args)
		if f := funcs[e.Func]; f != nil {
			out.Func = f
		}
		if e.Kind == CallMod && children[e.Child] {
			out.Checkpoint = to
			changed = append(changed, &out)
		}
		return &out
	}
	fill := func(f *Func) {
		body := make([]Stmt, len(f.Body))
		for i, s := range f.Body {
			s.Value, s.Values = expr(s.Value), exprs(s.Values)
			body[i] = s
		}
		f.Body = body
	}
	if c.Forward == nil { // nothing calls it
		return nil
	}
	methods := make([]*Func, len(c.Methods))
	for i, m := range c.Methods {
		f := *m
		methods[i], funcs[m] = &f, &f
	}
	forward := *c.Forward
	c.Methods, c.Forward = methods, &forward
	for _, m := range methods {
		fill(m)
	}
	fill(c.Forward)
	return changed
}

// Chain lists the children that f calls if it is nothing but calls of modules,
// each with what the one before returned; else nil.
func (f *Func) Chain() []int {
	if f.Params != 1 {
		return nil
	}
	var out []int
	last := 0
	for i := range f.Body {
		s := &f.Body[i]
		e := s.Value
		switch {
		case e == nil:
			return nil
		case s.Kind == Return && i == len(f.Body)-1 && e.Kind == Local && e.Slot == last:
			return out
		case s.Kind != Assign || s.Unpack || s.Grad != GradAround || len(s.Targets) != 1, e.Kind != CallMod || e.Checkpoint != nil:
			return nil
		case len(e.Args) != 1 || e.Args[0].Kind != Local || e.Args[0].Slot != last:
			return nil
		}
		last = s.Targets[0]
		out = append(out, e.Child)
	}
	return nil
}
