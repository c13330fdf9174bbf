package engine

// pool holds dead values to be used again: a step makes what the one before
// has given up. Whoever puts a value back has cleared it.
type pool[T any] struct{ dead []*T }

func (p *pool[T]) get() *T {
	n := len(p.dead)
	if n == 0 {
		return new(T)
	}
	v := p.dead[n-1]
	p.dead = p.dead[:n-1]
	return v
}

func (p *pool[T]) put(v *T) { p.dead = append(p.dead, v) }

// zeroed returns s with n zero values, in the same array if that is large
// enough.
func zeroed[T any](s []T, n int) []T { return append(s[:0], make([]T, n)...) }
