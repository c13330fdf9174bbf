package runtime

import (
	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Device is memory and the kernels that work on it.
type Device interface {
	// Driver gives out memory in segments, which allocsim's allocator divides.
	// Addresses are those that kernels take.
	allocsim.Driver

	// Name is what users know the device by, such as "cpu" or "NVIDIA H200".
	Name() string
	// OnHost reports whether the device's memory is the host's.
	OnHost() bool
	// Write and Read copy between host memory and the device's. They wait
	// for kernels that were launched before.
	Write(to allocsim.Address, from []byte) error
	Read(to []byte, from allocsim.Address) error
	// Set fills n bytes with b.
	Set(at allocsim.Address, n tensor.Bytes, b byte) error
	// Check reports a call that Launch would refuse, whatever lies in memory.
	Check(c *kernel.Call) error
	// Launch runs a kernel after those that were launched before. On a GPU it does
	// not wait, so that an error may be that of an earlier one.
	Launch(c *kernel.Call) error
	// Synchronize waits for all kernels.
	Synchronize() error
	// Close gives everything back.
	Close() error
}
