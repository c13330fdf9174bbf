package tensor

import (
	"fmt"
	"math"
)

// NormDim resolves a dimension index that may be negative, as in Python; rank
// 0 counts as 1. It fails outside [-rank, rank).
func NormDim(dim, rank int) (int, error) {
	n := max(rank, 1)
	if dim < -n || dim >= n {
		return 0, fmt.Errorf("dimension %d is out of range [%d, %d]", dim, -n, n-1)
	}
	if dim < 0 {
		dim += n
	}
	return dim, nil
}

// ReshapeSizes resolves one -1 in wanted so that it holds numel elements.
func ReshapeSizes(numel int64, wanted []int64) (Dims, error) {
	if len(wanted) > MaxRank {
		return Dims{}, fmt.Errorf("shape %s has %d dimensions; at most %d are handled", SizeString(wanted), len(wanted), MaxRank)
	}
	hole := -1
	known := int64(1) // product of the given sizes; above numel it does not matter by how much
	for i, w := range wanted {
		switch {
		case w == -1 && hole < 0:
			hole = i
		case w < 0:
			return Dims{}, fmt.Errorf("shape %s has more than one -1 or a negative size", SizeString(wanted))
		case w != 0 && known > math.MaxInt64/w:
			return Dims{}, fmt.Errorf("shape %s is invalid for %d elements", SizeString(wanted), numel)
		default:
			known *= w
		}
	}
	d := D(wanted...)
	if hole >= 0 {
		if known == 0 || numel%known != 0 {
			return Dims{}, fmt.Errorf("shape %s is invalid for %d elements", SizeString(wanted), numel)
		}
		d.v[hole] = numel / known
		known *= d.v[hole]
	}
	if known != numel {
		return Dims{}, fmt.Errorf("shape %s is invalid for %d elements", SizeString(wanted), numel)
	}
	return d, nil
}

// View returns the layout of l seen with other sizes, and whether that is
// possible without a copy (at::detail::computeStride).
func (l *Layout) View(size Dims) (Layout, bool) {
	r := Layout{Size: size, Offset: l.Offset}
	r.Stride.n = size.n
	if l.Numel() == 0 {
		if l.Size == size {
			return *l, true
		}
		c := Contiguous(size)
		c.Offset = l.Offset
		return c, true
	}
	vd := int(size.n) - 1
	if l.Size.n == 0 {
		for ; vd >= 0; vd-- {
			r.Stride.v[vd] = 1
		}
		return r, true
	}
	// Walk chunks of old dimensions that are contiguous among themselves; the
	// new dimensions must tile each chunk exactly.
	base := l.Stride.v[l.Size.n-1]
	tensorN, viewN := int64(1), int64(1)
	for td := int(l.Size.n) - 1; td >= 0; td-- {
		tensorN *= l.Size.v[td]
		if td == 0 || (l.Size.v[td-1] != 1 && l.Stride.v[td-1] != tensorN*base) {
			for vd >= 0 && (viewN < tensorN || size.v[vd] == 1) {
				r.Stride.v[vd] = viewN * base
				viewN *= size.v[vd]
				vd--
			}
			if viewN != tensorN {
				return Layout{}, false
			}
			if td > 0 {
				base = l.Stride.v[td-1]
				tensorN, viewN = 1, 1
			}
		}
	}
	return r, vd == -1
}

// Transpose swaps two dimensions (already normalized).
func (l *Layout) Transpose(a, b int) Layout {
	r := *l
	r.Size.v[a], r.Size.v[b] = r.Size.v[b], r.Size.v[a]
	r.Stride.v[a], r.Stride.v[b] = r.Stride.v[b], r.Stride.v[a]
	return r
}

// Permute reorders the dimensions: new dimension i is old dimension p[i].
func (l *Layout) Permute(p []int) Layout {
	r := *l
	for i, d := range p {
		r.Size.v[i], r.Stride.v[i] = l.Size.v[d], l.Stride.v[d]
	}
	return r
}

// Narrow keeps length elements of dimension d from start on, every step-th.
func (l *Layout) Narrow(d int, start, length, step int64) Layout {
	r := *l
	r.Offset += start * l.Stride.v[d]
	r.Size.v[d] = length
	r.Stride.v[d] *= step
	return r
}

// Select keeps one index of dimension d and drops the dimension.
func (l *Layout) Select(d int, index int64) Layout {
	r := *l
	r.Offset += index * l.Stride.v[d]
	r.Size, r.Stride = l.Size.Remove(d), l.Stride.Remove(d)
	return r
}

// Unsqueeze inserts a dimension of size 1 before d.
func (l *Layout) Unsqueeze(d int) Layout {
	r := *l
	s := int64(1)
	if d < int(l.Size.n) {
		s = l.Size.v[d] * l.Stride.v[d]
	}
	r.Size, r.Stride = l.Size.Insert(d, 1), l.Stride.Insert(d, s)
	return r
}

// Squeeze drops dimension d, which has size 1.
func (l *Layout) Squeeze(d int) Layout {
	r := *l
	r.Size, r.Stride = l.Size.Remove(d), l.Stride.Remove(d)
	return r
}

// Expand broadcasts l to size without a copy; -1 keeps a dimension. New
// dimensions come in front; repeated ones get stride 0.
func (l *Layout) Expand(wanted []int64) (Layout, error) {
	k := len(wanted) - l.Rank()
	if k < 0 || len(wanted) > MaxRank {
		return Layout{}, fmt.Errorf("cannot expand %v to %s", l.Size, SizeString(wanted))
	}
	r := Layout{Size: D(wanted...), Offset: l.Offset}
	r.Stride.n = r.Size.n
	for i := len(wanted) - 1; i >= 0; i-- {
		w, size, stride := wanted[i], int64(1), int64(0)
		switch {
		case i >= k && w >= -1:
			size, stride = l.Size.v[i-k], l.Stride.v[i-k]
		case i >= k:
			return Layout{}, fmt.Errorf("cannot expand %v to %s: size %d is negative", l.Size, SizeString(wanted), w)
		case w < 0:
			return Layout{}, fmt.Errorf("cannot expand %v to %s: a new leading dimension is %d", l.Size, SizeString(wanted), w)
		case l.Rank() > 0: // a new dimension lies outside of those behind it
			stride = r.Size.v[i+1] * r.Stride.v[i+1]
		}
		if w == -1 {
			r.Size.v[i] = size
		} else if w != size {
			if size != 1 {
				return Layout{}, fmt.Errorf("cannot expand %v to %s: dimension %d is %d", l.Size, SizeString(wanted), i, size)
			}
			stride = 0
		}
		r.Stride.v[i] = stride
	}
	return r, nil
}
