package array

import "math"

// Reduce makes one number of each group of some dimensions, of all without any.
func (a *Array) Reduce(dims []int64, of func(x []float64) float64) (out []float64) {
	var room []float64
	groups(a.Size, dims, func(_ int, at []int) {
		room = pick(a.V, at, room)
		out = append(out, of(room))
	})
	return out
}

// ReduceGrad is the gradient of Reduce: slopes gives the derivatives of a group's number
// y by each of it.
func (a *Array) ReduceGrad(g []float64, dims []int64, of func(x []float64) float64, slopes func(x []float64, y float64) []float64) []float64 {
	out := make([]float64, len(a.V))
	var room []float64
	groups(a.Size, dims, func(group int, at []int) {
		room = pick(a.V, at, room)
		for i, v := range slopes(room, of(room)) {
			out[at[i]] = Scaled(g[group], v)
		}
	})
	return out
}

func pick(x []float64, at []int, into []float64) []float64 {
	into = into[:0]
	for _, i := range at {
		into = append(into, x[i])
	}
	return into
}

// SharedBy are the derivatives of an extreme: all numbers that equal it share one.
func SharedBy(x []float64, y float64) []float64 {
	is := func(v float64) bool { return v == y || math.IsNaN(v) && math.IsNaN(y) }
	n := 0.0
	for _, v := range x {
		n += Truth(is(v))
	}
	return Each(len(x), func(i int) float64 { return Truth(is(x[i])) / n })
}

// mean is the mean.
func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Variance is the sum of the squares of what lies beside the mean, by the count less a
// correction.
func Variance(x []float64, correction float64) float64 {
	m, sum := mean(x), 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return sum / max(float64(len(x))-correction, 0)
}

// VarianceSlopes are its derivatives.
func VarianceSlopes(x []float64, correction float64) []float64 {
	m, n := mean(x), float64(len(x))-correction
	return Each(len(x), func(i int) float64 { return 2 / n * (x[i] - m) })
}

// Norm is the norm of order p.
func Norm(x []float64, p float64) float64 {
	sum := 0.0
	for _, v := range x {
		switch v = math.Abs(v); {
		case math.IsInf(p, 1):
			if !(v <= sum) {
				sum = v
			}
		case p == 2:
			sum += v * v
		default:
			sum += math.Pow(v, p)
		}
	}
	switch {
	case math.IsInf(p, 1):
		return sum
	case p == 2:
		return math.Sqrt(sum)
	}
	return math.Pow(sum, 1/p)
}

// NormSlopes are the derivatives of a norm y.
func NormSlopes(x []float64, y, p float64) []float64 {
	if math.IsInf(p, 1) {
		s := SharedBy(Each(len(x), func(i int) float64 { return math.Abs(x[i]) }), y)
		return Each(len(x), func(i int) float64 { return Sign(x[i]) * s[i] })
	}
	return Each(len(x), func(i int) float64 {
		switch {
		case p == 1:
			return Sign(x[i])
		case y == 0:
			return 0
		}
		return x[i] * math.Pow(math.Abs(x[i]), p-2) / math.Pow(y, p-1)
	})
}

// LogSumExp is the logarithm of the sum of exponentials.
func LogSumExp(x []float64) float64 {
	most, sum := Extreme(x, true), 0.0
	if math.IsInf(most, 0) {
		return most
	}
	for _, v := range x {
		sum += math.Exp(v - most)
	}
	return most + math.Log(sum)
}

// Quantified reports whether any number is not 0, or whether all are.
func Quantified(x []float64, all bool) bool {
	for _, v := range x {
		if (v != 0) != all {
			return !all
		}
	}
	return all
}

// Histogram counts numbers in bins of equal width, from the least to the largest number
// where both bounds are equal.
func Histogram(x []float64, bins int, low, high float64) []float64 {
	if low == high && len(x) > 0 {
		low, high = Extreme(x, false), Extreme(x, true)
	}
	if low == high {
		low, high = low-1, high+1
	}
	out := make([]float64, bins)
	for _, v := range x {
		if v >= low && v <= high {
			out[min(int((v-low)/(high-low)*float64(bins)), bins-1)]++
		}
	}
	return out
}
