package distributed

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/torchver"
	"github.com/memplan/memplan/internal/trace"
)

// FSDP2, as torch/distributed/fsdp/_fully_shard has it, on rank 0. fully_shard
// makes a group of the parameters of a module that no call before took, and
// leaves of each the rows that are this rank's. Hooks of the module's forward and
// of the gradients of its results gather the group's parameters on a stream of
// their own and free them again; when the gradients of its inputs are there,
// those of its parameters are reduced and divided.
//
// Rank 0 has the first rows of each parameter, never fewer than another, so that
// its part is never padded.

// shardPhase is TrainingState.
type shardPhase uint8

const (
	shardIdle shardPhase = iota
	shardForward
	shardPreBackward
	shardPostBackward
)

// sharding is what the modules of one model share: FSDPStateContext and
// FSDPCommContext.
type sharding struct {
	p *python.Interp
	*program.FSDP
	ranks     int64                             // that divide the parameters: of HSDP those of a group
	gathering int16                             // the stream of all-gathers
	reducing  int16                             // and of reduce-scatters
	inference bool                              // the job runs under torch.inference_mode
	meta      map[*python.Cell]*shardParam      // parameters on the meta device
	held      []*python.Cell                    // whose whole values live until all calls are done
	whole     map[*python.Cell]*op.Tensor       // of these
	shared    map[*python.Cell][]*python.Module // which modules have a parameter
	states    []*shardState                     // in the order of Module.named_modules

	forwardRoot *shardState   // whose forward is under way
	order       []*shardGroup // whose forwards have run since the last backward
	gathered    *op.Tensor    // an all-gather's output that was copied from, until the next one was
	reduced     *op.Tensor    // a reduce-scatter's input, until the next one starts
	replaced    []*op.Tensor  // parts that are no longer those of their parameters
	queued      bool          // the final callback of this backward pass
	local       bool          // gradients are not reduced: set_requires_gradient_sync(False)
	keeps       bool          // backward passes leave parameters gathered: set_reshard_after_backward(False)
	notLast     bool          // another backward pass is to come: set_is_last_backward(False)
}

// shardState is FSDPState: a module that fully_shard was called on, or several.
type shardState struct {
	*sharding
	module *python.Module // the first of them
	all    int            // how many there are
	torun  map[*python.Module]bool
	group  *shardGroup // nil if no parameters were left for it
	phase  shardPhase
}

// shardGroup is FSDPParamGroup: parameters that are gathered together.
type shardGroup struct {
	*sharding
	module  *python.Module
	params  []*shardParam
	dtype   tensor.DType // of the parameters
	phase   shardPhase
	reshard int64 // as program.Unit.Reshard

	unsharded  bool
	own        bool       // the only rank's, to be copied
	regrouped  bool       // divided over fewer ranks since the forward pass (SHARDED_POST_FORWARD)
	result     *op.Tensor // of an all-gather, not copied from yet
	indices    []int      // in sharding.order
	replicated *op.Tensor // what the groups of ranks reduced last (_all_reduce_state), of HSDP
}

// shardParam is FSDPParam.
type shardParam struct {
	cell     *python.Cell
	size     tensor.Dims          // of the parameter that is divided: with tensor parallelism itself a part
	part     int64                // elements of a rank's part, with padding
	gradient python.GradPlacement // of the gradient of the gathered parameter, if that is a DTensor

	output *op.Tensor // of the all-gather, flat; its memory comes and goes
	whole  *op.Tensor // the parameter over it, which autograd knows
	after  *op.Tensor // this rank's part after the forward pass, if regrouped
	sum    *op.Tensor // gradients that were not reduced, in the type of reductions
}

// Shard calls fully_shard on modules of the k-th model, inner ones first, and on
// the model, all of which lies in host memory before.
func Shard(p *python.Interp, root *python.Module, j *program.Job, k int) {
	s := j.Parallel.FSDP
	c := &sharding{p: p, FSDP: s, ranks: s.Shards, inference: j.Inference == "inference_mode", meta: map[*python.Cell]*shardParam{}, shared: map[*python.Cell][]*python.Module{}, whole: map[*python.Cell]*op.Tensor{}}
	c.gathering, c.reducing = autograd.CollectiveStreams(k)
	python.EachParameter(root, func(m *python.Module, i int) {
		if x := m.Params[i]; !slices.Contains(c.shared[x], m) {
			c.shared[x] = append(c.shared[x], m)
		}
	})
	for _, path := range s.Held {
		c.held = append(c.held, cellAt(root, path))
	}
	for _, u := range s.Of(root.Class) {
		var modules []*python.Module
		for _, path := range u.Modules {
			modules = append(modules, moduleAt(root, path))
		}
		c.shard(modules, u.Reshard)
	}
	reshard := int64(0) // _lazy_init: the root's parameters are needed at once in the backward pass
	if s.ReshardRoot && p.Env().Torch.Has(torchver.RootReshards) {
		reshard = s.Reshard
	}
	c.shard([]*python.Module{root}, reshard)
	for _, x := range c.held {
		p.Drop(c.whole[x])
	}
	if s.Meta {
		c.toEmpty(root)
	}
	for t := s.Tied; len(t) > 1; t = t[2:] {
		c.tieAgain(root, t[0], t[1])
	}
	c.collectStates(root)
}

