package engine

import (
	"unsafe"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// pool holds dead values to be used again: a step makes what the one before
// has given up. Whoever puts a value back has cleared it. New values come from
// slabs, since a step makes thousands.
type pool[T any] struct {
	dead []*T
	slab arena[T]
}

func (p *pool[T]) get(m *limit.Meter) *T {
	n := len(p.dead)
	if n == 0 {
		m.Hold(tensor.Bytes(unsafe.Sizeof(*new(T))))
		return &p.slab.take(1)[0]
	}
	v := p.dead[n-1]
	p.dead = p.dead[:n-1]
	return v
}

func (p *pool[T]) put(v *T) { p.dead = append(p.dead, v) }

// arena hands out slices that live as long as the player, or in the hands of
// pooled values.
type arena[T any] struct {
	free []T
	made int
}

// take returns n zero values.
func (a *arena[T]) take(n int) []T {
	const least, most = 16, 256
	if n > len(a.free) {
		a.free = make([]T, max(n, min(max(a.made, least), most)))
		a.made += len(a.free)
	}
	s := a.free[:n:n]
	a.free = a.free[n:]
	return s
}

// zeroed returns s with n zero values, in the same array if that is large
// enough.
func (a *arena[T]) zeroed(s []T, n int) []T {
	if n > cap(s) {
		return a.take(n)
	}
	s = s[:n]
	clear(s)
	return s
}
