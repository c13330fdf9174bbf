package torchver

// LayerNormPartialSums reports whether the weight gradients of layer_norm over
// very many short rows are formed in two steps, through a buffer of partial
// sums.
//
// PR 148605 introduced it and was reverted; PR 150773 (April 2025) landed it.
func (v Version) LayerNormPartialSums() bool { return v.AtLeast(Version{2, 8}) }

// FusedRMSNorm reports whether rms_norm on CUDA is one kernel with a derivative
// of its own, rather than a composition of operators.
//
// PR 153666 (July 2025).
func (v Version) FusedRMSNorm() bool { return v.AtLeast(Version{2, 9}) }

// FlashStateOnDevice reports whether flash attention keeps the state of the
// random numbers, and a number that is not used, in two tensors on the device,
// with dropout or without. Before, they were numbers on the host.
//
// PR 146372 (February 2025); the note "BC breaking change to flash seed/offset"
// in flash_api.cpp.
func (v Version) FlashStateOnDevice() bool { return v.AtLeast(Version{2, 7}) }

// CudnnTakesBFloat16RNN reports whether recurrent layers in bfloat16 go to cuDNN
// if that is 9.13 or later, which depends on the CUDA version of the wheel.
//
// PR 164411 (October 2025).
func (v Version) CudnnTakesBFloat16RNN() bool { return v.AtLeast(Version{2, 10}) }
