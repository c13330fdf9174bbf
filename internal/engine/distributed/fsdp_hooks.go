package distributed

import (
	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
)

// PreForward is FSDPState._pre_forward. What it returns goes into forward in the
// place of the arguments, and is the caller's.
func (s *shardState) PreForward(args []python.Value, _ []string) []python.Value {
	p := s.p
	if s.phase == shardPreBackward { // a checkpoint recomputes: the parameters are there
		return p.HoldAll(args)
	}
	s.phase = shardForward
	if s.forwardRoot == nil {
		s.forwardRoot = s
		p.Drop(s.replaced...)
		s.replaced = nil
	}
	out := p.HoldAll(args)
	if s.ParamDType != nil && !s.KeepInputs {
		castAll(p, out, *s.ParamDType)
	}
	if g := s.group; g != nil {
		g.phase = shardForward
		g.unshard(p)
		g.waitForUnshard(p)
		g.watchInputs(p, out)
	}
	return out
}

// oneOfSeveral are the hooks of a module that fully_shard took together with others: the
// first one that runs gathers the parameters of all, the last one frees them
// (_register_group_forward_hooks).
type oneOfSeveral struct {
	*shardState
	own *python.Module
	of  []*python.Module
}

// PreForward implements python.ForwardHooks.
func (h *oneOfSeveral) PreForward(args []python.Value, names []string) []python.Value {
	if len(h.torun) > 0 {
		return h.p.HoldAll(args)
	}
	for _, m := range h.of {
		h.torun[m] = true
	}
	return h.shardState.PreForward(args, names)
}

// PostForward implements python.ForwardHooks.
func (h *oneOfSeveral) PostForward(v python.Value) python.Value {
	if delete(h.torun, h.own); len(h.torun) > 0 {
		return v
	}
	return h.shardState.PostForward(v)
}

// around are the hooks of a module that parallelize_module was applied to before fully_shard.
type around struct {
	python.ForwardHooks
	inner *parallelized
}

// PreForward implements python.ForwardHooks. What fully_shard's hook returned is a local name of
// Module._call_impl, args_kwargs_result, which the other one's does not take.
func (h *around) PreForward(args []python.Value, names []string) []python.Value {
	result := h.ForwardHooks.PreForward(args, names)
	return append(h.inner.PreForward(result, names), result...)
}

// PostForward implements python.ForwardHooks.
func (h *around) PostForward(v python.Value) python.Value {
	return h.ForwardHooks.PostForward(h.inner.PostForward(v))
}

// castAll converts the floating tensors among values, in their places.
func castAll(p *python.Interp, vs []python.Value, d tensor.DType) {
	for i, v := range vs {
		switch {
		case v.List != nil:
			l := python.NewList(p.HoldAll(v.List.Items))
			castAll(p, l.Items, d)
			p.LetGo(v)
			vs[i] = python.Value{List: l}
		case v.T != nil && v.T.DType.IsFloating() && v.T.DType != d:
			vs[i] = python.Value{T: cast(p, v.T, d)}
			p.LetGo(v)
		}
	}
}

// cast converts a tensor, which may be a DTensor.
func cast(p *python.Interp, t *op.Tensor, d tensor.DType) *op.Tensor {
	outer := p.Push()
	p.Wraps = autograd.Of(t).Spread != nil
	p.Instead = nil
	if p.Wraps {
		p.Env().TorchDispatch, p.Instead = true, map[*op.Op]*op.Op{aten.ToCopy: toCopy(p)}
	}
	out := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: d}, t)
	p.Pop(outer)
	autograd.Of(out).Spread = autograd.Of(t).Spread
	return out
}

// PostForward is FSDPState._post_forward.
func (s *shardState) PostForward(v python.Value) python.Value {
	p := s.p
	if s.phase == shardPreBackward {
		return v
	}
	if g := s.group; g != nil {
		g.freeAfterForward(p)
		g.indices = append(g.indices, len(s.order))
		s.order = append(s.order, g)
		g.phase = shardIdle
	}
	if p.Env().GradMode {
		s.watchResults(p, v)
	}
	s.phase = shardIdle
	var last *op.Tensor // a local name of the hook
	if s.forwardRoot == s {
		last, s.gathered, s.forwardRoot = s.gathered, nil, nil
	}
	if s.OutputDType != nil {
		before := v // the caller's, until it has what the hook returns
		out := []python.Value{p.Hold(v)}
		castAll(p, out, *s.OutputDType)
		v = out[0]
		defer p.LetGo(before)
	}
	p.Drop(last)
	return v
}

