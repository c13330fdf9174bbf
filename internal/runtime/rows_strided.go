package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
)

// Kernels see some operands with dimensions joined, which strides may not allow; and
// indices as int64. What they cannot take is computed aside.

// otherwise is row r where it can be, else the row by.
func (r row) otherwise(by row) row {
	out := r
	out.forward = func(x *Executor, c *op.Call) error {
		if err := r.forward(x, c); err != errView {
			return err
		}
		return by.forward(x, c)
	}
	out.backward = func(x *Executor, b *op.Back) error {
		if err := r.backward(x, b); err != errView {
			return err
		}
		return by.backward(x, b)
	}
	return out
}

// embeddingAside is an embedding with indices of any type and strides.
var embeddingAside = asideRow(func(a *aside, c *op.Call) {
	index, w := a.get(c.In[0]), a.get(c.In[1])
	n := w.size[1]
	y := make([]float64, len(index.v)*n)
	for i, v := range index.v {
		if v < 0 || int(v) >= w.size[0] {
			a.fail(outside(int(v), w.size[0]))
			return
		}
		copy(y[i*n:(i+1)*n], w.v[int(v)*n:])
	}
	a.put(c.Out[0], y)
}, func(a *aside, b *op.Back) {
	r := wanted(b, 1)
	if r == nil {
		return
	}
	index, g, padding := a.get(b.SavedIn[0]), a.get(b.Grads[0]), -1
	if p := b.Args.(*op.EmbeddingArgs).PaddingIdx; p != nil {
		padding = indexed(float64(*p), int(r.Dim(0)))
	}
	n := int(r.Dim(1))
	out := make([]float64, r.Numel())
	for i, v := range index.v {
		if int(v) != padding {
			for j := range n {
				out[int(v)*n+j] += g.v[i*n+j]
			}
		}
	}
	a.put(r, out)
})

// likelihood calls f for each target of an nll_loss that counts, with its number, the
// place of its class in the input, and its weight.
func likelihood(a *aside, args *op.LossArgs, size []int, target, weight *array, f func(i, at int, w float64)) {
	classes, inner := size[0], 1
	if len(size) > 1 {
		classes, inner = size[1], numel(size[2:])
	}
	for i, v := range target.v {
		k := int(v)
		if int64(k) == args.IgnoreIndex {
			continue
		}
		if k < 0 || k >= classes {
			a.fail(outside(k, classes))
			return
		}
		w := 1.0
		if weight != nil {
			w = weight.v[k]
		}
		f(i, (i/inner*classes+k)*inner+i%inner, w)
	}
}

// nllAside is nll_loss of operands with any strides.
var nllAside = asideRow(func(a *aside, c *op.Call) {
	args, x, target := c.Args.(*op.LossArgs), a.get(c.In[0]), a.get(c.In[1])
	losses, total := make([]float64, len(target.v)), 0.0
	likelihood(a, args, x.size, target, a.get(optional(c.In, 2)), func(i, at int, w float64) {
		losses[i] = -w * x.v[at]
		total += w
	})
	if _, is := reduce(args, 1); is {
		sum := 0.0
		for _, v := range losses {
			sum += v
		}
		if args.Reduction == "mean" {
			sum /= total
		}
		losses = []float64{sum}
	}
	a.put(c.Out[0], losses)
	a.put(c.Out[1], []float64{total})
}, func(a *aside, b *op.Back) {
	r := wanted(b, 0)
	if r == nil {
		return
	}
	args, target, g := b.Args.(*op.LossArgs), a.get(b.SavedIn[1]), a.get(b.Grads[0]).v
	out, scale := make([]float64, r.Numel()), 1.0
	if args.Reduction == "mean" {
		scale = 1 / a.get(b.SavedOut[1]).v[0]
	}
	likelihood(a, args, ints(r.Size), target, a.get(optional(b.SavedIn, 2)), func(i, at int, w float64) {
		out[at] = -w * scale * g[i%len(g)]
	})
	a.put(r, out)
})

// normalizing is a normalization: element i belongs to one of so many groups of one
// mean and variance each, and to one of so many weights.
type normalizing struct {
	groups, weights int
	group, weight   func(i int) int
}

// moments are the mean and the variance of each group.
func (n *normalizing) moments(x []float64) (mean, variance []float64, count float64) {
	mean, variance = make([]float64, n.groups), make([]float64, n.groups)
	count = float64(len(x)) / float64(max(n.groups, 1))
	for i, v := range x {
		mean[n.group(i)] += v / count
	}
	for i, v := range x {
		d := v - mean[n.group(i)]
		variance[n.group(i)] += d * d / count
	}
	return mean, variance, count
}

func inverse(variance []float64, eps float64) []float64 {
	return each(len(variance), func(i int) float64 { return 1 / math.Sqrt(variance[i]+eps) })
}

// elementOr is element k of an array that may be absent.
func elementOr(t *array, k int, or float64) float64 {
	if t == nil {
		return or
	}
	return t.v[k]
}

func (n *normalizing) forward(x, mean, rstd []float64, weight, bias *array) []float64 {
	return each(len(x), func(i int) float64 {
		g, w := n.group(i), n.weight(i)
		return (x[i]-mean[g])*rstd[g]*elementOr(weight, w, 1) + elementOr(bias, w, 0)
	})
}

