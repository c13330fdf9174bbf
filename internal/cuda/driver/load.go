//go:build cuda

// Package driver opens the CUDA driver's library at run time, so that the
// binding gorgonia.org/cu, which wants it at link time, can be part of a binary
// that also runs where there is none. It holds the declarations that the binding
// is compiled against, and for each function of the driver a jump to where Load
// found it.
package driver

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "cuda.h"
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrNoDriver says that the driver's library is not there or cannot be used.
var ErrNoDriver = errors.New("no CUDA driver")

// Result is a code of the driver, CUresult, that is not success.
type Result int

// OutOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const OutOfMemory Result = C.CUDA_ERROR_OUT_OF_MEMORY

func (r Result) Error() string {
	var name *C.char
	if C.cuGetErrorName(C.CUresult(r), &name) == C.CUDA_SUCCESS && name != nil {
		return C.GoString(name)
	}
	return fmt.Sprintf("CUresult %d", int(r))
}

// Load opens the library at path, such as libcuda.so.1, and initializes the
// driver. missing counts the functions that the library does not have; they
// answer CUDA_ERROR_NOT_FOUND. A second call initializes again, and opens
// nothing.
func Load(path string) (missing int, err error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	why := make([]C.char, 512)
	var m C.int
	switch rc := C.memplan_cuda_load(name, &why[0], C.size_t(len(why)), &m); {
	case rc < 0:
		return 0, fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(&why[0]))
	case rc > 0:
		return int(m), fmt.Errorf("cuInit: %w", Result(rc))
	}
	return int(m), nil
}
