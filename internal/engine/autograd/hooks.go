package autograd

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/trace"
)

// SavedHooks are torch.autograd.graph.saved_tensors_hooks: what happens to a
// tensor when autograd saves it. The innermost pair alone is asked.
type SavedHooks interface {
	// Pack returns what is kept in the place of t, which stays the caller's.
	Pack(t *op.Tensor) Packed
}

// Packed is what a pack hook returned.
type Packed interface {
	// Unpack makes the tensor again when its node runs; the caller owns it.
	Unpack() *op.Tensor
	// Drop is called when the node releases what it saved.
	Drop()
}

// EnterHooks makes h the innermost hooks, until the scope ends.
func (p *Player) EnterHooks(h SavedHooks) { p.hooks = append(p.hooks, h) }

// Hooks are the innermost hooks that were entered; nil: none are.
func (p *Player) Hooks() SavedHooks {
	if n := len(p.hooks); n > 0 {
		return p.hooks[n-1]
	}
	return nil
}

// save fills x with t, or with what the innermost hooks make of it
// (SavedVariable in torch/csrc/autograd/saved_variable.cpp).
func (p *Player) save(x *saved, s op.Save, t *op.Tensor) {
	x.out, x.state, x.item, x.idx = s.Out, s.State, s.Rest, s.Index
	if n := len(p.hooks); n > 0 {
		outer := p.Push()
		p.env.GradMode = false // hooks run under no_grad
		x.packed = p.hooks[n-1].Pack(t)
		p.Pop(outer)
		return
	}
	o := Of(t)
	x.version = o.st.version
	p.Mark(t, trace.Activations)
	p.CountSaved(t)
	if s.Out { // without its gradient function, which would be a cycle
		x.t = p.Alias(t, o.Layout, o.DType)
	} else {
		x.t = p.Keep(t)
	}
}

// numbersHooks are hooks that count tensors of one number on the CPU.
type numbersHooks interface{ PackNumbers(n int) }

// CountNumbers tells the innermost hooks of so many tensors on the CPU that a node saves.
func (p *Player) CountNumbers(n int) {
	if h, ok := p.Hooks().(numbersHooks); ok {
		h.PackNumbers(n)
	}
}

// saveNumbers tells hooks of tensors of one number that a node saves on the CPU: seeds
// of random numbers, and a number in the place of an operand that is saved.
func (p *Player) saveNumbers(n *Node, r *op.Op, c *op.Call) {
	count := r.Seeds
	if a, ok := c.Args.(interface{ Operand() op.Number }); ok && a.Operand().Set && c.Opt(1) == nil {
		for _, s := range r.Saves(2) {
			if !s.Out && s.Index == 1 && n.wants(s) {
				count++
			}
		}
	}
	if count > 0 {
		p.CountNumbers(count)
	}
}

// dropUnpacked gives up what hooks have unpacked for a node, as C++ does with
// local variables: the last one first, but the items of a list from the first.
func (p *Player) dropUnpacked(n *Node, ts []*op.Tensor) {
	end := len(ts)
	for k := len(n.saved) - 1; k >= 0; k-- {
		if n.saved[k].packed == nil {
			continue
		}
		end--
		if !n.saved[k].item || end == 0 || !n.saved[k-1].item {
			p.Drop(ts[end:]...)
			ts = ts[:end]
		}
	}
}
