package array

// Affine is y = x wᵀ + bias for rows x of n elements; bias may be nil.
func Affine(x, w, bias []float64, n int) []float64 {
	outs := len(w) / max(n, 1)
	rows := len(x) / max(n, 1)
	y := make([]float64, rows*outs)
	for r := range rows {
		for o := range outs {
			sum := 0.0
			if bias != nil {
				sum = bias[o]
			}
			for k, v := range x[r*n : r*n+n] {
				sum += v * w[o*n+k]
			}
			y[r*outs+o] = sum
		}
	}
	return y
}

// affineGrad adds the gradients of Affine's operands to gx, gw and gbias.
func affineGrad(x, w, g []float64, n int, gx, gw, gbias []float64) {
	outs := len(w) / max(n, 1)
	for r := range len(x) / max(n, 1) {
		for o := range outs {
			v := g[r*outs+o]
			if gbias != nil {
				gbias[o] += v
			}
			for k := range n {
				gx[r*n+k] += v * w[o*n+k]
				gw[o*n+k] += v * x[r*n+k]
			}
		}
	}
}
