package array

import "math"

// Normalization is one where element i belongs to one of so many groups of one mean and
// variance each, and to one of so many weights.
type Normalization struct {
	Groups, Weights int
	Group, Weight   func(i int) int
}

// OverLast normalizes rows of n elements.
func OverLast(n, numel int) *Normalization {
	return &Normalization{numel / max(n, 1), n, func(i int) int { return i / n }, func(i int) int { return i % n }}
}

// OverChannels normalizes each channel of images.
func OverChannels(size []int) *Normalization {
	inner := Numel(size[2:])
	channel := func(i int) int { return i / inner % size[1] }
	return &Normalization{size[1], size[1], channel, channel}
}

// OverGroups normalizes groups of the channels of each image.
func OverGroups(size []int, groups int) *Normalization {
	inner := Numel(size[2:])
	each := size[1] / groups * inner
	return &Normalization{size[0] * groups, size[1], func(i int) int { return i / each }, func(i int) int { return i / inner % size[1] }}
}

// Moments are the mean and the variance of each group, and of how many elements.
func (n *Normalization) Moments(x []float64) (mean, variance []float64, count float64) {
	mean, variance = make([]float64, n.Groups), make([]float64, n.Groups)
	count = n.count(x)
	for i, v := range x {
		mean[n.Group(i)] += v / count
	}
	for i, v := range x {
		d := v - mean[n.Group(i)]
		variance[n.Group(i)] += d * d / count
	}
	return mean, variance, count
}

func (n *Normalization) count(x []float64) float64 {
	return float64(len(x)) / float64(max(n.Groups, 1))
}

// Rstd are reciprocal standard deviations.
func Rstd(variance []float64, eps float64) []float64 {
	return Each(len(variance), func(i int) float64 { return 1 / math.Sqrt(variance[i]+eps) })
}

// or is element k of numbers that may be absent.
func or(v []float64, k int, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return v[k]
}

// Forward is the result by statistics; weight and bias may be nil.
func (n *Normalization) Forward(x, mean, rstd, weight, bias []float64) []float64 {
	return Each(len(x), func(i int) float64 {
		g, w := n.Group(i), n.Weight(i)
		return (x[i]-mean[g])*rstd[g]*or(weight, w, 1) + or(bias, w, 0)
	})
}

// Backward gives the gradients of the input, where the statistics are its own or
// not, of the weight and of the bias.
func (n *Normalization) Backward(x, g, mean, rstd, weight []float64, own bool) (gx, gw, gb []float64) {
	gx, gw, gb = make([]float64, len(x)), make([]float64, n.Weights), make([]float64, n.Weights)
	sum, dot := make([]float64, n.Groups), make([]float64, n.Groups)
	count := n.count(x)
	for i, v := range g {
		k, w := n.Group(i), n.Weight(i)
		unit := (x[i] - mean[k]) * rstd[k]
		gw[w] += v * unit
		gb[w] += v
		v *= or(weight, w, 1)
		sum[k] += v / count
		dot[k] += v * unit / count
	}
	for i, v := range g {
		k := n.Group(i)
		v *= or(weight, n.Weight(i), 1)
		if own {
			v -= sum[k] + (x[i]-mean[k])*rstd[k]*dot[k]
		}
		gx[i] = v * rstd[k]
	}
	return gx, gw, gb
}
