package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// memory is what blocks lie in: the device's, and the machine's own.
type memory struct {
	arena
	host   arena // of blocks with numbers below 0; without a device until there is one
	poison bool  // what is free, or fresh, is overwritten
	skip   bool  // nothing is done with memory, which is given out all the same
	live   int
}

// arena is memory of one device: its segments, divided by the same allocator that
// predicts.
type arena struct {
	device Device
	alloc  *allocsim.Allocator
	blocks map[int32]allocation // those that live, by their ids without sign
}

// ids are those of the blocks that live, the oldest first.
func (a *arena) ids() []int32 { return slices.Sorted(maps.Keys(a.blocks)) }

type allocation struct {
	block allocsim.Block
	bytes tensor.Bytes
}

// poisonByte makes every floating number that is read before it is written a
// NaN, and every index one that is out of range.
const poisonByte = 0xff

// of is where a block lies.
func (m *memory) of(id int32) *arena {
	if id < 0 {
		return &m.host
	}
	return &m.arena
}

// get is a block that lives; its bytes are 0 if it does not.
func (m *memory) get(id int32) allocation { return m.of(id).blocks[max(id, -id)] }

func (m *memory) put(id int32, b allocation) {
	a := m.of(id)
	if a.blocks == nil {
		a.blocks = map[int32]allocation{}
	}
	a.blocks[max(id, -id)] = b
}

// Alloc implements engine.Backend.
func (m *memory) Alloc(id int32, n tensor.Bytes, stream int16) error {
	if err := m.openHost(id); err != nil {
		return err
	}
	a := m.of(id)
	b, err := a.alloc.Alloc(n, stream)
	if err != nil {
		return err
	}
	m.put(id, allocation{b, n})
	m.live++
	if m.poison {
		return a.device.Set(b.Address, n, poisonByte)
	}
	return nil
}

// Free implements engine.Backend. The allocator may hand the memory out again
// at once: kernels run in the order in which they are launched.
func (m *memory) Free(id int32) error {
	a := m.get(id)
	if a.bytes == 0 {
		return fmt.Errorf("block %d is freed, which does not exist", id)
	}
	from := m.of(id)
	if m.poison {
		if err := from.device.Set(a.block.Address, a.bytes, poisonByte); err != nil {
			return err
		}
	}
	delete(from.blocks, max(id, -id))
	m.live--
	from.alloc.Free(a.block)
	return nil
}

// EmptyCache implements engine.Backend.
func (m *memory) EmptyCache() error { return m.alloc.EmptyCache() }

// release gives all memory back to the device: what lives still, then what is
// cached.
func (m *memory) release() error {
	var errs []error
	for _, id := range m.ids() {
		errs = append(errs, m.Free(id))
	}
	for _, id := range m.host.ids() {
		errs = append(errs, m.Free(-id))
	}
	return errors.Join(append(errs, m.alloc.EmptyCache(), m.closeHost())...)
}

// operand is t as kernels see it; absent for nil and for a tensor without
// memory.
func (m *memory) operand(t *op.Tensor) kernel.Tensor {
	if t == nil {
		return kernel.Tensor{}
	}
	return m.At(t, t.Layout)
}

// At implements op.Machine.
func (m *memory) At(t *op.Tensor, l tensor.Layout) kernel.Tensor {
	k := kernel.Tensor{DType: t.DType, Size: l.Size, Stride: l.Stride}
	if id := autograd.BlockOf(t); id != 0 {
		k.At = uint64(m.get(id).block.Address) + uint64(l.Offset*t.DType.Size())
		if id < 0 {
			k.At |= hostBit
		}
	}
	return k
}

// broadcast is t with the sizes of a larger shape.
func (m *memory) broadcast(t *op.Tensor, size tensor.Dims) (kernel.Tensor, error) {
	l, err := t.Expand(size.Slice())
	if err != nil {
		return kernel.Tensor{}, err
	}
	return m.At(t, l), nil
}
