package cuda

import "github.com/memplan/memplan/internal/kernel"

// Check implements runtime.Device.
func (d *Device) Check(c *kernel.Call) error {
	_, err := d.is.plan(c)
	return err
}
