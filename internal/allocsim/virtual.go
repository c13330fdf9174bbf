package allocsim

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/tensor"
)

// devicePage is the unit in which a device hands out physical memory and
// address space.
const devicePage = 2 * tensor.MiB

// The address space of the virtual device. The base lies where CUDA's own
// addresses do on Linux; the span leaves room for one reservation of 9/8 of
// Unbounded for each of 200 pairs of stream and pool.
const (
	virtualBase Address      = 1 << 45
	virtualSpan tensor.Bytes = 1 << 62
)

// Unbounded is the capacity of a device that never runs out (16 PiB). It is
// finite because an expandable segment reserves address space for 9/8 of it.
const Unbounded tensor.Bytes = 1 << 54

// VirtualDriver is a device without memory: it keeps the books of a device of
// fixed capacity. Physical memory is taken in whole 2 MiB pages. Addresses are
// handed out first fit, lowest first, in whole pages, from one address space
// that Malloc and Reserve share.
type VirtualDriver struct {
	capacity tensor.Bytes
	occupied tensor.Bytes // of it, by others than the allocator
	counters DriverCounters

	// gaps are the free ranges of the address space, by address; no two touch.
	// There are few: freed ranges merge, and first fit fills the lowest.
	gaps []span

	watch func(op DeviceOp, at Address, n tensor.Bytes) // nil: nothing does
}

// DeviceOp is what an allocator has a device do with memory.
type DeviceOp uint8

// The operations that take or return memory.
const (
	DeviceMalloc DeviceOp = iota
	DeviceFree
	DeviceMap
	DeviceUnmap
)

// did tells of an operation.
func (d *VirtualDriver) did(op DeviceOp, at Address, n tensor.Bytes) {
	if d.watch != nil {
		d.watch(op, at, n)
	}
}

type span struct {
	at   Address
	size tensor.Bytes
}

// DriverCounters count what a VirtualDriver did.
type DriverCounters struct {
	Mallocs  int64        // pieces of physical memory taken, by Malloc or as a granule
	Frees    int64        // pieces given back
	Failures int64        // pieces refused for lack of memory
	Used     tensor.Bytes // physical memory held now
	Peak     tensor.Bytes // the most that Used has been
}

// NewVirtualDriver returns a device with the given bytes of memory; zero or
// less means Unbounded.
func NewVirtualDriver(capacity tensor.Bytes) *VirtualDriver {
	d := &VirtualDriver{}
	d.reset(capacity, 0)
	return d
}

// reset frees everything and sets the capacity and how much of it others hold.
func (d *VirtualDriver) reset(capacity, occupied tensor.Bytes) {
	if capacity <= 0 {
		capacity = Unbounded
	}
	d.capacity, d.occupied = capacity, occupied
	d.counters, d.watch = DriverCounters{}, nil
	d.gaps = append(d.gaps[:0], span{virtualBase, virtualSpan})
}

// Occupy sets how much of the capacity others than the allocator hold.
func (d *VirtualDriver) Occupy(n tensor.Bytes) { d.occupied = n }

// Counters returns what the device has done so far.
func (d *VirtualDriver) Counters() DriverCounters { return d.counters }

// MemInfo implements Driver.
func (d *VirtualDriver) MemInfo() (free, total tensor.Bytes) {
	return max(d.free(), 0), d.capacity
}

// free is negative if others hold more than there is.
func (d *VirtualDriver) free() tensor.Bytes { return d.capacity - d.occupied - d.counters.Used }

// Malloc implements Driver.
func (d *VirtualDriver) Malloc(asked tensor.Bytes) (Address, error) {
	n := asked.CeilTo(devicePage)
	if n > d.free() {
		d.counters.Failures++
		return 0, ErrOutOfMemory
	}
	a, err := d.place(n)
	if err == nil {
		d.take(1, n)
		d.did(DeviceMalloc, a, asked)
	}
	return a, err
}

// Free implements Driver.
func (d *VirtualDriver) Free(a Address, asked tensor.Bytes) error {
	n := asked.CeilTo(devicePage)
	if err := d.vacate(a, n); err != nil {
		return err
	}
	d.give(1, n)
	d.did(DeviceFree, a, asked)
	return nil
}

// Reserve implements Driver.
func (d *VirtualDriver) Reserve(n tensor.Bytes) (Address, error) {
	return d.place(n.CeilTo(devicePage))
}

// Unreserve implements Driver.
func (d *VirtualDriver) Unreserve(a Address, n tensor.Bytes) error {
	return d.vacate(a, n.CeilTo(devicePage))
}

// Map implements Driver. Where memory runs out half-way, the counters show the
// granules that were taken and given back.
func (d *VirtualDriver) Map(a Address, n, granule tensor.Bytes) error {
	granules, page := n/granule, granule.CeilTo(devicePage)
	if fit := max(d.free(), 0) / page; fit < granules {
		d.take(fit, page)
		d.give(fit, page)
		d.counters.Failures++
		return ErrOutOfMemory
	}
	d.take(granules, page)
	d.did(DeviceMap, a, n)
	return nil
}

// Unmap implements Driver.
func (d *VirtualDriver) Unmap(a Address, n, granule tensor.Bytes) error {
	d.give(n/granule, granule.CeilTo(devicePage))
	d.did(DeviceUnmap, a, n)
	return nil
}

// take accounts for so many pieces of physical memory, which must be there.
func (d *VirtualDriver) take(pieces, size tensor.Bytes) {
	c := &d.counters
	c.Used += pieces * size
	c.Peak = max(c.Peak, c.Used)
	c.Mallocs += int64(pieces)
}

// give returns so many pieces of physical memory.
func (d *VirtualDriver) give(pieces, size tensor.Bytes) {
	d.counters.Used -= pieces * size
	d.counters.Frees += int64(pieces)
}

// place finds n bytes of address space: first fit from the bottom.
func (d *VirtualDriver) place(n tensor.Bytes) (Address, error) {
	for i := range d.gaps {
		g := &d.gaps[i]
		if g.size < n {
			continue
		}
		at := g.at
		g.at += Address(n)
		g.size -= n
		if g.size == 0 {
			d.gaps = slices.Delete(d.gaps, i, i+1)
		}
		return at, nil
	}
	return 0, fmt.Errorf("no %d bytes of address space left: %w", n, ErrOutOfMemory)
}

// vacate returns a range of address space and merges it with the gaps beside it.
func (d *VirtualDriver) vacate(a Address, n tensor.Bytes) error {
	i, _ := slices.BinarySearchFunc(d.gaps, a, func(g span, a Address) int {
		if g.at < a {
			return -1
		}
		return 1
	})
	end := a + Address(n)
	if i > 0 && d.gaps[i-1].at+Address(d.gaps[i-1].size) > a || i < len(d.gaps) && d.gaps[i].at < end {
		return fmt.Errorf("%d bytes at %#x are not in use", n, a)
	}
	below := i > 0 && d.gaps[i-1].at+Address(d.gaps[i-1].size) == a
	above := i < len(d.gaps) && d.gaps[i].at == end
	switch {
	case below && above:
		d.gaps[i-1].size += n + d.gaps[i].size
		d.gaps = slices.Delete(d.gaps, i, i+1)
	case below:
		d.gaps[i-1].size += n
	case above:
		d.gaps[i].at = a
		d.gaps[i].size += n
	default:
		d.gaps = slices.Insert(d.gaps, i, span{a, n})
	}
	return nil
}
