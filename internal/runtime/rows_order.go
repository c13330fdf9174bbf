package runtime

import (
	"cmp"
	"math"
	"slices"

	"github.com/memplan/memplan/internal/op"
)

// beats reports whether a comes before b among the largest, or the smallest; a NaN
// comes before all where the largest are asked for, and before all of the smallest
// where a NaN wins.
func beats(a, b float64, largest, nan bool) bool {
	switch {
	case math.IsNaN(a):
		return !math.IsNaN(b) && (largest || nan)
	case math.IsNaN(b):
		return !largest && !nan
	case largest:
		return a > b
	}
	return a < b
}

// ranked are the places along each row of dimension d in the order of their
// elements; equal ones stay in theirs.
func ranked(x *array, d int, largest bool, f func(lane, at, step int, order []int)) {
	lanes(x.size, d, func(lane, at, step, n int) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			a, b := x.v[at+i*step], x.v[at+j*step]
			switch {
			case beats(a, b, largest, false):
				return -1
			case beats(b, a, largest, false):
				return 1
			}
			return 0
		})
		f(lane, at, step, order)
	})
}

// picking is an operator that picks elements along a dimension: pick says which, of
// each row, and the results are their values and their indices. Its derivative puts
// the gradients there.
func picking(along func(args any) int, pick func(args any, x *array, d int, f func(lane int, at, step int, chosen []int))) row {
	return asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		d := dim(along(c.Args), len(x.size))
		n := 1
		if len(x.size) > 0 {
			n = int(c.Out[0].Numel()) * x.size[d] / max(len(x.v), 1)
		}
		inner := 1
		if len(x.size) > 0 {
			inner = numel(x.size[d+1:])
		}
		values, indices := make([]float64, c.Out[0].Numel()), make([]float64, c.Out[1].Numel())
		pick(c.Args, x, d, func(lane, at, step int, chosen []int) {
			for k, i := range chosen[:n] {
				to := (lane/inner*n+k)*inner + lane%inner
				values[to], indices[to] = x.v[at+i*step], float64(i)
			}
		})
		a.put(c.Out[0], values)
		a.put(c.Out[1], indices)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		size := ints(r.Size)
		d := dim(along(b.Args), len(size))
		g, index := a.get(b.Grads[0]), a.get(b.SavedOut[1])
		out := make([]float64, r.Numel())
		n := len(g.v)
		if len(size) > 0 {
			n = len(g.v) * size[d] / max(len(out), 1)
		}
		inner := 1
		if len(size) > 0 {
			inner = numel(size[d+1:])
		}
		lanes(size, d, func(lane, at, step, _ int) {
			for k := range n {
				from := (lane/inner*n+k)*inner + lane%inner
				out[at+int(index.v[from])*step] += g.v[from]
			}
		})
		a.put(r, out)
	})
}

// bestOf is the place of the extreme element of a row; the first of equals.
func bestOf(x *array, at, step, n int, largest bool) int {
	best := 0
	for i := 1; i < n; i++ {
		if beats(x.v[at+i*step], x.v[at+best*step], largest, true) {
			best = i
		}
	}
	return best
}

func extremes(largest bool) row {
	return picking(func(args any) int { return int(*args.(*op.ExtremeArgs).Dim) }, func(_ any, x *array, d int, f func(lane, at, step int, chosen []int)) {
		lanes(x.size, d, func(lane, at, step, n int) { f(lane, at, step, []int{bestOf(x, at, step, n, largest)}) })
	})
}

// argExtreme is the index of an extreme element, of all without a dimension.
func argExtreme(largest bool) row {
	return asideRow(func(a *aside, c *op.Call) {
		x, args := a.get(c.In[0]), c.Args.(*op.ExtremeArgs)
		out := make([]float64, c.Out[0].Numel())
		if args.Dim == nil {
			out[0] = float64(bestOf(x, 0, 1, len(x.v), largest))
		} else {
			lanes(x.size, dim(int(*args.Dim), len(x.size)), func(lane, at, step, n int) { out[lane] = float64(bestOf(x, at, step, n, largest)) })
		}
		a.put(c.Out[0], out)
	}, nil)
}

// ranking picks the k-th smallest, counted from 0, of each row.
func ranking(k func(args any, row []float64) int) row {
	along := func(args any) int { return int(*args.(*op.ExtremeArgs).Dim) }
	return picking(along, func(args any, x *array, d int, f func(lane, at, step int, chosen []int)) {
		ranked(x, d, false, func(lane, at, step int, order []int) {
			row := make([]float64, len(order))
			for i, o := range order {
				row[i] = x.v[at+o*step]
			}
			f(lane, at, step, order[k(args, row):])
		})
	})
}

// running is a running sum or the like, which f goes on with.
func running(f func(sum, x float64) float64) func(a *aside, c *op.Call) {
	return func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		lanes(x.size, dim(c.Args.(*op.CumsumArgs).Dim, len(x.size)), func(_, at, step, n int) {
			for i := 1; i < n; i++ {
				x.v[at+i*step] = f(x.v[at+(i-1)*step], x.v[at+i*step])
			}
		})
		a.put(target(c), x.v)
	}
}

