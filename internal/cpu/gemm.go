package cpu

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/memplan/memplan/internal/kernel"
)

// Matrix products are made of dot products of rows: c[i,j] = a[i,:]·b[j,:], both
// with their elements side by side. Operands that lie otherwise are copied
// first. That is gonum's fastest loop and, unlike the others, it does not leave
// out what is multiplied by 0, so that 0 times NaN is NaN as in PyTorch.

// A tile of the result is computed by one goroutine, over parts of the sum that
// stay in its cache. gonum divides nothing further up to this size.
const (
	tileRows    = 64
	tileColumns = 128
	tileDepth   = 512
)

// matrix is an operand of two dimensions, with any strides.
type matrix[T float] struct {
	data          []T
	rows, columns int
	row, column   int // strides
}

// at is the matrix from an element on.
func (m matrix[T]) at(i, j int) []T { return m.data[i*m.row+j*m.column:] }

func (m matrix[T]) transposed() matrix[T] {
	return matrix[T]{m.data, m.columns, m.rows, m.column, m.row}
}

// sideBySide reports whether the elements of a row are, as BLAS wants them.
func (m matrix[T]) sideBySide() bool {
	return (m.column == 1 || m.columns == 1) && (m.row >= m.columns || m.rows == 1)
}

// copyTo copies rows from .. to side by side, each of width elements.
func (m matrix[T]) copyTo(to []T, from, until int) {
	n := m.columns
	if m.column == 1 {
		for i := from; i < until; i++ {
			copy(to[i*n:(i+1)*n], m.at(i, 0))
		}
		return
	}
	const block = 16 // rows and columns that share cache lines
	for i0 := from; i0 < until; i0 += block {
		for j0 := 0; j0 < n; j0 += block {
			for j := j0; j < min(j0+block, n); j++ {
				column := m.at(0, j)
				for i := i0; i < min(i0+block, until); i++ {
					to[i*n+j] = column[i*m.row]
				}
			}
		}
	}
}

// packed is the matrix with its elements side by side, and what gives a copy
// back.
func (m matrix[T]) packed() (matrix[T], func()) {
	if m.sideBySide() {
		return m, func() {}
	}
	to, done := borrow[T](m.rows * m.columns)
	parallel(m.rows, max(16, grain/max(m.columns, 1)), func(from, until int) { m.copyTo(to, from, until) })
	return matrix[T]{to, m.rows, m.columns, m.columns, 1}, done
}

// dot adds alpha * a[i,:]·b[j,:] to c[i,j], for all rows of a and b. All lie
// side by side.
func dot[T float](alpha T, a, b, c matrix[T]) {
	for k := 0; k < a.columns; k += tileDepth {
		depth := min(tileDepth, a.columns-k)
		for i := 0; i < a.rows; i += tileRows {
			m := min(tileRows, a.rows-i)
			for j := 0; j < b.rows; j += tileColumns {
				dotTile(m, min(tileColumns, b.rows-j), depth, alpha, a.at(i, k), max(a.row, depth), b.at(j, k), max(b.row, depth), c.at(i, j), max(c.row, b.rows))
			}
		}
	}
}

func dotTile[T float](m, n, k int, alpha T, a []T, lda int, b []T, ldb int, c []T, ldc int) {
	switch a := any(a).(type) {
	case []float32:
		gonum.Implementation{}.Sgemm(blas.NoTrans, blas.Trans, m, n, k, float32(alpha), a, lda, any(b).([]float32), ldb, 1, any(c).([]float32), ldc)
	case []float64:
		gonum.Implementation{}.Dgemm(blas.NoTrans, blas.Trans, m, n, k, float64(alpha), a, lda, any(b).([]float64), ldb, 1, any(c).([]float64), ldc)
	}
}

// multiply is c = alpha * a bᵀ + beta * bias; b is given transposed, bias has c's
// sizes or no data.
func multiply[T float](alpha, beta T, a, b, c, bias matrix[T]) {
	if c.column != 1 && c.row == 1 {
		a, b, c, bias = b, a, c.transposed(), bias.transposed()
	}
	a, doneA := a.packed()
	defer doneA()
	b, doneB := b.packed()
	defer doneB()
	down, across := (c.rows+tileRows-1)/tileRows, (c.columns+tileColumns-1)/tileColumns
	direct := c.sideBySide()
	worth := max(1, (1<<18)/max(1, min(c.rows, tileRows)*min(c.columns, tileColumns)*max(a.columns, 1)))
	parallel(down*across, worth, func(from, to int) {
		for tile := from; tile < to; tile++ {
			i, j := tile/across*tileRows, tile%across*tileColumns
			m, n := min(tileRows, c.rows-i), min(tileColumns, c.columns-j)
			part := matrix[T]{c.at(i, j), m, n, c.row, 1}
			done := func() {}
			if !direct {
				var data []T
				data, done = borrow[T](m * n)
				part = matrix[T]{data, m, n, n, 1}
			}
			part.start(beta, bias, i, j)
			if a.columns > 0 {
				dot(alpha, matrix[T]{a.at(i, 0), m, a.columns, a.row, 1}, matrix[T]{b.at(j, 0), n, b.columns, b.row, 1}, part)
			}
			if !direct {
				for y := range m {
					for x := range n {
						c.data[(i+y)*c.row+(j+x)*c.column] = part.data[y*n+x]
					}
				}
			}
			done()
		}
	})
}

// start writes what is added to: zeros, or a part of the bias.
func (m matrix[T]) start(beta T, bias matrix[T], i, j int) {
	for y := range m.rows {
		row := m.data[y*m.row:][:m.columns]
		if bias.data == nil {
			clear(row)
			continue
		}
		from := bias.at(i+y, j)
		for x := range row {
			row[x] = beta * from[x*bias.column]
		}
	}
}

// matrixOf is matrix n of a batch.
func matrixOf[T float](l *launch, operand, n int) matrix[T] {
	data := view[T](l, operand)
	if data != nil {
		data = data[n*l.stride(operand, 0):]
	}
	return matrix[T]{data, l.size(operand, 1), l.size(operand, 2), l.stride(operand, 1), l.stride(operand, 2)}
}

func gemm[T float](l *launch) error {
	n, i, k, j := l.size(0, 0), l.size(0, 1), l.size(1, 2), l.size(0, 2)
	if err := first(l.shape(0, n, i, j), l.shape(1, n, i, k), l.shape(2, n, k, j), l.shape(3, n, i, j)); err != nil {
		return err
	}
	if n*i*j == 0 {
		return nil
	}
	alpha, beta := T(l.call.F[0]), T(l.call.F[1])
	each := max(1, (1<<18)/max(1, i*j*k)) // small ones are computed whole
	parallel(n, each, func(from, to int) {
		for at := from; at < to; at++ {
			var bias matrix[T]
			if l.has(3) {
				bias = matrixOf[T](l, 3, at)
			}
			multiply(alpha, beta, matrixOf[T](l, 1, at), matrixOf[T](l, 2, at).transposed(), matrixOf[T](l, 0, at), bias)
		}
	})
	return nil
}

// gemmRows are products of matrices.
var gemmRows = map[*kernel.Kernel]row{kernel.Gemm: floats(gemm[float32], gemm[float64])}
