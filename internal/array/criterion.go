package array

import "math"

// Losses of the distance d of an input to its target, and their slopes
// (aten/src/ATen/native/Loss.cpp).

// SmoothL1 is the square near the target and the distance beyond beta.
func SmoothL1(d, beta float64) float64 {
	if d = math.Abs(d); d < beta {
		return 0.5 * d * d / beta
	}
	return d - 0.5*beta
}

// SmoothL1Slope is its derivative.
func SmoothL1Slope(d, beta float64) float64 {
	if math.Abs(d) < beta {
		return d / beta
	}
	return Sign(d)
}

// Huber is the square near the target and a multiple of the distance beyond delta.
func Huber(d, delta float64) float64 {
	if d = math.Abs(d); d <= delta {
		return 0.5 * d * d
	}
	return delta * (d - 0.5*delta)
}

// HuberSlope is its derivative.
func HuberSlope(d, delta float64) float64 { return min(max(d, -delta), delta) }

// leastLog is the least logarithm that CrossEntropy knows.
const leastLog = -100

// CrossEntropy is that of a probability p and a target.
func CrossEntropy(p, target, weight float64) float64 {
	return -weight * (target*max(math.Log(p), leastLog) + (1-target)*max(math.Log1p(-p), leastLog))
}

// CrossEntropySlopes are its derivatives by p and by the target.
func CrossEntropySlopes(p, target, weight float64) (byP, byTarget float64) {
	return weight * (p - target) / max((1-p)*p, 1e-12), weight * (max(math.Log1p(-p), leastLog) - max(math.Log(p), leastLog))
}

// LogitEntropy is the cross entropy of sigmoid(x), positive targets counting with a
// weight of their own.
func LogitEntropy(x, target, weight, positive float64) float64 {
	return weight * ((1-target)*x - (1+(positive-1)*target)*logSigmoid(x))
}

// LogitEntropySlopes are its derivatives by x and by the target.
func LogitEntropySlopes(x, target, weight, positive float64) (byX, byTarget float64) {
	t := positive * target
	return weight * ((t+1-target)*Logistic(x) - t), weight * (logSigmoid(-x) - positive*logSigmoid(x))
}

// rows are the rows of an input of classes, or the one.
func (a *Array) rows() (rows, classes int) {
	classes = a.Size[len(a.Size)-1]
	return len(a.V) / classes, classes
}

// Margin is the loss of the margins between a row's class and all others.
type Margin struct {
	Margin float64
	P      int64
	Weight []float64 // of the classes; nil: 1
}

// hinge calls f for each class that counts, with its share of the loss.
func (m *Margin) hinge(x *Array, target []float64, f func(i, k, y int, margin, w float64)) {
	rows, n := x.rows()
	for i := range rows {
		y, w := int(target[i]), 1/float64(n)
		if m.Weight != nil {
			w *= m.Weight[y]
		}
		for k := range n {
			if z := m.Margin - x.V[i*n+y] + x.V[i*n+k]; k != y && z > 0 {
				f(i, k, y, z, w)
			}
		}
	}
}

// Losses are those of the rows.
func (m *Margin) Losses(x *Array, target []float64) []float64 {
	rows, _ := x.rows()
	losses := make([]float64, rows)
	m.hinge(x, target, func(i, _, _ int, z, w float64) { losses[i] += w * math.Pow(z, float64(m.P)) })
	return losses
}

// Grad is the gradient of the input, by those of the rows.
func (m *Margin) Grad(x *Array, target, g []float64) []float64 {
	_, n := x.rows()
	out := make([]float64, len(x.V))
	m.hinge(x, target, func(i, k, y int, z, w float64) {
		d := g[i] * w
		if m.P == 2 {
			d *= 2 * z
		}
		out[i*n+k] += d
		out[i*n+y] -= d
	})
	return out
}

// multilabel calls f for each pair of a class of a row and one that is none, whose
// margin counts, and returns which are classes: those before the first negative one.
func multilabel(x *Array, target []float64, f func(i, k, y int, margin float64)) (is []float64) {
	rows, n := x.rows()
	is = make([]float64, len(x.V))
	for i := range rows {
		var classes []int
		for k := range n {
			y := int(target[i*n+k])
			if y < 0 || y >= n {
				break
			}
			classes = append(classes, y)
			is[i*n+y] = 1
		}
		for _, y := range classes {
			for k := range n {
				if z := 1 - x.V[i*n+y] + x.V[i*n+k]; is[i*n+k] == 0 && z > 0 {
					f(i, k, y, z)
				}
			}
		}
	}
	return is
}

// Multilabel is the loss, by row, of the margins between a row's classes and all others,
// and which are its classes.
func Multilabel(x *Array, target []float64) (losses, is []float64) {
	rows, n := x.rows()
	losses = make([]float64, rows)
	is = multilabel(x, target, func(i, _, _ int, z float64) { losses[i] += z / float64(n) })
	return losses, is
}

// MultilabelGrad is the gradient of the input, by those of the rows.
func MultilabelGrad(x *Array, target, g []float64) []float64 {
	_, n := x.rows()
	out := make([]float64, len(x.V))
	multilabel(x, target, func(i, k, y int, _ float64) {
		out[i*n+k] += g[i] / float64(n)
		out[i*n+y] -= g[i] / float64(n)
	})
	return out
}
