package cpu

import (
	"fmt"

	"github.com/memplan/memplan/internal/gemm"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
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

// operand is the matrix as package gemm knows it.
func (m matrix[T]) operand() gemm.Matrix[T] {
	return gemm.Matrix[T]{Data: m.data, Rows: m.rows, Columns: m.columns, Row: m.row, Column: m.column}
}

// dot adds alpha * a[i,:]·b[j,:] to c[i,j], for all rows of a and b.
func dot[T float](alpha T, a, b, c matrix[T]) {
	gemm.Add(alpha, a.operand(), b.transposed().operand(), c.operand())
}

// A result is divided into parts that are worth a goroutine; all of the sums in one
// are made there.
const (
	partRows    = 192
	partColumns = 384
)

// multiply is c = alpha * a b + beta * bias; bias has c's sizes or no data.
func multiply[T float](alpha, beta T, a, b, c, bias matrix[T]) {
	if c.column != 1 && c.row == 1 {
		a, b, c, bias = b.transposed(), a.transposed(), c.transposed(), bias.transposed()
	}
	rows, columns := partRows, partColumns
	for columns > 96 && ((c.rows+rows-1)/rows)*((c.columns+columns-1)/columns) < few {
		rows, columns = rows/2, columns/2
	}
	down, across := (c.rows+rows-1)/rows, (c.columns+columns-1)/columns
	worth := max(1, (1<<20)/max(1, min(c.rows, rows)*min(c.columns, columns)*max(a.columns, 1)))
	parallel(down*across, worth, func(from, to int) {
		for tile := from; tile < to; tile++ {
			i, j := tile/across*rows, tile%across*columns
			m, n := min(rows, c.rows-i), min(columns, c.columns-j)
			part := matrix[T]{c.at(i, j), m, n, c.row, c.column}
			part.start(beta, bias, i, j)
			if a.columns > 0 {
				dot(alpha, matrix[T]{a.at(i, 0), m, a.columns, a.row, a.column}, matrix[T]{b.at(0, j), a.columns, n, b.row, b.column}.transposed(), part)
			}
		}
	})
}

// start writes what is added to: zeros, or a part of the bias.
func (m matrix[T]) start(beta T, bias matrix[T], i, j int) {
	for y := range m.rows {
		row := m.data[y*m.row:]
		switch {
		case bias.data != nil:
			from := bias.at(i+y, j)
			for x := range m.columns {
				row[x*m.column] = beta * from[x*bias.column]
			}
		case m.column == 1:
			clear(row[:m.columns])
		default:
			for x := range m.columns {
				row[x*m.column] = 0
			}
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

func products[T float](l *launch) error {
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
			multiply(alpha, beta, matrixOf[T](l, 1, at), matrixOf[T](l, 2, at), matrixOf[T](l, 0, at), bias)
		}
	})
	return nil
}

// groupedProducts are those of parts, one by one.
func groupedProducts[T float](l *launch) error {
	const c, a, b, offs = 0, 1, 2, 3
	groups, divided := l.size(offs, 0), l.call.I[0]
	m, n, k := l.size(c, 1), l.size(c, 2), l.size(a, 2)
	of := func(is bool) int {
		if is {
			return groups
		}
		return 1
	}
	if err := first(l.shape(c, of(divided == 2), m, n), l.shape(a, of(divided == 1), m, k), l.shape(b, of(divided == 0), k, n)); err != nil {
		return err
	}
	limit := []int{m, n, k}[divided]
	part := func(operand, group int, whole bool) matrix[T] {
		if whole {
			group = 0
		}
		return matrixOf[T](l, operand, group)
	}
	start := 0
	for g := range groups {
		end := int(l.integer(offs, tensor.Int32, g*l.stride(offs, 0)))
		if end < start || end > limit {
			return fmt.Errorf("part %d ends at %d, after one that ends at %d, of %d", g, end, start, limit)
		}
		if m*n == 0 || end == start && divided != 2 {
			continue
		}
		y, left, right := part(c, g, divided != 2), part(a, g, divided != 1), part(b, g, divided != 0)
		switch n := end - start; {
		case divided == 0:
			y, left = y.rowsFrom(start, n), left.rowsFrom(start, n)
		case divided == 1:
			y, right = y.columnsFrom(start, n), right.columnsFrom(start, n)
		default:
			left, right = left.columnsFrom(start, n), right.rowsFrom(start, n)
		}
		multiply(1, 0, left, right, y, matrix[T]{})
		start = end
	}
	return nil
}

// rowsFrom are some rows of a matrix, columnsFrom some columns.
func (m matrix[T]) rowsFrom(from, n int) matrix[T] {
	m.rows = n
	if n > 0 && m.columns > 0 {
		m.data = m.at(from, 0)
	}
	return m
}

func (m matrix[T]) columnsFrom(from, n int) matrix[T] {
	return m.transposed().rowsFrom(from, n).transposed()
}

// gemmRows are products of matrices.
var gemmRows = map[*kernel.Kernel]row{
	kernel.Gemm:        floats(products[float32], products[float64]),
	kernel.GroupedGemm: floats(groupedProducts[float32], groupedProducts[float64]),
}
