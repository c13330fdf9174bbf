package array

import (
	"cmp"
	"math"
	"slices"
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

// Order are the places of numbers in their order, the largest first or the smallest;
// equal ones stay in theirs.
func Order(v []float64, largest bool) []int {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case beats(v[i], v[j], largest, false):
			return -1
		case beats(v[j], v[i], largest, false):
			return 1
		}
		return 0
	})
	return order
}

// Best is the place of the extreme number; the first of equals, and a NaN before all.
func Best(v []float64, largest bool) int {
	best := 0
	for i := 1; i < len(v); i++ {
		if beats(v[i], v[best], largest, true) {
			best = i
		}
	}
	return best
}

// Extreme is the largest number, or the smallest.
func Extreme(v []float64, largest bool) float64 { return v[Best(v, largest)] }

// Median is the place, in the order of a row, of the lower of its middle numbers; of a
// NaN if there is one. order is that of the smallest first.
func Median(row []float64, order []int) int {
	if n := len(row); math.IsNaN(row[order[n-1]]) {
		return slices.IndexFunc(order, func(i int) bool { return math.IsNaN(row[i]) })
	}
	return (len(row) - 1) / 2
}

// picked is where the k-th of n numbers that are picked of a lane along dimension d
// stands.
func picked(size []int, d, lane, n, k int) int {
	inner := 1
	if len(size) > 0 {
		inner = Numel(size[d+1:])
	}
	return (lane/inner*n+k)*inner + lane%inner
}

// Pick takes n numbers of each row along dimension d, those whose places which gives
// first, with their places.
func (a *Array) Pick(d, n int, which func(row []float64) []int) (values, indices []float64) {
	lanes := 1
	if len(a.Size) > 0 {
		lanes = len(a.V) / max(a.Size[d], 1)
	}
	values, indices = make([]float64, lanes*n), make([]float64, lanes*n)
	Lanes(a.Size, d, func(lane, at, step, length int) {
		row := a.Row(at, step, length)
		for k, i := range which(row)[:n] {
			to := picked(a.Size, d, lane, n, k)
			values[to], indices[to] = row[i], float64(i)
		}
	})
	return values, indices
}

// Unpick puts n numbers of each row back where they were picked.
func Unpick(size []int, d, n int, g, indices []float64) []float64 {
	out := make([]float64, Numel(size))
	Lanes(size, d, func(lane, at, step, _ int) {
		for k := range n {
			from := picked(size, d, lane, n, k)
			out[at+int(indices[from])*step] += g[from]
		}
	})
	return out
}

// Running goes on with f along dimension d, from each number to the next: a running
// sum, say. It changes the array.
func (a *Array) Running(d int, f func(sum, x float64) float64) {
	Lanes(a.Size, d, func(_, at, step, n int) {
		for i := 1; i < n; i++ {
			a.V[at+i*step] = f(a.V[at+(i-1)*step], a.V[at+i*step])
		}
	})
}

// SumBehind adds to each number those behind it: the gradient of a running sum. It
// changes the array.
func (a *Array) SumBehind(d int) {
	Lanes(a.Size, d, func(_, at, step, n int) {
		for i := n - 2; i >= 0; i-- {
			a.V[at+i*step] += a.V[at+(i+1)*step]
		}
	})
}

// Extremes are the extreme so far along dimension d, the last of equals, and its place.
func (a *Array) Extremes(d int, largest bool) (values, indices []float64) {
	values, indices = make([]float64, len(a.V)), make([]float64, len(a.V))
	Lanes(a.Size, d, func(_, at, step, n int) {
		best := 0
		for i := range n {
			if v, b := a.V[at+i*step], a.V[at+best*step]; math.IsNaN(v) || !math.IsNaN(b) && (largest && v >= b || !largest && v <= b) {
				best = i
			}
			values[at+i*step], indices[at+i*step] = a.V[at+best*step], float64(best)
		}
	})
	return values, indices
}

// Scattered adds each number up at its index along dimension d.
func (a *Array) Scattered(d int, indices []float64) []float64 {
	out := make([]float64, len(a.V))
	Lanes(a.Size, d, func(_, at, step, n int) {
		for i := range n {
			out[at+int(indices[at+i*step])*step] += a.V[at+i*step]
		}
	})
	return out
}

// Products are those along dimension d.
func (a *Array) Products(d int) (out []float64) {
	Lanes(a.Size, d, func(_, at, step, n int) {
		product := 1.0
		for i := range n {
			product *= a.V[at+i*step]
		}
		out = append(out, product)
	})
	return out
}

// ProductsGrad is the gradient of products along dimension d: of all numbers, or of
// those so far.
func (a *Array) ProductsGrad(g []float64, d int, all bool) []float64 {
	out := make([]float64, len(a.V))
	Lanes(a.Size, d, func(lane, at, step, n int) {
		grad := make([]float64, n)
		if all {
			grad[0] = g[lane]
		} else {
			grad = (&Array{V: g}).Row(at, step, n)
		}
		for i, v := range others(a.Row(at, step, n), grad, all) {
			out[at+i*step] = v
		}
	})
	return out
}

// others is, for each number of a row, the sum over the products that it is a factor
// of, without it, times their gradients: those of the first i numbers for each i, or
// with all the product of the whole row.
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

// Search is the place of each value among sorted boundaries, one row for all values or
// one for each row of them; behind those that equal it with right.
func Search(boundaries, values *Array, right bool) []float64 {
	n := boundaries.Size[len(boundaries.Size)-1]
	return Each(len(values.V), func(i int) float64 {
		row := boundaries.V
		if len(boundaries.Size) > 1 {
			k := i / values.Size[len(values.Size)-1]
			row = row[k*n : (k+1)*n]
		}
		at, _ := slices.BinarySearchFunc(row, values.V[i], func(b, x float64) int {
			if right && b == x {
				return -1
			}
			return cmp.Compare(b, x)
		})
		return float64(at)
	})
}