// watchResults registers the hook that gathers the parameters before the
// gradients of a result go on (_register_pre_backward_hook).
func (s *shardState) watchResults(p *python.Interp, v python.Value) {
	if v.List != nil {
		for _, it := range v.List.Items {
			s.watchResults(p, it)
		}
		return
	}
	if v.T != nil {
		p.BeforeBackward(v.T, func() { s.preBackward(p) })
	}
}

// postBackwardRow stands for RegisterPostBackwardFunction, an autograd.Function
// that returns its inputs and, in the backward pass, reduces the gradients of the
// module's parameters before it hands those of its inputs on.
var postBackwardRow = &op.Op{
	Name: "RegisterPostBackwardFunction", Node: "RegisterPostBackwardFunctionBackward",
	Grad: func(b *op.Back) {
		for i, g := range b.Grads {
			if g == nil { // set_materialize_grads
				b.Set(i, b.New(tensor.Contiguous(b.OutM[i].Size), b.OutM[i].DType))
			}
		}
		group := b.Args.(*shardGroup)
		group.postBackward(group.p)
		for i, g := range b.Grads {
			if g != nil {
				b.Set(i, b.Keep(g))
			}
		}
	},
}

// watchInputs puts the arguments that require a gradient through
// RegisterPostBackwardFunction; those in lists stay in their places.
func (g *shardGroup) watchInputs(p *python.Interp, args []python.Value) {
	if !p.Env().GradMode {
		return
	}
	var n *autograd.Node
	var each func(vs []python.Value)
	each = func(vs []python.Value) {
		for i, v := range vs {
			switch {
			case v.List != nil:
				l := python.NewList(p.HoldAll(v.List.Items))
				each(l.Items)
				p.LetGo(v)
				vs[i] = python.Value{List: l}
			case v.T != nil && autograd.Of(v.T).Requires:
				if n == nil {
					n = p.NewPassage(postBackwardRow, g)
				}
				t := p.Through(n, v.T)
				autograd.Of(t).Spread = autograd.Of(v.T).Spread
				vs[i] = python.Value{T: t}
				p.LetGo(v)
			}
		}
	}
	each(args)
}

// preBackward is FSDPState._pre_backward.
func (s *shardState) preBackward(p *python.Interp) {
	s.phase = shardPreBackward
	if !s.queued {
		s.queued = true
		p.AfterPass(func() { s.finish(p) })
	}
	if g := s.group; g != nil && g.phase != shardPreBackward {
		g.phase = shardPreBackward
		g.unshard(p)
		g.waitForUnshard(p)
		g.prefetch(p)
	}
}

// prefetch gathers the parameters of the group whose forward ran before
// (_backward_prefetch).
func (g *shardGroup) prefetch(p *python.Interp) {
	if len(g.indices) == 0 {
		return
	}
	last := len(g.indices) - 1
	i := g.indices[last] - 1
	g.indices = g.indices[:last]
	if i < 0 {
		return
	}
	target := g.order[i]
	phase := target.phase
	target.phase = shardPreBackward
	target.unshard(p)
	target.phase = phase
}

// finish is _root_post_backward_final_callback, which runs when a backward pass
// is over: groups whose module's inputs required no gradient are still to be
// reduced.
func (c *sharding) finish(p *python.Interp) {
	for _, s := range c.states {
		if s.group != nil && s.group.unsharded {
			outer := p.Push()
			p.Layer = s.module.Layer
			s.group.postBackward(p)
			p.Pop(outer)
		}
		s.phase = shardIdle
		if s.group != nil {
			s.group.phase = shardIdle
		}
		if c.notLast {
			continue
		}
		clear(s.torun) // of modules that did not run
		if g := s.group; g != nil {
			p.Drop(g.replicated)
			p.Drop(g.result) // an all-gather that was not waited for
			g.replicated, g.result, g.indices = nil, nil, g.indices[:0]
		}
	}
	c.queued = false
	if c.notLast {
		return
	}
	c.order = c.order[:0]
	p.Drop(c.reduced)
	c.reduced = nil
}
