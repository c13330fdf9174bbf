package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
)

// peaks is a pooling that takes the largest element of windows over n dimensions and
// returns its place in the plane. bounds gives the window of each place of the
// result, of one plane. Its derivative puts the gradients there.
func peaks(n int, bounds func(a *aside, c *op.Call, plane int, in, out, at []int) (from, to []int)) row {
	return asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		in, out := x.size[len(x.size)-n:], ints(c.Out[0].Size)[len(x.size)-n:]
		planes := len(x.v) / numel(in)
		values, index := make([]float64, planes*numel(out)), make([]float64, planes*numel(out))
		src, size := make([]int, n), make([]int, n)
		for p := range planes {
			walk(out, func(i int, at []int) {
				from, to := bounds(a, c, p, in, out, at)
				for d := range size {
					size[d] = to[d] - from[d]
				}
				best, where := math.Inf(-1), -1
				walk(size, func(_ int, w []int) {
					for d := range w {
						src[d] = from[d] + w[d]
					}
					k := place(in, src)
					if v := x.v[p*numel(in)+k]; where < 0 || v > best || math.IsNaN(v) {
						best, where = v, k
					}
				})
				values[p*numel(out)+i], index[p*numel(out)+i] = best, float64(where)
			})
		}
		a.put(c.Out[0], values)
		a.put(c.Out[1], index)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		g, index, size := a.get(b.Grads[0]), a.get(b.SavedOut[1]), ints(r.Size)
		in, out := numel(size[len(size)-n:]), numel(g.size[len(g.size)-n:])
		grad := make([]float64, r.Numel())
		for i, v := range g.v {
			grad[i/out*in+int(index.v[i])] += v
		}
		a.put(r, grad)
	})
}

func adaptiveBounds(_ *aside, _ *op.Call, _ int, in, out, at []int) (from, to []int) {
	for d, i := range at {
		from, to = append(from, i*in[d]/out[d]), append(to, ((i+1)*in[d]+out[d]-1)/out[d])
	}
	return from, to
}

// fractionalBounds are windows whose places are drawn for each plane: the samples are
// the second input, the last dimension first in two dimensions and last in three
// (aten/src/ATen/native/FractionalMaxPool2d.cpp: generate_intervals).
func fractionalBounds(a *aside, c *op.Call, plane int, in, out, at []int) (from, to []int) {
	args, samples := c.Args.(*op.FractionalArgs), a.get(c.In[1])
	n := len(in)
	for d, i := range at {
		pick := d
		if n == 2 {
			pick = 1 - d
		}
		kernel, sample := int(args.Kernel[d]), samples.v[plane*n+pick]
		start := in[d] - kernel
		if i < out[d]-1 {
			alpha := float64(in[d]-kernel) / float64(out[d]-1)
			start = int((float64(i)+sample)*alpha) - int(sample*alpha)
		}
		from, to = append(from, start), append(to, start+kernel)
	}
	return from, to
}

// bag calls f for each index of each bag that counts: with the bag, the number of
// the index, and the row of the table that it names.
func bag(index, offsets []float64, bags int, args *op.EmbeddingBagArgs, rows int, f func(bag, i, row int)) error {
	padding := -1
	if args.PaddingIdx != nil {
		padding = indexed(float64(*args.PaddingIdx), rows)
	}
	for k := range bags {
		end := len(index)
		if k+1 < len(offsets) {
			end = int(offsets[k+1])
		}
		if offsets[k] < 0 || end > len(index) {
			return outside(end, len(index))
		}
		for i := int(offsets[k]); i < end; i++ {
			row := int(index[i])
			if row < 0 || row >= rows {
				return outside(row, rows)
			}
			if row != padding {
				f(k, i, row)
			}
		}
	}
	return nil
}

