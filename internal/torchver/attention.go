package torchver

// What of scaled_dot_product_attention depends on releases alone. Where the GPU or cuDNN's version
// decide, too, functions below do.
var (
	_ = change(Change{
		Since: Version{2, 9}, Area: kernels,
		What:   "`scaled_dot_product_attention` asks cuDNN first on sm_90 and sm_100, with cuDNN 9.9 or later.",
		Source: "PR 162073 (September 2025)", Held: "internal/torchver TestPrefersCudnnAttention",
	})
	_ = change(Change{
		Since: Version{2, 10}, Area: kernels,
		What:   "cuDNN is asked first only if it is later than 9.15.0, as it was wrong for lengths that are no multiple of 128.",
		Source: "PR 171627 (January 2026), issue 169849", Held: "internal/torchver TestPrefersCudnnAttention",
	})
	_ = change(Change{
		Since: Version{2, 11}, Area: kernels,
		What:   "cuDNN is asked first on sm_103, too; it takes heads of 192 and 128 on sm_10x.",
		Source: "PR 170800 (December 2025), PR 172621 (January 2026)", Held: "internal/torchver TestPrefersCudnnAttention",
	})
	CudnnDropsSixteenths = change(Change{
		Since: Version{2, 12}, Area: kernels,
		What:   "cuDNN's attention is asked for dropout by sixteenths alone.",
		Source: "PR 174245 (February 2026)", Held: "internal/torchver TestCudnnAttentionDropout",
	})
	CudnnBoundsBatch = change(Change{
		Since: Version{2, 13}, Area: kernels,
		What:   "cuDNN's attention is asked for batches, and numbers of heads, of up to 65,535.",
		Source: "PR 180718 (April 2026)", Held: "internal/aten TestSelectSDPA",
	})
	// EfficientAligns: the memory-efficient attention kernels are left where queries, keys or
	// values do not begin at a multiple of 16 bytes of their storage, on sm_80 and later.
	EfficientAligns = change(Change{
		Since: Version{2, 13}, Area: kernels,
		What:   "The memory-efficient attention kernels are left where queries, keys or values do not begin at a multiple of 16 bytes of their storage (sm_80 and later).",
		Source: "PR 184258 (May 2026; check_data_ptr_alignment_mem_efficient)", Held: "internal/aten TestSelectSDPA",
	})
	// EfficientSharesKeys: the memory-efficient attention kernels take heads of queries that share
	// keys, and all fused kernels take a single head of keys for all queries without enable_gqa.
	EfficientSharesKeys = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What:   "The memory-efficient attention kernels take heads of queries that share keys; all fused kernels take a single head of keys for all queries without `enable_gqa`.",
		Source: "PR 191085 (July 2026)", Held: "internal/aten TestSelectSDPA",
	})
	_ = change(Change{
		Since: Version{2, 14}, Area: kernels,
		What:   "With a cuDNN later than 9.22, its attention takes heads of up to 256 on sm_90 and sm_10x.",
		Source: "PR 185554 (June 2026), sdp_utils.cpp", Held: "internal/torchver TestCudnnAttentionHeads",
	})
)

// PrefersCudnnAttention reports whether scaled_dot_product_attention asks cuDNN
// before the other implementations, on a compute capability (times ten) and with a
// version of cuDNN as cudnnGetVersion says it (check_prefer_cudnn_attention in
// aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). TORCH_CUDNN_SDPA_PREFERRED
// of 2.7 and 2.8, and TORCH_CUDNN_SDPA_DEPRIORITIZED since 2.10, are not set.
//
// PR 162073 (September 2025) turned it on for 9.0 and 10.0; cuDNN was wrong for
// lengths that are no multiple of 128 (issue 169849), so that PR 171627 (January
// 2026, and 2.10) wants a cuDNN later than 9.15.0. PR 170800 (December 2025) adds
// 10.3.
func (v Version) PrefersCudnnAttention(arch, cudnn int) bool {
	switch {
	case !v.AtLeast(Version{2, 9}):
		return false
	case !v.AtLeast(Version{2, 10}):
		return (arch == 90 || arch == 100) && cudnn >= 90900
	case !v.AtLeast(Version{2, 11}):
		return (arch == 90 || arch == 100) && cudnn > 91500
	}
	return (arch == 90 || arch == 100 || arch == 103) && cudnn > 91500
}

// CudnnAttentionHeads reports whether cuDNN's attention takes heads of these sizes,
// of queries and keys and of values (check_cudnn_tensor_shapes and, in training,
// check_cudnn_d256_bprop_head_dim).
//
// PR 161210 (August 2025): up to 256 on 9.0 with cuDNN 9.10. PR 172621 (January
// 2026): 192 and 128 on 10.x with cuDNN 9.11. With version 1.24 of cuDNN's frontend,
// which PR 185554 (June 2026) brought, and a cuDNN later than 9.22, 9.0 and 10.x take
// up to 256, and have derivatives for some: in sdp_utils.cpp of 2.14.
func (v Version) CudnnAttentionHeads(arch, cudnn int, train bool, qk, val int64) bool {
	large := arch == 90 || arch/10 == 10
	deepSeek := qk == 192 && val == 128
	limit := int64(128)
	if v.AtLeast(Version{2, 14}) {
		switch {
		case large && cudnn > 92200:
			limit = 256
			if train && max(qk, val) > 128 && !deepSeek && (qk != 256 || val != 256) {
				return false
			}
		case large && cudnn >= 91100 && deepSeek:
			limit = 192
		}
	} else {
		switch {
		case v.AtLeast(Version{2, 9}) && arch == 90 && cudnn >= 91000:
			limit = 256
		case v.AtLeast(Version{2, 11}) && arch/10 == 10 && cudnn >= 91100 && deepSeek:
			limit = 192
		}
	}
	return qk <= limit && val <= limit && qk%8 == 0 && val%8 == 0
}

// CudnnAttentionDropout reports whether cuDNN's attention is asked to drop out with
// this probability.
//
// PR 163903 (September 2025, and 2.9): not by cuDNN 9.11 to 9.13. PR 174245
// (February 2026): sixteenths alone.
func (v Version) CudnnAttentionDropout(cudnn int, p float64) bool {
	if p == 0 {
		return true
	}
	broken := v.AtLeast(Version{2, 9}) && cudnn > 91100 && cudnn < 91400
	return !broken && (!v.Has(CudnnDropsSixteenths) || p*16 == float64(int64(p*16)))
}

// CudnnAttentionBatch is the largest batch, and number of heads, that cuDNN's
// attention is asked for; 0: any.
//
// PR 180718 (April 2026).
func (v Version) CudnnAttentionBatch() int64 {
	if v.Has(CudnnBoundsBatch) {
		return 65535
	}
	return 0
}

// CudnnAttentionOneQuery reports whether cuDNN's attention takes a single query,
// without dropout.
//
// PR 138531 (October 2024) refused lengths of 1; sdp_utils.cpp of 2.9 refuses single
// keys alone.
func (v Version) CudnnAttentionOneQuery() bool { return v.AtLeast(Version{2, 9}) }

// NewestFlashArch is the newest compute capability (times ten) for which flash
// attention, the memory-efficient kernels and cuDNN's attention are taken.
//
// check_flash_attention_hardware_support: [sm80, sm90] in 2.6; wheels of 2.7 have
// kernels for sm_100 and sm_120.
func (v Version) NewestFlashArch() int {
	if v.Has(blackwellWheels) {
		return 121
	}
	return 90
}
