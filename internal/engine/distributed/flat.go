package distributed

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// FSDP1, as torch/distributed/fsdp has it beside _fully_shard, on rank 0.
// FullyShardedDataParallel around a module copies the parameters that no call before took
// into one flat parameter and leaves this rank's part of it. While the module runs, all
// parts are gathered into one buffer, over which the module's parameters are views that
// autograd knows; their gradients come together in that of the flat parameter, and a hook
// of its AccumulateGrad node divides it.

// flatSharding is what the instances of FullyShardedDataParallel of one model share: the
// attributes of the root's _FSDPState, and _ExecOrderData.
type flatSharding struct {
	p *python.Interp
	*program.FSDP
	ranks  int64                 // that divide the parameters: of hybrid strategies those of a group
	taken  map[*python.Cell]bool // into a flat parameter
	states []*flatState          // in the order of Module.modules

	started bool           // _lazy_init
	made    []tensor.DType // of the buffers, before they are converted
	pre     []*flatHandle  // in the order of the first forward passes
	post    []*flatHandle  // whose forwards have run since the last backward pass
	again   bool           // a backward pass is over
	queued  bool           // the final callback of this backward pass
	local   bool           // gradients are not reduced: no_sync
}

// flatState is an instance of FullyShardedDataParallel.
type flatState struct {
	*flatSharding
	module *python.Module
	root   bool
	handle *flatHandle // nil if no parameters were left for it
}

// flatHandle is FlatParamHandle.
type flatHandle struct {
	*flatSharding
	layer  int32
	cells  []*python.Cell // the parameters in it
	shapes []tensor.Dims
	pieces []int64 // elements of each and of the padding between them
	pads   []bool  // which of pieces are padding
	total  int64   // elements of all pieces
	part   int64   // of a rank's part, with padding

	dtype, computes, reduces tensor.DType

	flat   *op.Tensor // the FlatParameter, over one of the following
	shard  *op.Tensor // _local_shard
	low    *op.Tensor // _mp_shard: shard in the type of computations; nil: it has that type
	full   *op.Tensor // _full_param_padded; nil: nothing is divided
	views  []*op.Tensor
	saved  *op.Tensor // _saved_grad_shard
	copied *op.Tensor // shard on the device, while parameters in host memory are views of it
	onHost *op.Tensor // _cpu_grad
	whole  bool       // flat is not over shard
	skips  bool       // the modules have views of the whole after the forward pass (_skipped_use_sharded_views)
	phase  shardPhase
	hooked bool   // on the inputs of a module whose parameters are frozen
	unhook func() // removes the hook from an AccumulateGrad node; nil: there is none

	preIndex, postIndex     int // in flatSharding.pre and post; -1: none
	needsPre, needsBackward bool
	prefetched, ran         bool // ran: the hook before the backward pass
}

// Flatten puts FullyShardedDataParallel around modules of a model, inner ones first, and
// around the model, all of which lies in host memory before.
func Flatten(p *python.Interp, root *python.Module, j *program.Job) {
	f := j.Parallel.FSDP
	c := &flatSharding{p: p, FSDP: f, ranks: f.Shards, taken: map[*python.Cell]bool{}}
	for _, u := range f.Units {
		c.wrap(moduleAt(root, u.Modules[0]), false)
	}
	c.wrap(root, true)
	c.collect(root)
}

// collect lists the states of m and of the modules in it.
func (c *flatSharding) collect(m *python.Module) {
	if s, is := m.Hooks.(*flatState); is && !slices.Contains(c.states, s) {
		c.states = append(c.states, s)
	}
	for _, ch := range m.Registered {
		c.collect(ch)
	}
}

// wrap is the constructor of FullyShardedDataParallel around m.
func (c *flatSharding) wrap(m *python.Module, root bool) {
	if m.Hooks != nil {
		return
	}
	p := c.p
	outer := p.Push()
	p.Label("FullyShardedDataParallel")
	c.moveModule(m)
	s := &flatState{flatSharding: c, module: m, root: root}
	s.handle = c.flatten(m)
	m.Hooks = s
	p.Pop(outer)
}

