package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
)

// PreForward is what FullyShardedDataParallel.forward does before it calls the module:
// _root_pre_forward and _pre_forward.
func (s *flatState) PreForward(args []python.Value, _ []string) []python.Value {
	p, h := s.p, s.handle
	out := p.HoldAll(args)
	if s.root {
		s.start()
		if h == nil {
			s.restoreBuffers()
		}
		if s.Flat.ForwardPrefetch {
			for _, other := range s.states {
				if other.handle != nil {
					other.handle.needsPre, other.handle.prefetched = true, false
				}
			}
		}
		s.dropGradients()
		if s.ParamDType != nil && s.Flat.CastRoot {
			castAll(p, out, *s.ParamDType)
		}
	}
	if h == nil || h.phase == shardPreBackward { // a checkpoint recomputes: the parameters are there
		return out
	}
	h.phase = shardForward
	if !s.again && h.preIndex < 0 {
		h.preIndex = len(s.pre)
		s.pre = append(s.pre, h)
	}
	if !h.prefetched {
		h.unshard()
	}
	h.needsPre = false
	h.prefetch()
	h.watch()
	if s.ParamDType != nil && !s.KeepInputs {
		castAll(p, out, *s.ParamDType)
	}
	h.watchInputs(out)
	return out
}

// dropGradients gives up the gradients of flat parameters of which no parameter has one
// (_reset_flat_param_grad_info_if_needed).
func (c *flatSharding) dropGradients() {
	if !c.Flat.Orig {
		return
	}
	for _, s := range c.states {
		h := s.handle
		if h == nil || slices.ContainsFunc(h.cells, func(x *python.Cell) bool { return autograd.Of(x.T).Grad != nil }) {
			continue
		}
		dropGrad(c.p, autograd.Of(h.flat))
	}
}

// watch puts the hook that reduces the gradient on the AccumulateGrad node that the flat
// parameter has now, until a backward pass is over (_register_post_backward_hook): where types
// differ, each time that the parameters are gathered the node is another.
func (h *flatHandle) watch() {
	if h.p.Env().GradMode && h.unhook == nil && autograd.Of(h.flat).Requires {
		h.unhook = h.p.HookAccumulate(h.flat, h.postBackward)
	}
}

// watchInputs lets go of frozen parameters when the gradients of the module's inputs are
// there (_register_post_backward_reshard_only_hook).
func (h *flatHandle) watchInputs(args []python.Value) {
	p := h.p
	if !p.Env().GradMode || h.hooked || autograd.Of(h.flat).Requires {
		return
	}
	h.hooked = true
	var inputs []*op.Tensor
	var each func(vs []python.Value)
	each = func(vs []python.Value) {
		for _, v := range vs {
			switch {
			case v.List != nil:
				each(v.List.Items)
			case v.T != nil && p.Requires(v.T):
				inputs = append(inputs, v.T)
			}
		}
	}
	each(args)
	left := len(inputs)
	for _, t := range inputs {
		p.BeforeBackward(t, func() {
			if left--; left == 0 {
				h.phase = shardPostBackward
				h.freeInBackward()
			}
		})
	}
}

// PostForward is _post_forward.
func (s *flatState) PostForward(v python.Value) python.Value {
	p, h := s.p, s.handle
	if h != nil && h.phase == shardPreBackward {
		return v
	}
	if h != nil {
		if h.postIndex <= 0 { // the first one is recorded again, as PyTorch takes 0 for none
			h.postIndex = len(s.post)
		}
		s.post = append(s.post, h)
		h.reshard(!s.root && s.Divides() && s.Flat.Frees())
	}
	if p.Env().GradMode {
		if s.root {
			s.queued = false
		}
		if h != nil {
			h.needsBackward, h.ran = false, false
		}
		s.watchResults(v)
	}
	if h != nil {
		h.phase = shardIdle
	}
	return v
}

// watchResults registers the hook that gathers the parameters when the gradient of a result
// is there (_register_pre_backward_hooks).
func (s *flatState) watchResults(v python.Value) {
	if v.List != nil {
		for _, it := range v.List.Items {
			s.watchResults(it)
		}
		return
	}
	if v.T != nil && s.p.Requires(v.T) {
		s.p.BeforeBackward(v.T, s.preBackward)
		if s.handle != nil {
			s.handle.needsBackward = true
		}
	}
}

// preBackward is _pre_backward_hook.
func (s *flatState) preBackward() {
	p, h := s.p, s.handle
	if h != nil && h.ran {
		return
	}
	if s.root && !s.queued {
		s.queued = true
		p.AfterPass(s.finish)
		s.dropGradients()
	}
	if h == nil {
		return
	}
	h.phase = shardPreBackward
	if h.needsBackward && !h.prefetched {
		h.unshard()
	}
	h.needsBackward = false
	h.prefetch()
	h.keepGradient()
	h.ran = true
}

// prefetch gathers the parameters of the module that is to run next (_prefetch_handle).
func (h *flatHandle) prefetch() {
	var target *flatHandle
	switch {
	case h.phase == shardPreBackward && h.Flat.BackwardPrefetch == "BACKWARD_PRE", h.phase == shardPostBackward && h.Flat.BackwardPrefetch == "BACKWARD_POST":
		if i := h.postIndex - 1; i >= 0 && i < len(h.post) && h.post[i].needsBackward && !h.post[i].prefetched {
			target = h.post[i]
		}
	case h.phase == shardForward && h.Flat.ForwardPrefetch:
		if i := h.preIndex + 1; h.preIndex >= 0 && i < len(h.pre) && h.pre[i].needsPre && !h.pre[i].prefetched {
			target = h.pre[i]
		}
	}
	if target == nil {
		return
	}
	phase := target.phase
	target.phase = shardPreBackward
	if h.phase == shardForward {
		target.phase = shardForward
	}
	target.unshard()
	target.phase, target.prefetched = phase, true
}

// finish is _post_backward_final_callback.
func (c *flatSharding) finish() {
	c.again, c.post = true, c.post[:0]
	for _, s := range c.states {
		h := s.handle
		if h == nil {
			continue
		}
		if h.whole || h.skips { // _catch_all_reshard
			h.reshard(h.freesInBackward())
		}
		h.hooked = false
		if h.unhook != nil {
			h.unhook()
			h.unhook = nil
		}
		if o := autograd.Of(h.flat); o.Requires && !c.local && h.saved != nil { // prepare_gradient_for_optim
			o.Grad = autograd.Of(h.saved)
			h.saved = nil
			if h.Offload {
				dropGrad(c.p, o)
				o.Grad = autograd.Of(c.p.Keep(h.onHost))
			}
		}
		h.ran, h.needsBackward, h.prefetched, h.postIndex, h.phase = false, false, false, -1, shardIdle
	}
	c.queued = false
}