// embeddingBag sums, averages or takes the largest of the rows of bags
// (aten/src/ATen/native/EmbeddingBag.cpp).
var embeddingBag = asideRow(func(a *aside, c *op.Call) {
	args := c.Args.(*op.EmbeddingBagArgs)
	index, offsets, w, weights := a.get(c.In[0]).v, a.get(c.In[1]).v, a.get(c.In[2]), a.get(optional(c.In, 3))
	rows, width, bags := w.size[0], w.size[1], int(c.Out[0].Dim(0))
	y, counts, best := make([]float64, bags*width), make([]float64, bags), make([]float64, bags*width)
	bagOf := make([]float64, len(index))
	err := bag(index, offsets, bags, args, rows, func(k, i, row int) {
		counts[k]++
		bagOf[i] = float64(k)
		scale := 1.0
		if weights != nil {
			scale = weights.v[i]
		}
		for j := range width {
			v, to := w.v[row*width+j], k*width+j
			switch {
			case args.Mode != "max":
				y[to] += scale * v
			case counts[k] == 1 || v > y[to]:
				y[to], best[to] = v, float64(row)
			}
		}
	})
	if err != nil {
		a.fail(err)
		return
	}
	if args.Mode == "mean" {
		for i := range y {
			if n := counts[i/max(width, 1)]; n > 0 {
				y[i] /= n
			}
		}
	}
	a.put(c.Out[0], y)
	a.put(c.Out[1], bagOf)
	a.put(c.Out[2], append(counts, make([]float64, int(c.Out[2].Numel())-bags)...))
	if args.Mode == "max" {
		for i := range best {
			if counts[i/max(width, 1)] == 0 {
				best[i] = -1
			}
		}
		a.put(c.Out[3], best)
	}
}, func(a *aside, b *op.Back) {
	args, g := b.Args.(*op.EmbeddingBagArgs), a.get(b.Grads[0])
	index, offsets, counts := a.get(b.SavedIn[0]).v, a.get(b.SavedIn[1]).v, a.get(b.SavedOut[2]).v
	weights, w := a.get(optional(b.SavedIn, 3)), a.get(optional(b.SavedIn, 2))
	rows, bags, width := int(b.InM[2].Dim(0)), g.size[0], g.size[1]
	gw, gs := make([]float64, rows*width), make([]float64, len(index))
	if args.Mode == "max" {
		for i, row := range a.get(b.SavedOut[3]).v {
			if row >= 0 {
				gw[int(row)*width+i%width] += g.v[i]
			}
		}
		a.put(wanted(b, 2), gw)
		return
	}
	err := bag(index, offsets, bags, args, rows, func(k, i, row int) {
		scale := 1.0
		if weights != nil {
			scale = weights.v[i]
		}
		if args.Mode == "mean" {
			scale /= counts[k]
		}
		for j := range width {
			v := g.v[k*width+j]
			gw[row*width+j] += scale * v
			if w != nil {
				gs[i] += v * w.v[row*width+j]
			}
		}
	})
	if err != nil {
		a.fail(err)
		return
	}
	a.put(wanted(b, 2), gw)
	a.put(wanted(b, 3), gs)
})

// renormed scales the rows of a table that an index names to a norm.
func renormed(a *aside, c *op.Call) {
	args, w := c.Args.(*op.EmbeddingArgs), a.get(c.In[0])
	done := map[int]bool{}
	for _, v := range a.get(c.In[1]).v {
		row := int(v)
		if row < 0 || row >= w.size[0] {
			a.fail(outside(row, w.size[0]))
			return
		}
		if done[row] {
			continue
		}
		done[row] = true
		x := w.v[row*w.size[1] : (row+1)*w.size[1]]
		if norm := vectorNorm.of(x, &op.NormArgs{P: &args.NormType}); norm > *args.MaxNorm {
			for i := range x {
				x[i] *= *args.MaxNorm / (norm + 1e-7)
			}
		}
	}
	a.put(c.In[0], w.v)
}

// windowRows pool windows of other kinds, and bags of rows of a table.
var windowRows = map[*op.Op]row{
	op.AdaptiveMaxPool2d: peaks(2, adaptiveBounds), op.AdaptiveMaxPool3d: peaks(3, adaptiveBounds),
	op.FractionalMaxPools[2]: peaks(2, fractionalBounds), op.FractionalMaxPools[3]: peaks(3, fractionalBounds),
	op.MaxPool3dIndices:   {forward: maxPool, backward: maxPoolGrad},
	op.EmbeddingBagKernel: embeddingBag,
	op.RenormInPlace:      asideRow(renormed, nil),
}
