package gemm

import "golang.org/x/sys/cpu"

//go:noescape
func single512(depth int, a, b, c *float32, row int, alpha float32)

//go:noescape
func double512(depth int, a, b, c *float64, row int, alpha float64)

//go:noescape
func single256(depth int, a, b, c *float32, row int, alpha float32)

//go:noescape
func double256(depth int, a, b, c *float64, row int, alpha float64)

//go:noescape
func turn8(columns int, from *float32, row int, to *float32, width int)

//go:noescape
func turn6(columns int, from *float32, row int, to *float32, width int)

// turnRows packs as many rows and columns of a panel as the processor has
// instructions for, and says how many.
func turnRows(panel []float32, m Matrix[float32], width int) (rows, columns int) {
	if columns = m.Columns &^ 3; !hasAVX2 || columns == 0 {
		return 0, 0
	}
	_ = m.Data[(m.Rows-1)*m.Row+m.Columns-1]
	_ = panel[width*m.Columns-1]
	for ; rows+8 <= m.Rows; rows += 8 {
		turn8(columns, &m.Data[rows*m.Row], m.Row, &panel[rows], width)
	}
	if m.Rows-rows == 6 {
		turn6(columns, &m.Data[rows*m.Row], m.Row, &panel[rows], width)
		rows += 6
	}
	return rows, columns
}

var (
	hasAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ
	hasAVX2   = cpu.X86.HasAVX2 && cpu.X86.HasFMA
)

func singleKernels() (list []*kernel[float32]) {
	if hasAVX512 {
		list = append(list, &kernel[float32]{"AVX-512", 12, 32, single512})
	}
	if hasAVX2 {
		list = append(list, &kernel[float32]{"AVX2", 6, 16, single256})
	}
	return list
}

func doubleKernels() (list []*kernel[float64]) {
	if hasAVX512 {
		list = append(list, &kernel[float64]{"AVX-512", 12, 16, double512})
	}
	if hasAVX2 {
		list = append(list, &kernel[float64]{"AVX2", 6, 8, double256})
	}
	return list
}
