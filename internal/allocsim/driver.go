package allocsim

import (
	"errors"

	"github.com/memplan/memplan/internal/tensor"
)

// Address is a device address. Zero is the null pointer.
type Address uint64

// Driver is what the allocator needs of a device: cudaMalloc and, for
// expandable segments, the virtual memory management of the CUDA driver.
// VirtualDriver models it; a runtime implements it over real memory.
//
// Methods that take memory return an error that wraps ErrOutOfMemory when
// there is none left; the allocator then releases cached memory and asks
// again. Any other error ends the allocation and is returned as it is.
type Driver interface {
	// Malloc is cudaMalloc: n bytes at a fresh address.
	Malloc(n tensor.Bytes) (Address, error)
	// Free is cudaFree of the n bytes that Malloc returned. It waits for all
	// work on the device.
	Free(a Address, n tensor.Bytes) error

	// Reserve is cuMemAddressReserve: n bytes of address space without memory.
	Reserve(n tensor.Bytes) (Address, error)
	// Unreserve is cuMemAddressFree of a whole reservation.
	Unreserve(a Address, n tensor.Bytes) error
	// Map puts n bytes of fresh memory behind a part of a reservation, granule by
	// granule: cuMemCreate, cuMemMap and cuMemSetAccess of each. n is a multiple
	// of granule. It maps everything or nothing.
	Map(a Address, n, granule tensor.Bytes) error
	// Unmap gives the memory of a range of granules back: cuMemUnmap and
	// cuMemRelease. It waits for all work on the device.
	Unmap(a Address, n, granule tensor.Bytes) error

	// MemInfo is cudaMemGetInfo: free and total bytes of the device.
	MemInfo() (free, total tensor.Bytes)
}

// ErrOutOfMemory reports that the device has not enough free memory
// (cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY).
var ErrOutOfMemory = errors.New("out of device memory")
