package autograd

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
)

// Selective is what create_selective_checkpoint_contexts returns: two modes of
// torch dispatch over one store. In the forward pass the results of chosen
// operators are stored, in the recomputation they are taken from there, and the
// operators do not run (_CachingTorchDispatchMode, _CachedTorchDispatchMode in
// torch/utils/checkpoint.py). The modes see operators below autograd.
type Selective struct {
	rows   []*op.Op
	second map[*op.Op]int // of rows those of which every second call is not stored: how many there were
	store  *store
	replay bool
	Second *Selective // the mode of the recomputation
}

// store is a dict from operators to the results of their calls.
type store struct {
	keys []*op.Op // in the order of insertion
	kept map[*op.Op][][]kept
}

// kept is a result in the store, with the version that it had.
type kept struct {
	t       *op.Tensor
	version int
}

// NewSelective returns the mode of a forward pass in which results of some rows are
// stored, of those in alternate the results of the first, third and so on call; Second is
// that of the recomputation.
func NewSelective(rows, alternate []*op.Op) *Selective {
	s := &store{kept: map[*op.Op][][]kept{}}
	mode := func(replay bool) *Selective {
		m := &Selective{rows: rows, store: s, replay: replay, second: map[*op.Op]int{}}
		for _, r := range alternate {
			m.second[r] = 0
		}
		return m
	}
	first := mode(false)
	first.Second = mode(true)
	return first
}

// stores reports whether the results of this call of an operator are stored.
func (m *Selective) stores(r *op.Op) bool {
	if n, ok := m.second[r]; ok {
		m.second[r] = n + 1
		return n%2 == 0
	}
	return slices.Contains(m.rows, r)
}

// EnterMode makes s the innermost mode, until the scope ends.
func (p *Player) EnterMode(s *Selective) {
	p.setModes(append(p.dispatch[:len(p.dispatch):len(p.dispatch)], s))
}

// LeaveModes leaves all modes, until the scope ends.
func (p *Player) LeaveModes() { p.setModes(nil) }

// setModes makes these modes the ones that are entered.
func (p *Player) setModes(modes []*Selective) {
	p.dispatch, p.env.TorchDispatch = modes, len(modes) > 0
}

// runDispatched runs a primitive operator under the modes that are entered, the
// innermost first. Operators that it calls itself are not seen by them; those of
// a torch.autograd.Function are, for it is Python.
func (p *Player) runDispatched(r *op.Op, c *op.Call) {
	n := len(p.dispatch)
	if _, python := c.Args.(op.Application); python || n == 0 {
		p.runRow(r, c)
		return
	}
	modes := p.dispatch
	s, key := modes[n-1], c.Op // r may run in its place
	chosen := s.stores(key)
	if chosen && s.replay {
		outs := s.store.kept[key]
		if len(outs) == 0 {
			p.Fail("a checkpoint that keeps results runs backward a second time")
		}
		s.store.kept[key] = outs[1:]
		for _, k := range outs[0] {
			if k.version != Of(k.t).st.version {
				p.Fail("a result that a checkpoint keeps was modified in place, which PyTorch refuses")
			}
			c.Return(c.Keep(k.t))
			p.Drop(k.t)
		}
		return
	}
	outer := p.Push()
	p.setModes(modes[:n-1])
	p.runDispatched(r, c)
	p.Pop(outer)
	if !chosen {
		return
	}
	outs := make([]kept, len(c.Out))
	for i, t := range c.Out {
		outs[i] = kept{p.Alias(t, t.Layout, t.DType), Of(t).st.version}
		p.CountSaved(t)
	}
	if s.store.kept[key] == nil {
		s.store.keys = append(s.store.keys, key)
	}
	s.store.kept[key] = append(s.store.kept[key], outs)
}

// Clear drops what was stored and never taken: the lists of the operators in
// their order, each from its end.
func (m *Selective) Clear(p *Player) {
	s := m.store
	for _, r := range s.keys {
		calls := s.kept[r]
		for i := len(calls) - 1; i >= 0; i-- {
			for k := len(calls[i]) - 1; k >= 0; k-- {
				p.Drop(calls[i][k].t)
			}
		}
	}
	s.keys, s.kept = nil, nil
}
