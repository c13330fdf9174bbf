package cpu

import (
	"errors"
	"fmt"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// Device is a device of package runtime. Calls must not overlap.
type Device struct {
	*allocsim.VirtualDriver
	segments segments
}

// New returns a device with the given bytes of memory, of which others hold
// some; a capacity of zero or less means as much as is asked for.
func New(capacity tensor.Bytes, occupied ...tensor.Bytes) *Device {
	d := &Device{VirtualDriver: allocsim.NewVirtualDriver(capacity)}
	held := tensor.Bytes(0)
	for _, n := range occupied {
		held += n
	}
	d.Occupy(held)
	return d
}

// Limit bounds the memory of a device that has given out none yet.
func (d *Device) Limit(n tensor.Bytes) { d.VirtualDriver = allocsim.NewVirtualDriver(n) }

// OnHost implements runtime.Device.
func (d *Device) OnHost() bool { return true }

// Name implements runtime.Device.
func (d *Device) Name() string { return "cpu" }

// Malloc implements allocsim.Driver.
func (d *Device) Malloc(n tensor.Bytes) (allocsim.Address, error) {
	a, err := d.VirtualDriver.Malloc(n)
	if err != nil {
		return 0, err
	}
	data, err := commit(n)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("this machine has no %v more for the job: %w", n, err), d.VirtualDriver.Free(a, n))
	}
	d.segments.add(segment{at: a, data: data, whole: true})
	return a, nil
}

// Free implements allocsim.Driver.
func (d *Device) Free(a allocsim.Address, n tensor.Bytes) error {
	data, err := d.segments.remove(a, n)
	if err != nil {
		return err
	}
	return errors.Join(unreserve(data), d.VirtualDriver.Free(a, n))
}

// Reserve implements allocsim.Driver: memory that is committed when it is first
// written.
func (d *Device) Reserve(n tensor.Bytes) (allocsim.Address, error) {
	data, err := reserve(n)
	if err != nil {
		return 0, fmt.Errorf("an expandable segment needs %v of address space: %w", n, err)
	}
	a, err := d.VirtualDriver.Reserve(n)
	if err != nil {
		return 0, errors.Join(err, unreserve(data))
	}
	d.segments.add(segment{at: a, data: data})
	return a, nil
}

// Unreserve implements allocsim.Driver.
func (d *Device) Unreserve(a allocsim.Address, n tensor.Bytes) error {
	s := d.segments.find(a)
	if s == nil || s.at != a || tensor.Bytes(len(s.data)) != n || s.whole {
		return fmt.Errorf("no %d bytes are reserved at %#x", n, a)
	}
	data, err := d.segments.remove(a, n)
	if err != nil {
		return err
	}
	return errors.Join(unreserve(data), d.VirtualDriver.Unreserve(a, n))
}

// Map implements allocsim.Driver.
func (d *Device) Map(a allocsim.Address, n, granule tensor.Bytes) error {
	if err := d.VirtualDriver.Map(a, n, granule); err != nil {
		return err
	}
	if err := d.segments.setMapped(a, n, true); err != nil {
		return errors.Join(err, d.VirtualDriver.Unmap(a, n, granule))
	}
	return nil
}

// Unmap implements allocsim.Driver.
func (d *Device) Unmap(a allocsim.Address, n, granule tensor.Bytes) error {
	if err := d.segments.setMapped(a, n, false); err != nil {
		return err
	}
	data := d.segments.find(a).from(a)[:n]
	return errors.Join(decommit(data), d.VirtualDriver.Unmap(a, n, granule))
}

// Reserved is how many bytes of host memory lie behind segments, now
// and at most so far. Address space without memory does not count.
func (d *Device) Reserved() (now, peak tensor.Bytes) { return d.segments.reserved, d.segments.peak }

// Write implements runtime.Device.
func (d *Device) Write(to allocsim.Address, from []byte) error {
	data, err := d.segments.bytes(to, int64(len(from)))
	copy(data, from)
	return err
}

// Read implements runtime.Device.
func (d *Device) Read(to []byte, from allocsim.Address) error {
	data, err := d.segments.bytes(from, int64(len(to)))
	copy(to, data)
	return err
}

// Set implements runtime.Device.
func (d *Device) Set(at allocsim.Address, n tensor.Bytes, b byte) error {
	data, err := d.segments.bytes(at, int64(n))
	if err != nil || n == 0 {
		return err
	}
	parallel(len(data), 1<<20, func(from, to int) {
		part := data[from:to]
		part[0] = b
		for n := 1; n < len(part); n *= 2 {
			copy(part[n:], part[:n])
		}
	})
	return nil
}

// Check implements runtime.Device.
func (d *Device) Check(c *kernel.Call) error {
	_, _, err := runs(c)
	return err
}

// runs finds what runs a call, whose operands it checks, and the call that it
// takes: c, or one whose operands are widened.
func runs(c *kernel.Call) (*kernel.Call, runner, error) {
	if err := c.Check(); err != nil {
		return nil, nil, err
	}
	r := rowOf(c.Kernel)
	if run := r.run[c.T[r.decides].DType]; run != nil && r.checkTypes(c) == nil {
		return c, run, nil
	}
	return r.widened(c)
}

// Scratch is the memory of the copies that a call runs on, beside its operands.
func (d *Device) Scratch(c *kernel.Call) tensor.Bytes {
	as, _, err := runs(c)
	if err != nil || as == c {
		return 0
	}
	sum := int64(0)
	for i := range c.T {
		if t := &as.T[i]; t.DType != c.T[i].DType && !t.Absent() {
			sum += t.Numel() * t.DType.Size()
		}
	}
	return tensor.Bytes(sum)
}

// Launch implements runtime.Device. It returns when the kernel has run.
func (d *Device) Launch(c *kernel.Call) error {
	as, run, err := runs(c)
	if err != nil {
		return err
	}
	memory := make([][]byte, len(c.T))
	for i := range c.T {
		data, err := d.segments.operand(&c.T[i], c.Kernel.Kind == kernel.Reduce && i == 0)
		if err != nil {
			return fmt.Errorf("kernel %s: operand %s: %w", c.Kernel.Name, c.Kernel.Tensors[i], err)
		}
		memory[i] = data
	}
	if as == c {
		err = run(newLaunch(c, memory))
	} else {
		err = runWidened(c, as, run, memory)
	}
	if err != nil {
		return fmt.Errorf("kernel %s: %w", c.Kernel.Name, err)
	}
	return nil
}

// Synchronize implements runtime.Device.
func (d *Device) Synchronize() error { return nil }

// Close implements runtime.Device. Memory that was not given back is an error; it
// is released all the same. Address space without memory is none: the allocator
// keeps what it reserved before memory ran out.
func (d *Device) Close() error {
	var errs []error
	for _, s := range d.segments.list {
		if s.whole {
			errs = append(errs, fmt.Errorf("%v at %#x are allocated still", tensor.Bytes(len(s.data)), s.at))
		}
		for _, m := range s.mapped {
			errs = append(errs, fmt.Errorf("%v at %#x are mapped still", tensor.Bytes(m.to-m.from), m.from))
		}
		errs = append(errs, unreserve(s.data))
	}
	d.segments = segments{}
	return errors.Join(errs...)
}
