//go:build !cuda

package cuda

import (
	"errors"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// errNotBuilt is what all there is says without the build tag.
var errNotBuilt = errors.New("this memplan was built without CUDA; make cuda builds one with it")

// Available returns how many GPUs can be opened: none.
func Available() (n int, why error) { return 0, errNotBuilt }

// Device is a GPU; there is none.
type Device struct{ is gpu }

// Open fails.
func Open(int) (*Device, error) { return nil, errNotBuilt }

// Close implements runtime.Device.
func (d *Device) Close() error { return nil }

// OnHost implements runtime.Device.
func (d *Device) OnHost() bool { return false }

// Name implements runtime.Device.
func (d *Device) Name() string { return "no GPU" }

// Limit bounds the memory.
func (d *Device) Limit(tensor.Bytes) {}

// Used is nothing.
func (d *Device) Used() tensor.Bytes { return 0 }

// Malloc implements allocsim.Driver.
func (d *Device) Malloc(tensor.Bytes) (allocsim.Address, error) { return 0, errNotBuilt }

// Free implements allocsim.Driver.
func (d *Device) Free(allocsim.Address, tensor.Bytes) error { return errNotBuilt }

// Reserve implements allocsim.Driver.
func (d *Device) Reserve(tensor.Bytes) (allocsim.Address, error) { return 0, errNotBuilt }

// Unreserve implements allocsim.Driver.
func (d *Device) Unreserve(allocsim.Address, tensor.Bytes) error { return errNotBuilt }

// Map implements allocsim.Driver.
func (d *Device) Map(allocsim.Address, tensor.Bytes, tensor.Bytes) error { return errNotBuilt }

// Unmap implements allocsim.Driver.
func (d *Device) Unmap(allocsim.Address, tensor.Bytes, tensor.Bytes) error { return errNotBuilt }

// MemInfo implements allocsim.Driver.
func (d *Device) MemInfo() (free, total tensor.Bytes) { return 0, 0 }

// Write implements runtime.Device.
func (d *Device) Write(allocsim.Address, []byte) error { return errNotBuilt }

// Read implements runtime.Device.
func (d *Device) Read([]byte, allocsim.Address) error { return errNotBuilt }

// Set implements runtime.Device.
func (d *Device) Set(allocsim.Address, tensor.Bytes, byte) error { return errNotBuilt }

// Synchronize implements runtime.Device.
func (d *Device) Synchronize() error { return errNotBuilt }

// Launch implements runtime.Device. It checks the call only.
func (d *Device) Launch(c *kernel.Call) error {
	_, err := d.is.plan(c)
	return errors.Join(err, errNotBuilt)
}
