package aten

import (
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// TestSelectSDPA asks which backend takes a call, of releases that differ.
func TestSelectSDPA(t *testing.T) {
	l := func(size ...int64) tensor.Layout { return tensor.Contiguous(tensor.D(size...)) }
	usual, one := l(8, 4, 512, 64), l(8, 1, 512, 64)
	shifted := usual
	shifted.Offset = 4
	const half, single = tensor.BFloat16, tensor.Float32
	for _, c := range []struct {
		minor, arch int
		d           tensor.DType
		q, k        tensor.Layout
		a           SDPAArgs
		mask        *tensor.Layout
		off         op.SDPA
		want        op.SDPA
	}{
		{6, 90, half, usual, usual, SDPAArgs{}, nil, 0, op.SDPAFlash},
		{6, 90, half, usual, usual, SDPAArgs{}, nil, op.SDPAFlash | op.SDPAEfficient | op.SDPAMath, op.SDPACudnn},
		{9, 90, half, usual, usual, SDPAArgs{}, nil, 0, op.SDPACudnn},
		{9, 80, half, usual, usual, SDPAArgs{}, nil, 0, op.SDPAFlash},
		{9, 120, half, usual, usual, SDPAArgs{}, nil, 0, op.SDPAFlash},
		{9, 90, single, usual, usual, SDPAArgs{}, nil, 0, op.SDPAEfficient},
		{12, 90, half, usual, usual, SDPAArgs{DropoutP: 0.1}, nil, 0, op.SDPAFlash},
		{12, 100, half, usual, usual, SDPAArgs{DropoutP: 0.25}, nil, 0, op.SDPACudnn},
		{12, 90, half, usual, usual, SDPAArgs{}, &tensor.Layout{Size: tensor.D(512, 512)}, 0, op.SDPACudnn},
		{12, 90, half, usual, usual, SDPAArgs{}, &tensor.Layout{Size: tensor.D(8, 512, 512)}, 0, op.SDPAEfficient},
		{12, 90, half, usual, usual, SDPAArgs{}, nil, op.SDPACudnn, op.SDPAFlash},
		{12, 90, half, l(65536, 4, 16, 64), l(65536, 4, 16, 64), SDPAArgs{}, nil, 0, op.SDPACudnn},
		{13, 90, half, l(65536, 4, 16, 64), l(65536, 4, 16, 64), SDPAArgs{}, nil, 0, op.SDPAFlash},
		{12, 90, half, usual, l(8, 4, 1, 64), SDPAArgs{}, nil, 0, op.SDPAFlash},
		{12, 86, single, shifted, usual, SDPAArgs{}, nil, 0, op.SDPAEfficient},
		{13, 86, half, shifted, usual, SDPAArgs{}, nil, op.SDPAFlash, op.SDPAMath},
		{13, 86, single, shifted, usual, SDPAArgs{}, nil, 0, op.SDPAEfficient}, // 4 numbers of 4 bytes
		{13, 75, half, shifted, usual, SDPAArgs{}, nil, 0, op.SDPAMath},        // no bfloat16
		{13, 86, single, usual, one, SDPAArgs{EnableGQA: true}, nil, 0, op.SDPAMath},
		{14, 86, single, usual, one, SDPAArgs{EnableGQA: true}, nil, 0, op.SDPAEfficient},
		{14, 86, half, usual, one, SDPAArgs{}, nil, 0, op.SDPAFlash},
		{13, 86, half, usual, one, SDPAArgs{}, nil, 0, op.SDPAMath},
	} {
		ver := torchver.Version{Major: 2, Minor: c.minor}
		call := &op.Call{Exec: &op.Shapes{E: op.Env{Arch: c.arch, Torch: ver, Cudnn: ver.Cudnn(""), NoSDPA: c.off}}}
		of := func(l tensor.Layout) *op.Tensor { return &op.Tensor{Layout: l, DType: c.d} }
		var mask *op.Tensor
		if c.mask != nil {
			mask = of(tensor.Contiguous(c.mask.Size))
		}
		if got := selectSDPA(call, of(c.q), of(c.k), of(c.k), mask, &c.a); got != c.want {
			t.Errorf("2.%d on sm_%d, %v, %v %v %+v: %v, want %v", c.minor, c.arch, c.d, c.q.Size, c.k.Size, c.a, got, c.want)
		}
	}
}
