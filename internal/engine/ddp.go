package engine

import (
	"maps"
	"slices"

	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// reducer is DistributedDataParallel around a model: it copies gradients into
// flat buckets as they become ready, reduces those over all processes, and
// copies them back (torch/nn/parallel/distributed.py and
// torch/csrc/distributed/c10d/reducer.cpp). What NCCL needs for itself is no
// block of the caching allocator.
type reducer struct {
	*job
	*program.DDP
	model   *module
	params  []*cell // that require grad, in the order of Module.parameters
	buffers []*cell // of the model
	index   map[*object]int
	places  []place2D // of each parameter
	buckets []*bucket
	used    *op.Tensor // which parameters were used, where that is asked for

	sync     bool // require_backward_grad_sync
	forward  bool // require_forward_param_sync
	expects  bool // gradients that become ready are reduced
	open     bool // some were, and not all yet
	marked   bool // the parameters that are not used are
	rebuilt  bool // buckets are in the order of gradients
	passes   int  // forward passes that a reduction was prepared for
	unused   []int
	ready    []int // the order in which gradients became ready in the first pass
	isReady  map[int]bool
	hooked   map[int]int // with a static graph: how often gradients of each parameter came in the first pass
	left     map[int]int // and how often they are still to come in this one
	enqueued bool        // with a static graph: the first pass runs, or has run
	delayed  bool        // and all its gradients were reduced
}

// place2D is a bucket and a place in it.
type place2D struct{ bucket, at int }

// bucket is one flat tensor, with a view for each of its parameters.
type bucket struct {
	flat    *op.Tensor
	members []int
	pending int
}

// distribute puts DistributedDataParallel around the models that are trained.
func (j *job) distribute() {
	j.reducers = map[string]*reducer{}
	for _, m := range j.prog.Models {
		if j.prog.Wraps(m) {
			j.reducers[m.Name] = j.newReducer(j.models[m.Name])
		}
	}
}

const (
	mib = 1 << 20
	// broadcastBytes bounds what is broadcast at a time.
	broadcastBytes = 250 * mib
)

func (j *job) newReducer(m *module) *reducer {
	r := &reducer{job: j, DDP: j.prog.Parallel.DDP, model: m, index: map[*object]int{}, sync: true, forward: true}
	all := parameters([]*module{m})
	for _, c := range all {
		if obj(c.t).requires {
			r.index[obj(c.t)] = len(r.params)
			r.params = append(r.params, c)
		}
	}
	r.buffers = buffers(m)
	phase := j.phase
	j.Player.op = j.names.op("DistributedDataParallel")
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
		obj(c.t).reduce = r.arrived
	}
	j.Player.op, j.phase = 0, phase
	return r
}

// buffers lists the buffers of a module, each once, in the order of
// Module.buffers.
func buffers(m *module) []*cell {
	var out []*cell
	seen := map[*cell]bool{}
	var walk func(m *module)
	walk = func(m *module) {
		own := m.buffers
		if m.class.Quantized != nil { // what belongs to its weight
			own = nil
		}
		for _, c := range own {
			if !seen[c] {
				seen[c] = true
				out = append(out, c)
			}
		}
		for _, ch := range m.registered {
			walk(ch)
		}
	}
	walk(m)
	return out
}

// caps are the sizes at which buckets are full: the first, and the others.
func (r *reducer) caps() []tensor.Bytes {
	return []tensor.Bytes{tensor.Bytes(r.FirstCap * mib), tensor.Bytes(r.BucketCap * mib)}
}

// verify compares the parameters' shapes with those of other processes: their
// number, a place for that of each process, which NCCL gathers into one tensor
// first (newLikeFlat in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp), then
// sizes and strides.
func (r *reducer) verify() {
	var temps []*op.Tensor
	for range r.prog.Parallel.Ranks + 1 {
		temps = append(temps, r.vector(1, tensor.Int64))
	}
	r.Drop(r.vector(r.prog.Parallel.Ranks, tensor.Int64))
	var dims int64
	for _, c := range r.params {
		dims += int64(2 * c.t.Rank())
	}
	r.Drop(r.vector(dims, tensor.Int64))
	r.Drop(temps[1:]...)
	r.Drop(temps[0])
}

func (r *reducer) vector(n int64, d tensor.DType) *op.Tensor {
	return r.New(tensor.Contiguous(tensor.D(n)), d)
}