// cumulative is cummax or cummin: the extreme so far, the last of equals.
func cumulative(largest bool) row {
	return asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		index := make([]float64, len(x.v))
		lanes(x.size, dim(c.Args.(*op.DimArgs).Dim, len(x.size)), func(_, at, step, n int) {
			best := 0
			for i := range n {
				if v, b := x.v[at+i*step], x.v[at+best*step]; math.IsNaN(v) || !math.IsNaN(b) && (largest && v >= b || !largest && v <= b) {
					best = i
				}
				index[at+i*step] = float64(best)
			}
		})
		values := make([]float64, len(x.v))
		lanes(x.size, dim(c.Args.(*op.DimArgs).Dim, len(x.size)), func(_, at, step, n int) {
			for i := range n {
				values[at+i*step] = x.v[at+int(index[at+i*step])*step]
			}
		})
		a.put(c.Out[0], values)
		a.put(c.Out[1], index)
	}, func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		g, index := a.get(b.Grads[0]), a.get(b.SavedOut[1])
		out := make([]float64, len(g.v))
		lanes(g.size, dim(b.Args.(*op.DimArgs).Dim, len(g.size)), func(_, at, step, n int) {
			for i := range n {
				out[at+int(index.v[at+i*step])*step] += g.v[at+i*step]
			}
		})
		a.put(r, out)
	})
}

// others is, for each element of a row, the sum over the products that it is a
// factor of, without it, times their gradients: those of the first i elements for
// each i, or with all the product of the whole row.
func others(x, g []float64, all bool) []float64 {
	out := make([]float64, len(x))
	for k := range x {
		product := 1.0
		for i := range x {
			if i != k {
				product *= x[i]
			}
			switch {
			case all && i == len(x)-1:
				out[k] += product * g[0]
			case !all && i >= k:
				out[k] += product * g[i]
			}
		}
	}
	return out
}

// search is the place of each value among sorted boundaries, one row for all values
// or one for each row of them.
func search(boundaries, values int) row {
	return asideRow(func(a *aside, c *op.Call) {
		s, v, right := a.get(c.In[boundaries]), a.get(c.In[values]), c.Args.(*op.SearchArgs).Right
		n := s.size[len(s.size)-1]
		out := make([]float64, len(v.v))
		for i, x := range v.v {
			row := s.v
			if len(s.size) > 1 {
				k := i / v.size[len(v.size)-1]
				row = s.v[k*n : (k+1)*n]
			}
			at, _ := slices.BinarySearchFunc(row, x, func(b, x float64) int {
				if right && b == x {
					return -1
				}
				return cmp.Compare(b, x)
			})
			out[i] = float64(at)
		}
		a.put(c.Out[0], out)
	}, nil)
}

// orderRows sort, pick, search and add up along a dimension.
var orderRows = map[*op.Op]row{
	op.Max.Along: extremes(true), op.Min.Along: extremes(false), op.Max.Arg: argExtreme(true), op.Min.Arg: argExtreme(false),
	op.Sort: picking(func(args any) int { return args.(*op.SortArgs).Dim }, func(args any, x *array, d int, f func(lane, at, step int, chosen []int)) {
		ranked(x, d, args.(*op.SortArgs).Descending, f)
	}),
	op.Topk: picking(func(args any) int { return args.(*op.TopkArgs).Dim }, func(args any, x *array, d int, f func(lane, at, step int, chosen []int)) {
		ranked(x, d, args.(*op.TopkArgs).Largest, f)
	}),
	op.Kthvalue: ranking(func(args any, _ []float64) int { return int(args.(*op.ExtremeArgs).K) - 1 }),
	op.Median: ranking(func(_ any, row []float64) int { // the lower of two; a NaN if there is one
		if n := len(row); math.IsNaN(row[n-1]) {
			return slices.IndexFunc(row, math.IsNaN)
		}
		return (len(row) - 1) / 2
	}),
	op.Cummax: cumulative(true), op.Cummin: cumulative(false),
	op.Cumsum: asideRow(running(func(sum, x float64) float64 { return sum + x }), func(a *aside, b *op.Back) {
		r := wanted(b, 0)
		if r == nil {
			return
		}
		g := a.get(b.Grads[0])
		lanes(g.size, dim(b.Args.(*op.CumsumArgs).Dim, len(g.size)), func(_, at, step, n int) {
			for i := n - 2; i >= 0; i-- {
				g.v[at+i*step] += g.v[at+(i+1)*step]
			}
		})
		a.put(r, g.v)
	}),
	op.Cumprod: asideRow(running(func(product, x float64) float64 { return product * x }), func(a *aside, b *op.Back) {
		if r := wanted(b, 0); r != nil {
			a.put(r, products(a.get(b.SavedIn[0]), a.get(b.Grads[0]), b.Args.(*op.CumsumArgs).Dim, false))
		}
	}),
	op.Prod: asideRow(func(a *aside, c *op.Call) {
		x := a.get(c.In[0])
		out := make([]float64, c.Out[0].Numel())
		lanes(x.size, dim(int(c.Args.(*op.ProdArgs).Dim), len(x.size)), func(lane, at, step, n int) {
			out[lane] = 1
			for i := range n {
				out[lane] *= x.v[at+i*step]
			}
		})
		a.put(c.Out[0], out)
	}, func(a *aside, b *op.Back) {
		if r := wanted(b, 0); r != nil {
			a.put(r, products(a.get(b.SavedIn[0]), a.get(b.Grads[0]), int(b.Args.(*op.ProdArgs).Dim), true))
		}
	}),
	op.Bucketize: search(1, 0), op.Searchsorted: search(0, 1),
}

// products is the gradient of products along a dimension: of all elements, or of
// those so far.
func products(x, g *array, along int, all bool) []float64 {
	out := make([]float64, len(x.v))
	lanes(x.size, dim(along, len(x.size)), func(lane, at, step, n int) {
		row, grad := make([]float64, n), make([]float64, n)
		for i := range n {
			row[i] = x.v[at+i*step]
			if !all {
				grad[i] = g.v[at+i*step]
			}
		}
		if all {
			grad[0] = g.v[lane]
		}
		for i, v := range others(row, grad, all) {
			out[at+i*step] = v
		}
	})
	return out
}
