package autograd

import (
	"math"
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Moment is how much a player has recorded when one of several rounds begins.
type Moment struct {
	events, host, kernels, convs, spaces int
	block                                int32 // the last
	live                                 tensor.Bytes
	products                             []Product
}

// Moment is the present one.
func (p *Player) Moment() Moment {
	w := &p.workspaces
	return Moment{len(p.tr.Events), len(p.host.Events), len(p.kernels), len(w.Calls), len(w.Events), p.nextID, p.live, slices.Clone(p.products.list)}
}

// Watch has the player note from now on whose blocks it makes, or no more.
func (p *Player) Watch(on bool) {
	if p.births = p.births[:0]; on {
		p.births = append(p.births, nil) // blocks are counted from 1
	}
}

// Round is what was recorded between two moments, in a form that can be recorded again. It
// knows blocks by numbers: 1 is the first that it makes, and -1 the eldest of those that it
// frees of the time before.
type Round struct {
	events     []trace.Event // of a free, Bytes is the size of the block
	categories []trace.Category
	left       []int32 // of the blocks that it makes, those that live when it ends
	taken      []int32 // that it frees of the time before: their numbers in the round before
	grown      tensor.Bytes
	kernels    []KernelCall
	convs      []ConvCall
	spaces     []int
	products   []Product // what it adds to them
}

// RoundBetween is what was recorded from one moment to the next; before is when the round
// before it began, or the zero moment. It returns nil if the round frees blocks that are
// older, or does something in host memory. The round is written over one that is used no
// more, if there is one.
func (p *Player) RoundBetween(before, from, to Moment, over *Round) *Round {
	if from.host != to.host {
		return nil
	}
	if over == nil {
		over = &Round{}
	}
	events := p.tr.Events[before.events:to.events]
	sizes := slices.Grow(p.sizes[:0], int(to.block-before.block))[:to.block-before.block]
	p.sizes = sizes
	gone := make([]bool, len(sizes))
	begin := from.events - before.events
	r := over
	*r = Round{
		events: append(r.events[:0], events[begin:]...), categories: append(r.categories[:0], p.tr.Categories[from.block+1:to.block+1]...), grown: to.live - from.live,
		left: r.left[:0], taken: r.taken[:0], kernels: r.kernels[:0], convs: r.convs[:0], spaces: r.spaces[:0], products: r.products[:0],
	}
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == trace.Alloc:
			sizes[e.ID-before.block-1] = e.Bytes
		case e.Kind == trace.Free && e.ID > before.block:
			gone[e.ID-before.block-1] = true
			if i >= begin && e.ID <= from.block {
				r.taken = append(r.taken, e.ID-before.block)
			}
		case e.Kind == trace.Free && i >= begin:
			return nil
		}
	}
	slices.Sort(r.taken)
	for i := range r.events {
		e := &r.events[i]
		e.Step = 0
		if e.ID == 0 {
			continue
		}
		if e.Kind == trace.Free {
			e.Bytes = sizes[e.ID-before.block-1]
		}
		if e.ID > from.block {
			e.ID -= from.block
		} else {
			k, _ := slices.BinarySearch(r.taken, e.ID-before.block)
			e.ID = int32(-1 - k)
		}
	}
	for id := from.block + 1; id <= to.block; id++ {
		if !gone[id-before.block-1] {
			r.left = append(r.left, id-from.block)
		}
	}
	r.kernels = slices.Grow(r.kernels, to.kernels-from.kernels)
	for _, k := range p.kernels[from.kernels:to.kernels] {
		k.At, k.Event.Step = k.At-from.events, 0
		r.kernels = append(r.kernels, k)
	}
	w := &p.workspaces
	for _, c := range w.Calls[from.convs:to.convs] {
		c.At, c.Event.Step = c.At-from.events, 0
		r.convs = append(r.convs, c)
	}
	for _, i := range w.Events[from.spaces:to.spaces] {
		r.spaces = append(r.spaces, i-from.events)
	}
	for i, b := range to.products {
		if i < len(from.products) {
			a := &from.products[i]
			b.Flops, b.HalfFlops, b.Again, b.Bytes = b.Flops-a.Flops, b.HalfFlops-a.HalfFlops, b.Again-a.Again, b.Bytes-a.Bytes
		}
		r.products = append(r.products, b)
	}
	return r
}

// Same reports whether two rounds did the same. Blocks that they leave may be marked yet.
func (r *Round) Same(o *Round) bool {
	same := r != nil && o != nil && r.grown == o.grown && slices.Equal(r.events, o.events) && slices.Equal(r.left, o.left) &&
		slices.Equal(r.kernels, o.kernels) && slices.Equal(r.convs, o.convs) && slices.Equal(r.spaces, o.spaces) && slices.Equal(r.products, o.products)
	if !same {
		return false
	}
	left := r.left
	for i := range r.categories {
		if len(left) > 0 && int(left[0]) == i+1 {
			left = left[1:]
		} else if r.categories[i] != o.categories[i] {
			return false
		}
	}
	return true
}

