package array

import "github.com/memplan/memplan/internal/gemm"

// Float are the types that products are computed in.
type Float interface{ gemm.Float }

// rowsOf are numbers as a matrix with rows of n elements.
func rowsOf[T Float](v []T, n int) gemm.Matrix[T] {
	return gemm.Matrix[T]{Data: v, Rows: len(v) / max(n, 1), Columns: n, Row: n, Column: 1}
}

// Affine is y = x wᵀ + bias for rows x of n elements; bias may be nil.
func Affine[T Float](x, w, bias []T, n int) []T {
	outs := len(w) / max(n, 1)
	y := make([]T, len(x)/max(n, 1)*outs)
	for r := 0; r < len(y) && bias != nil; r += outs {
		copy(y[r:], bias)
	}
	gemm.Add(1, rowsOf(x, n), rowsOf(w, n).Transposed(), rowsOf(y, outs))
	return y
}

// affineGrad adds the gradients of Affine's operands to gx, gw and gbias, each of which
// may be nil.
func affineGrad[T Float](x, w, g []T, n int, gx, gw, gbias []T) {
	outs := len(w) / max(n, 1)
	grads := rowsOf(g, outs)
	if gx != nil {
		gemm.Add(1, grads, rowsOf(w, n), rowsOf(gx, n))
	}
	if gw != nil {
		gemm.Add(1, grads.Transposed(), rowsOf(x, n), rowsOf(gw, n))
	}
	for r := 0; r < len(g) && gbias != nil; r += outs {
		for o, v := range g[r : r+outs] {
			gbias[o] += v
		}
	}
}