// moduleAt is the module at a path.
func moduleAt(m *python.Module, path string) *python.Module {
	for path != "" {
		i := m.Step(path)
		path = path[min(len(path), len(m.Class.Children[i].Path)+1):]
		m = m.Children[i]
	}
	return m
}

// cellAt is the parameter at a path.
func cellAt(root *python.Module, path string) *python.Cell {
	i := strings.LastIndexByte(path, '.')
	m := moduleAt(root, path[:max(i, 0)])
	return m.Params[slices.IndexFunc(m.Params, func(x *python.Cell) bool { return x.Decl.Name == path[i+1:] })]
}

// toEmpty is Module.to_empty of a model on the meta device whose parameters are divided:
// children first.
func (c *sharding) toEmpty(m *python.Module) {
	for _, ch := range m.Registered {
		c.toEmpty(ch)
	}
	p := c.p
	outer := p.Push()
	p.Layer = m.Layer
	for _, x := range m.Params {
		if x.T == nil {
			if !c.Offload { // empty_like of a DTensor, whose placement is inferred
				startFakes(p)
			}
			c.divide(c.meta[x])
		}
	}
	for _, x := range m.Buffers {
		p.Move(x, false)
	}
	p.Pop(outer)
}

// collectStates lists the states below m as Module.named_modules comes to them.
func (c *sharding) collectStates(m *python.Module) {
	if s := stateOf(m); s != nil && !slices.Contains(c.states, s) {
		c.states = append(c.states, s)
	}
	for _, ch := range m.Registered {
		c.collectStates(ch)
	}
}

// stateOf returns the state of a module that fully_shard was called on, nil of others.
func stateOf(m *python.Module) *shardState {
	hooks := m.Hooks
	if a, is := hooks.(*around); is {
		hooks = a.ForwardHooks
	}
	switch h := hooks.(type) {
	case *shardState:
		return h
	case *oneOfSeveral:
		return h.shardState
	}
	return nil
}

// SetSync is set_requires_gradient_sync of a model, which need not be sharded, or no_sync of
// FullyShardedDataParallel.
func SetSync(m *python.Module, sync bool) {
	if s, is := m.Hooks.(*flatState); is {
		s.local = !sync
	}
	if s := stateOf(m); s != nil {
		s.local = !sync
	}
}

// beginMicrobatch is what a stage of a pipeline says before each backward pass: gradients stay with the process, and
// parameters as they are (backward_maybe_with_nosync of torch/distributed/pipelining/stage.py).
func (c *sharding) beginMicrobatch() { c.local, c.keeps, c.notLast = true, true, true }

// endMicrobatches is what a stage does after its last backward pass, outside of it.
func (c *sharding) endMicrobatches() {
	c.local, c.keeps, c.notLast = false, false, false
	for _, s := range c.states {
		if s.group != nil {
			outer := c.p.Push()
			c.p.Layer = s.module.Layer
			s.group.postBackward(c.p)
			c.p.Pop(outer)
		}
	}
}

// managed lists the modules whose parameters fully_shard takes: what is in m but
// not in a module that is sharded already, children first
// (_get_managed_modules).
func managed(m *python.Module, root bool, to []*python.Module) []*python.Module {
	if !root && stateOf(m) != nil {
		return to
	}
	for _, ch := range m.Registered {
		to = managed(ch, false, to)
	}
	return append(to, m)
}

