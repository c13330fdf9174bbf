package aten

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// TestUnfused asks why no fused kernel takes attention, of each reason one.
func TestUnfused(t *testing.T) {
	l := func(size ...int64) tensor.Layout { return tensor.Contiguous(tensor.D(size...)) }
	turned := func(x tensor.Layout) tensor.Layout { return x.Transpose(2, 3) }
	for _, c := range []struct {
		q, k, v tensor.Layout
		d       tensor.DType
		arch    int
		want    string
	}{
		{l(8, 512, 64), l(8, 512, 64), l(8, 512, 64), tensor.Float16, 80, "have 3 dimensions, not 4"},
		{l(8, 4, 512, 64), l(1, 4, 512, 64), l(1, 4, 512, 64), tensor.Float16, 80, "are broadcast"},
		{l(8, 4, 512, 64), turned(l(8, 4, 64, 512)), l(8, 4, 512, 64), tensor.Float16, 80, "side by side"},
		{l(8, 4, 512, 64), l(8, 4, 512, 64), l(8, 4, 512, 64), tensor.BFloat16, 75, "on sm_75 they do not take bfloat16"},
		{l(8, 4, 512, 64), l(8, 4, 512, 64), l(8, 4, 512, 64), tensor.Float64, 80, "they do not take float64"},
		{l(8, 4, 512, 64), l(8, 2, 512, 64), l(8, 2, 512, 64), tensor.Float32, 80, "2 heads of keys for 4 of queries"},
		{l(8, 4, 512, 50), l(8, 4, 512, 50), l(8, 4, 512, 50), tensor.Float32, 80, "50 is no multiple of 4"},
		{l(8, 4, 512, 64), l(8, 4, 512, 64), l(8, 4, 512, 60), tensor.Float16, 80, "60 is no multiple of 8"},
	} {
		call := &op.Call{Exec: &op.Shapes{E: op.Env{Arch: c.arch}}}
		of := func(l tensor.Layout) *op.Tensor { return &op.Tensor{Layout: l, DType: c.d} }
		q, k, v := of(c.q), of(c.k), of(c.v)
		a := &SDPAArgs{EnableGQA: true, unfused: unfused(call, q, k, v)}
		if got := unfusedScores(a, []*op.Tensor{q, k, v}); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, not %q", c.want, got, c.want)
		}
		if c.d.IsHalf() || c.d == tensor.Float32 { // with a mask, so that flash takes none
			if b := selectSDPA(call, q, k, v, q, a); b != op.SDPAMath {
				t.Errorf("%s: a fused kernel takes it", c.want)
			}
		}
	}
}

// TestEfficientWorkspace compares the scratch of the memory-efficient kernel's derivative
// with what PyTorch 2.6 took.
func TestEfficientWorkspace(t *testing.T) {
	for _, c := range []struct {
		arch                              int
		batch, queries, keys, head, headV int64
		dropout                           bool
		want, deterministic               int64
	}{
		{75, 35, 627, 627, 168, 168, false, 40149200, 21799120},
		{75, 1, 627, 627, 168, 168, false, 1802480, 622832},
		{75, 1, 100, 1000, 168, 168, false, 2195504, 229424},
		{75, 21, 700, 900, 168, 136, false, 37164960, 15144864},
		{75, 256, 300, 100, 256, 256, false, 134266880, 134266880},
		{75, 200, 300, 300, 136, 168, false, 85225600, 85225600},
		{75, 40, 300, 700, 128, 128, true, 7868160, 7868160},
		{75, 1, 300, 70000, 168, 168, false, 26509456, 426128},
		{86, 40, 300, 700, 128, 128, true, 19667200, 0},
		{86, 250, 300, 700, 96, 96, true, 57384000, 0},
	} {
		kern := efficientKernelFor(&op.Env{Arch: c.arch}, tensor.Float16, max(c.head, c.headV), c.dropout)
		if got := c.batch * kern.workspace(c.queries, kern.splits(c.keys, c.batch), c.head, c.headV); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		if got := c.batch * kern.workspace(c.queries, 1, c.head, c.headV); c.deterministic > 0 && got != c.deterministic {
			t.Errorf("%+v, deterministic: %d", c, got)
		}
	}
}
