package torchver

// readText says in docs/releases.md what the rows were found in.
const readText = `
Side by side, 2.6.0 and 2.14.1, with what only annotates or documents taken out (Debian has both):

- ` + "`torch/optim`" + `: adam, sgd, adagrad, rmsprop, lbfgs, _adafactor, optimizer, swa_utils. Adam has AdamW's decay of the weights too, and AdamW is a subclass of it; the steps
  allocate the same. ` + "`torch/utils/_foreach_utils.py`" + `: the defaults of ` + "`foreach` and `fused`" + ` are the same on CUDA.
- ` + "`torch/utils/checkpoint.py`" + `: inputs are kept as saved tensors, no longer by a function of autograd; they live as long. ` + "`torch/amp`" + `, ` + "`torch/nn/utils/clip_grad.py`" + `: nothing
  that reaches memory.
- ` + "`torch/distributed/fsdp/_fully_shard`" + `: collectives, parameter groups, state, fully_shard; the rows above.
- ` + "`tools/autograd/derivatives.yaml`" + `, all of it. Derivatives of ` + "`fmax`, `fmin`" + ` and of clamp by tensors (PR 191142) differ, which no spec can name; those of ` + "`erf`, `log2`, `log10`, `clamp_min`" + ` differ in
  constants and comparisons alone.
- ` + "`aten/src/ATen/autocast_mode.h`" + `, the policies: the same lists.

By release:

- 2.7, 2.8: no whole source could be had. Their rows are of pull requests, and of what 2.9.1 has and 2.6.0 has not; a row says so where the first release is not known.
- 2.9.1, side by side with 2.6.0 (the source package of Ubuntu 26.04 has all of it): ` + "`c10/cuda`" + ` (CUDACachingAllocator.cpp, CUDAAllocatorConfig.cpp); ` + "`aten/src/ATen/cuda`" + ` (CublasHandlePool.cpp,
  CUDABlas.cpp, cub.cuh); ` + "`aten/src/ATen/native/cuda`" + `, every line of the difference that allocates, copies or reduces, and whole Reduce.cuh, ReduceSumProdKernel.cu, Indexing.cu, TensorTopK.cu,
  Sort.cu, Nonzero.cu, Loss.cu, Dropout.cu, ScanUtils.cuh, TensorShape.cu, Shape.cu, group_norm_kernel.cu and the fused optimizers; ` + "`aten/src/ATen/native`" + `: Linear.cpp, Normalization.cpp,
  UnaryOps.cpp and transformers/attention.cpp, and the lines that allocate in layer_norm.cpp, Loss.cpp, ReduceOps.cpp, TensorCompare.cpp, cudnn/LossCTC.cpp, transformers/cuda/attention.cu and
  attention_backward.cu; ` + "`torch/csrc/autograd`" + `: accumulate_grad.h, saved_variable.cpp, and parts of FunctionsManual.cpp and input_buffer.cpp; ` + "`torch/distributed/fsdp/_fully_shard`" + `. No row came of: ` + "`index_put_`" + ` with
  accumulate=True expands values in another way, to the same sizes; ` + "`index_select`" + ` of more than 16 indices is a gather, which allocates nothing; 2.6 reads the size of a segment that it has
  released when max_split_size_mb frees several, which is no defined behaviour; pools of graphs may be used before running out of memory (no spec can say it).
- 2.10, 2.11: pull requests, and CublasHandlePool.cpp of 2.11.
- 2.12.1: the Python and the headers of Ubuntu 26.10's packages: ` + "`torch/distributed/fsdp/_fully_shard`" + ` side by side with 2.9.1 and 2.14.1, and ` + "`_fused_rms_norm`" + ` in derivatives.yaml. Its C++ could not be had.
- 2.13: pull requests.
- 2.14.1: the Python and the headers of Debian's build, side by side with 2.6.0 (the files are listed below), and what that build does with fake tensors. Of its
  .cpp and .cu files only those were read that the sources name, one by one: the source package is no longer to be had.
- 2.15: CublasHandlePool.cpp, CUDAAllocatorConfig.cpp and CUDACachingAllocator.cpp of the main branch of mid-2026.

Seen and not followed: group_norm_kernel.cu of the main branch of August 2026 keeps float32 copies of mean and rstd of half-precision images for a moment, a few KiB; since which release is not known.

Recorded on 2.14 are programs on one GPU and such of ` + "`parallelize_module`" + `. DistributedDataParallel and FSDP2 do not run on a build for CPUs, whose reducer has no timer for GPUs and
whose storages on them are not resized: what is known of them after 2.6 is their Python and reducer.hpp.

Not read: reducer.cpp of DistributedDataParallel after 2.6, ` + "`torch/distributed/checkpoint`" + `, ` + "`aten/src/ATen/native/cudnn`" + ` but what rows name, TensorAdvancedIndexing.cpp, TensorConversions.cpp, TensorShape.cpp
and TensorFactories.cpp after 2.6. A change that came and went between 2.9.1 and 2.14 is a row only where a pull request or an issue told of it.
CUB's scratch is that of the CUDA which 2.6 was recorded with; wheels of later releases have later ones.
`
