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
