package torchver

var (
	// blackwellWorkspace is the workspace of Hopper, 32 MiB, on 10.x and 12.x.
	blackwellWorkspace = change(Change{
		Since: Version{2, 12}, Area: libraries,
		What:   "cuBLAS's workspace is 32 MiB on sm_100 and sm_120, as on sm_90; before, it was 8,519,680 bytes (`:4096:2:16:8`).",
		Source: "PR 175344 (February 2026)", Held: "internal/op TestWorkspaces",
	})
	thorWorkspace = change(Change{
		Since: Version{2, 15}, Area: libraries,
		What:   "cuBLAS's workspace is 32 MiB on sm_110.",
		Source: "CublasHandlePool.cpp of 2.15", Held: "internal/op TestWorkspaces",
	})
	// sharedWorkspace: a cublasLt call (addmm with a bias epilogue) uses the cached
	// cuBLAS workspace.
	sharedWorkspace = change(Change{
		Since: Version{2, 11}, Area: libraries,
		What:   "cuBLASLt uses the workspace of cuBLAS.",
		Source: "PR 168175 (January 2026)", Held: "internal/op TestWorkspaces",
	})
	keptLtWorkspace = change(Change{
		Since: Version{2, 9}, Until: Version{2, 11}, Area: libraries,
		What:   "The first call of cuBLASLt on each thread and stream allocates 1 MiB that stays, after cuBLAS's workspace; before, each call allocated it and freed it.",
		Source: "PR 156495 (June 2025); CublasHandlePool.cpp and CUDABlas.cpp of 2.9.1", Held: "internal/estimate TestKeptLtWorkspace",
	})
	// transientWorkspace: TORCH_CUBLAS_WORKSPACE_CACHE=1, documented since 2.15, restores
	// the old way.
	transientWorkspace = change(Change{
		Since: Version{2, 15}, Area: libraries,
		What:   "Each matrix product allocates its cuBLAS workspace and frees it; before, the first one on each thread and stream allocated one that stays.",
		Source: "PR 194311", Held: "internal/op TestWorkspaces",
	})

	// CudnnLeavesConv3d: the wheels of 2.9 have cuDNN 9.10 to 9.13, those of 2.10 have 9.15.
	CudnnLeavesConv3d = change(Change{
		Since: Version{2, 9}, Until: Version{2, 10}, Area: libraries,
		What: "Three-dimensional convolutions of half precision do not go to cuDNN (9.8 to 9.14 computed them wrong), but are matrix products of columns, " +
			"unless the kernel is 1x1x1 or the tensors are channels_last_3d. A newer cuDNN, installed by hand beside 2.9.1, takes them.",
		Source: "PR 163581, PR 166480; issue 166643, which measured 2.9.1", Held: "internal/estimate TestConv3dByColumns",
	})

	// CudnnTakesBFloat16RNN depends on the CUDA version of the wheel, too.
	CudnnTakesBFloat16RNN = change(Change{
		Since: Version{2, 10}, Area: libraries,
		What:   "Recurrent layers in bfloat16 go to cuDNN, if that is 9.13 or later; memplan computes them step by step and says so.",
		Source: "PR 164411 (October 2025)", Held: "testdata/script/estimate_rnn.txtar",
	})
)

// CublasWorkspace32MiB reports whether the default cuBLAS workspace of a GPU
// of compute capability smMajor.x is 32 MiB. Otherwise it is 8,519,680 bytes
// (:4096:2:16:8, that is 8 MiB + 128 KiB). CUBLAS_WORKSPACE_CONFIG overrides
// both.
func (v Version) CublasWorkspace32MiB(smMajor int) bool {
	switch smMajor {
	case 9:
		return true
	case 10, 12:
		return v.Has(blackwellWorkspace)
	case 11:
		return v.Has(thorWorkspace)
	}
	return false
}

// CublasWorkspaceTransient reports whether every GEMM takes its cuBLAS
// workspace from the caching allocator and gives it back at once. Before, the
// first GEMM of each pair of thread and stream allocates one that lives as
// long as the process: one for the program's thread, one for autograd's.
func (v Version) CublasWorkspaceTransient() bool { return v.Has(transientWorkspace) }

// CublasLtKeepsWorkspace reports whether the first cublasLt call of each pair of thread and
// stream allocates a workspace of its own that lives as long as the process.
func (v Version) CublasLtKeepsWorkspace() bool { return v.Has(keptLtWorkspace) }

// CublasLtSharesWorkspace reports whether a cublasLt call (addmm with a bias
// epilogue) uses the cached cuBLAS workspace. Otherwise it takes a buffer of
// its own, 1 MiB by default, for the one call if CublasLtKeepsWorkspace does not say
// more. It shares no workspace that is
// not cached.
func (v Version) CublasLtSharesWorkspace() bool {
	return v.Has(sharedWorkspace) && !v.CublasWorkspaceTransient()
}
