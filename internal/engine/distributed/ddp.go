package distributed

import (
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/engine/autograd"
	"github.com/memplan/memplan/internal/engine/python"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// Reducer is DistributedDataParallel around a model: it copies gradients into
// flat buckets as they become ready, reduces those over all processes, and
// copies them back (torch/nn/parallel/distributed.py and
// torch/csrc/distributed/c10d/reducer.cpp). What NCCL needs for itself is no
// block of the caching allocator.
type Reducer struct {
	p *python.Interp
	*program.DDP
	ranks   int64
	model   *python.Module
	params  []*python.Cell // that require grad, in the order of Module.parameters
	buffers []*python.Cell // of the model
	index   map[*autograd.Object]int
	places  []place2D // of each parameter
	buckets []*bucket
	used    *op.Tensor // which parameters were used, where that is asked for

	Sync     bool // require_backward_grad_sync
	forward  bool // require_forward_param_sync
	expects  bool // gradients that become ready are reduced
	open     bool // some were, and not all yet
	marked   bool // the parameters that are not used are
	rebuilt  bool // buckets are in the order of gradients
	unused   []int
	ready    []int // the order in which gradients became ready in the first pass
	isReady  map[int]bool
	hooked   map[int]int // with a static graph: how often gradients of each parameter came in the first pass
	left     map[int]int // and how often they are still to come in this one
	enqueued bool        // with a static graph: the first pass runs, or has run
	delayed  bool        // and all its gradients were reduced
}

const (
	mib = 1 << 20
	// broadcastBytes bounds what is broadcast at a time.
	broadcastBytes = 250 * mib
)

// NewReducer puts DistributedDataParallel around a model.
func NewReducer(p *python.Interp, m *python.Module, parallel *program.Parallel) *Reducer {
	r := &Reducer{p: p, DDP: parallel.DDP, ranks: parallel.Copies(), model: m, index: map[*autograd.Object]int{}, Sync: true, forward: true}
	all := python.Parameters([]*python.Module{m})
	for _, c := range all {
		if autograd.Of(c.T).Requires {
			r.index[autograd.Of(c.T)] = len(r.params)
			r.params = append(r.params, c)
		}
	}
	r.buffers = buffers(m)
	outer := p.Push()
	p.Label("DistributedDataParallel")
	r.verify()
	states := all
	if r.Broadcast {
		states = slices.Concat(all, r.buffers)
	}
	r.broadcast(states)
	first := []tensor.Bytes{1 << 62} // one bucket, which the second pass replaces
	if r.FindUnused && !r.Static {
		first = r.caps()
	}
	order := make([]int, len(r.params))
	for i := range order {
		order[i] = i
	}
	groups := assign(r.params, order, first)
	slices.SortFunc(groups, func(a, b []int) int { return slices.Min(b) - slices.Min(a) }) // the last parameters first
	r.allocate(groups)
	if r.FindUnused {
		r.mapUsed()
	}
	if r.Static {
		r.mapUsed()
	}
	for _, c := range r.params {
		autograd.Of(c.T).Reduce = r.arrived
	}
	p.Pop(outer)
	return r
}

// buffers lists the buffers of a module, each once, in the order of
// Module.buffers.
func buffers(m *python.Module) []*python.Cell {
	var out []*python.Cell
	seen := map[*python.Cell]bool{}
	var walk func(m *python.Module)
	walk = func(m *python.Module) {
		own := m.Buffers
		if m.Class.Quantized != nil { // what belongs to its weight
			own = nil
		}
		for _, c := range own {
			if !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
		}
		for _, ch := range m.Registered {
			walk(ch)
		}
	}
	walk(m)
	return out
}

// verify compares the parameters' shapes with those of other processes: their
// number, a place for that of each process, which NCCL gathers into one tensor
// first (newLikeFlat in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp), then
// sizes and strides.
func (r *Reducer) verify() {
	var temps []*op.Tensor
	for range r.ranks + 1 {
		temps = append(temps, r.vector(1, tensor.Int64))
	}
	r.p.Drop(r.vector(r.ranks, tensor.Int64))
	var dims int64
	for _, c := range r.params {
		dims += int64(2 * c.T.Rank())
	}
	r.p.Drop(r.vector(dims, tensor.Int64))
	r.p.Drop(temps[1:]...)
	r.p.Drop(temps[0])
}

func (r *Reducer) vector(n int64, d tensor.DType) *op.Tensor {
	return r.p.New(tensor.Contiguous(tensor.D(n)), d)
}

// broadcast copies tensors from the first process, flattened by type into
// parts of broadcastBytes, two of them at a time (broadcast_coalesced in
// torch/csrc/distributed/c10d/comm.cpp). One tensor alone needs no copy.
func (r *Reducer) broadcast(cells []*python.Cell) {
	order := make([]int, len(cells))
	for i := range order {
		order[i] = i
	}
	groups := assign(cells, order, []tensor.Bytes{broadcastBytes})
	slices.SortFunc(groups, func(a, b []int) int { return slices.Min(a) - slices.Min(b) })
	var flying []*op.Tensor
	for _, g := range groups {
		if len(flying) == 2 {
			r.p.Drop(flying[0])
			flying = flying[1:]
		}
		var flat *op.Tensor
		if t := cells[g[0]].T; len(g) > 1 || !t.IsContiguous() {
			copies := r.rowMajor(cells, g)
			flat = r.vector(elementsOf(cells, g), t.DType)
			r.p.Mark(flat, trace.Workspace)
			r.p.Drop(copies...)
		}
		flying = append(flying, flat)
	}
	r.p.Drop(flying...)
}

// rowMajor are the copies of those of several tensors that are not row-major, before they
// are put into one (flatten_dense_tensors in torch/csrc/utils/tensor_flatten.h). The copy
// of one tensor alone is what is sent.
func (r *Reducer) rowMajor(cells []*python.Cell, group []int) (copies []*op.Tensor) {
	for _, i := range group {
		if t := cells[i].T; len(group) > 1 && !t.IsContiguous() {
			copies = append(copies, r.p.New(tensor.Contiguous(t.Size), t.DType))
		}
	}
	return copies
}

// mapUsed makes the tensor that tells other processes which parameters were
// used.
func (r *Reducer) mapUsed() {
	old := r.used
	r.used = r.vector(int64(len(r.params)), tensor.Int32)
	r.p.Drop(old)
}

func (r *Reducer) reset() {
	r.marked, r.isReady, r.left = false, map[int]bool{}, maps.Clone(r.hooked)
	for _, b := range r.buckets {
		b.pending = len(b.members)
	}
}

// PreForward is DistributedDataParallel._pre_forward.
func (r *Reducer) PreForward() {
	outer := r.p.Push()
	r.p.Label("DistributedDataParallel")
	if r.p.Env().GradMode {
		r.rebuild()
	}
	if r.forward && r.Broadcast && len(r.buffers) > 0 {
		r.broadcast(r.buffers)
	}
	r.p.Pop(outer)
}

// expect has the backward pass that comes next reduce gradients, whatever the forward pass was under
// (prepare_for_backward, as a pipeline calls it before its last one).
func (r *Reducer) expect() {
	r.expects = true
	r.reset()
}

// PostForward is DistributedDataParallel._post_forward.
func (r *Reducer) PostForward(v python.Value) python.Value {
	r.forward = r.p.Env().GradMode && r.Sync
	if r.forward {
		r.expect()
		if r.FindUnused && !r.Static {
			r.unused = r.unreached(v)
		}
	}
	if r.FindUnused && !r.Static || r.Static && !r.enqueued {
		return r.sink(v)
	}
	return v
}

// rebuild orders buckets by when gradients became ready, once.
func (r *Reducer) rebuild() {
	if r.open {
		for i, c := range r.params {
			if !r.isReady[i] {
				r.p.Fail("DistributedDataParallel: parameter %s of layer %q got no gradient in the step before; with find_unused_parameters: true it need not", c.Decl.Name, r.p.Trace().Layers[c.Layer])
			}
		}
	}
	if r.rebuilt || len(r.ready) == 0 || r.FindUnused && !r.Static {
		return
	}
	r.rebuilt = true
	groups := assign(r.params, r.ready, r.caps())
	r.ready = nil
	indices := r.vector(int64(len(r.params)+1), tensor.Int32) // what the first process broadcasts
	sizes := r.vector(int64(len(groups)), tensor.Int32)
	r.p.Drop(sizes, indices)
	r.allocate(groups)
}

// arrived is the hook of a parameter whose gradient is ready.
func (r *Reducer) arrived(leaf *autograd.Object) {
	i := r.index[leaf]
	if !r.expects {
		return
	}
	if r.Static && !r.delayed {
		if r.hooked == nil {
			r.hooked = map[int]int{}
		}
		r.hooked[i]++
		return
	}
	if !r.marked {
		r.marked = true
		for _, u := range r.unused {
			r.markReady(u)
		}
	}
	if r.Static {
		if r.hooked[i] == 0 {
			r.p.Fail("DistributedDataParallel with static_graph: parameter %s got a gradient, and none in the first step", r.params[i].Decl.Name)
		}
		if r.left[i]--; r.left[i] > 0 {
			return
		}
	}
	if !r.rebuilt && (r.Static || !r.FindUnused) {
		r.ready = append(r.ready, i)
	}
	r.markReady(i)
}

// markReady copies a gradient into its bucket; the last one of a bucket starts
// its reduction.
func (r *Reducer) markReady(i int) {
	if r.isReady[i] {
		r.p.Fail("DistributedDataParallel: parameter %s got two gradients in one backward pass (a checkpoint with use_reentrant: true around a module that is used twice?); static_graph: true allows it", r.params[i].Decl.Name)
	}
	r.isReady[i], r.open = true, true
	b := r.buckets[r.places[i].bucket]
	if leaf := autograd.Of(r.params[i].T); leaf.Grad != nil && r.BucketView {
		r.view(leaf, b)
	}
	b.pending--
	r.reduceInOrder()
}

// reduceInOrder reduces the buckets that are full, in their order; the last one
// ends the pass.
func (r *Reducer) reduceInOrder() {
	for _, b := range r.buckets {
		if b.pending > 0 {
			return
		}
		if b.pending == 0 {
			b.pending = -1
			r.reduce(b)
		}
	}
	if r.Static && !r.rebuilt {
		r.ready = append(r.ready, r.unused...)
	}
	r.finish()
}

// reduce is the all-reduce of a bucket, perhaps of a copy in 16 bits
// (torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py).
func (r *Reducer) reduce(b *bucket) {
	if d := map[string]tensor.DType{"fp16": tensor.Float16, "bf16": tensor.BFloat16}[r.Compress]; d != 0 && d != b.flat.DType {
		r.p.Drop(r.p.New(b.flat.Layout, d))
	}
}

// finish ends a pass in which all gradients were reduced.
func (r *Reducer) finish() { r.open, r.expects = false, false }

// delay queues the reduction of all gradients for the end of the first backward
// pass of a static graph.
func (r *Reducer) delay() {
	if r.Static && !r.enqueued {
		r.enqueued = true
		r.p.AfterPass(r.reduceAll)
	}
}

// reduceAll is Reducer::delay_all_reduce.
func (r *Reducer) reduceAll() {
	if !r.expects {
		r.p.Fail("DistributedDataParallel with static_graph reduces gradients after the first backward pass, which must not be one without (no_sync, grad_sync: false)")
	}
	r.delayed = true
	for i, c := range r.params {
		if r.hooked[i] == 0 {
			r.unused = append(r.unused, i)
		}
		b := r.buckets[r.places[i].bucket]
		if leaf := autograd.Of(c.T); leaf.Grad != nil && r.BucketView {
			r.view(leaf, b)
		}
	}
	r.p.Labelled("DistributedDataParallel", 0, func() {
		for _, b := range r.buckets {
			r.reduce(b)
		}
	})
	r.finish()
}
