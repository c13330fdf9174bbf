package array

import "math"

// Bounds give the window of a place of a pooled plane.
type Bounds func(plane int, at []int) (from, to []int)

// Peaks takes the largest element of windows over the last dimensions of out, and
// returns its place in the plane.
func (a *Array) Peaks(out []int, bounds Bounds) (values, index []float64) {
	n := len(out)
	in := a.Size[len(a.Size)-n:]
	planes := len(a.V) / Numel(in)
	values, index = make([]float64, planes*Numel(out)), make([]float64, planes*Numel(out))
	src, size := make([]int, n), make([]int, n)
	for p := range planes {
		walk(out, func(i int, at []int) {
			from, to := bounds(p, at)
			for d := range size {
				size[d] = to[d] - from[d]
			}
			best, where := math.Inf(-1), -1
			walk(size, func(_ int, w []int) {
				for d := range w {
					src[d] = from[d] + w[d]
				}
				k := rowMajor(in, src)
				if v := a.V[p*Numel(in)+k]; where < 0 || v > best || math.IsNaN(v) {
					best, where = v, k
				}
			})
			values[p*Numel(out)+i], index[p*Numel(out)+i] = best, float64(where)
		})
	}
	return values, index
}

// PeaksGrad puts the gradients, of planes of out elements, where the peaks were in planes
// of in.
func PeaksGrad(g, index []float64, in, out []int) []float64 {
	plane, pooled := Numel(in), Numel(out)
	grad := make([]float64, len(g)/max(pooled, 1)*plane)
	for i, v := range g {
		grad[i/pooled*plane+int(index[i])] += v
	}
	return grad
}

// Adaptive are windows that divide a plane evenly.
func Adaptive(in, out []int) Bounds {
	return func(_ int, at []int) (from, to []int) {
		for d, i := range at {
			from, to = append(from, i*in[d]/out[d]), append(to, ((i+1)*in[d]+out[d]-1)/out[d])
		}
		return from, to
	}
}

// Fractional are windows whose places are drawn for each plane: the samples have the last
// dimension first in two dimensions and last in three
// (aten/src/ATen/native/FractionalMaxPool2d.cpp: generate_intervals).
func Fractional(in, out []int, kernel []int64, samples []float64) Bounds {
	n := len(in)
	return func(plane int, at []int) (from, to []int) {
		for d, i := range at {
			pick := d
			if n == 2 {
				pick = 1 - d
			}
			width, sample := int(kernel[d]), samples[plane*n+pick]
			start := in[d] - width
			if i < out[d]-1 {
				alpha := float64(in[d]-width) / float64(out[d]-1)
				start = int((float64(i)+sample)*alpha) - int(sample*alpha)
			}
			from, to = append(from, start), append(to, start+width)
		}
		return from, to
	}
}

// Overlaid adds up windows along dimension d of an array of a size, of which each starts
// a step behind the one before; the elements of a window are the array's last dimension.
func (a *Array) Overlaid(size []int, d, step int) []float64 {
	out, src := make([]float64, Numel(size)), make([]int, len(size))
	walk(a.Size, func(i int, at []int) {
		copy(src, at)
		src[d] = at[d]*step + at[len(size)]
		out[rowMajor(size, src)] += a.V[i]
	})
	return out
}

// Halves calls f for each element of the half of dimension d: its place, and those of
// what it is made of, in both halves.
func Halves(size []int, d int, f func(to, value, gate int)) {
	n, inner := size[d]/2, Numel(size[d+1:])
	for o := range Numel(size[:d]) {
		for k := range n * inner {
			f(o*n*inner+k, o*2*n*inner+k, (o*2+1)*n*inner+k)
		}
	}
}
