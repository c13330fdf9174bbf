// Package slab hands out values of one type in bulk, and again when they are dead: a step
// makes thousands of them. The values of pools count as memory of the job. It knows nothing
// of what they are.
package slab

import (
	"slices"
	"unsafe"

	"github.com/memplan/memplan/internal/limit"
	"github.com/memplan/memplan/internal/tensor"
)

// Pool holds dead values to be used again: a step makes what the one before
// has given up. Whoever puts a value back has cleared it, or who takes it makes all of
// it new. New values come from slabs, since a step makes thousands.
type Pool[T any] struct {
	dead []*T
	slab Arena[T]
}

// Get returns a dead value, or a new one, which m counts.
func (p *Pool[T]) Get(m *limit.Meter) *T {
	n := len(p.dead)
	if n == 0 {
		m.Hold(tensor.Bytes(unsafe.Sizeof(*new(T))))
		return &p.slab.Take(1)[0]
	}
	v := p.dead[n-1]
	p.dead = p.dead[:n-1]
	return v
}

// Put takes a dead value.
func (p *Pool[T]) Put(v *T) { p.dead = append(p.dead, v) }

// Clear takes all values back, so that others are made of their memory.
func (p *Pool[T]) Clear() {
	clear(p.dead)
	p.dead = p.dead[:0]
	p.slab.Clear()
}

// Arena hands out slices that live as long as the player, or in the hands of
// pooled values.
type Arena[T any] struct {
	free  []T
	slabs [][]T // that are handed out again
	used  int   // of them
	made  int
}

// kept is how many slabs an arena holds on to. Those that a long play needs beside are
// garbage once nothing refers to values of theirs.
const kept = 64

// Take returns n zero values.
func (a *Arena[T]) Take(n int) []T {
	const least, most = 16, 256
	if n > len(a.free) {
		if a.used < len(a.slabs) && len(a.slabs[a.used]) >= n {
			a.free = a.slabs[a.used]
			a.used++
		} else {
			a.free = make([]T, max(n, min(max(a.made, least), most)))
			a.made += len(a.free)
			if len(a.slabs) < kept {
				a.slabs = slices.Insert(a.slabs, a.used, a.free)
				a.used++
			}
		}
	}
	s := a.free[:n:n]
	a.free = a.free[n:]
	return s
}

// Clear takes all slices back.
func (a *Arena[T]) Clear() {
	for _, s := range a.slabs[:a.used] {
		clear(s)
	}
	a.free, a.used = nil, 0
}

// Zeroed returns s with n zero values, in the same array if that is large
// enough.
func (a *Arena[T]) Zeroed(s []T, n int) []T {
	if n > cap(s) {
		return a.Take(n)
	}
	s = s[:n]
	clear(s)
	return s
}
