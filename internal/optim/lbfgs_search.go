package optim

import "math"

// The constants of _strong_wolfe.
const (
	wolfe1      = 1e-4
	wolfe2      = 0.9
	maxSearches = 25
)

// point is one of a line search: the step size, the loss there, its gradient and
// the slope along the direction.
type point struct {
	t, f  float64
	g     []float64
	slope float64
}

// search goes on with a line search (_strong_wolfe in torch/optim/lbfgs.py) whose
// first point, with a loss, was evaluated already. evaluate calls the closure. The
// parameters end at the point that is found; the calls of the closure are
// returned.
func (x *lbfgsNumbers) search(loss float64, evaluate func() float64) int64 {
	if x.n == nil {
		return 1
	}
	calls := int64(1)
	start := point{0, x.loss, x.g, dotOf(x.g, x.d)}
	here := x.t // where the parameters are
	look := func(t float64) point {
		x.move(t - here)
		here = t
		calls++
		return x.seen(t, evaluate())
	}
	now := x.seen(x.t, loss)
	low, high, done, n := x.bracket(start, now, look)
	best := x.zoom(start, low, high, done, n, look)
	x.move(best.t - here)
	x.t, x.loss, x.g = best.t, best.f, best.g
	return calls
}

// seen is the point where the closure was just called.
func (x *lbfgsNumbers) seen(t, loss float64) point {
	x.evaluated(loss)
	return point{t, loss, x.g, dotOf(x.g, x.d)}
}

// bracket looks for an interval that holds a point which satisfies the Wolfe
// conditions, or for such a point, and says after how many looks.
func (x *lbfgsNumbers) bracket(start, now point, look func(t float64) point) (a, b point, done bool, n int) {
	before := start
	for ; n < maxSearches; n++ {
		switch {
		case now.f > start.f+wolfe1*now.t*start.slope, n > 1 && now.f >= before.f:
			return before, now, false, n
		case math.Abs(now.slope) <= -wolfe2*start.slope:
			return now, now, true, n
		case now.slope >= 0:
			return before, now, false, n
		}
		least, most := now.t+0.01*(now.t-before.t), now.t*10
		t := cubic(before, now, least, most)
		before, now = now, look(t)
	}
	return start, now, false, n
}

// zoom makes the interval smaller until one of its ends will do.
func (x *lbfgsNumbers) zoom(start, a, b point, done bool, n int, look func(t float64) point) point {
	if done {
		return a
	}
	ends := [2]point{a, b}
	low, high := 0, 1
	if ends[0].f > ends[1].f {
		low, high = 1, 0
	}
	steepest := largestOf(x.d)
	insufficient := false
	for ; n < maxSearches && !done; n++ {
		left, right := min(ends[0].t, ends[1].t), max(ends[0].t, ends[1].t)
		if (right-left)*steepest < x.a.ToleranceChange {
			break
		}
		t := cubic(ends[0], ends[1], left, right)
		margin := 0.1 * (right - left)
		switch near := min(right-t, t-left) < margin; {
		case near && (insufficient || t >= right || t <= left):
			if math.Abs(t-right) < math.Abs(t-left) {
				t = right - margin
			} else {
				t = left + margin
			}
			insufficient = false
		default:
			insufficient = near
		}
		now := look(t)
		if now.f > start.f+wolfe1*t*start.slope || now.f >= ends[low].f {
			ends[high] = now
			if ends[0].f <= ends[1].f {
				low, high = 0, 1
			} else {
				low, high = 1, 0
			}
			continue
		}
		if math.Abs(now.slope) <= -wolfe2*start.slope {
			done = true
		} else if now.slope*(ends[high].t-ends[low].t) >= 0 {
			ends[high] = ends[low]
		}
		ends[low] = now
	}
	return ends[low]
}

// cubic is _cubic_interpolate: the minimum, between bounds, of the cubic through two
// points.
func cubic(a, b point, least, most float64) float64 {
	d1 := a.slope + b.slope - 3*(a.f-b.f)/(a.t-b.t)
	square := d1*d1 - a.slope*b.slope
	if square < 0 {
		return (least + most) / 2
	}
	d2 := math.Sqrt(square)
	t := 0.0
	if a.t <= b.t {
		t = b.t - (b.t-a.t)*((b.slope+d2-d1)/(b.slope-a.slope+2*d2))
	} else {
		t = a.t - (a.t-b.t)*((a.slope+d2-d1)/(a.slope-b.slope+2*d2))
	}
	return min(max(t, least), most)
}
