package array

import "math"

// Grid is a grid_sample: what images have at the places of a grid, whose
// coordinates go from -1 to 1, the last dimension first
// (aten/src/ATen/native/GridSampler.h).
type Grid struct {
	Mode, Padding string
	Align         bool
}

// pixel is a coordinate in units of elements, and its derivative.
func (g *Grid) pixel(v float64, n int) (at, slope float64) {
	if g.Align {
		return (v + 1) / 2 * float64(n-1), float64(n-1) / 2
	}
	return ((v+1)*float64(n) - 1) / 2, float64(n) / 2
}

// inside brings a place outside of n elements back, if the mode of padding does,
// and gives the derivative.
func (g *Grid) inside(at float64, n int) (float64, float64) {
	slope := 1.0
	switch g.Padding {
	case "zeros":
		return at, 1
	case "reflection":
		low, high := 0, 2*(n-1)
		if !g.Align {
			low, high = -1, 2*n-1
		}
		at, slope = mirrored(at, low, high)
	}
	switch last := float64(n - 1); { // clipped
	case at <= 0:
		return 0, 0
	case at >= last:
		return last, 0
	case math.IsNaN(at):
		return 0, 0
	}
	return at, slope
}

// mirrored reflects a place at two borders, in units of half elements.
func mirrored(at float64, twiceLow, twiceHigh int) (float64, float64) {
	if twiceLow == twiceHigh {
		return 0, 0
	}
	low, width := float64(twiceLow)/2, float64(twiceHigh-twiceLow)/2
	at -= low
	slope := 1.0
	if at < 0 {
		at, slope = -at, -1
	}
	extra := math.Mod(at, width)
	if int64(math.Floor(at/width))%2 == 0 {
		return extra + low, slope
	}
	return width - extra + low, -slope
}

// reach is, along one dimension, what a place of the grid reads: elements, or -1
// beyond the border, their weights, and the derivatives of those by the coordinate.
type reach struct {
	from          [4]int
	weight, slope [4]float64
	n             int
}

func (g *Grid) reach(v float64, n int) (r reach) {
	at, unit := g.pixel(v, n)
	within := func(i float64) int {
		if i < 0 || i >= float64(n) || math.IsNaN(i) {
			return -1
		}
		return int(i)
	}
	if g.Mode == "bicubic" {
		first := math.Floor(at)
		w, s := cubic(at - first)
		r.n = 4
		for k := range 4 {
			i, _ := g.inside(first+float64(k)-1, n)
			r.from[k], r.weight[k], r.slope[k] = within(i), w[k], s[k]*unit
		}
		return r
	}
	at, s := g.inside(at, n)
	if g.Mode == "nearest" {
		r.n, r.from[0], r.weight[0] = 1, within(math.RoundToEven(at)), 1
		return r
	}
	first := math.Floor(at)
	r.n = 2
	r.from[0], r.weight[0], r.slope[0] = within(first), 1-(at-first), -s*unit
	r.from[1], r.weight[1], r.slope[1] = within(first+1), at-first, s*unit
	return r
}

// each calls f for the elements of a plane of a size that a place of the grid reads,
// with the derivatives of their weights by its coordinates.
func (g *Grid) each(in []int, place []float64, f func(from int, weight float64, slopes []float64)) {
	n := len(in)
	r := make([]reach, n)
	for d := range r {
		r[d] = g.reach(place[n-1-d], in[d])
	}
	slopes := make([]float64, n)
	pick := make([]int, n)
	size := make([]int, n)
	for d := range size {
		size[d] = r[d].n
	}
	walk(size, func(_ int, at []int) {
		from := 0
		for d, k := range at {
			if r[d].from[k] < 0 {
				return
			}
			from = from*in[d] + r[d].from[k]
		}
		copy(pick, at)
		weight := 1.0
		for d, k := range pick {
			weight *= r[d].weight[k]
		}
		for c := range slopes { // the coordinates, of which the first is of the last dimension
			s := 1.0
			for d, k := range pick {
				if d == n-1-c {
					s *= r[d].slope[k]
				} else {
					s *= r[d].weight[k]
				}
			}
			slopes[c] = s
		}
		f(from, weight, slopes)
	})
}

// points calls f for what each place of a grid reads: its number among those of all
// images, the elements of image and result in each channel, and the weight with its
// derivatives.
func (g *Grid) points(x, places *Array, f func(place, from, to int, weight float64, slopes []float64)) {
	in := x.Size[2:]
	n, channels, plane := len(in), x.Size[1], Numel(in)
	points := Numel(places.Size[1 : len(places.Size)-1])
	for b := range x.Size[0] {
		for p := range points {
			at := (b*points + p) * n
			g.each(in, places.V[at:at+n], func(from int, weight float64, slopes []float64) {
				for ch := range channels {
					f(at, (b*channels+ch)*plane+from, (b*channels+ch)*points+p, weight, slopes)
				}
			})
		}
	}
}

// Sample reads images at the places of a grid.
func (g *Grid) Sample(x, places *Array) []float64 {
	y := make([]float64, x.Size[0]*x.Size[1]*Numel(places.Size[1:len(places.Size)-1]))
	g.points(x, places, func(_, from, to int, weight float64, _ []float64) { y[to] += weight * x.V[from] })
	return y
}

// SampleGrad gives the gradients of the images and of the places.
func (g *Grid) SampleGrad(x, places *Array, grad []float64) (gx, gp []float64) {
	gx, gp = make([]float64, len(x.V)), make([]float64, len(places.V))
	g.points(x, places, func(place, from, to int, weight float64, slopes []float64) {
		gx[from] += weight * grad[to]
		for c := range slopes {
			gp[place+c] += slopes[c] * grad[to] * x.V[from]
		}
	})
	return gx, gp
}
