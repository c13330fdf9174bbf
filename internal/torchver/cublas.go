package torchver

// CublasWorkspace32MiB reports whether the default cuBLAS workspace of a GPU
// of compute capability smMajor.x is 32 MiB. Otherwise it is 8,519,680 bytes
// (:4096:2:16:8, that is 8 MiB + 128 KiB). CUBLAS_WORKSPACE_CONFIG overrides
// both.
//
// Up to 2.11 only Hopper (9.x) takes 32 MiB; PR 175344 (February 2026) adds
// the Blackwell families 10.x and 12.x. CublasHandlePool.cpp of 2.15 also lists
// 11.x.
func (v Version) CublasWorkspace32MiB(smMajor int) bool {
	switch smMajor {
	case 9:
		return true
	case 10, 12:
		return v.AtLeast(Version{2, 12})
	case 11:
		return v.AtLeast(Version{2, 15})
	}
	return false
}

// CublasWorkspaceTransient reports whether every GEMM takes its cuBLAS
// workspace from the caching allocator and gives it back at once. Before, the
// first GEMM of each pair of thread and stream allocates one that lives as
// long as the process: one for the program's thread, one for autograd's.
//
// Changed by PR 194311; TORCH_CUBLAS_WORKSPACE_CACHE=1, documented since 2.15,
// restores the old way.
func (v Version) CublasWorkspaceTransient() bool { return v.AtLeast(Version{2, 15}) }

// CublasLtSharesWorkspace reports whether a cublasLt call (addmm with a bias
// epilogue) uses the cached cuBLAS workspace. Otherwise it takes a buffer of
// its own for the one call, 1 MiB by default.
//
// PR 168175 (January 2026) made sharing the default; since 2.15 it needs the
// cache that CublasWorkspaceTransient says is gone.
func (v Version) CublasLtSharesWorkspace() bool {
	return v.AtLeast(Version{2, 11}) && !v.CublasWorkspaceTransient()
}
