package cpu

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/memplan/memplan/internal/allocsim"
	"github.com/memplan/memplan/internal/kernel"
	"github.com/memplan/memplan/internal/tensor"
)

// alignment is that of a cache line. That of elements follows from it.
const alignment = 64

// segment is a range of addresses with memory of the machine behind it.
type segment struct {
	at     allocsim.Address
	data   []byte
	whole  bool   // all of it may be used, as after Malloc
	mapped []span // of a reservation, what may be used: sorted, no two touch
}

type span struct{ from, to allocsim.Address }

func (s *segment) end() allocsim.Address { return s.at + allocsim.Address(len(s.data)) }

// from is the memory from an address on.
func (s *segment) from(a allocsim.Address) []byte { return s.data[a-s.at:] }

// holds reports whether a range may be used.
func (s *segment) holds(from, to allocsim.Address) bool {
	if s.whole {
		return s.at <= from && to <= s.end()
	}
	return slices.ContainsFunc(s.mapped, func(m span) bool { return m.from <= from && to <= m.to })
}

// aligned is memory of n bytes that starts at a cache line.
func aligned(n tensor.Bytes) []byte {
	data := make([]byte, n+alignment)
	skip := -uintptr(unsafe.Pointer(&data[0])) & (alignment - 1)
	return data[skip : skip+uintptr(n) : skip+uintptr(n)]
}

// segments are sorted by address.
type segments struct {
	list           []segment
	reserved, peak tensor.Bytes
}

// find returns the segment that an address lies in, or nil.
func (z *segments) find(a allocsim.Address) *segment {
	i, found := slices.BinarySearchFunc(z.list, a, func(s segment, a allocsim.Address) int {
		switch {
		case s.end() <= a:
			return -1
		case s.at > a:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &z.list[i]
}

func (z *segments) add(s segment) {
	i, _ := slices.BinarySearchFunc(z.list, s.at, func(s segment, a allocsim.Address) int { return int(int64(s.at) - int64(a)) })
	z.list = slices.Insert(z.list, i, s)
	if s.whole {
		z.count(tensor.Bytes(len(s.data)))
	}
}

// count adds to what is reserved.
func (z *segments) count(n tensor.Bytes) {
	z.reserved += n
	z.peak = max(z.peak, z.reserved)
}

// remove forgets a whole segment, and returns its memory.
func (z *segments) remove(a allocsim.Address, n tensor.Bytes) ([]byte, error) {
	s := z.find(a)
	if s == nil || s.at != a || tensor.Bytes(len(s.data)) != n {
		return nil, fmt.Errorf("%d bytes at %#x were not allocated as such", n, a)
	}
	if len(s.mapped) > 0 {
		return nil, fmt.Errorf("%d bytes at %#x are mapped still", n, a)
	}
	if s.whole {
		z.count(-n)
	}
	data := s.data
	i := slices.IndexFunc(z.list, func(s segment) bool { return s.at == a })
	z.list = slices.Delete(z.list, i, i+1)
	return data, nil
}

// setMapped notes that a range of a reservation has memory, or has it no more.
func (z *segments) setMapped(a allocsim.Address, n tensor.Bytes, on bool) error {
	s, end := z.find(a), a+allocsim.Address(n)
	if s == nil || s.whole || end > s.end() {
		return fmt.Errorf("%d bytes at %#x are not reserved", n, a)
	}
	if on {
		if slices.ContainsFunc(s.mapped, func(m span) bool { return m.from < end && a < m.to }) {
			return fmt.Errorf("of %d bytes at %#x some are mapped already", n, a)
		}
		s.mapped = append(s.mapped, span{a, end})
	} else {
		i := slices.IndexFunc(s.mapped, func(m span) bool { return m.from <= a && end <= m.to })
		if i < 0 {
			return fmt.Errorf("%d bytes at %#x are not mapped", n, a)
		}
		m := s.mapped[i]
		s.mapped = append(slices.Delete(s.mapped, i, i+1), span{m.from, a}, span{end, m.to})
	}
	s.merge()
	if !on {
		n = -n
	}
	z.count(n)
	return nil
}

// merge sorts what is mapped and joins what touches.
func (s *segment) merge() {
	slices.SortFunc(s.mapped, func(a, b span) int { return int(int64(a.from) - int64(b.from)) })
	out := s.mapped[:0]
	for _, m := range s.mapped {
		switch {
		case m.from == m.to:
		case len(out) > 0 && out[len(out)-1].to == m.from:
			out[len(out)-1].to = m.to
		default:
			out = append(out, m)
		}
	}
	s.mapped = out
}

// bytes is the memory of a range that may be used.
func (z *segments) bytes(a allocsim.Address, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	s := z.find(a)
	if s == nil || n < 0 || !s.holds(a, a+allocsim.Address(n)) {
		return nil, fmt.Errorf("%d bytes at %#x lie outside of allocated memory", n, a)
	}
	return s.from(a)[:n], nil
}

// operand is the memory that a tensor's elements lie in, from the one at index
// 0 to the last; nil if there are none. The result of a reduction has elements
// even where there is nothing to reduce.
func (z *segments) operand(t *kernel.Tensor, reduced bool) ([]byte, error) {
	size := t.Size
	for d := range size.Len() {
		if reduced && t.Stride.At(d) == 0 {
			size = size.Set(d, 1)
		}
	}
	switch {
	case size.Numel() == 0, t.Absent() && !reduced:
		return nil, nil
	case t.Absent():
		return nil, errors.New("is absent")
	}
	if t.Size.Len() != t.Stride.Len() {
		return nil, fmt.Errorf("%d sizes have %d strides", t.Size.Len(), t.Stride.Len())
	}
	if int64(t.At)%t.DType.Size() != 0 {
		return nil, fmt.Errorf("address %#x is not a multiple of the %d bytes of %v", t.At, t.DType.Size(), t.DType)
	}
	for d := range t.Stride.Len() {
		if t.Stride.At(d) < 0 {
			return nil, fmt.Errorf("stride %d is negative", t.Stride.At(d))
		}
	}
	l := tensor.Layout{Size: size, Stride: t.Stride}
	return z.bytes(allocsim.Address(t.At), l.StorageElems()*t.DType.Size())
}
