package runtime

import (
	"github.com/memplan/memplan/internal/op"
)

// linear is an operator whose result is a sparse matrix times its first input: it
// moves, gathers, repeats or mixes elements. entries gives the matrix: element
// from counts with a weight in element to. Its derivative is the transpose. Both are
// of one plane, of which there are as many as planes says, one after the other.
type linear struct {
	entries func(m *matrix)
	planes  func(m *matrix) int // nil: 1
	fill    func(args any) float64
}

// matrix is what the entries of a linear operator depend on.
type matrix struct {
	args    any
	in, out []int
	index   [][]float64 // the further inputs
	emit    func(to, from int, weight float64)
}

// last are the last n sizes of a result and of the input.
func (m *matrix) last(n int) (out, in []int) { return m.out[len(m.out)-n:], m.in[len(m.in)-n:] }

// leading is the number of planes over all dimensions but the last n.
func leading(n int) func(m *matrix) int {
	return func(m *matrix) int { return numel(m.in[:len(m.in)-n]) }
}

// run calls f for each entry of each plane.
func (l *linear) run(a *aside, m *matrix, f func(to, from int, weight float64)) {
	planes := 1
	if l.planes != nil {
		planes = l.planes(m)
	}
	if planes == 0 {
		return
	}
	out, in := numel(m.out)/planes, numel(m.in)/planes
	m.emit = func(to, from int, weight float64) {
		if from < 0 || from >= in {
			a.fail(outside(from, in))
			return
		}
		if to < 0 || to >= out {
			a.fail(outside(to, out))
			return
		}
		for p := range planes {
			f(p*out+to, p*in+from, weight)
		}
	}
	l.entries(m)
}

func (l linear) row() row {
	further := func(a *aside, ts []*op.Tensor) (out [][]float64) {
		for i := 1; i < len(ts); i++ {
			var v []float64
			if t := a.get(ts[i]); t != nil {
				v = t.v
			}
			out = append(out, v)
		}
		return out
	}
	return asideRow(func(a *aside, c *op.Call) {
		x, y := a.get(c.In[0]), make([]float64, c.Out[0].Numel())
		if l.fill != nil {
			n := l.fill(c.Args)
			for i := range y {
				y[i] = n
			}
		}
		first := l.fill != nil
		l.run(a, &matrix{args: c.Args, in: x.size, out: ints(c.Out[0].Size), index: further(a, c.In)}, func(to, from int, weight float64) {
			if first {
				y[to] = 0
			}
			y[to] += weight * x.v[from]
		})
		a.put(c.Out[0], y)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		g, out := a.get(b.Grads[0]), make([]float64, r.Numel())
		l.run(a, &matrix{args: b.Args, in: ints(b.InM[0].Size), out: g.size, index: further(a, b.SavedIn)}, func(to, from int, weight float64) {
			out[from] += weight * g.v[to]
		})
		a.put(r, out)
	})
}

// moved is a linear operator whose result has at each place one element of the
// input, or none where from is negative.
func moved(n int, from func(m *matrix) func(at []int) int) linear {
	l := linear{entries: func(m *matrix) {
		out := m.out
		if n > 0 {
			out, _ = m.last(n)
		}
		f := from(m)
		walk(out, func(i int, at []int) {
			if k := f(at); k >= 0 {
				m.emit(i, k, 1)
			}
		})
	}}
	if n > 0 {
		l.planes = leading(n)
	}
	return l
}

// walk calls f with each place of a shape in row-major order.
func walk(size []int, f func(i int, at []int)) {
	at := make([]int, len(size))
	for i := range numel(size) {
		f(i, at)
		for d := len(size) - 1; d >= 0; d-- {
			if at[d]++; at[d] < size[d] {
				break
			}
			at[d] = 0
		}
	}
}

// place is the row-major number of an index.
func place(size, at []int) int {
	n := 0
	for d, s := range size {
		n = n*s + at[d]
	}
	return n
}
