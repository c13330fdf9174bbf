package array

import "math"

// tap is an element that counts with a weight.
type tap struct {
	from   int
	weight float64
}

// Taps are, for each element along a dimension of a resized image, what it is made
// of (aten/src/ATen/native/UpSample.h): by the sizes, the scale if it was given, and
// whether the corners are aligned.
type Taps func(in, out int, scale *float64, align bool) [][]tap

// Step is the distance of neighbours of the result in the input.
func Step(in, out int, scale *float64, align bool) float64 {
	switch {
	case align && out > 1:
		return float64(in-1) / float64(out-1)
	case align:
		return 0
	case scale != nil:
		return 1 / *scale
	}
	return float64(in) / float64(out)
}

// source is the place in the input of element i of the result.
func source(i int, step float64, align bool) float64 {
	if align {
		return step * float64(i)
	}
	return step*(float64(i)+0.5) - 0.5
}

// NearestTaps take one element; places are computed in float32.
func NearestTaps(shift float32) Taps {
	return func(in, out int, scale *float64, _ bool) [][]tap {
		step := float32(Step(in, out, scale, false))
		t := make([][]tap, out)
		for i := range t {
			from := int(math.Floor(float64((float32(i) + shift) * step)))
			t[i] = []tap{{min(from, in-1), 1}}
		}
		return t
	}
}

// LinearTaps weigh two neighbours.
func LinearTaps(in, out int, scale *float64, align bool) [][]tap {
	step := Step(in, out, scale, align)
	t := make([][]tap, out)
	for i := range t {
		if in == out {
			t[i] = []tap{{i, 1}}
			continue
		}
		at := max(source(i, step, align), 0)
		from := min(int(at), in-1)
		w := min(max(at-float64(from), 0), 1)
		t[i] = []tap{{from, 1 - w}, {min(from+1, in-1), w}}
	}
	return t
}

// cubic are the weights of four neighbours at distance t behind the second, and
// their derivatives by t.
func cubic(t float64) (w, slope [4]float64) {
	const a = -0.75
	near := func(x float64) (float64, float64) {
		return ((a+2)*x-(a+3))*x*x + 1, (3*(a+2)*x - 2*(a+3)) * x
	}
	far := func(x float64) (float64, float64) {
		return ((a*x-5*a)*x+8*a)*x - 4*a, (3*a*x-10*a)*x + 8*a
	}
	w[0], slope[0] = far(t + 1)
	w[1], slope[1] = near(t)
	w[2], slope[2] = near(1 - t)
	w[3], slope[3] = far(2 - t)
	slope[2], slope[3] = -slope[2], -slope[3]
	return w, slope
}

// CubicTaps weigh four neighbours.
func CubicTaps(in, out int, scale *float64, align bool) [][]tap {
	step := Step(in, out, scale, align)
	t := make([][]tap, out)
	for i := range t {
		at := source(i, step, align)
		from := math.Floor(at)
		w, _ := cubic(at - from)
		for k := range w {
			t[i] = append(t[i], tap{Nearest(int(from)+k-1, in), w[k]})
		}
	}
	return t
}

// AverageTaps are the windows of adaptive pooling.
func AverageTaps(in, out int, _ *float64, _ bool) [][]tap {
	t := make([][]tap, out)
	for i := range t {
		from, to := i*in/out, ((i+1)*in+out-1)/out
		for k := from; k < to; k++ {
			t[i] = append(t[i], tap{k, 1 / float64(to-from)})
		}
	}
	return t
}

// Nearest is the element of n that lies next to i.
func Nearest(i, n int) int { return min(max(i, 0), n-1) }

// Resampled is a linear operator over the last n dimensions whose weights are products
// of those along each.
func Resampled(n int, taps Taps, scale *float64, align bool) Linear {
	return Linear{Planes: leading(n), Entries: func(m *Matrix) {
		out, in := m.Last(n)
		each := make([][][]tap, n)
		for d := range each {
			each[d] = taps(in[d], out[d], scale, align)
		}
		var mix func(to, d, from int, weight float64, at []int)
		mix = func(to, d, from int, weight float64, at []int) {
			if d == n {
				m.Emit(to, from, weight)
				return
			}
			for _, t := range each[d][at[d]] {
				mix(to, d+1, from*in[d]+t.from, weight*t.weight, at)
			}
		}
		walk(out, func(i int, at []int) { mix(i, 0, 0, 1, at) })
	}}
}

// Pool is average pooling whose windows may reach beyond the end of the input
// (aten/src/ATen/native/cpu/AvgPoolKernel.cpp).
type Pool struct {
	Kernel, Stride, Padding []int64
	ExcludePadding          bool
	Divisor                 int64 // 0: the size of the window
}

// Linear is the pooling over n dimensions.
func (p *Pool) Linear(n int) Linear {
	return Linear{Planes: leading(n), Entries: func(m *Matrix) {
		out, in := m.Last(n)
		walk(out, func(i int, at []int) {
			from, to, count := make([]int, n), make([]int, n), 1
			for d := range at {
				start := at[d]*int(p.Stride[d]) - int(p.Padding[d])
				end := min(start+int(p.Kernel[d]), in[d]+int(p.Padding[d]))
				from[d], to[d] = max(start, 0), min(end, in[d])
				if p.ExcludePadding {
					count *= to[d] - from[d]
				} else {
					count *= end - start
				}
			}
			if p.Divisor != 0 {
				count = int(p.Divisor)
			}
			size := make([]int, n)
			for d := range size {
				size[d] = max(to[d]-from[d], 0)
			}
			src := make([]int, n)
			walk(size, func(_ int, w []int) {
				for d := range w {
					src[d] = from[d] + w[d]
				}
				m.Emit(i, rowMajor(in, src), 1/float64(count))
			})
		})
	}}
}
