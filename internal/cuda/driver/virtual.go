//go:build cuda

package driver

/*
#include "cuda.h"

static CUmemAllocationProp on(int device) {
	CUmemAllocationProp p = {CU_MEM_ALLOCATION_TYPE_PINNED};
	p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p.location.id = device;
	return p;
}

static CUresult granularity(int device, size_t *n) {
	CUmemAllocationProp p = on(device);
	return cuMemGetAllocationGranularity(n, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static CUresult create(int device, size_t n, CUmemGenericAllocationHandle *handle) {
	CUmemAllocationProp p = on(device);
	return cuMemCreate(handle, n, &p, 0);
}

static CUresult allow(int device, CUdeviceptr at, size_t n) {
	CUmemAccessDesc d = {on(device).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return cuMemSetAccess(at, n, &d, 1);
}
*/
import "C"

// Virtual memory management, which the binding does not have. Addresses and
// handles are the driver's; sizes are multiples of Granularity.

// result is the error of a call.
func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return Result(r)
}

// Granularity is the unit in which a device maps memory
// (cuMemGetAllocationGranularity).
func Granularity(device int) (int64, error) {
	var n C.size_t
	err := result(C.granularity(C.int(device), &n))
	return int64(n), err
}

// Reserve takes addresses that nothing lies behind (cuMemAddressReserve).
func Reserve(n int64) (at uint64, err error) {
	var p C.CUdeviceptr
	err = result(C.cuMemAddressReserve(&p, C.size_t(n), 0, 0, 0))
	return uint64(p), err
}

// Unreserve gives a whole reservation back (cuMemAddressFree).
func Unreserve(at uint64, n int64) error {
	return result(C.cuMemAddressFree(C.CUdeviceptr(at), C.size_t(n)))
}

// Create takes memory of a device that no address leads to (cuMemCreate).
func Create(device int, n int64) (handle uint64, err error) {
	var h C.CUmemGenericAllocationHandle
	err = result(C.create(C.int(device), C.size_t(n), &h))
	return uint64(h), err
}

// Release gives memory back once it is not mapped any more (cuMemRelease).
func Release(handle uint64) error {
	return result(C.cuMemRelease(C.CUmemGenericAllocationHandle(handle)))
}

// Map puts memory behind addresses of a reservation (cuMemMap).
func Map(at uint64, n int64, handle uint64) error {
	return result(C.cuMemMap(C.CUdeviceptr(at), C.size_t(n), 0, C.CUmemGenericAllocationHandle(handle), 0))
}

// Allow lets a device read and write what is mapped (cuMemSetAccess).
func Allow(device int, at uint64, n int64) error {
	return result(C.allow(C.int(device), C.CUdeviceptr(at), C.size_t(n)))
}

// Unmap takes memory from behind addresses (cuMemUnmap).
func Unmap(at uint64, n int64) error {
	return result(C.cuMemUnmap(C.CUdeviceptr(at), C.size_t(n)))
}
