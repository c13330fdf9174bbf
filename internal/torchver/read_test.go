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

From pull requests and single versions between the releases (the sources name them):

- ` + "`c10/cuda/CUDACachingAllocator.cpp`, `CUDAAllocatorConfig.cpp`, `c10/core/AllocatorConfig.cpp`" + `: 2.6, 2.9 and main of mid-2026. Since the last, garbage_collection_threshold
  needs a memory fraction below 1, and memory pools are asked before caches are released: neither is modelled.
- ` + "`aten/src/ATen/cuda/CublasHandlePool.cpp`" + `: to 2.10, 2.11 to 2.14, 2.15.
- ` + "`aten/src/ATen/native`" + `: Convolution.cpp, layer_norm.cpp, and of its cuda folder layer_norm_kernel.cu; in transformers/cuda flash_api.cpp.
- ` + "`torch/csrc/autograd`" + `: engine.cpp, input_buffer.cpp.

- ` + "`torch/nn/parallel/distributed.py`" + `: options for the sizes of buckets, whose defaults are as before.

Not read: DistributedDataParallel's reducer in C++ after 2.6, ` + "`torch/distributed/checkpoint`" + `, and in ` + "`aten/src/ATen/native/cuda`" + ` what no row names.
For 2.7 to 2.13 no whole source was read: a change that came and went between 2.6 and 2.14 is a row only where a pull request or an issue told of it.
`
