package aten

import (
	"fmt"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
)

// sdpaCall is one of scaled_dot_product_attention, as its backends are asked whether
// they take it.
type sdpaCall struct {
	*op.Call
	env           *op.Env
	q, k, v, mask *op.Tensor
	a             *SDPAArgs
	train         bool
}

// sdpaOrder is the order in which backends are asked: the usual one, and the one with
// cuDNN first (priority_order).
var (
	sdpaOrder  = []op.SDPA{op.SDPAFlash, op.SDPAEfficient, op.SDPAMath, op.SDPACudnn}
	cudnnOrder = []op.SDPA{op.SDPACudnn, op.SDPAFlash, op.SDPAEfficient, op.SDPAMath}
)

// selectSDPA is the first backend that is enabled and whose filters in sdp_utils.cpp
// let the call pass.
func selectSDPA(c *op.Call, q, k, v, mask *op.Tensor, a *SDPAArgs) op.SDPA {
	env := c.Env()
	s := &sdpaCall{c, env, q, k, v, mask, a, c.NeedsGrad(q) || c.NeedsGrad(k) || c.NeedsGrad(v)}
	order := sdpaOrder
	a.passed = ""
	if env.Torch.PrefersCudnnAttention(env.Arch, env.Cudnn) {
		order = cudnnOrder
	}
	if prefers := order[0] == op.SDPACudnn && env.NoSDPA&op.SDPACudnn == 0; prefers && q.DType.IsHalf() && s.dense() {
		a.passed = s.notCudnn()
	}
	takes := map[op.SDPA]func() bool{op.SDPAFlash: s.flash, op.SDPAEfficient: s.efficient, op.SDPACudnn: s.cudnn}
	for _, b := range order {
		if env.NoSDPA&b == 0 && (b == op.SDPAMath || s.dense() && takes[b]()) {
			return b
		}
	}
	c.Fail("no backend of scaled_dot_product_attention that is enabled takes the call")
	return op.SDPAMath
}

// dense are the filters that all fused kernels have.
func (s *sdpaCall) dense() bool {
	q, k, v := s.q, s.k, s.v
	return q.Rank() == 4 && k.Dim(0) == q.Dim(0) && v.Dim(0) == q.Dim(0) &&
		q.Stride.At(-1) == 1 && k.Stride.At(-1) == 1 && v.Stride.At(-1) == 1 &&
		q.Numel() > 0 && k.Numel() > 0
}

// heads reports whether the heads fit, of a kernel that knows heads of queries that
// share keys if they are asked for (check_batch_size_and_num_heads_dense).
func (s *sdpaCall) heads(shared bool) bool {
	hq, hk, hv := s.q.Dim(1), s.k.Dim(1), s.v.Dim(1)
	if shared && s.a.EnableGQA {
		return hk == hv && hk > 0 && hq%hk == 0
	}
	return hq == hk && hk == hv || shared && hk == 1 && hv == 1 && s.sharesKeys()
}

// sharesKeys is that of the release. Recordings of 2.14 with fake tensors are of a build
// without CUDA: their recorder chose, as 2.6 does (testdata/truth-fake).
func (s *sdpaCall) sharesKeys() bool {
	return s.env.Torch.Has(torchver.EfficientSharesKeys) && !s.env.FakeTensors
}

func (s *sdpaCall) flash() bool {
	d, arch := s.q.Dim(3), s.env.Arch
	tight := arch >= 86 && arch <= 89 || arch == 120 || arch == 121
	narrow := s.train && tight && ((d > 192 && d <= 224) || (d > 224 && s.a.DropoutP > 0))
	return s.mask == nil && d == s.v.Dim(3) && d <= 256 && s.q.DType.IsHalf() && !narrow &&
		arch >= 80 && arch <= s.env.Torch.NewestFlashArch() && s.heads(true) && !(s.a.IsCausal && s.q.Dim(2) != s.k.Dim(2))
}

func (s *sdpaCall) efficient() bool {
	d, align := s.q.DType, gemmAlignment(s.env, s.q.DType)
	typed := d == tensor.Float32 || d == tensor.Float16 || d == tensor.BFloat16 && s.env.Arch >= 80
	if !typed || s.q.Dim(3)%align != 0 || s.v.Dim(3)%align != 0 || !s.heads(s.sharesKeys()) {
		return false
	}
	for _, t := range []*op.Tensor{s.q, s.k, s.v} {
		if s.env.Arch >= 80 && s.env.Torch.Has(torchver.EfficientAligns) && t.Offset%align != 0 {
			return false
		}
	}
	return true
}

func (s *sdpaCall) cudnn() bool { return s.notCudnn() == "" }

// notCudnn says why cuDNN does not take a call that passes the filters of all fused
// kernels; "": it does.
func (s *sdpaCall) notCudnn() string {
	env, ver, q := s.env, s.env.Torch, s.q
	most := ver.CudnnAttentionBatch()
	switch d, e := q.Dim(3), s.v.Dim(3); {
	case env.Arch < 80 || env.Arch > ver.NewestFlashArch():
		return fmt.Sprintf("it takes no call on sm_%d", env.Arch)
	case !q.DType.IsHalf():
		return fmt.Sprintf("it does not take %v", q.DType)
	case env.Deterministic:
		return "it is not deterministic"
	case !s.heads(true):
		return fmt.Sprintf("%d heads of queries do not fit %d of keys and %d of values", q.Dim(1), s.k.Dim(1), s.v.Dim(1))
	case s.k.Dim(2) == 1 || q.Dim(2) == 1 && (s.a.DropoutP > 0 || !ver.CudnnAttentionOneQuery()):
		return "a length is 1"
	case most > 0 && max(q.Dim(0), q.Dim(1)) > most:
		return fmt.Sprintf("batch or heads are more than %d", most)
	case !ver.CudnnAttentionHeads(env.Arch, env.Cudnn, s.train, d, e):
		return fmt.Sprintf("cuDNN %s does not take heads of %d and %d there", torchver.CudnnName(env.Cudnn), d, e)
	case !ver.CudnnAttentionDropout(env.Cudnn, s.a.DropoutP):
		if ver.CudnnAttentionDropout(env.Cudnn, 0.5) {
			return fmt.Sprintf("it is asked for dropout by a multiple of 1/16, not %v", s.a.DropoutP)
		}
		return fmt.Sprintf("cuDNN %s is asked for none with dropout", torchver.CudnnName(env.Cudnn))
	case !s.cudnnMask():
		return "it does not take the mask, which requires grad or has another shape"
	}
	return ""
}

// cudnnMask reports whether cuDNN takes the mask (check_attn_mask_shape).
func (s *sdpaCall) cudnnMask() bool {
	m, q := s.mask, s.q
	if m == nil {
		return true
	}
	fits := func(i int, n int64) bool { return m.Dim(i) == 1 || m.Dim(i) == n }
	return !s.Requires(m) && m.Rank() >= 2 && fits(-2, q.Dim(2)) && fits(-1, s.k.Dim(2)) &&
		(m.Rank() == 2 || m.Rank() == 4 && fits(0, q.Dim(0)) && fits(1, q.Dim(1)))
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
