package array

import "math"

// CrossMapNorm is what nn.CrossMapLRN2d computes of x, of samples of channels of so
// many numbers: x divided by a power of scale, the squares summed over a window of
// channels, which from channel pad on still has the first
// (torch/nn/modules/_functions.py).
func CrossMapNorm(x []float64, samples, channels, numbers int, size int, alpha, beta, k float64) (y, scale []float64) {
	y, scale = make([]float64, len(x)), make([]float64, len(x))
	pad := (size-1)/2 + 1
	for n := range samples {
		for i := range numbers {
			at := func(c int) int { return (n*channels+c)*numbers + i }
			sum := 0.0
			for c := range min(pad, channels) {
				sum += x[at(c)] * x[at(c)]
			}
			for c := range channels {
				if next := c + pad - 1; c > 0 && next < channels {
					sum += x[at(next)] * x[at(next)]
				}
				if c > pad {
					sum -= x[at(c-pad)] * x[at(c-pad)]
				}
				scale[at(c)] = sum*alpha/float64(size) + k
				y[at(c)] = math.Pow(scale[at(c)], -beta) * x[at(c)]
			}
		}
	}
	return y, scale
}

// CrossMapNormGrad is its derivative, as its backward computes it, of the gradient g.
func CrossMapNormGrad(g, x, y, scale []float64, samples, channels, numbers int, size int, alpha, beta float64) []float64 {
	out := make([]float64, len(x))
	before := (size + 1) / 2 // zeros in front of the channels
	ratio := make([]float64, channels+size-1)
	for n := range samples {
		for i := range numbers {
			at := func(c int) int { return (n*channels+c)*numbers + i }
			for c := range channels {
				ratio[before+c] = g[at(c)] * y[at(c)] / scale[at(c)]
			}
			sum := 0.0
			for _, r := range ratio[:size-1] {
				sum += r
			}
			for c := range channels {
				sum += ratio[c+size-1]
				out[at(c)] = math.Pow(scale[at(c)], -beta)*g[at(c)] - 2*alpha*beta/float64(size)*x[at(c)]*sum
				sum -= ratio[c]
			}
		}
	}
	return out
}
