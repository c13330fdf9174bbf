package op

import "github.com/memplan/memplan/internal/array"

// Linear is an operator that multiplies its first input by a sparse matrix, which the
// arguments say; its derivative multiplies by the transpose.
func Linear(of func(args any) array.Linear) *Eval {
	further := func(a Arrays, ts []*Tensor) (out [][]float64) {
		for i := 1; i < len(ts); i++ {
			out = append(out, a.Get(ts[i]))
		}
		return out
	}
	return OnHost(func(a Arrays, c *Call) {
		x, y := a.Array(c.In[0]), make([]float64, c.Out[0].Numel())
		err := of(c.Args).Run(&array.Matrix{In: x.Size, Out: c.Out[0].Size.Ints(), Index: further(a, c.In)}, func(to, from int, weight float64) {
			y[to] += weight * x.V[from]
		})
		if err != nil {
			a.Fail(err)
		}
		a.Put(c.Out[0], y)
	}, func(a Arrays, b *Back) {
		r := a.Wanted(b, 0)
		if r == nil {
			return
		}
		g, out := a.Array(b.Grads[0]), make([]float64, r.Numel())
		err := of(b.Args).Run(&array.Matrix{In: b.InM[0].Size.Ints(), Out: g.Size, Index: further(a, b.SavedIns())}, func(to, from int, weight float64) {
			out[from] += weight * g.V[to]
		})
		if err != nil {
			a.Fail(err)
		}
		a.Put(r, out)
	})
}
