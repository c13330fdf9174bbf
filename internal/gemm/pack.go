package gemm

// Matrix is a matrix with any strides.
type Matrix[T Float] struct {
	Data          []T
	Rows, Columns int
	Row, Column   int // strides
}

// Transposed is the matrix with its rows as columns.
func (m Matrix[T]) Transposed() Matrix[T] {
	return Matrix[T]{m.Data, m.Columns, m.Rows, m.Column, m.Row}
}

// Part is n rows and k columns from one of each on.
func (m Matrix[T]) Part(i, n, j, k int) Matrix[T] {
	p := Matrix[T]{nil, n, k, m.Row, m.Column}
	if n > 0 && k > 0 {
		p.Data = m.Data[i*m.Row+j*m.Column:]
	}
	return p
}

// pack lays out the rows of a matrix in panels of so many: for each column the
// numbers of the panel's rows side by side. What is missing in the last one is 0.
func pack[T Float](to []T, m Matrix[T], width int) {
	for i := 0; i < m.Rows; i += width {
		n := min(width, m.Rows-i)
		panel := to[i*m.Columns:][:width*m.Columns]
		from := m.Part(i, n, 0, m.Columns)
		if n < width {
			clear(panel)
		}
		switch {
		case m.Row == 1:
			copyPanel(panel, from, width)
		case m.Column == 1:
			turnPanel(panel, from, width)
		default:
			for r := range n {
				at := r * m.Row
				for k := r; k < len(panel); k += width {
					panel[k] = from.Data[at]
					at += m.Column
				}
			}
		}
	}
}

// copyPanel packs rows whose numbers of one column lie side by side.
func copyPanel[T Float](panel []T, m Matrix[T], width int) {
	at := 0
	switch {
	case width == 6 && m.Rows == 6:
		for k := 0; k < len(panel); k += 6 {
			*(*[6]T)(panel[k:]) = *(*[6]T)(m.Data[at:])
			at += m.Column
		}
	case width == 16 && m.Rows == 16:
		for k := 0; k < len(panel); k += 16 {
			*(*[16]T)(panel[k:]) = *(*[16]T)(m.Data[at:])
			at += m.Column
		}
	default:
		for k := 0; k < len(panel); k += width {
			copy(panel[k:k+width], m.Data[at:at+m.Rows])
			at += m.Column
		}
	}
}

// turnPanel packs rows whose numbers lie side by side.
func turnPanel[T Float](panel []T, m Matrix[T], width int) {
	rows, columns := 0, 0
	if single, ok := any(panel).([]float32); ok {
		rows, columns = turnRows(single, any(m).(Matrix[float32]), width)
	}
	// What is left of those columns, and all of the others.
	turnPart(panel[:width*columns], m.Part(rows, m.Rows-rows, 0, columns), rows, width)
	turnPart(panel[width*columns:], m.Part(0, m.Rows, columns, m.Columns-columns), 0, width)
}

// turnPart packs rows behind others of a panel.
func turnPart[T Float](panel []T, m Matrix[T], behind, width int) {
	if m.Columns == 0 {
		return
	}
	r := 0
	for ; r+4 <= m.Rows; r += 4 {
		a, b, c, d := m.Data[r*m.Row:][:m.Columns], m.Data[(r+1)*m.Row:][:m.Columns], m.Data[(r+2)*m.Row:][:m.Columns], m.Data[(r+3)*m.Row:][:m.Columns]
		rest := panel[behind+r:]
		for k, v := range a {
			to := rest[:4]
			to[0], to[1], to[2], to[3] = v, b[k], c[k], d[k]
			rest = rest[min(width, len(rest)):]
		}
	}
	for ; r < m.Rows; r++ {
		at := behind + r
		for _, v := range m.Data[r*m.Row:][:m.Columns] {
			panel[at] = v
			at += width
		}
	}
}
