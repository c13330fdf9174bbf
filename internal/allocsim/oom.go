package allocsim

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/tensor"
)

// OOMError reports a request that could not be served, with all figures of the
// message of torch.OutOfMemoryError. It wraps ErrOutOfMemory.
type OOMError struct {
	Requested tensor.Bytes // what the program asked for
	Tried     tensor.Bytes // the segment that would have served it; "Tried to allocate"
	Device    int          // the GPU's index
	Capacity  tensor.Bytes // total memory of the device
	Free      tensor.Bytes // free memory of the device, after the cache was released
	Limit     tensor.Bytes // set by a memory fraction; meaningful if Limited
	Limited   bool
	Allocated tensor.Bytes // by the program, in blocks handed out
	Reserved  tensor.Bytes // by the allocator
}

// Unallocated returns the bytes that are reserved but in no block handed out.
func (e *OOMError) Unallocated() tensor.Bytes { return e.Reserved - e.Allocated }

// Unwrap returns ErrOutOfMemory.
func (e *OOMError) Unwrap() error { return ErrOutOfMemory }

// Error returns the message of PyTorch 2.6, word for word, as it reads where
// NVML is not there to list the processes on the device. The double space
// before the address is PyTorch's.
func (e *OOMError) Error() string {
	if e.Requested >= oneExabyte {
		return "CUDA out of memory. Tried to allocate more than 1EB memory."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CUDA out of memory. Tried to allocate %s. ", formatSize(e.Tried))
	fmt.Fprintf(&b, "GPU %d has a total capacity of %s of which %s is free. ", e.Device, formatSize(e.Capacity), formatSize(e.Free))
	if e.Limited {
		fmt.Fprintf(&b, "%s allowed; ", formatSize(e.Limit))
	}
	fmt.Fprintf(&b, "Of the allocated memory %s is allocated by PyTorch, ", formatSize(e.Allocated))
	fmt.Fprintf(&b, "and %s is reserved by PyTorch but unallocated. ", formatSize(e.Unallocated()))
	b.WriteString("If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" +
		" to avoid fragmentation.  See documentation for Memory Management " +
		" (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
	return b.String()
}

// formatSize prints a size as c10's format_size does. A power of two belongs to
// the unit below it: 1 GiB is "1024.00 MiB".
func formatSize(n tensor.Bytes) string {
	switch {
	case n <= tensor.KiB:
		return fmt.Sprintf("%d bytes", int64(n))
	case n <= tensor.MiB:
		return fmt.Sprintf("%.2f KiB", float64(n)/float64(tensor.KiB))
	case n <= tensor.GiB:
		return fmt.Sprintf("%.2f MiB", float64(n)/float64(tensor.MiB))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/float64(tensor.GiB))
}
