//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gorgonia.org/cu"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cuda/driver"
	"github.com/memplan/memplan/internal/tensor"
)

// virtual is what expandable segments are made of: addresses without memory, and
// memory that is mapped into them granule by granule, as ExpandableSegment in
// c10/cuda/CUDACachingAllocator.cpp does it. Only the owner of the GPU calls it.
type virtual struct {
	device   int
	reserved map[allocsim.Address]tensor.Bytes
	mapped   map[allocsim.Address]granule
}

// granule is memory behind some addresses.
type granule struct {
	handle uint64
	bytes  tensor.Bytes
}

func newVirtual(device int) virtual {
	return virtual{device, map[allocsim.Address]tensor.Bytes{}, map[allocsim.Address]granule{}}
}

// managed is the attribute of GPUs and systems that can map memory
// (CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED).
const managed = cu.DeviceAttribute(102)

// Reserve implements allocsim.Driver.
func (d *Device) Reserve(n tensor.Bytes) (a allocsim.Address, err error) {
	err = d.checked(func() error {
		if v, err := d.gpu.Attribute(managed); err != nil || v == 0 {
			return errors.Join(errors.New("expandable segments need virtual memory management, which this GPU's driver does not have"), err)
		}
		at, err := driver.Reserve(int64(n))
		if err != nil {
			return fmt.Errorf("cuMemAddressReserve of %d bytes: %w", int64(n), err)
		}
		a = allocsim.Address(at)
		d.virtual.reserved[a] = n
		return nil
	})
	return a, err
}

// Unreserve implements allocsim.Driver.
func (d *Device) Unreserve(a allocsim.Address, n tensor.Bytes) error {
	return d.checked(func() error {
		v := &d.virtual
		if held, ok := v.reserved[a]; !ok || held != n {
			return fmt.Errorf("no %d bytes are reserved at %#x", int64(n), uint64(a))
		}
		for at := range v.mapped {
			if a <= at && at < a+allocsim.Address(n) {
				return fmt.Errorf("of %d bytes at %#x some are mapped still", int64(n), uint64(a))
			}
		}
		return v.unreserve(a)
	})
}

// unreserve gives a reservation back.
func (v *virtual) unreserve(a allocsim.Address) error {
	n := int64(v.reserved[a])
	if err := driver.Unreserve(uint64(a), n); err != nil {
		return fmt.Errorf("cuMemAddressFree of %d bytes: %w", n, err)
	}
	delete(v.reserved, a)
	return nil
}

// Map implements allocsim.Driver.
func (d *Device) Map(a allocsim.Address, n, size tensor.Bytes) error {
	return d.checked(func() error {
		if err := d.within(n); err != nil {
			return err
		}
		unit, err := driver.Granularity(d.virtual.device)
		if err != nil {
			return fmt.Errorf("cuMemGetAllocationGranularity: %w", err)
		}
		if unit <= 0 || size <= 0 || int64(size)%unit != 0 || n%size != 0 {
			return fmt.Errorf("%d bytes in pieces of %d cannot be mapped: the GPU maps multiples of %d", int64(n), int64(size), unit)
		}
		if err := d.virtual.mapAll(a, n, size); err != nil {
			return err
		}
		d.total += n
		return nil
	})
}

// mapAll maps all granules or none.
func (v *virtual) mapAll(a allocsim.Address, n, size tensor.Bytes) error {
	for at := a; at < a+allocsim.Address(n); at += allocsim.Address(size) {
		if err := v.mapOne(at, size); err != nil {
			return errors.Join(err, v.unmapAll(a, tensor.Bytes(at-a), size))
		}
	}
	if err := driver.Allow(v.device, uint64(a), int64(n)); err != nil {
		return errors.Join(outOfMemory(err, "cuMemSetAccess", n), v.unmapAll(a, n, size))
	}
	return nil
}

// mapOne puts memory behind the addresses of a granule.
func (v *virtual) mapOne(at allocsim.Address, size tensor.Bytes) error {
	h, err := driver.Create(v.device, int64(size))
	if err != nil {
		return outOfMemory(err, "cuMemCreate", size)
	}
	if err := driver.Map(uint64(at), int64(size), h); err != nil {
		return errors.Join(outOfMemory(err, "cuMemMap", size), driver.Release(h))
	}
	v.mapped[at] = granule{h, size}
	return nil
}

// outOfMemory is the error of a call that takes memory.
func outOfMemory(err error, call string, n tensor.Bytes) error {
	if errors.Is(err, driver.OutOfMemory) || errors.Is(err, cu.OutOfMemory) {
		return fmt.Errorf("%w: %s of %d bytes", allocsim.ErrOutOfMemory, call, int64(n))
	}
	return fmt.Errorf("%s of %d bytes: %w", call, int64(n), err)
}

// Unmap implements allocsim.Driver.
func (d *Device) Unmap(a allocsim.Address, n, size tensor.Bytes) error {
	return d.checked(func() error {
		for at := a; at < a+allocsim.Address(n); at += allocsim.Address(size) {
			if g, ok := d.virtual.mapped[at]; !ok || g.bytes != size {
				return fmt.Errorf("no %d bytes are mapped at %#x", int64(size), uint64(at))
			}
		}
		if err := cu.Synchronize(); err != nil {
			return d.fail(err)
		}
		d.total -= n
		return d.virtual.unmapAll(a, n, size)
	})
}

// unmapAll gives the memory of granules back, whatever fails on the way.
func (v *virtual) unmapAll(a allocsim.Address, n, size tensor.Bytes) error {
	var errs []error
	for at := a; at < a+allocsim.Address(n); at += allocsim.Address(size) {
		if err := driver.Unmap(uint64(at), int64(size)); err != nil {
			errs = append(errs, fmt.Errorf("cuMemUnmap of %d bytes: %w", int64(size), err))
		}
		if err := driver.Release(v.mapped[at].handle); err != nil {
			errs = append(errs, fmt.Errorf("cuMemRelease of %d bytes: %w", int64(size), err))
		}
		delete(v.mapped, at)
	}
	return errors.Join(errs...)
}

// close gives all back. The order is that of addresses, so that what fails is the
// same each time.
func (v *virtual) close() error {
	var errs []error
	for _, at := range slices.Sorted(maps.Keys(v.mapped)) {
		errs = append(errs, v.unmapAll(at, v.mapped[at].bytes, v.mapped[at].bytes))
	}
	for _, at := range slices.Sorted(maps.Keys(v.reserved)) {
		errs = append(errs, v.unreserve(at))
	}
	return errors.Join(errs...)
}