// moveModule is _move_module_to_device: breadth first, without modules that are wrapped.
func (c *flatSharding) moveModule(m *python.Module) {
	p := c.p
	queue := m.BreadthFirst(func(m *python.Module) bool {
		_, wrapped := m.Hooks.(*flatState)
		return wrapped
	})
	for _, grad := range []bool{true, false} {
		for _, m := range queue {
			p.Layer = m.Layer
			cells := m.Buffers
			if grad {
				cells = m.Params
			}
			for _, x := range cells {
				if !c.taken[x] {
					p.Move(x, grad)
				}
			}
		}
	}
}

// flatten makes the flat parameter of the parameters of m that were not taken, and divides
// it (FlatParamHandle.__init__ and shard); nil if there are none.
func (c *flatSharding) flatten(m *python.Module) *flatHandle {
	p := c.p
	h := &flatHandle{flatSharding: c, layer: m.Layer, preIndex: -1, postIndex: -1}
	trained := false
	python.EachParameter(m, func(sub *python.Module, i int) {
		x := sub.Params[i]
		if c.taken[x] {
			return
		}
		p.Layer = sub.Layer
		c.taken[x] = true
		d := x.T.DType
		if len(h.cells) == 0 {
			h.setTypes(d)
		}
		requires := autograd.Of(x.T).Requires
		switch {
		case x.T.Rank() == 0:
			p.Fail("FSDP doesn't support scalar parameters, PyTorch says: %s is one", x.Decl.Name)
		case d != h.dtype:
			p.Fail("FSDP must flatten tensors with uniform dtype, PyTorch says: not %s and %s", h.dtype, d)
		case len(h.cells) > 0 && requires != trained && !c.Flat.Orig:
			p.Fail("FSDP must flatten tensors with uniform requires_grad when use_orig_params=False, PyTorch says; %s is not as those before", x.Decl.Name)
		}
		trained = trained || requires
		if !c.Flat.Orig {
			x.Hidden = true
		}
		h.align()
		h.cells, h.shapes = append(h.cells, x), append(h.shapes, x.T.Size)
		h.piece(x.T.Numel(), false)
	})
	if len(h.cells) == 0 {
		return nil
	}
	if rest := h.total % c.ranks; c.Flat.Orig && rest > 0 {
		h.piece(c.ranks-rest, true)
	}
	p.Layer = m.Layer
	h.make(trained)
	if !c.Flat.Orig {
		x := &python.Cell{Decl: &program.Param{Name: "_flat_param", Size: []int64{h.total}, DType: h.dtype}, T: h.flat, Layer: m.Layer, Frozen: !trained, Divided: h.full != nil}
		m.Params = append(m.Params, x)
		c.taken[x] = true
	}
	return h
}

// setTypes is _init_param_reduce_dtypes.
func (h *flatHandle) setTypes(d tensor.DType) {
	h.dtype, h.computes, h.reduces = d, d, d
	if h.ParamDType != nil {
		h.computes, h.reduces = *h.ParamDType, *h.ParamDType
	}
	if h.ReduceDType != nil {
		h.reduces = *h.ReduceDType
	}
}

func (h *flatHandle) piece(n int64, pad bool) {
	h.pieces, h.pads = append(h.pieces, n), append(h.pads, pad)
	h.total += n
}

// alignment is the number of bytes at which parameters begin with use_orig_params=True
// (_get_aligned_numel).
const alignment = 16

// align pads what is there.
func (h *flatHandle) align() {
	if !h.Flat.Orig {
		return
	}
	if n := alignment / h.computes.Size(); h.total%n > 0 {
		h.piece(n-h.total%n, true)
	}
}

// make allocates the flat parameter and leaves this rank's part.
func (h *flatHandle) make(trained bool) {
	p := h.p
	vector := func(n int64) *op.Tensor { return p.New(tensor.Contiguous(tensor.D(n)), h.dtype) }
	var pads []*op.Tensor
	for i, n := range h.pieces {
		if h.pads[i] { // _construct_padding_tensor
			ones := vector(n)
			pads = append(pads, vector(n))
			p.Drop(ones)
		}
	}
	whole := vector(h.total)
	p.Mark(whole, trace.Parameters)
	if n := len(pads); n > 0 { // the last one is a local name, too
		for i := n - 2; i >= 0; i-- {
			p.Drop(pads[i])
		}
		p.Drop(pads[n-1])
	}
	h.part, h.shard = h.total, whole
	if h.Divides() {
		h.part = tensor.DivUp(h.total, h.ranks)
		h.shard = vector(h.part)
		p.Mark(h.shard, trace.Parameters)
		p.EmptyStorage(whole)
		p.Drop(whole)
		h.full = h.unallocated(h.part*h.ranks, h.computes)
	}
	if h.computes != h.dtype {
		h.low = h.unallocated(h.part, h.computes)
	}
	h.flat = p.Alias(h.shard, h.shard.Layout, h.dtype)
	o := autograd.Of(h.flat)
	o.Requires, o.Param = trained, true
	if h.Flat.Orig {
		for _, x := range h.cells {
			x.Divided = h.full != nil
		}
		h.shardedViews()
	}
	if h.Offload {
		h.toHost()
	}
	if h.Flat.Orig {
		return
	}
	for i := len(h.cells) - 1; i >= 0; i-- { // managed_params, a list
		x := h.cells[i]
		p.Drop(x.T)
		x.T, x.Divided = nil, true
	}
}

