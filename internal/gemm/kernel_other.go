//go:build !amd64 && !arm64

package gemm

func singleKernels() []*kernel[float32] { return nil }

func doubleKernels() []*kernel[float64] { return nil }