// broadcast copies tensors from the first process, flattened by type into
// parts of broadcastBytes, two of them at a time (broadcast_coalesced in
// torch/csrc/distributed/c10d/comm.cpp). One tensor alone needs no copy.
func (r *reducer) broadcast(cells []*cell) {
	order := make([]int, len(cells))
	for i := range order {
		order[i] = i
	}
	groups := assign(cells, order, []tensor.Bytes{broadcastBytes})
	slices.SortFunc(groups, func(a, b []int) int { return slices.Min(a) - slices.Min(b) })
	var flying []*op.Tensor
	for _, g := range groups {
		if len(flying) == 2 {
			r.Drop(flying[0])
			flying = flying[1:]
		}
		var flat *op.Tensor
		if t := cells[g[0]].t; len(g) > 1 || !t.IsContiguous() {
			flat = r.vector(elementsOf(cells, g), t.DType)
			r.mark(obj(flat), trace.Workspace)
		}
		flying = append(flying, flat)
	}
	r.Drop(flying...)
}

func elementsOf(cells []*cell, members []int) int64 {
	var n int64
	for _, i := range members {
		n += cells[i].t.Numel()
	}
	return n
}

// assign puts tensors into groups of one type each, in their order; a group is
// full when it reaches its cap, of which the last counts for all further ones
// (compute_bucket_assignment_by_size). Groups that are not full come last, those
// of the type that was met last first: libstdc++'s hash map yields them so.
func assign(cells []*cell, order []int, caps []tensor.Bytes) [][]int {
	type group struct {
		members []int
		bytes   tensor.Bytes
		filled  int
	}
	var out [][]int
	var types []tensor.DType
	open := map[tensor.DType]*group{}
	for _, i := range order {
		t := cells[i].t
		g := open[t.DType]
		if g == nil {
			g = &group{}
			open[t.DType] = g
			types = append(types, t.DType)
		}
		g.members = append(g.members, i)
		if g.bytes += tensor.Bytes(t.Numel() * t.DType.Size()); g.bytes >= caps[min(g.filled, len(caps)-1)] {
			out = append(out, g.members)
			*g = group{filled: g.filled + 1}
		}
	}
	for _, d := range slices.Backward(types) {
		if g := open[d]; len(g.members) > 0 {
			out = append(out, g.members)
		}
	}
	return out
}

// allocate makes buckets, the old ones having been given up. Gradients that are
// views move into the new ones.
func (r *reducer) allocate(groups [][]int) {
	for _, b := range r.buckets {
		r.Drop(b.flat)
	}
	r.buckets, r.places = nil, make([]place2D, len(r.params))
	for k, members := range groups {
		b := &bucket{members: members}
		b.flat = r.vector(elementsOf(r.params, members), r.params[members[0]].t.DType)
		r.mark(obj(b.flat), trace.Gradients)
		r.buckets = append(r.buckets, b)
		for at, i := range members {
			r.places[i] = place2D{k, at}
			if leaf := obj(r.params[i].t); r.BucketView && leaf.grad != nil {
				r.view(leaf, b)
			}
		}
	}
	r.reset()
}

// view makes a parameter's gradient a view of its bucket.
func (r *reducer) view(leaf *object, b *bucket) {
	old := leaf.grad
	if old.st == obj(b.flat).st {
		return
	}
	l := tensor.Contiguous(leaf.Size)
	if leaf.IsDense() {
		l = tensor.Layout{Size: leaf.Size, Stride: leaf.Stride}
	}
	leaf.grad = obj(r.Alias(b.flat, l, b.flat.DType))
	r.release(old)
}

// mapUsed makes the tensor that tells other processes which parameters were
// used.
func (r *reducer) mapUsed() {
	old := r.used
	r.used = r.vector(int64(len(r.params)), tensor.Int32)
	r.Drop(old)
}

func (r *reducer) reset() {
	r.marked, r.isReady, r.left = false, map[int]bool{}, maps.Clone(r.hooked)
	for _, b := range r.buckets {
		b.pending = len(b.members)
	}
}

// callModel calls a model of the step, through DistributedDataParallel if that is
// around it. It takes over the arguments.
func (j *job) callModel(name string, args []value) value {
	r := j.reducers[name]
	if r == nil {
		return j.callModule(j.model(name), nil, args)
	}
	held := j.keepAll(args)
	r.before()
	v := r.after(j.callModule(j.model(name), nil, args))
	j.dropAll(held)
	return v
}

// before is DistributedDataParallel._pre_forward.
func (r *reducer) before() {
	name := r.Player.op
	r.Player.op = r.names.op("DistributedDataParallel")
	if r.env.GradMode {
		r.rebuild()
	}
	if r.forward && r.Broadcast && len(r.buffers) > 0 {
		r.broadcast(r.buffers)
	}
	r.Player.op = name
}

