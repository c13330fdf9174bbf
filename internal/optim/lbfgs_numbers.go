package optim

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/op"
)

// lbfgsNumbers are the values that LBFGS computes with, beside the tensors that
// stand for them; without Values, whatever is asked says that the step goes on.
type lbfgsNumbers struct {
	n  Values
	a  *lbfgsArgs
	ps []*Param

	loss, lossBefore float64
	g, gBefore       []float64 // the gradient, and that of the iteration before
	d                []float64 // the direction
	t                float64   // the step size
	dirs, steps      [][]float64
	ros              []float64
	diagonal         float64
}

func (x *lbfgsNumbers) begin(n Values, a *lbfgsArgs, ps []*Param, loss *op.Tensor) {
	x.n, x.a, x.ps = n, a, ps
	if n != nil {
		x.evaluated(n.Read(loss)[0])
	}
}

// evaluated takes over what the closure has computed.
func (x *lbfgsNumbers) evaluated(loss float64) {
	if x.n == nil {
		return
	}
	x.loss, x.g = loss, nil
	for _, p := range x.ps {
		if p.Grad == nil {
			x.g = append(x.g, make([]float64, p.T.Numel())...)
			continue
		}
		x.g = append(x.g, x.n.Read(p.Grad)...)
	}
}

// move adds t times the direction to the parameters.
func (x *lbfgsNumbers) move(t float64) {
	if x.n == nil {
		return
	}
	at := 0
	for _, p := range x.ps {
		v := x.n.Read(p.T)
		for i := range v {
			v[i] += t * x.d[at+i]
		}
		at += len(v)
		x.n.Write(p.T, v)
	}
}

func dotOf(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func largestOf(v []float64) float64 {
	most := 0.0
	for _, f := range v {
		most = max(most, math.Abs(f))
	}
	return most
}

// times is v multiplied by a number.
func times(v []float64, by float64) []float64 {
	out := make([]float64, len(v))
	for i, f := range v {
		out[i] = f * by
	}
	return out
}

// addTo adds a multiple of b to a.
func addTo(a []float64, by float64, b []float64) {
	for i := range a {
		a[i] += by * b[i]
	}
}

// The conditions on which iterations end.

func (x *lbfgsNumbers) converged() bool { return x.n != nil && largestOf(x.g) <= x.a.ToleranceGrad }

func (x *lbfgsNumbers) flat() bool { return x.n != nil && dotOf(x.g, x.d) > -x.a.ToleranceChange }

func (x *lbfgsNumbers) stuck() bool {
	return x.n != nil && (largestOf(times(x.d, x.t)) <= x.a.ToleranceChange || math.Abs(x.loss-x.lossBefore) < x.a.ToleranceChange)
}

// differences are those of the gradients of two iterations, and the step between.
func (x *lbfgsNumbers) differences() (y, s []float64) {
	y = slices.Clone(x.g)
	addTo(y, -1, x.gBefore)
	return y, times(x.d, x.t)
}

// curved reports whether the history is to be updated.
func (x *lbfgsNumbers) curved() bool {
	if x.n == nil {
		return true
	}
	y, s := x.differences()
	return dotOf(y, s) > 1e-10
}

// whole reports whether the first step size is 1.0 times lr.
func (x *lbfgsNumbers) whole() bool { return x.n != nil && 1/sumOf(x.g) >= 1 }

func sumOf(v []float64) float64 {
	sum := 0.0
	for _, f := range v {
		sum += math.Abs(f)
	}
	return sum
}

// direction computes the direction and the step size to try.
func (x *lbfgsNumbers) direction(first bool) {
	if x.n == nil {
		return
	}
	if first {
		x.d, x.diagonal, x.t = times(x.g, -1), 1, min(1, 1/sumOf(x.g))*x.a.LR
	} else {
		x.remember()
		alphas := make([]float64, len(x.dirs))
		q := times(x.g, -1)
		for i := len(x.dirs) - 1; i >= 0; i-- {
			alphas[i] = dotOf(x.steps[i], q) * x.ros[i]
			addTo(q, -alphas[i], x.dirs[i])
		}
		x.d, x.t = times(q, x.diagonal), x.a.LR
		for i := range x.dirs {
			addTo(x.d, alphas[i]-dotOf(x.dirs[i], x.d)*x.ros[i], x.steps[i])
		}
	}
	x.gBefore, x.lossBefore = x.g, x.loss
}

func (x *lbfgsNumbers) remember() {
	if !x.curved() {
		return
	}
	y, s := x.differences()
	if int64(len(x.dirs)) == x.a.HistorySize {
		x.dirs, x.steps, x.ros = x.dirs[1:], x.steps[1:], x.ros[1:]
	}
	ys := dotOf(y, s)
	x.dirs, x.steps, x.ros = append(x.dirs, y), append(x.steps, s), append(x.ros, 1/ys)
	x.diagonal = ys / dotOf(y, y)
}
