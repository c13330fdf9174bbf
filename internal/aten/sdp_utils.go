package aten

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

type sdpaBackend uint8

const (
	sdpaMath sdpaBackend = iota
	sdpaFlash
	sdpaEfficient
)

// selectSDPA applies the filters of sdp_utils.cpp in PyTorch's order.
func selectSDPA(c *op.Call, q, k, v, mask *op.Tensor, a *SDPAArgs) sdpaBackend {
	env := c.Env()
	same := q.Rank() == 4 && k.Dim(0) == q.Dim(0) && v.Dim(0) == q.Dim(0) && v.Dim(1) == k.Dim(1)
	heads := k.Dim(1) == q.Dim(1)
	lastDense := q.Stride.At(-1) == 1 && k.Stride.At(-1) == 1 && v.Stride.At(-1) == 1
	nonEmpty := q.Numel() > 0 && k.Numel() > 0
	if !same || !lastDense || !nonEmpty {
		return sdpaMath
	}
	d := q.Dim(-1)
	train := c.NeedsGrad(q) || c.NeedsGrad(k) || c.NeedsGrad(v)
	sm8689 := env.Arch == 86 || env.Arch == 89
	narrow := train && sm8689 && ((d > 192 && d <= 224) || (d > 224 && a.DropoutP > 0))
	gqa := a.EnableGQA && k.Dim(1) > 0 && q.Dim(1)%k.Dim(1) == 0
	if mask == nil && d == v.Dim(-1) && d <= 256 && env.Arch >= 80 && q.DType.IsHalf() && !narrow &&
		(heads || gqa) && !(a.IsCausal && q.Dim(2) != k.Dim(2)) {
		return sdpaFlash
	}
	efficientType := q.DType == tensor.Float32 || q.DType == tensor.Float16 || (q.DType == tensor.BFloat16 && env.Arch >= 80)
	align := gemmAlignment(env, q.DType)
	if efficientType && heads && d%align == 0 && v.Dim(-1)%align == 0 {
		return sdpaEfficient
	}
	return sdpaMath
}

// gemmAlignment is the number of elements to which head sizes must be aligned
// for the memory-efficient kernels (minimum_gemm_alignment).
func gemmAlignment(env *op.Env, d tensor.DType) int64 {
	align := int64(1)
	if env.Arch >= 80 {
		align = 4
	}
	if env.Arch >= 80 || (env.Arch >= 70 && d.IsHalf()) {
		align = max(align, 16/d.Size())
	}
	return align
}
