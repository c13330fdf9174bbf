package autograd

import (
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// guard is the player as operators see it while a checkpoint is recomputed. It
// remembers what an operator owns.
type guard struct {
	*Player
	call  *op.Call
	owned []*op.Tensor
	node  *Node // that nothing refers to yet
}

// guarded is what operators own that are under way while checkpoints are recomputed.
type guarded struct {
	Recomputing int      // checkpoints
	guards      []*guard // of the operators, the innermost last
}

// made notes the node of the operator at work until something refers to it.
func (s *guarded) made(n *Node) {
	if s.Recomputing > 0 {
		s.guards[len(s.guards)-1].node = n
	}
}

// Working is how many operators are under way that guards know of.
func (s *guarded) Working() int { return len(s.guards) }

// Unwind drops what the operators own that are under way, the innermost first, but
// for so many of them.
func (p *Player) Unwind(but int) {
	for i := len(p.guards) - 1; i >= but; i-- {
		g := p.guards[i]
		var outs []*op.Tensor
		if g.call != nil {
			outs = g.call.Out
			if _, python := g.call.Args.(op.Application); python { // its results are a tuple of Python, destroyed from the end
				outs = slices.Clone(outs)
				slices.Reverse(outs[:len(outs)-len(g.call.Op.NoGrad)])
			}
		}
		for k := len(g.owned) - 1; k >= 0; k-- {
			if !slices.Contains(outs, g.owned[k]) {
				p.Drop(g.owned[k])
			}
		}
		p.Drop(outs...)
		p.Abandon(g.node)
	}
	p.guards = p.guards[:but]
}

// guard makes the guard of an operator; call is nil for the conversions of
// autocast.
func (p *Player) guard(call *op.Call) *guard {
	g := &guard{Player: p, call: call}
	p.guards = append(p.guards, g)
	return g
}

// unguard ends the innermost operator.
func (s *guarded) unguard() {
	last := len(s.guards) - 1
	s.guards[last] = nil
	s.guards = s.guards[:last]
}

func (g *guard) own(t *op.Tensor) *op.Tensor {
	g.owned = append(g.owned, t)
	return t
}

// New implements op.Exec.
func (g *guard) New(l tensor.Layout, d tensor.DType) *op.Tensor { return g.own(g.Player.New(l, d)) }

// NewIn implements op.Exec.
func (g *guard) NewIn(n tensor.Bytes, l tensor.Layout, d tensor.DType) *op.Tensor {
	return g.own(g.Player.NewIn(n, l, d))
}

// Alias implements op.Exec.
func (g *guard) Alias(t *op.Tensor, l tensor.Layout, d tensor.DType) *op.Tensor {
	return g.own(g.Player.Alias(t, l, d))
}

// ViewOf implements op.Exec.
func (g *guard) ViewOf(t *op.Tensor, l tensor.Layout) *op.Tensor { return g.own(g.Player.ViewOf(t, l)) }

// Keep implements op.Exec.
func (g *guard) Keep(t *op.Tensor) *op.Tensor { return g.own(g.Player.Keep(t)) }

// SumTo implements op.Exec.
func (g *guard) SumTo(t *op.Tensor, shape tensor.Dims) *op.Tensor {
	return g.own(g.Player.SumTo(t, shape))
}

// Youngest is what op.Call.Youngest asks for.
func (g *guard) Youngest(t *op.Tensor) {
	if i := slices.Index(g.owned, t); i >= 0 {
		g.owned = append(slices.Delete(g.owned, i, i+1), t)
	}
}

// Do implements op.Exec.
func (g *guard) Do(r *op.Op, args any, in ...*op.Tensor) []*op.Tensor {
	outs := g.Player.Do(r, args, in...)
	g.owned = append(g.owned, outs...)
	return outs
}

// Drop implements op.Exec.
func (g *guard) Drop(ts ...*op.Tensor) {
	for _, t := range ts {
		for i := len(g.owned) - 1; i >= 0 && t != nil; i-- {
			if g.owned[i] == t {
				g.owned = slices.Delete(g.owned, i, i+1)
				break
			}
		}
	}
	g.Player.Drop(ts...)
}