// backward gives the gradients of the input, where the statistics are its own or
// not, of the weight and of the bias.
func (n *normalizing) backward(x, g, mean, rstd []float64, weight *array, own bool) (gx, gw, gb []float64) {
	gx, gw, gb = make([]float64, len(x)), make([]float64, n.weights), make([]float64, n.weights)
	sum, dot := make([]float64, n.groups), make([]float64, n.groups)
	count := float64(len(x)) / float64(max(n.groups, 1))
	for i, v := range g {
		k, w := n.group(i), n.weight(i)
		unit := (x[i] - mean[k]) * rstd[k]
		gw[w] += v * unit
		gb[w] += v
		v *= elementOr(weight, w, 1)
		sum[k] += v / count
		dot[k] += v * unit / count
	}
	for i, v := range g {
		k := n.group(i)
		v *= elementOr(weight, n.weight(i), 1)
		if own {
			v -= sum[k] + (x[i]-mean[k])*rstd[k]*dot[k]
		}
		gx[i] = v * rstd[k]
	}
	return gx, gw, gb
}

// byChannel is a batch_norm.
func byChannel(size []int) *normalizing {
	inner := numel(size[2:])
	channel := func(i int) int { return i / inner % size[1] }
	return &normalizing{size[1], size[1], channel, channel}
}

// batchNormAside is batch_norm of any strides, and what its kernel does not know: the
// derivative with statistics that are not the batch's own, and running statistics
// that are means over all batches.
var batchNormAside = asideRow(func(a *aside, c *op.Call) {
	args, x := c.Args.(*op.BatchNormArgs), a.get(c.In[0])
	n := byChannel(x.size)
	rmean, rvar := a.get(optional(c.In, 3)), a.get(optional(c.In, 4))
	var mean, rstd []float64
	if args.Batch || !args.Running && c.Env().Training {
		var variance []float64
		var count float64
		mean, variance, count = n.moments(x.v)
		rstd = inverse(variance, args.Eps)
		momentum := args.Momentum
		if args.Cumulative && rmean != nil {
			momentum = a.x.cumulative(c.In[3])
		}
		for k := range mean {
			if rmean != nil {
				rmean.v[k] += momentum * (mean[k] - rmean.v[k])
				rvar.v[k] += momentum * (variance[k]*count/(count-1) - rvar.v[k])
			}
		}
		if rmean != nil {
			a.put(c.In[3], rmean.v)
			a.put(c.In[4], rvar.v)
		}
	} else {
		mean, rstd = rmean.v, inverse(rvar.v, args.Eps)
	}
	a.put(c.Out[0], n.forward(x.v, mean, rstd, a.get(optional(c.In, 1)), a.get(optional(c.In, 2))))
	for i, v := range [][]float64{mean, rstd} {
		if t := c.Out[i+1]; t.Numel() > 0 {
			a.put(t, v)
		}
	}
}, func(a *aside, b *op.Back) {
	args, x := b.Args.(*op.BatchNormArgs), a.get(b.SavedIn[0])
	n := byChannel(x.size)
	own := args.Batch || !args.Running && b.Env().Training
	var mean, rstd []float64
	if own {
		mean, rstd = a.get(b.SavedOut[1]).v, a.get(b.SavedOut[2]).v
	} else {
		mean, rstd = a.get(b.SavedIn[3]).v, inverse(a.get(b.SavedIn[4]).v, args.Eps)
	}
	gx, gw, gb := n.backward(x.v, a.get(b.Grads[0]).v, mean, rstd, a.get(optional(b.SavedIn, 1)), own)
	a.put(wanted(b, 0), gx)
	a.put(wanted(b, 1), gw)
	a.put(wanted(b, 2), gb)
})

// normAside is a layer_norm or group_norm of any strides.
func normAside(of func(args any, size []int) (*normalizing, float64)) row {
	return asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		n, eps := of(c.Args, x.size)
		mean, variance, _ := n.moments(x.v)
		rstd := inverse(variance, eps)
		a.put(c.Out[0], n.forward(x.v, mean, rstd, a.get(optional(c.In, 1)), a.get(optional(c.In, 2))))
		a.put(c.Out[1], mean)
		a.put(c.Out[2], rstd)
	}, func(a *aside, b *op.Back) {
		x := a.get(b.SavedIn[0])
		n, _ := of(b.Args, x.size)
		gx, gw, gb := n.backward(x.v, a.get(b.Grads[0]).v, a.get(b.SavedOut[1]).v, a.get(b.SavedOut[2]).v, a.get(optional(b.SavedIn, 1)), true)
		a.put(wanted(b, 0), gx)
		a.put(wanted(b, 1), gw)
		a.put(wanted(b, 2), gb)
	})
}

var layerNormAside = normAside(func(args any, size []int) (*normalizing, float64) {
	a := args.(*op.LayerNormArgs)
	n := numel(size[len(size)-len(a.Shape):])
	return &normalizing{numel(size) / max(n, 1), n, func(i int) int { return i / n }, func(i int) int { return i % n }}, a.Eps
})

var groupNormAside = normAside(func(args any, size []int) (*normalizing, float64) {
	a := args.(*op.GroupNormArgs)
	inner := numel(size[2:])
	each := size[1] / int(a.Groups) * inner
	return &normalizing{size[0] * int(a.Groups), size[1], func(i int) int { return i / each }, func(i int) int { return i / inner % size[1] }}, a.Eps
})
