package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// row says how a primitive operator is computed. A derivative without a
// backward is one that cannot be executed or, if it is composed, one that the
// operator table makes of further operators as they are.
type row struct {
	forward  func(x *Executor, c *op.Call) error
	backward func(x *Executor, b *op.Back) error
	composed bool
	over     bool // it computes where an input lies, though it is not in place
}

// rows are the operators that are computed here; the others say how in the table of
// operators (op.Row.Eval).
var rows = func() map[*op.Op]row {
	all := map[*op.Op]row{}
	for _, t := range []map[*op.Op]row{lossRows, scatterRows, criterionRows, quantizedRows} {
		for r, is := range t {
			if _, twice := all[r]; twice || r == nil || r.Eval != nil {
				panic("runtime: an operator is computed twice, or there is none")
			}
			all[r] = is
		}
	}
	return all
}()

// rowOf says how an operator is computed; the in-place form of what writes to its
// target as the operator itself.
func rowOf(r *op.Op) (row, bool) {
	if r.Same != nil {
		r = r.Same
	}
	if e := r.Eval; e != nil {
		return evaluated(e), true
	}
	out, ok := rows[r]
	if !ok && r.InPlace && r.Of != nil {
		out, ok = rows[r.Of]
	}
	return out, ok
}

// evaluated is an operator that says itself how it is computed.
func evaluated(e *op.Eval) row {
	r := row{composed: e.InParts, over: e.Over}
	if e.Forward != nil {
		r.forward = func(x *Executor, c *op.Call) error { return e.Forward(x, c) }
	}
	if e.Backward != nil {
		r.backward = func(x *Executor, b *op.Back) error { return e.Backward(x, b) }
	}
	return r
}

// composedViews are views whose derivative is made of operators; that of the
// others puts the gradients where the views were.
var composedViews = map[*op.Op]bool{op.Expand: true, op.View: true}

// viewGrad is the derivative of a view: the incoming gradient under another
// layout, or zeros with the gradients in the places of the views.
func (x *Executor) viewGrad(b *op.Back) error {
	y := wanted(b, 0)
	if y == nil {
		return nil
	}
	if a, is := b.Args.(*op.WindowArgs); is && a.Step < a.Size {
		return x.aside(func(s *aside) { s.windowGrad(b, y, a) })
	}
	if err := x.Fill(y, 0); err != nil {
		return err
	}
	places := b.Op.View(&op.Call{Exec: b.Exec, Op: b.Op, Args: b.Args, In: []*op.Tensor{y}})
	for i, g := range b.Grads {
		if g == nil {
			continue
		}
		from, err := x.broadcast(g, places[i].Size)
		if err != nil {
			return err
		}
		if err := x.launch(kernel.Copy, []kernel.Tensor{x.at(y, places[i]), from}, nil); err != nil {
			return err
		}
	}
	return nil
}

// windowGrad adds up the gradients of windows that overlap.
func (a *aside) windowGrad(b *op.Back, y *op.Tensor, w *op.WindowArgs) {
	g, size := a.get(b.Grads[0]), ints(y.Size)
	d := dim(w.Dimension, len(size))
	out, src := make([]float64, numel(size)), make([]int, len(size))
	walk(g.size, func(i int, at []int) {
		copy(src, at)
		src[d] = at[d]*int(w.Step) + at[len(size)]
		out[place(size, src)] += g.v[i]
	})
	a.put(y, out)
}

// dim resolves a dimension that may be negative.
func dim(d, rank int) int {
	if d < 0 {
		d += rank
	}
	return d
}

// last moves dimension d to the end.
func last(t *op.Tensor, d int) tensor.Layout {
	var order []int
	for i := range t.Rank() {
		if i != d {
			order = append(order, i)
		}
	}
	return t.Permute(append(order, d))
}

// optional returns ts[i], or nil beyond the end.
func optional(ts []*op.Tensor, i int) *op.Tensor {
	if i < len(ts) {
		return ts[i]
	}
	return nil
}

func nearest(i, n int) int { return min(max(i, 0), n-1) }

// indexed is the number of an element along a dimension of n; a negative one
// counts from the end.
func indexed(v float64, n int) int {
	i := int(v)
	if i < 0 {
		i += n
	}
	return i
}
