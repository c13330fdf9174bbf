package record

import (
	"fmt"
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/op"
)

// match gives what a row made to the storages of a call's results.
func (p *player) match(c *call, d *aten.Dispatch, made, held []*op.Tensor, fresh []int) string {
	if d.Sizes {
		p.inPlaces(c, made, held, fresh)
		return ""
	}
	if len(d.OnHost) > 0 {
		made = p.state(c, d, made, fresh)
	}
	why := ""
	k := 0
	for _, t := range made {
		if t == nil {
			continue
		}
		if autograd.BlockBytes(t) == 0 || autograd.OnHost(t) || among(t, held) || p.taken(t, fresh) {
			p.p.Drop(t)
			continue
		}
		for k < len(fresh) && (p.r.Storages[fresh[k]].Bytes == 0 || p.host[fresh[k]]) {
			k++
		}
		if k == len(fresh) {
			p.p.Drop(t)
			why = "its row has more results"
			continue
		}
		n := fresh[k]
		k++
		p.held[n] = t
		if want := p.r.Storages[n].Bytes; autograd.BlockBytes(t) != want {
			why = fmt.Sprintf("its row makes a result of %v, not of %v", autograd.BlockBytes(t), want)
			p.p.Resize(t, want)
		}
	}
	for ; k < len(fresh); k++ {
		if n := fresh[k]; p.r.Storages[n].Bytes > 0 && !p.host[n] && p.held[n] == nil {
			why = "its row has fewer results"
		}
	}
	return why
}

// state is for results that are in host memory in some releases and on the device in others. Those that the recorded release has
// on the device and the played one has not are in host memory; those of which it is the other way round go with the result before them.
func (p *player) state(c *call, d *aten.Dispatch, made []*op.Tensor, fresh []int) []*op.Tensor {
	blocks := slices.DeleteFunc(slices.Clone(made), func(t *op.Tensor) bool { return t == nil || autograd.BlockBytes(t) == 0 || autograd.OnHost(t) })
	kept := slices.DeleteFunc(slices.Clone(fresh), func(n int) bool { return p.r.Storages[n].Bytes == 0 })
	switch n := len(kept); {
	case len(blocks) < n:
		for _, i := range d.OnHost {
			if i < len(c.Outs) {
				for _, t := range stored(c.Outs[i]) {
					p.host[t.Storage] = true
				}
			}
		}
	case n > 0 && len(blocks) > n:
		p.along[kept[n-1]] = blocks[n:]
		return blocks[:n]
	}
	return made
}

// inPlaces gives what a row made to the results at the same places.
func (p *player) inPlaces(c *call, made, held []*op.Tensor, fresh []int) {
	for i, t := range made {
		if t == nil {
			continue
		}
		if i < len(c.Outs) {
			if r := first(c.Outs[i]); r != nil && slices.Contains(fresh, r.Storage) && !among(t, held) {
				p.held[r.Storage] = t
				continue
			}
		}
		p.p.Drop(t)
	}
}

// among reports whether a result lies in the memory of an input.
func among(t *op.Tensor, held []*op.Tensor) bool {
	for _, h := range held {
		if h != nil && autograd.SameStorage(t, h) {
			return true
		}
	}
	return false
}

// taken reports whether a result lies in memory that another result has.
func (p *player) taken(t *op.Tensor, fresh []int) bool {
	for _, n := range fresh {
		if h := p.held[n]; h != nil && autograd.SameStorage(t, h) {
			return true
		}
	}
	return false
}
