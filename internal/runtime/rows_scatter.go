package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
)

// scattered calls f for each element of an index, with its number, its place in the
// index's own shape as one of a source of some size, and its place in the result.
func scattered(a *aside, size []int, d int, index *array, source []int, f func(i, from, to int)) {
	at := make([]int, len(size))
	walk(index.size, func(i int, idx []int) {
		copy(at, idx)
		if at[d] = indexed(index.v[i], size[d]); at[d] < 0 || at[d] >= size[d] {
			a.fail(outside(int(index.v[i]), size[d]))
			return
		}
		from := 0
		if source != nil {
			from = place(source, idx)
		}
		f(i, from, place(size, at))
	})
}

// scatter replaces elements, or with add adds to them.
func scatter(add bool) row {
	return asideRow(func(a *aside, c *op.Call) {
		x, index, src := a.get(c.In[0]), a.get(c.In[1]), a.get(optional(c.In, 2))
		args := c.Args.(*op.ScatterArgs)
		var size []int
		if src != nil {
			size = src.size
		}
		scattered(a, x.size, dim(args.Dim, len(x.size)), index, size, func(_, from, to int) {
			v := args.Src.Value
			if src != nil {
				v = src.v[from]
			}
			if add {
				v += x.v[to]
			}
			x.v[to] = v
		})
		a.put(target(c), x.v)
	}, func(a *aside, b *op.Back) {
		g := a.get(b.Grads[0])
		if b.SavedIn[1] == nil { // the gradient is handed on
			return
		}
		index, d := a.get(b.SavedIn[1]), dim(b.Args.(*op.ScatterArgs).Dim, len(g.size))
		if r := wanted(b, 2); r != nil {
			out := make([]float64, r.Numel())
			scattered(a, g.size, d, index, ints(r.Size), func(_, from, to int) { out[from] = g.v[to] })
			a.put(r, out)
		}
		if r := wanted(b, 0); r != nil {
			scattered(a, g.size, d, index, nil, func(_, _, to int) { g.v[to] = 0 })
			a.put(r, g.v)
		}
	})
}

// slices are what index_add and its like change: f is called for each element of the
// slices that the index names, with its place among them and in the tensor.
func sliced(a *aside, size []int, d int, index []float64, f func(from, to int)) {
	inner := numel(size[d+1:])
	for o := range numel(size[:d]) {
		for k, v := range index {
			at := indexed(v, size[d])
			if at < 0 || at >= size[d] {
				a.fail(outside(int(v), size[d]))
				return
			}
			for i := range inner {
				f((o*len(index)+k)*inner+i, (o*size[d]+at)*inner+i)
			}
		}
	}
}

// indexChange changes slices along a dimension: change gives the new element from the
// old one and that of the source. keeps says how much of the gradient passes what was
// changed, gives how much goes to the source.
func indexChange(change func(args *op.IndexFillArgs, old, src float64) float64, keeps float64, gives func(args *op.IndexFillArgs) float64) row {
	return asideRow(func(a *aside, c *op.Call) {
		args, x := c.Args.(*op.IndexFillArgs), a.get(c.In[0])
		src := a.get(optional(c.In, 2))
		sliced(a, x.size, dim(args.Dim, len(x.size)), a.get(c.In[1]).v, func(from, to int) {
			v := 0.0
			if src != nil {
				v = src.v[from]
			}
			x.v[to] = change(args, x.v[to], v)
		})
		a.put(target(c), x.v)
	}, func(a *aside, b *op.Back) {
		args, g := b.Args.(*op.IndexFillArgs), a.get(b.Grads[0])
		if b.SavedIn[1] == nil {
			return
		}
		d, index := dim(args.Dim, len(g.size)), a.get(b.SavedIn[1]).v
		if r := wanted(b, 2); r != nil {
			out := make([]float64, r.Numel())
			sliced(a, g.size, d, index, func(from, to int) { out[from] = gives(args) * g.v[to] })
			a.put(r, out)
		}
		if r := wanted(b, 0); r != nil {
			sliced(a, g.size, d, index, func(_, to int) { g.v[to] *= keeps })
			a.put(r, g.v)
		}
	})
}

// fillMasked is t, but for a number where the mask is set.
func (x *Executor) fillMasked(y, t, mask *op.Tensor, v float64) error {
	return x.apply(kernel.MaskedFill, y, []*op.Tensor{t, mask}, v)
}

// maskedFill fills with a number or with a tensor of one element.
func maskedFill(x *Executor, c *op.Call) error {
	value := optional(c.In, 2)
	if value == nil {
		v := 0.0
		if a, is := c.Args.(*op.FillValueArgs); is {
			v = a.Value.Value
		}
		return x.fillMasked(target(c), c.In[0], c.In[1], v)
	}
	return x.aside(func(a *aside) {
		y := target(c)
		in, mask, v := a.like(c.In[0], y.Size), a.like(c.In[1], y.Size), a.get(value).v[0]
		for i := range in {
			if mask[i] != 0 {
				in[i] = v
			}
		}
		a.put(y, in)
	})
}

func maskedFillGrad(x *Executor, b *op.Back) error {
	if y := wanted(b, 0); y != nil {
		return x.fillMasked(y, b.Grads[0], b.SavedIn[1], 0)
	}
	return nil
}

// scatterRows put elements at indices.
var scatterRows = map[*op.Op]row{
	op.Scatter: scatter(false), op.ScatterAdd: scatter(true), op.ScatterNumber: scatter(false),
	op.MaskedFill:        {forward: maskedFill, backward: maskedFillGrad},
	op.MaskedFillInPlace: {forward: maskedFill, backward: maskedFillGrad}, op.FillByMask: {forward: maskedFill, backward: maskedFillGrad},
	op.IndexAdd: indexChange(func(args *op.IndexFillArgs, old, src float64) float64 { return old + args.Alpha*src }, 1,
		func(args *op.IndexFillArgs) float64 { return args.Alpha }),
	op.IndexCopy: indexChange(func(_ *op.IndexFillArgs, _, src float64) float64 { return src }, 0,
		func(*op.IndexFillArgs) float64 { return 1 }),
	op.IndexFill: indexChange(func(args *op.IndexFillArgs, _, _ float64) float64 { return args.Value }, 0, nil),
	op.CopyInPlace: {
		forward: func(x *Executor, c *op.Call) error { return x.Copy(c.In[0], c.In[1]) },
		backward: func(x *Executor, b *op.Back) error {
			if y := wanted(b, 0); y != nil {
				if err := x.Fill(y, 0); err != nil {
					return err
				}
			}
			if y := wanted(b, 1); y != nil {
				return x.Copy(y, b.Grads[0])
			}
			return nil
		},
	},
	op.OneHot: asideRow(func(a *aside, c *op.Call) {
		index, n := a.get(c.In[0]), int(c.Args.(*op.OneHotArgs).Classes)
		out := make([]float64, len(index.v)*n)
		for i, v := range index.v {
			if v < 0 || int(v) >= n {
				a.fail(outside(int(v), n))
				return
			}
			out[i*n+int(v)] = 1
		}
		a.put(c.Out[0], out)
	}, nil),
	op.UniqueConsecutive: asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		for i := 1; i < len(x.v); i++ {
			if x.v[i] == x.v[i-1] {
				a.fail(unsupported("unique_consecutive of elements that repeat, whose result is smaller than what was planned,"))
				return
			}
		}
		a.put(c.Out[0], x.v)
	}, nil),
}