// Rounds are the first rounds of a step: what was recorded in them when all were over.
type Rounds struct{ First, Second, Third *Round }

// Repeat reports whether the third round did the same as the second, and both free what the
// one before has left them and leave as much: so do those after them, then.
func (r *Rounds) Repeat() bool {
	return r.Second.Same(r.Third) && r.Third.grown == 0 && slices.Equal(r.Third.taken, r.Second.left)
}

// Begin says that the first round is another than in the step before; the second is the same.
func (r *Rounds) Begin(first, second *Round) { r.First, r.Second.taken = first, second.taken }

// Again records n rounds that come after those that were played, one to three of them; the
// last began at the given moment, and Watch was on in it. It returns false where the sums of
// what was computed would not be exact, and records nothing then.
func (p *Player) Again(r *Rounds, played int, last Moment, n int) bool {
	const exact = 1 << 53 // whole numbers up to it have a float64 of their own
	for i := range r.Third.products {
		b := &r.Third.products[i]
		x := p.products.at(b.Layer, b.Row)
		for _, f := range [...][2]float64{{x.Flops, b.Flops}, {x.HalfFlops, b.HalfFlops}, {x.Again, b.Again}} {
			if f[1] != math.Trunc(f[1]) || f[0]+float64(n)*f[1] > exact {
				return false
			}
		}
	}
	for i := range r.Third.products {
		b := &r.Third.products[i]
		x := p.products.at(b.Layer, b.Row)
		x.Flops, x.HalfFlops, x.Again = x.Flops+float64(n)*b.Flops, x.HalfFlops+float64(n)*b.HalfFlops, x.Again+float64(n)*b.Again
		x.Bytes += tensor.Bytes(n) * b.Bytes
	}
	p.Meter.Hold(trace.EventBytes * tensor.Bytes(n*len(r.Third.events)))
	p.Meter.Hold(kernelBytes * tensor.Bytes(n*len(r.Third.kernels)))
	before, now := r.Second, r.Third
	if played == 1 {
		before, now = r.First, r.Second
	}
	left := make([]int32, len(now.taken)) // what the round before has left to the next one
	storages := make([]*storage, len(left))
	for k, own := range now.taken {
		left[k], storages[k] = last.block+own, p.births[own]
		p.tr.Categories[left[k]] = before.categories[own-1]
	}
	tr, w := p.tr, &p.workspaces
	tr.Events = slices.Grow(tr.Events, n*len(now.events))
	p.kernels = slices.Grow(p.kernels, n*len(now.kernels))
	for range n {
		at, base := len(tr.Events), p.nextID
		for i := range now.events {
			e := now.events[i]
			e.Step = p.Step
			switch {
			case e.ID > 0:
				e.ID += base
			case e.ID < 0:
				e.ID = left[-1-e.ID]
			}
			if e.Kind == trace.Free {
				e.Bytes = 0
			}
			tr.Events = append(tr.Events, e)
		}
		tr.Categories = append(tr.Categories, r.Second.categories...)
		p.nextID += int32(len(now.categories))
		for k, own := range now.left {
			left[k] = base + own
		}
		for _, k := range now.kernels {
			k.At, k.Event.Step = k.At+at, p.Step
			p.kernels = append(p.kernels, k)
		}
		for _, c := range now.convs {
			c.At, c.Event.Step = c.At+at, p.Step
			w.Calls = append(w.Calls, c)
		}
		for _, i := range now.spaces {
			w.Events = append(w.Events, i+at)
		}
		now = r.Third
	}
	for k, st := range storages { // these may be marked yet, as those of the third round were
		st.id = left[k]
		tr.Categories[st.id] = r.Third.categories[r.Third.left[k]-1]
	}
	return true
}

// AlikeBut reports whether two tensors differ in nothing but their memory, and in so many more
// references to the first: no operator does other things with the one than with the other.
// Tensors that autograd knows, and views, are never alike.
func (p *Player) AlikeBut(a, b *op.Tensor, more int32) bool {
	x, y := Of(a), Of(b)
	for _, o := range []*Object{x, y} {
		if o.fn != nil || o.base != nil || o.Grad != nil || o.acc != nil || o.Ready != nil || o.Reduce != nil || o.st.from != nil {
			return false
		}
	}
	s, t := *x.st, *y.st
	if s.host != t.host || !s.host && p.tr.Categories[s.id] != p.tr.Categories[t.id] {
		return false
	}
	s.id, t.id, s.changed, t.changed = 0, 0, place{}, place{}
	return a.Layout == b.Layout && a.DType == b.DType && s == t && x.refs-more == y.refs &&
		x.Requires == y.Requires && x.version == y.version && x.Inference == y.Inference && x.returned == y.returned && x.Param == y.Param
}
