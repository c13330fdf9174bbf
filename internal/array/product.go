package array

// Trilinear is y[r,o] = Σ x1[r,i] w[o,i,j] x2[r,j].
func Trilinear(x1, w, x2 *Array) []float64 {
	y := make([]float64, x1.Size[0]*w.Size[0])
	trilinear(x1, w, func(to, at1, atw, at2 int) { y[to] += x1.V[at1] * w.V[atw] * x2.V[at2] })
	return y
}

// TrilinearGrad gives the gradients of the three operands.
func TrilinearGrad(x1, w, x2 *Array, g []float64) (g1, gw, g2 []float64) {
	g1, gw, g2 = make([]float64, len(x1.V)), make([]float64, len(w.V)), make([]float64, len(x2.V))
	trilinear(x1, w, func(to, at1, atw, at2 int) {
		v := g[to]
		g1[at1] += v * w.V[atw] * x2.V[at2]
		gw[atw] += v * x1.V[at1] * x2.V[at2]
		g2[at2] += v * x1.V[at1] * w.V[atw]
	})
	return g1, gw, g2
}

// trilinear calls f with the places of an element of the result and of its factors.
func trilinear(x1, w *Array, f func(to, at1, atw, at2 int)) {
	outs, n, m := w.Size[0], w.Size[1], w.Size[2]
	for row := range x1.Size[0] {
		for o := range outs {
			for i := range n {
				for j := range m {
					f(row*outs+o, row*n+i, (o*n+i)*m+j, row*m+j)
				}
			}
		}
	}
}

// Eye is a matrix with ones on its diagonal.
func Eye(rows, columns int) []float64 {
	v := make([]float64, rows*columns)
	for i := range min(rows, columns) {
		v[i*columns+i] = 1
	}
	return v
}

// Linspace are numbers at equal distances, counted from both ends as PyTorch's kernel.
func Linspace(start, end float64, n int) []float64 {
	step := 0.0
	if n > 1 {
		step = (end - start) / float64(n-1)
	}
	return Each(n, func(i int) float64 {
		if i < n/2 {
			return start + step*float64(i)
		}
		return end - step*float64(n-1-i)
	})
}