// shard is fully_shard of one module, or of several: parameters and buffers are moved to
// the device, and the rows that are this rank's copied; the rest is freed when the call
// returns, in the order of Module.named_parameters of each module (contract in
// torch/distributed/_composable/contract.py, where those of the last one are those of a loop
// variable, too).
func (c *sharding) shard(of []*python.Module, reshard int64) {
	m := of[0]
	if stateOf(m) != nil {
		return
	}
	p := c.p
	outer := p.Push()
	state := &shardState{sharding: c, module: m, all: len(of), torun: map[*python.Module]bool{}}
	g := &shardGroup{sharding: c, module: m, reshard: reshard}
	var modules []*python.Module
	for _, m := range of {
		modules = managed(m, true, modules)
	}
	for _, m := range of {
		var h python.ForwardHooks = state
		if len(of) > 1 {
			h = &oneOfSeveral{state, m, of}
		}
		if m.Hooks != nil {
			h = &around{h, m.Hooks.(*parallelized)}
		}
		m.Hooks = h
	}
	seen := map[*python.Cell]bool{}
	each := func(f func(c *python.Cell, grad bool)) {
		for _, params := range []bool{true, false} {
			for _, sub := range modules {
				p.Layer = sub.Layer
				cells := sub.Params
				if !params {
					cells = sub.Buffers
				}
				for _, x := range cells {
					if !seen[x] {
						seen[x] = true
						f(x, params)
					}
				}
			}
		}
	}
	each(func(x *python.Cell, grad bool) {
		if !c.Meta {
			p.Move(x, grad)
		}
		if grad {
			of := &shardParam{cell: x}
			g.params = append(g.params, of)
			if c.Meta {
				c.meta[x] = of
			}
		}
	})
	whole := map[*python.Cell]*op.Tensor{}
	for _, x := range g.params {
		d := x.cell.Decl.DType
		kept := c.untie(x.cell, modules)
		if !c.Meta {
			if slices.Contains(c.held, x.cell) {
				c.whole[x.cell] = x.cell.T
			} else if !kept {
				whole[x.cell] = x.cell.T
			}
			d = x.cell.T.DType
			c.divide(x)
		}
		if x == g.params[0] {
			g.dtype = d
		} else if d != g.dtype {
			p.Fail("FSDP expects uniform original parameter dtype, PyTorch says: %s and %s in one module that is sharded", g.dtype, d)
		}
	}
	last := len(of) - 1
	for i := range of {
		m := of[last]
		if i < last {
			m = of[last-1-i]
		}
		python.EachParameter(m, func(sub *python.Module, i int) {
			if t := whole[sub.Params[i]]; t != nil {
				p.Drop(t)
				delete(whole, sub.Params[i])
			}
		})
	}
	if len(g.params) > 0 {
		state.group = g
	}
	p.Pop(outer)
}

// tieAgain gives a parameter the part of another one. Its own part lives until the first forward
// pass (FSDPParam.reset_sharded_param).
func (c *sharding) tieAgain(root *python.Module, param, source string) {
	x, from := cellAt(root, param), cellAt(root, source)
	c.replaced = append(c.replaced, x.T)
	x.T = from.T
}

// untie leaves a parameter that is about to be divided whole in modules that share it and are
// not sharded with those that are given: there it is one of its own from now on, since only
// these get the part (FSDPParam._setattr_on_modules). It reports whether there are such modules.
func (c *sharding) untie(x *python.Cell, modules []*python.Module) bool {
	var own *python.Cell
	for _, m := range c.shared[x] {
		if slices.Contains(modules, m) {
			continue
		}
		if own == nil {
			copied := *x
			copied.Layer, own = m.Layer, &copied
		}
		for i := range m.Params {
			if m.Params[i] == x {
				m.Params[i] = own
			}
		}
		c.shared[own] = append(c.shared[own], m)
	}
	return own != nil
}

// divide leaves a rank's part of a parameter (FSDPParam._init_sharded_param).
func (c *sharding) divide(x *shardParam) {
	p := c.p
	size, d := x.cell.Size(), x.cell.Decl.DType
	if t := x.cell.T; t != nil {
		size, d = t.Size, t.DType
	}
	if size.Len() == 0 {
		p.Fail("fully_shard does not support scalar parameters, PyTorch says: %s is one", x.cell.Decl.Name)
	}
	p.Layer = x.cell.Layer
	x.size = size
	part := size.Slice()
	part[0] = (part[0] + c.ranks - 1) / c.ranks
	var local *op.Tensor
	p.On(c.Offload && c.Meta, c.Pinned, func() { local = p.Leaf(trace.Parameters, d, !x.cell.Frozen, part...) })
	if c.Offload && !c.Meta {
		device := local
		local = p.Transfer(device, true, c.Pinned, device.LikeDense())
		p.Mark(local, trace.Parameters)
		autograd.Of(local).Requires = !x.cell.Frozen
		p.Drop(device)
	}
	autograd.Of(local).Param = true
	x.cell.T, x.cell.Divided, x.part = local, true, local.Numel()
	if x.gradient = x.cell.Gradient; x.gradient != python.GradTensor { // those of the parts lie as these
		x.cell.Gradient = python.GradReplicate
		if x.cell.Part.Len() > 0 {
			x.cell.Gradient = python.GradShard
		}
	}
}
