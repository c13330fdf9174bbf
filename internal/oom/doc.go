// Package oom reads what a job wrote when it ran out of memory, and says why it
// did.
//
// A log is searched for the messages of PyTorch's allocators (CUDA, ROCm, XPU,
// MPS, cudaMallocAsync; all wordings since 1.0), of the libraries that take
// memory beside them (the driver, cuBLAS, cuDNN, NCCL), and of the host's side
// (the CPU allocator, /dev/shm, the kernel that kills a process). Each becomes a
// Failure with the figures that it states. Diagnose names the most likely cause
// from those figures alone: it is arithmetic, and says which.
//
// The wording of the caching allocator by release (c10/cuda/CUDACachingAllocator.cpp):
//
//	1.0 - 1.4     (GPU 0; T total capacity; A already allocated; F free; C cached)
//	1.5 - 1.9     ... R reserved in total by PyTorch)
//	1.10 - 2.0    ... L allowed; ... If reserved memory is >> allocated memory try setting max_split_size_mb
//	2.1           GPU 0 has a total capacty of T of which F is free. [Process P has M memory in use.]
//	              Including non-PyTorch memory, this process has M memory in use. [L allowed;] Of the
//	              allocated memory A is allocated by PyTorch, and U is reserved by PyTorch but unallocated.
//	2.2 -         ... total capacity ... try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
//	2.3 -         ... A is allocated by PyTorch, with P allocated in private pools (e.g., CUDA Graphs), and ...
//	2.9 -         ... try setting PYTORCH_ALLOC_CONF=expandable_segments:True
//
// The traceback above a message tells where in the job it failed: Place has the phase,
// the path of the module as far as the calls name it, and what the last line calls.
// Compare holds that, and the steps that the log counts, against the request of which
// a plan fails; a size alone proves nothing. Tracebacks of notebooks are not read.
//
// In a container NVML does not know the process's own number, so that its memory
// stands as that of a numbered process; it is recognized by its size.
package oom
