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

// Packed is a right operand that is laid out for several products.
type Packed[T Float] struct {
	rows, columns int
	data          []T // parts of Depth rows
}

// Pack lays out a right operand.
func Pack[T Float](b Matrix[T]) *Packed[T] {
	k := kernels[T]()[0]
	wide := up(b.Columns, k.columns)
	r := &Packed[T]{b.Rows, b.Columns, make([]T, b.Rows*wide)}
	for p := 0; p < b.Rows; p += Depth {
		d := min(Depth, b.Rows-p)
		pack(r.data[p*wide:], b.Part(p, d, 0, b.Columns).Transposed(), k.columns)
	}
	return r
}

// Add adds alpha * a b to c, of which b is the packed operand.
func (b *Packed[T]) Add(alpha T, a, c Matrix[T]) {
	k := kernels[T]()[0]
	left, done := borrow[T](up(min(tileRows, c.Rows), k.rows) * Depth)
	defer done()
	for p := 0; p < b.rows; p += Depth {
		d := min(Depth, b.rows-p)
		right := b.data[p*up(b.columns, k.columns):]
		for i := 0; i < c.Rows; i += tileRows {
			m := min(tileRows, c.Rows-i)
			pack(left, a.Part(i, m, p, d), k.rows)
			k.add(alpha, d, left, right, c.Part(i, m, 0, c.Columns))
		}
	}
}

func up(n, to int) int { return (n + to - 1) / to * to }

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