// after is DistributedDataParallel._post_forward.
func (r *reducer) after(v value) value {
	r.forward = r.env.GradMode && r.sync
	if r.forward {
		r.expects = true
		r.reset()
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
func (r *reducer) rebuild() {
	if r.open {
		for i, c := range r.params {
			if !r.isReady[i] {
				r.Fail("DistributedDataParallel: parameter %s of layer %q got no gradient in the step before; with find_unused_parameters: true it need not", c.decl.Name, r.tr.Layers[c.layer])
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
	r.Drop(sizes, indices)
	r.allocate(groups)
}

// arrived is the hook of a parameter whose gradient is ready.
func (r *reducer) arrived(leaf *object) {
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
			r.Fail("DistributedDataParallel with static_graph: parameter %s got a gradient, and none in the first step", r.params[i].decl.Name)
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
func (r *reducer) markReady(i int) {
	if r.isReady[i] {
		r.Fail("DistributedDataParallel: parameter %s got two gradients in one backward pass (a checkpoint with use_reentrant: true around a module that is used twice?); static_graph: true allows it", r.params[i].decl.Name)
	}
	r.isReady[i], r.open = true, true
	b := r.buckets[r.places[i].bucket]
	if leaf := obj(r.params[i].t); leaf.grad != nil && r.BucketView {
		r.view(leaf, b)
	}
	b.pending--
	r.reduceInOrder()
}

// reduceInOrder reduces the buckets that are full, in their order; the last one
// ends the pass.
func (r *reducer) reduceInOrder() {
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
func (r *reducer) reduce(b *bucket) {
	if d := map[string]tensor.DType{"fp16": tensor.Float16, "bf16": tensor.BFloat16}[r.Compress]; d != 0 && d != b.flat.DType {
		r.Drop(r.New(b.flat.Layout, d))
	}
}

// finish ends a pass in which all gradients were reduced.
func (r *reducer) finish() { r.open, r.expects = false, false }

// delay queues the reduction of all gradients for the end of the first backward
// pass of a static graph.
func (r *reducer) delay() {
	if r.Static && !r.enqueued {
		r.enqueued = true
		r.task.callbacks = append(r.task.callbacks, r.reduceAll)
	}
}

// reduceAll is Reducer::delay_all_reduce.
func (r *reducer) reduceAll() {
	if !r.expects {
		r.Fail("DistributedDataParallel with static_graph reduces gradients after the first backward pass, which must not be one without (no_sync, grad_sync: false)")
	}
	r.delayed = true
	for i, c := range r.params {
		if r.hooked[i] == 0 {
			r.unused = append(r.unused, i)
		}
		b := r.buckets[r.places[i].bucket]
		if leaf := obj(c.t); leaf.grad != nil && r.BucketView {
			r.view(leaf, b)
		}
	}
	for _, b := range r.buckets {
		r.reduce(b)
	}
	r.finish()
}

// unreached lists the parameters that no gradient function of v leads to.
func (r *reducer) unreached(v value) []int {
	seen := map[*node]bool{}
	var stack []*node
	each(v, func(t *op.Tensor) {
		if fn := r.gradFn(obj(t)); fn != nil {
			stack = append(stack, fn)
		}
	})
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, e := range n.edges {
			if e.fn != nil && !seen[e.fn] {
				seen[e.fn] = true
				stack = append(stack, e.fn)
			}
		}
	}
	var out []int
	for i, c := range r.params {
		if acc := obj(c.t).acc; acc == nil || !seen[acc] {
			out = append(out, i)
		}
	}
	return out
}

// each calls f for each tensor of a value.
func each(v value, f func(t *op.Tensor)) {
	if v.t != nil {
		f(v.t)
	}
	if v.list != nil {
		for _, it := range v.list.items {
			each(it, f)
		}
	}
}

// ddpSink is _DDPSink, an autograd function that clones the results of a model.
var ddpSink = &op.Row{
	Name: "_DDPSink", Node: "_DDPSinkBackward",
	Run: func(c *op.Call) {
		for _, t := range c.In {
			c.Return(c.New(t.LikeDense(), t.DType))
		}
	},
	Grad: func(b *op.Back) {
		b.Args.(*reducer).delay()
		for i, g := range b.Grads {
			if g != nil {
				b.Set(i, b.Keep(g))
			}
		}
	},
}

// sink passes the tensors of v through ddpSink. Those that have no gradient
// function come back themselves.
func (r *reducer) sink(v value) value {
	var ins []*op.Tensor
	each(v, func(t *op.Tensor) { ins = append(ins, t) })
	if len(ins) == 0 {
		return v
	}
	outs := r.Do(ddpSink, r, ins...)
	k := 0
	var replace func(v value) value
	replace = func(v value) value {
		switch {
		case v.t != nil:
			t := outs[k]
			k++
			if r.gradFn(obj(v.t)) == nil {
				r.Drop(t)
				return r.keep(v)
			}
			return value{t: t}
		case v.list != nil:
			l := &list{refs: 1, items: make([]value, len(v.list.items))}
			for i, it := range v.list.items {
				l.items[i] = replace(it)
			}
			return value{list: l}
		}
		return v
	}
	out := replace(v)
	r.drop(v)
	return out
}
