package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// place2D is a bucket and a place in it.
type place2D struct{ bucket, at int }

// bucket is one flat tensor, with a view for each of its parameters.
type bucket struct {
	flat    *op.Tensor
	members []int
	pending int
}

// caps are the sizes at which buckets are full: the first, and the others.
func (r *Reducer) caps() []tensor.Bytes {
	return []tensor.Bytes{tensor.Bytes(r.FirstCap * mib), tensor.Bytes(r.BucketCap * mib)}
}

func elementsOf(cells []*python.Cell, members []int) int64 {
	var n int64
	for _, i := range members {
		n += cells[i].T.Numel()
	}
	return n
}

// assign puts tensors into groups of one type each, in their order; a group is
// full when it reaches its cap, of which the last counts for all further ones
// (compute_bucket_assignment_by_size). Groups that are not full come last, those
// of the type that was met last first: libstdc++'s hash map yields them so.
func assign(cells []*python.Cell, order []int, caps []tensor.Bytes) [][]int {
	type group struct {
		members []int
		bytes   tensor.Bytes
		filled  int
	}
	var out [][]int
	var types []tensor.DType
	open := map[tensor.DType]*group{}
	for _, i := range order {
		t := cells[i].T
		g := open[t.DType]
		if g == nil {
			g = &group{}
			open[t.DType] = g
			types = append(types, t.DType)
		}
		g.members = append(g.members, i)
		if g.bytes += tensor.Bytes(t.Numel() * t.DType.Size()); g.bytes >= caps[min(g.filled, len(caps)-1)] {
			out = append(out, g.members)
			*g = group{filled: g.filled + 1}
		}
	}
	for _, d := range slices.Backward(types) {
		if g := open[d]; len(g.members) > 0 {
			out = append(out, g.members)
		}
	}
	return out
}

// allocate makes buckets, the old ones having been given up. Gradients that are
// views move into the new ones.
func (r *Reducer) allocate(groups [][]int) {
	for _, b := range r.buckets {
		r.p.Drop(b.flat)
	}
	r.buckets, r.places = nil, make([]place2D, len(r.params))
	for k, members := range groups {
		b := &bucket{members: members}
		b.flat = r.vector(elementsOf(r.params, members), r.params[members[0]].T.DType)
		r.p.Mark(b.flat, trace.Gradients)
		r.buckets = append(r.buckets, b)
		for at, i := range members {
			r.places[i] = place2D{k, at}
			if leaf := autograd.Of(r.params[i].T); r.BucketView && leaf.Grad != nil {
				r.view(leaf, b)
			}
		}
	}
	r.reset()
}

// view makes a parameter's gradient a view of its bucket.
func (r *Reducer) view(leaf *autograd.Object, b *bucket) {
	old := leaf.Grad
	if autograd.SameStorage(&old.Tensor, b.flat) {
		return
	}
	l := tensor.Contiguous(leaf.Size)
	if leaf.IsDense() {
		l = tensor.Layout{Size: leaf.Size, Stride: leaf.Stride}
	}
	leaf.Grad = autograd.Of(r.p.Alias(b.flat, l, b.flat.DType))
	r.p.Release(old)
}
