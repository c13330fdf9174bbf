package gemm

import (
	"sync"
	"unsafe"
)

// Depth is how many products are summed before they are added to the result.
const Depth = 256

// A tile of the result is computed in parts of Depth: the packed operands stay in a
// cache of the second level.
const (
	tileRows    = 192
	tileColumns = 384
)

// Left is how many numbers a packed left operand of so many rows has for each place
// of its depth.
func Left[T Float](rows int) int { return up(rows, kernels[T]()[0].rows) }

// Right is that of a right operand of so many columns.
func Right[T Float](columns int) int { return up(columns, kernels[T]()[0].columns) }

func up(n, to int) int { return (n + to - 1) / to * to }

// PackLeft lays out a part of the left operand, of at most Depth columns.
func PackLeft[T Float](to []T, m Matrix[T]) { pack(to, m, kernels[T]()[0].rows) }

// PackRight lays out a part of the right operand, of at most Depth rows.
func PackRight[T Float](to []T, m Matrix[T]) { pack(to, m.Transposed(), kernels[T]()[0].columns) }

// AddPacked adds alpha times the product of two packed operands to c.
func AddPacked[T Float](alpha T, depth int, a, b []T, c Matrix[T]) {
	kernels[T]()[0].add(alpha, depth, a, b, c)
}

func (k *kernel[T]) add(alpha T, depth int, a, b []T, c Matrix[T]) {
	if c.Rows == 0 || c.Columns == 0 || depth == 0 {
		return
	}
	var edge []T // a tile that does not fit into c
	for j := 0; j < c.Columns; j += k.columns {
		panel := &b[j*depth]
		columns := min(k.columns, c.Columns-j)
		for i := 0; i < c.Rows; i += k.rows {
			rows := min(k.rows, c.Rows-i)
			if rows == k.rows && columns == k.columns && c.Column == 1 {
				at := i*c.Row + j
				_ = c.Data[at+(rows-1)*c.Row+columns-1]
				k.run(depth, &a[i*depth], panel, &c.Data[at], c.Row, alpha)
				continue
			}
			if edge == nil {
				var done func()
				edge, done = borrow[T](k.rows * k.columns)
				defer done()
			}
			part := c.Part(i, rows, j, columns)
			for y := range rows {
				for x := range columns {
					edge[y*k.columns+x] = part.Data[y*c.Row+x*c.Column]
				}
			}
			k.run(depth, &a[i*depth], panel, &edge[0], k.columns, alpha)
			for y := range rows {
				for x := range columns {
					part.Data[y*c.Row+x*c.Column] = edge[y*k.columns+x]
				}
			}
		}
	}
}

// Add adds alpha * a b to c.
func Add[T Float](alpha T, a, b, c Matrix[T]) { kernels[T]()[0].product(alpha, a, b, c) }

func (k *kernel[T]) product(alpha T, a, b, c Matrix[T]) {
	if c.Row == 1 && c.Column != 1 {
		a, b, c = b.Transposed(), a.Transposed(), c.Transposed()
	}
	if c.Rows == 0 || c.Columns == 0 || a.Columns == 0 {
		return
	}
	rows, columns, depth := min(tileRows, c.Rows), min(tileColumns, c.Columns), min(Depth, a.Columns)
	left, done := borrow[T](up(rows, k.rows) * depth)
	defer done()
	right, doneRight := borrow[T](up(columns, k.columns) * depth)
	defer doneRight()
	for j := 0; j < c.Columns; j += columns {
		n := min(columns, c.Columns-j)
		for p := 0; p < a.Columns; p += depth {
			d := min(depth, a.Columns-p)
			pack(right, b.Part(p, d, j, n).Transposed(), k.columns)
			for i := 0; i < c.Rows; i += rows {
				m := min(rows, c.Rows-i)
				pack(left, a.Part(i, m, p, d), k.rows)
				k.add(alpha, d, left, right, c.Part(i, m, j, n))
			}
		}
	}
}

// Memory is held between calls.
var pool32, pool64 sync.Pool

// borrow returns n numbers, whatever was left in them, and what gives them back.
func borrow[T Float](n int) ([]T, func()) {
	pool := &pool64
	if unsafe.Sizeof(T(0)) == 4 {
		pool = &pool32
	}
	p, _ := pool.Get().(*[]T)
	if p == nil || cap(*p) < n {
		s := make([]T, n)
		p = &s
	}
	return (*p)[:n], func() { pool.Put(p) }
}
