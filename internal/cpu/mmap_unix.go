//go:build linux || darwin

package cpu

import (
	"golang.org/x/sys/unix"

	"github.com/memplan/memplan/internal/tensor"
)

// commit is memory for a segment. That the machine has none is an error here; of
// Go's own memory it would be the end of the process.
func commit(n tensor.Bytes) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// reserve is address space that gets memory page by page when it is written.
func reserve(n tensor.Bytes) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

func unreserve(data []byte) error { return unix.Munmap(data) }

// decommit gives the memory behind whole pages back, and keeps the address space.
func decommit(data []byte) error { return unix.Madvise(data, unix.MADV_DONTNEED) }
