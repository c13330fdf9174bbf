//go:build cuda

package driver

// #include "cuda.h"
import "C"

import "unsafe"

// AllowShared lets launches of a function, a CUfunction, give it n bytes of shared
// memory, which may be more than 48 KiB (cuFuncSetAttribute); the binding has no such
// call.
func AllowShared(function unsafe.Pointer, n int) error {
	return result(C.cuFuncSetAttribute(C.CUfunction(function), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(n)))
}