// toHost moves the part to host memory.
func (h *flatHandle) toHost() {
	p := h.p
	device := h.shard
	h.shard = p.Transfer(device, true, false, device.Layout)
	p.Mark(h.shard, trace.Parameters)
	p.SetData(h.flat, h.shard, h.shard.Layout)
	if h.Flat.Orig {
		h.shardedViews()
	}
	p.Drop(device)
}

// unallocated is a tensor whose storage has no memory yet.
func (h *flatHandle) unallocated(n int64, d tensor.DType) *op.Tensor {
	t := h.p.NewIn(0, tensor.Contiguous(tensor.D(n)), d)
	return t
}

// shardedViews gives the parameters what this rank has of them, as vectors
// (_use_sharded_views); where nothing is divided they are views of their shape.
func (h *flatHandle) shardedViews() {
	p := h.p
	h.skips = false
	defer p.Drop(h.copied)
	h.copied = nil
	at := int64(0)
	k := 0
	for i, n := range h.pieces {
		if h.pads[i] {
			at += n
			continue
		}
		x := h.cells[k]
		l := tensor.Contiguous(h.shapes[k])
		if h.full != nil {
			l = tensor.Contiguous(tensor.D(max(min(at+n, h.part)-at, 0)))
		}
		l.Offset = min(at, h.part)
		p.SetData(x.T, h.shard, l)
		x.Whole = nil
		k++
		at += n
	}
	if h.phase == shardPostBackward {
		p.Drop(h.views...)
		h.views = nil
	}
}

// start is _lazy_init: buffers are converted, and attributes that get their memory later are
// allocated, and freed.
func (c *flatSharding) start() {
	if c.started {
		return
	}
	c.started = true
	if d := c.Flat.BufferDType; d != nil {
		c.states[0].module.EachBuffer(func(x *python.Cell) {
			if x.T != nil {
				c.made = append(c.made, x.T.DType)
			}
		})
		for i := len(c.states) - 1; i >= 0; i-- {
			c.states[i].module.EachBuffer(func(x *python.Cell) { c.convertBuffer(x, *d) })
		}
	}
	for _, s := range c.states { // the root is the first
		if s.handle != nil {
			s.handle.attributes()
		}
	}
}

// convertBuffer is _cast_buffers_to_dtype_and_device of one.
func (c *flatSharding) convertBuffer(x *python.Cell, d tensor.DType) {
	p := c.p
	if t := x.T; t != nil && t.DType.IsFloating() && t.DType != d {
		p.Layer = x.Layer
		x.T = p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: d}, t)
		p.Mark(x.T, trace.Parameters)
		p.Drop(t)
	}
}

// restoreBuffers gives buffers the types back that they were made with, as _root_pre_forward
// does where the root has no parameters of its own.
func (c *flatSharding) restoreBuffers() {
	if c.Flat.BufferDType == nil {
		return
	}
	left := c.made
	c.states[0].module.EachBuffer(func(x *python.Cell) {
		if x.T != nil {
			c.convertBuffer(x, left[0])
			left = left[1:]
		}
	})
}

// attributes is init_flat_param_attributes.
func (h *flatHandle) attributes() {
	p := h.p
	p.Labelled("FullyShardedDataParallel", h.layer, func() {
		once := func(n int64, d tensor.DType) { p.Drop(p.New(tensor.Contiguous(tensor.D(n)), d)) }
		if h.low != nil {
			once(h.part, h.computes)
		}
		if h.Offload {
			h.pin()
		}
		if h.full != nil {
			once(h.part*h.ranks, h.computes)
			if h.low != nil {
				once(h.part*h.ranks, h.dtype)
			}
		}
	})
}

