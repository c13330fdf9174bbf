package runtime

import (
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// column sees a vector as a matrix of one column.
func (x *Executor) column(t *op.Tensor) kernel.Tensor { return x.at(t, t.Unsqueeze(1)) }

// vectorProduct is y = a @ b of a matrix and a vector.
func (x *Executor) vectorProduct(y, a, b *op.Tensor) error {
	batch := func(t kernel.Tensor) kernel.Tensor {
		t.Size, t.Stride = t.Size.Insert(0, 1), t.Stride.Insert(0, 0)
		return t
	}
	return x.launch(kernel.Gemm, []kernel.Tensor{batch(x.column(y)), batch(x.operand(a)), batch(x.column(b)), {}}, nil, 1, 0)
}

// trilinearShape is a product of three operands over four dimensions: outputs, and
// the features of both inputs; rows are those of the inputs.
func trilinear(x1, w, x2 *array, f func(row, out, i, j int)) {
	for row := range x1.size[0] {
		for o := range w.size[0] {
			for i := range w.size[1] {
				for j := range w.size[2] {
					f(row, o, i, j)
				}
			}
		}
	}
}

// halves are the two halves of a dimension of glu: f gets the places of an element of
// the result and of what it is made of.
func halves(size []int, d int, f func(to, value, gate int)) {
	n, inner := size[d]/2, numel(size[d+1:])
	for o := range numel(size[:d]) {
		for k := range n * inner {
			f(o*n*inner+k, o*2*n*inner+k, (o*2+1)*n*inner+k)
		}
	}
}

// moreRows are constants, products with vectors, and what has no kin.
var moreRows = map[*op.Op]row{
	op.DTypeOf: nothing,
	op.Eye: asideRow(func(a *aside, c *op.Call) {
		n, m := int(c.Out[0].Dim(0)), int(c.Out[0].Dim(1))
		v := make([]float64, n*m)
		for i := range min(n, m) {
			v[i*m+i] = 1
		}
		a.put(c.Out[0], v)
	}, nil),
	op.Linspace: asideRow(func(a *aside, c *op.Call) { // from both ends, as PyTorch's kernel
		l := c.Args.(*op.LinspaceArgs)
		step := 0.0
		if l.Steps > 1 {
			step = (l.End - l.Start) / float64(l.Steps-1)
		}
		a.put(c.Out[0], each(int(l.Steps), func(i int) float64 {
			if int64(i) < l.Steps/2 {
				return l.Start + step*float64(i)
			}
			return l.End - step*float64(l.Steps-1-int64(i))
		}))
	}, nil),
	op.Baddbmm: {
		forward: func(x *Executor, c *op.Call) error {
			args, y := c.Args.(*op.BaddbmmArgs), c.Out[0]
			bias, err := x.broadcast(c.In[0], y.Size)
			if err != nil {
				return err
			}
			return x.launch(kernel.Gemm, []kernel.Tensor{x.operand(y), x.operand(c.In[1]), x.operand(c.In[2]), bias}, nil, args.Alpha, args.Beta)
		},
		backward: func(x *Executor, b *op.Back) error {
			args, g := b.Args.(*op.BaddbmmArgs), b.Grads[0]
			swapped := func(t *op.Tensor) kernel.Tensor { return x.at(t, t.Transpose(1, 2)) }
			if y := wanted(b, 1); y != nil {
				if err := x.launch(kernel.Gemm, []kernel.Tensor{x.operand(y), x.operand(g), swapped(b.SavedIn[2]), {}}, nil, args.Alpha, 0); err != nil {
					return err
				}
			}
			if y := wanted(b, 2); y != nil {
				if err := x.launch(kernel.Gemm, []kernel.Tensor{x.operand(y), swapped(b.SavedIn[1]), x.operand(g), {}}, nil, args.Alpha, 0); err != nil {
					return err
				}
			}
			if y := wanted(b, 0); y != nil {
				return x.apply(kernel.Affine, y, b.Grads[:1], args.Beta, 0)
			}
			return nil
		},
	},
	op.Mv: {
		forward: func(x *Executor, c *op.Call) error { return x.vectorProduct(c.Out[0], c.In[0], c.In[1]) },
		backward: func(x *Executor, b *op.Back) error {
			if y := wanted(b, 0); y != nil { // grad.ger(vec)
				g := b.Grads[0]
				col := g.Unsqueeze(1)
				l, err := col.Expand(y.Size.Slice())
				if err != nil {
					return err
				}
				vec, err := x.broadcast(b.SavedIn[1], y.Size)
				if err != nil {
					return err
				}
				if err := x.launch(kernel.Mul, []kernel.Tensor{x.operand(y), x.at(g, l), vec}, nil); err != nil {
					return err
				}
			}
			if y := wanted(b, 1); y != nil {
				m := b.SavedIn[0]
				ts := []kernel.Tensor{x.at(y, y.Unsqueeze(1)), x.at(m, m.Transpose(0, 1)), x.column(b.Grads[0]), {}}
				for i := range 3 {
					ts[i].Size, ts[i].Stride = ts[i].Size.Insert(0, 1), ts[i].Stride.Insert(0, 0)
				}
				return x.launch(kernel.Gemm, ts, nil, 1, 0)
			}
			return nil
		},
	},
	// Its derivative is made of products.
	op.Dot: {composed: true, forward: func(x *Executor, c *op.Call) error {
		a, b, y := c.In[0], c.In[1], c.Out[0]
		ts := []kernel.Tensor{x.operand(y), x.operand(a), x.operand(b), {}}
		for i, stride := range []tensor.Dims{tensor.D(0, 0, 0), tensor.D(0, 0, a.Stride.At(0)), tensor.D(0, b.Stride.At(0), 0)} {
			ts[i].Stride = stride
		}
		ts[0].Size, ts[1].Size, ts[2].Size = tensor.D(1, 1, 1), tensor.D(1, 1, a.Numel()), tensor.D(1, b.Numel(), 1)
		return x.launch(kernel.Gemm, ts, nil, 1, 0)
	}},
	op.Glu: asideRow(func(a *aside, c *op.Call) {
		x, y := a.get(c.In[0]), make([]float64, c.Out[0].Numel())
		halves(x.size, dim(c.Args.(*op.DimArgs).Dim, len(x.size)), func(to, value, gate int) { y[to] = x.v[value] * logistic(x.v[gate]) })
		a.put(c.Out[0], y)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		x, g := a.get(b.SavedIn[0]), a.get(b.Grads[0])
		out := make([]float64, len(x.v))
		halves(x.size, dim(b.Args.(*op.DimArgs).Dim, len(x.size)), func(to, value, gate int) {
			s := logistic(x.v[gate])
			out[value], out[gate] = g.v[to]*s, g.v[to]*x.v[value]*s*(1-s)
		})
		a.put(r, out)
	}),
	op.Trilinear: asideRow(func(a *aside, c *op.Call) {
		x1, w, x2 := a.get(c.In[0]), a.get(c.In[1]), a.get(c.In[2])
		y := make([]float64, c.Out[0].Numel())
		trilinear(x1, w, x2, func(row, o, i, j int) {
			y[row*w.size[0]+o] += x1.v[row*w.size[1]+i] * w.v[(o*w.size[1]+i)*w.size[2]+j] * x2.v[row*w.size[2]+j]
		})
		a.put(c.Out[0], y)
	}, func(a *aside, b *op.Back) {
		get := func(i int) *array { // of a saved input that no gradient uses, its shape
			if t := a.get(b.SavedIn[i]); t != nil {
				return t
			}
			return &array{ints(b.InM[i].Size), make([]float64, b.InM[i].Numel())}
		}
		x1, w, x2, g := get(0), get(1), get(2), a.get(b.Grads[0])
		g1, gw, g2 := make([]float64, len(x1.v)), make([]float64, len(w.v)), make([]float64, len(x2.v))
		trilinear(x1, w, x2, func(row, o, i, j int) {
			v, at1, atw, at2 := g.v[row*w.size[0]+o], row*w.size[1]+i, (o*w.size[1]+i)*w.size[2]+j, row*w.size[2]+j
			g1[at1] += v * w.v[atw] * x2.v[at2]
			gw[atw] += v * x1.v[at1] * x2.v[at2]
			g2[at2] += v * x1.v[at1] * w.v[atw]
		})
		for i, v := range [][]float64{g1, gw, g2} {
			a.put(wanted(b, i), v)
		}
	}),
}
