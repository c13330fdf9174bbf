package runtime

import (
	"math"

	"github.com/memplan/memplan/internal/op"
)

// tap is an element that counts with a weight.
type tap struct {
	from   int
	weight float64
}

// taps are, for each element along a dimension of a resized image, what it is made
// of (aten/src/ATen/native/UpSample.h).
type taps func(in, out int, scale float64, given, align bool) [][]tap

// step is the distance of neighbours of the result in the input.
func stepOf(in, out int, scale float64, given, align bool) float64 {
	switch {
	case align && out > 1:
		return float64(in-1) / float64(out-1)
	case align:
		return 0
	case given:
		return 1 / scale
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

// nearestTap takes one element; places are computed in float32.
func nearestTap(shift float32) taps {
	return func(in, out int, scale float64, given, _ bool) [][]tap {
		step := float32(stepOf(in, out, scale, given, false))
		t := make([][]tap, out)
		for i := range t {
			from := int(math.Floor(float64((float32(i) + shift) * step)))
			t[i] = []tap{{min(from, in-1), 1}}
		}
		return t
	}
}

func linearTaps(in, out int, scale float64, given, align bool) [][]tap {
	step := stepOf(in, out, scale, given, align)
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

func cubicTaps(in, out int, scale float64, given, align bool) [][]tap {
	step := stepOf(in, out, scale, given, align)
	t := make([][]tap, out)
	for i := range t {
		at := source(i, step, align)
		from := math.Floor(at)
		w, _ := cubic(at - from)
		for k := range w {
			t[i] = append(t[i], tap{nearest(int(from)+k-1, in), w[k]})
		}
	}
	return t
}

// averageTaps are the windows of adaptive pooling.
func averageTaps(in, out int, _ float64, _, _ bool) [][]tap {
	t := make([][]tap, out)
	for i := range t {
		from, to := i*in/out, ((i+1)*in+out-1)/out
		for k := from; k < to; k++ {
			t[i] = append(t[i], tap{k, 1 / float64(to-from)})
		}
	}
	return t
}

// separable is a linear operator over the last n dimensions whose weights are
// products of those along each.
func separable(n int, along func(m *matrix, d, in, out int) [][]tap) row {
	return linear{planes: leading(n), entries: func(m *matrix) {
		out, in := m.last(n)
		each := make([][][]tap, n)
		for d := range each {
			each[d] = along(m, d, in[d], out[d])
		}
		var mix func(to, d, from int, weight float64, at []int)
		mix = func(to, d, from int, weight float64, at []int) {
			if d == n {
				m.emit(to, from, weight)
				return
			}
			for _, t := range each[d][at[d]] {
				mix(to, d+1, from*in[d]+t.from, weight*t.weight, at)
			}
		}
		walk(out, func(i int, at []int) { mix(i, 0, 0, 1, at) })
	}}.row()
}

func resampled(n int, t taps) row {
	return separable(n, func(m *matrix, _, in, out int) [][]tap {
		a := m.args.(*op.ResampleArgs)
		scale := 0.0
		if a.Scale != nil {
			scale = *a.Scale
		}
		return t(in, out, scale, a.Scale != nil, a.Align)
	})
}

// averaged is average pooling over n dimensions, whose windows may reach beyond the
// end of the input (aten/src/ATen/native/cpu/AvgPoolKernel.cpp).
func averaged(n int) row {
	return linear{planes: leading(n), entries: func(m *matrix) {
		a := m.args.(*op.PoolArgs)
		out, in := m.last(n)
		walk(out, func(i int, at []int) {
			from, to, count := make([]int, n), make([]int, n), 1
			for d := range at {
				start := at[d]*int(a.Stride[d]) - int(a.Padding[d])
				end := min(start+int(a.Kernel[d]), in[d]+int(a.Padding[d]))
				from[d], to[d] = max(start, 0), min(end, in[d])
				if a.ExcludePadding {
					count *= to[d] - from[d]
				} else {
					count *= end - start
				}
			}
			if a.Divisor != 0 {
				count = int(a.Divisor)
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
				m.emit(i, place(in, src), 1/float64(count))
			})
		})
	}}.row()
}

// resampleRows resize images, and average over windows that have no kernel.
var resampleRows = map[*op.Op]row{
	op.UpsampleNearests[0]: resampled(1, nearestTap(0)), op.UpsampleNearestExacts[0]: resampled(1, nearestTap(0.5)), op.UpsampleLinear1d: resampled(1, linearTaps),
	op.UpsampleNearests[1]: resampled(2, nearestTap(0)), op.UpsampleNearestExacts[1]: resampled(2, nearestTap(0.5)), op.UpsampleBilinear2d: resampled(2, linearTaps),
	op.UpsampleNearests[2]: resampled(3, nearestTap(0)), op.UpsampleNearestExacts[2]: resampled(3, nearestTap(0.5)), op.UpsampleTrilinear3d: resampled(3, linearTaps),
	op.UpsampleBicubic2d: resampled(2, cubicTaps),
	op.AvgPool3d:         averaged(3),
	op.AdaptiveAvgPool3dKernel: separable(3, func(_ *matrix, _, in, out int) [][]tap {
		return averageTaps(in, out, 0, false, false)
	}),
}