// pin puts the part into page-locked memory, and makes the gradient there.
func (h *flatHandle) pin() {
	p := h.p
	p.On(true, true, func() {
		pinned := p.New(h.shard.Layout, h.dtype)
		p.Mark(pinned, trace.Parameters)
		before := h.shard
		h.shard = pinned
		p.SetData(h.flat, pinned, pinned.Layout)
		if h.Flat.Orig {
			h.shardedViews()
		}
		p.Drop(before)
		h.onHost = p.New(h.shard.Layout, h.dtype)
		p.Mark(h.onHost, trace.Gradients)
	})
}

// unshard is _unshard: the part is converted on one stream, and all are gathered on another.
func (h *flatHandle) unshard() {
	p := h.p
	gathers := h.full != nil && autograd.StorageBytes(h.full) == 0
	var copied *op.Tensor
	p.Labelled("FSDP::all_gather", h.layer, func() {
		p.OnStream(autograd.ConvertStream, func() {
			if h.low != nil && (gathers || h.full == nil || h.Offload) {
				h.fill(h.low)
			}
			if h.Offload {
				copied = p.Transfer(h.shard, false, false, h.shard.Layout)
			}
		})
		if h.low != nil {
			p.Drop(copied)
			copied = nil
		}
		if copied != nil && h.Flat.Orig { // flat_param_to
			p.Drop(h.copied)
			h.copied, copied, h.skips = copied, nil, false
		}
		if gathers {
			p.OnStream(autograd.GatherStream, func() { h.fill(h.full) })
		}
	})
	h.useWhole()
	p.Drop(copied)
	if h.low != nil && h.full != nil {
		p.EmptyStorage(h.low)
	}
}

// fill gives a tensor memory.
func (h *flatHandle) fill(t *op.Tensor) {
	h.p.FillStorage(t, tensor.Bytes(t.Numel()*t.DType.Size()))
	h.p.Mark(t, trace.Parameters)
}

// useWhole is _use_unsharded_flat_param: the modules get views of the whole flat parameter.
func (h *flatHandle) useWhole() {
	p := h.p
	over := h.shard
	switch {
	case h.full != nil:
		over = h.full
	case h.low != nil:
		over = h.low
	}
	p.SetData(h.flat, over, tensor.Contiguous(tensor.D(h.total)))
	h.flat.DType, h.whole = h.computes, true
	if h.skips && h.phase == shardPreBackward {
		return
	}
	if h.phase == shardForward {
		h.makeViews()
	}
	for i, x := range h.cells {
		if h.views != nil {
			x.Whole = h.views[i]
		}
	}
}

// makeViews makes the parameters of the flat one, which autograd sees (_use_unsharded_views).
func (h *flatHandle) makeViews() {
	p := h.p
	p.Drop(h.views...)
	h.views = nil
	outer := p.Push()
	p.Env().GradMode = true
	p.OnStream(autograd.GatherStream, func() {
		p.Quiet(func() {
			k := 0
			for i, piece := range p.Do(aten.SplitWithSizes, &aten.SplitArgs{Sizes: h.pieces}, h.flat) {
				if !h.pads[i] {
					h.views = append(h.views, p.Do1(aten.View, &aten.ShapeArgs{Shape: h.shapes[k].Slice()}, piece))
					k++
				}
				p.Drop(piece)
			}
		})
	})
	p.Pop(outer)
}

// reshard is _reshard.
func (h *flatHandle) reshard(free bool) {
	p := h.p
	skips := h.Flat.Orig && p.Env().GradMode && h.phase == shardForward && h.full != nil && !h.Flat.Frees()
	p.SetData(h.flat, h.shard, tensor.Contiguous(tensor.D(h.part)))
	h.flat.DType, h.whole = h.dtype, false
	switch {
	case skips:
		h.skips = true
	case h.Flat.Orig:
		h.shardedViews()
	}
	if free {
		for _, x := range h.cells {
			x.Whole = nil
		}
		p.EmptyStorage(h.full)
	}
	if h.low != nil && h.full == nil {
		for _, x := range h.cells {
			x.Whole = nil
		}
		p.EmptyStorage(h.low)
	}
	h.prefetched = false
}
