package runtime

import (
	"errors"
	"fmt"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// What a job keeps in host memory is computed there, by the kernels
// of package cpu, whatever the device is.

// hostBit tells addresses in host memory from those on the device.
const hostBit = 1 << 62

// onHost reports whether an operand is in host memory.
func onHost(t *kernel.Tensor) bool { return t.At&hostBit != 0 }

// openHost makes host memory ready for its first block.
func (m *memory) openHost(id int32) error {
	if id > 0 || m.host.device != nil {
		return nil
	}
	d := cpu.New(0)
	alloc, err := allocsim.New(allocsim.Config{}, d, allocsim.Options{})
	if err != nil {
		return err
	}
	m.host.device, m.host.alloc = skipping{d, &m.skip}, alloc
	return nil
}

// closeHost gives host memory back.
func (m *memory) closeHost() error {
	if m.host.alloc == nil {
		return nil
	}
	return errors.Join(m.host.alloc.EmptyCache(), m.host.device.Close())
}

// side is where an operand lies, and the operand as its device knows it.
func (m *memory) side(t kernel.Tensor) (*arena, kernel.Tensor) {
	if onHost(&t) {
		t.At &^= hostBit
		return &m.host, t
	}
	return &m.arena, t
}

// read copies the elements of an operand from its first one on, as they lie.
func (m *memory) read(to []byte, t kernel.Tensor) error {
	a, t := m.side(t)
	return a.device.Read(to, allocsim.Address(t.At))
}

// overwrite does the opposite.
func (m *memory) overwrite(t kernel.Tensor, from []byte) error {
	a, t := m.side(t)
	return a.device.Write(allocsim.Address(t.At), from)
}

// start runs a kernel where its operands lie. A copy may lead from host
// memory to the device or back.
func (m *memory) start(c *kernel.Call) error {
	host, device := 0, 0
	for i := range c.T {
		switch t := &c.T[i]; {
		case t.Absent():
		case onHost(t):
			host++
		default:
			device++
		}
	}
	switch {
	case host == 0:
		return m.device.Launch(c)
	case device == 0:
		own := *c
		own.T = make([]kernel.Tensor, len(c.T))
		for i, t := range c.T {
			_, own.T[i] = m.side(t)
		}
		return m.host.device.Launch(&own)
	case c.Kernel == kernel.Copy:
		return m.transfer(c.T[0], c.T[1])
	}
	return fmt.Errorf("kernel %s: some operands are on the device, others in host memory", c.Kernel.Name)
}

// transfer copies between host memory and the device. Elements change
// their order or type in host memory.
func (m *memory) transfer(to, from kernel.Tensor) error {
	if m.host.alloc == nil || to.Numel() == 0 { // a dry run
		return nil
	}
	far := to // the one on the device
	if onHost(&to) {
		far = from
	}
	l := tensor.Layout{Size: far.Size, Stride: far.Stride}
	data := make([]byte, l.StorageElems()*far.DType.Size())
	block, err := m.host.alloc.Alloc(tensor.Bytes(len(data)), 0)
	if err != nil {
		return err
	}
	near := far
	near.At = uint64(block.Address)
	err = m.staged(to, from, near, data, l.IsDense())
	m.host.alloc.Free(block)
	return err
}

// staged is transfer by way of near, memory of the machine's like the operand on
// the device.
func (m *memory) staged(to, from, near kernel.Tensor, data []byte, dense bool) error {
	at := allocsim.Address(near.At)
	if onHost(&to) {
		_, to = m.side(to)
		return errors.Join(m.device.Read(data, allocsim.Address(from.At)), m.host.device.Write(at, data),
			m.host.device.Launch(&kernel.Call{Kernel: kernel.Copy, T: []kernel.Tensor{to, near}}))
	}
	_, from = m.side(from)
	if !dense { // what lies between its elements stays
		if err := errors.Join(m.device.Read(data, allocsim.Address(to.At)), m.host.device.Write(at, data)); err != nil {
			return err
		}
	}
	return errors.Join(m.host.device.Launch(&kernel.Call{Kernel: kernel.Copy, T: []kernel.Tensor{near, from}}),
		m.host.device.Read(data, at), m.device.Write(allocsim.Address(to.At), data))
}
