package autograd

import (
	"slices"

	"github.com/memplan/memplan/internal/aten"
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/internal/trace"
)

// graphTask is one call of backward(). A node may call it again, so that several
// are under way; each has its own counts and sums of gradients.
type graphTask struct {
	id        int
	depth     int  // of calls inside of calls
	keep      bool // retain_graph
	create    bool // create_graph: the derivatives are recorded themselves
	suspended []suspended
	callbacks []func() // run when it is over (Engine::queue_callback)
	node      *Node    // that runs

	exec     map[*Node]*execInfo // of torch.autograd.grad; nil: all nodes run
	captured []*op.Tensor        // the gradients that it takes
}

// suspended is what another backward pass has noted of a node.
type suspended struct {
	n     *Node
	task  int
	waits int
	grads []*op.Tensor
}

// Backward plays loss.backward(gradient): it runs the graph behind root. It
// takes over the caller's reference to grad; a nil grad is a tensor of ones.
func (p *Player) Backward(root, grad *op.Tensor, retain bool) {
	if !Of(root).Requires {
		p.Fail("backward of a value that does not require grad")
	}
	if grad == nil {
		grad = p.ones(root)
	}
	p.RunBackward([]*op.Tensor{root}, []*op.Tensor{grad}, retain)
	p.Drop(grad) // Python holds it until the call returns
}

// ones is the gradient of a tensor that stands at the beginning of a backward pass.
func (p *Player) ones(t *op.Tensor) *op.Tensor {
	if t.Numel() != 1 {
		p.Fail("backward needs a loss of one element, not of shape %v", t.Size)
	}
	outer := p.Push()
	p.Op = p.names.op("ones_like")
	grad := p.New(t.LikeDense(), t.DType)
	p.Fill(grad, 1)
	p.Pop(outer)
	return grad
}

// RunBackward is torch.autograd.backward: the graph behind roots runs for
// gradients that the caller keeps.
func (p *Player) RunBackward(roots, grads []*op.Tensor, retain bool) {
	p.run(&graphTask{keep: retain}, roots, grads, nil)
}

// run runs the graph behind roots, for gradients that the caller keeps: all of it,
// or what is on the way to some inputs (Engine::execute).
func (p *Player) run(g *graphTask, roots, grads []*op.Tensor, inputs []edge) {
	p.tasks++
	g.id = p.tasks
	if p.task != nil {
		g.depth = p.task.depth + 1
	}
	var graphRoot Node // of several roots
	for _, t := range roots {
		graphRoot.edges = append(graphRoot.edges, p.gradEdge(Of(t)))
	}
	outer := p.Push()
	if p.Phase == trace.Forward || p.Phase == trace.Other {
		p.Phase = trace.Backward
	}
	caller := p.Push()
	p.task, p.thread, p.env.GradMode = g, 1, g.create
	if inputs != nil {
		p.initToExecute(g, graphRoot.edges, inputs)
	}
	if len(roots) == 1 {
		first := graphRoot.edges[0]
		g.countDependencies(first.fn)
		p.accumulate(first, p.Keep(grads[0])) // the first
		p.ready.push(readyNode{first.fn, g.depth})
	} else {
		g.countDependencies(&graphRoot)
		for i, e := range graphRoot.edges {
			if g.executes(e.fn) {
				p.Drop(p.arrive(g, e, p.Keep(grads[i])))
			}
		}
	}
	for len(p.ready) > 0 && p.ready[0].depth == g.depth {
		p.evaluate(g, p.ready.pop())
	}
	for _, f := range g.callbacks {
		f()
	}
	for _, s := range g.suspended {
		s.n.task, s.n.waits, s.n.grads = s.task, s.waits, s.grads
	}
	p.Pop(caller)
	p.Op = 0
	for _, e := range graphRoot.edges { // the task holds the roots until the call returns
		p.dropNode(e.fn)
	}
	p.Pop(outer)
}

// arrive hands a gradient to the node that e leads to, which is ready with the
// last one, and returns what accumulate does.
func (p *Player) arrive(g *graphTask, e edge, t *op.Tensor) *op.Tensor {
	rest := p.accumulate(e, t)
	if e.fn.waits--; e.fn.waits == 0 {
		p.ready.push(readyNode{e.fn, g.depth})
	}
	return rest
}

// countDependencies counts for each node how many gradients will arrive.
func (g *graphTask) countDependencies(root *Node) {
	g.enter(root)
	stack := []*Node{root}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, e := range n.edges {
			if e.fn == nil || !g.executes(e.fn) {
				continue
			}
			if e.fn.task != g.id {
				g.enter(e.fn)
				stack = append(stack, e.fn)
			}
			e.fn.waits++
		}
	}
}

// enter makes n a node of this task.
func (g *graphTask) enter(n *Node) {
	if n.waits > 0 || len(n.grads) > 0 {
		g.suspended = append(g.suspended, suspended{n, n.task, n.waits, n.grads})
		n.waits, n.grads = 0, nil
	}
	n.task = g.id
}

// evaluate runs one node and routes its gradients
// (Engine::evaluate_function and call_function in torch/csrc/autograd/engine.cpp).
func (p *Player) evaluate(g *graphTask, n *Node) {
	outer := p.Push()
	p.Layer, p.Op, p.at, p.stream = n.layer, n.op, n.at, n.stream
	if n.done && !g.keep && len(n.saved) > 0 {
		p.failAt(outer.at, "backward through the graph a second time: its saved tensors were released (retain_graph keeps them; detach cuts off what one step hands to the next)")
	}
	if !p.take(g, n) {
		p.Drop(n.grads...)
		n.grads = n.grads[:0]
		p.Pop(outer)
		return
	}
	if n.leaf != nil {
		p.accumulateGrad(n)
		n.grads = n.grads[:0]
		p.Pop(outer)
		return
	}
	p.Env().Training = n.train
	for _, hook := range n.before {
		hook()
	}
	g.node = n
	b := p.apply(n, n.grads)
	p.validate(n, b.Results)
	for _, hook := range n.after {
		hook()
	}
	n.after = nil
	p.Drop(n.grads...)
	n.grads = n.grads[:0]
	if !g.keep {
		p.releaseSaved(n)
	}
	for k := range b.Results {
		i := n.edge(k)
		if e := n.edges[i]; e.fn != nil && g.executes(e.fn) {
			b.Results[i] = p.arrive(g, e, b.Results[i])
		}
	}
	for k := range b.Results {
		p.Drop(b.Results[n.edge(k)])
	}
	p.backs.Put(b)
	p.Pop(outer)
}

// newBack prepares a run of n's derivative formula.
func (p *Player) newBack(n *Node, grads []*op.Tensor) *op.Back {
	b := p.backs.Get(p.Meter)
	in, out := p.tensors.Zeroed(b.SavedIns(), len(n.inM)), p.tensors.Zeroed(b.SavedOuts(), len(n.outM))
	*b = op.Back{
		Call:  op.Call{Exec: p, Op: n.row, Args: n.args},
		Grads: grads, InM: n.inM, OutM: n.outM, Retain: p.task.keep,
		Needs: p.flags.Zeroed(b.Needs, len(n.edges)), Results: p.tensors.Zeroed(b.Results, len(n.edges)),
	}
	b.Hold(in, out)
	for i := range n.edges {
		b.Needs[i] = n.edges[i].fn != nil && p.task.executes(n.edges[i].fn)
	}
	return b
}

// apply calls n's derivative formula. The caller owns the results and keeps
// the incoming gradients; in the end it puts the Back into its pool.
func (p *Player) apply(n *Node, grads []*op.Tensor) *op.Back {
	b := p.newBack(n, grads)
	function, python := n.args.(op.Application)
	if p.task.create && (n.custom != nil || n.slices != nil || python) {
		p.Fail("create_graph through %s is not modelled", n.row.Name)
	}
	if n.custom != nil {
		n.custom.Backward(n, b)
		return b
	}
	defined := false
	for _, t := range grads {
		defined = defined || t != nil
	}
	if !defined || !python && !slices.Contains(b.Needs, true) {
		return b
	}
	if n.slices != nil {
		p.applySlices(n, b)
		return b
	}
	if python {
		function.Materialize(b)
	}
	var room [4]*op.Tensor
	unpacked := room[:0]
	var results []*op.Tensor
	for _, s := range n.saved {
		t := s.t
		if t != nil && Of(t).st.version != s.version {
			p.refuseChanged(n, t)
		}
		if s.packed != nil {
			t = s.packed.Unpack()
			if p.task.create {
				t = p.attach(n, s, t)
			}
			unpacked = append(unpacked, t)
		} else if p.task.create && s.out && t != nil {
			t = p.attach(n, s, p.Keep(t))
			results = append(results, t)
		}
		switch {
		case s.state:
		case s.out:
			b.SavedOuts()[s.idx] = t
		default:
			b.SavedIns()[s.idx] = t
		}
	}
	if python {
		b.Unpacked = slices.Clone(unpacked)
	}
	outer := p.Push()
	p.depth++
	p.derive(n.row, b)
	b.End()
	p.Pop(outer)
	for i, t := range b.Results { // a formula may compute what is not needed; a Python function's lives as long as the others
		if t != nil && !python && !b.Needs[i] && (b.Listed == 0 || i < b.Listed) {
			p.Drop(t)
			b.Results[i] = nil
		}
	}
	if !python {
		p.dropUnpacked(n, unpacked)
	}
	p.Drop(results...)
	return b
}

// attach returns a tensor over the memory of t, a saved tensor of n, that has its
// gradient function again (SavedVariable::unpack). It takes over the reference to t.
func (p *Player) attach(n *Node, s saved, t *op.Tensor) *op.Tensor {
	v := p.Alias(t, t.Layout, t.DType)
	p.Drop(t)
	switch {
	case s.out:
		p.setFn(Of(v), n, s.idx)
	case !s.state && s.idx < len(n.edges) && n.edges[s.idx].fn != nil:
		p.setFn(Of(v), n.edges[s.idx].fn, n.edges[s.idx].nr)
	}
	return v
}

// validate gives each gradient the shape and type of what it is the gradient
// of (validate_outputs): a broadcast is summed away, a type converted.
func (p *Player) validate(n *Node, grads []*op.Tensor) {
	for i, g := range grads {
		e := n.edges[i]
		if g == nil || e.fn == nil {
			continue
		}
		want := e.fn.outM[e.nr]
		if g.Size != want.Size {
			s := p.SumTo(g, want.Size)
			p.Drop(g)
			g = s
		}
		if g.DType != want.DType {
			s := p.Do1(aten.ToCopy, &aten.ToCopyArgs{DType: want.DType}, g)
			p.Drop(g)
			g = s
		}
		grads[i] = g
	}
}

// SumTo sums t over the dimensions along which shape was broadcast to it
// (at::sum_to).
func (p *Player) SumTo(t *op.Tensor, shape tensor.Dims) *op.Tensor {
	if shape.Len() == 0 {
		return p.Do1(aten.Sum, &aten.ReduceArgs{}, t)
	}
	lead := t.Rank() - shape.Len()
	var dims []int64
	for i := range lead {
		dims = append(dims, int64(i))
	}
	for i := lead; i < t.Rank(); i++ {
		if shape.At(i-lead) == 1 && t.Dim(i) != 1 {
			dims = append(dims, int64(i))
		}
	}
	s := p.Keep(t)
	if len(dims) > 0 {
		p.Drop(s)
		s = p.Do1(aten.Sum, &aten.ReduceArgs{Dim: dims, KeepDim: true}, t)
	}
	if lead > 0 {
		v := p.Do1(aten.View, &aten.ShapeArgs{Shape: shape.Slice()}, s)
		p.Drop(s)
		s = v
	}
	return s
}

// Do1 runs an operator that has one result.
func (p *Player) Do1(r *op.Op, args any, in ...*op.Tensor) *op.Tensor {
	return p.Do(r, args, in...)[0]
}

// accumulate adds a gradient to those of the result that e leads to
// (torch/csrc/autograd/input_buffer.cpp). The first one moves in; of a further
// one a sum is formed, in place only if nothing else refers to the first gradient
// or to its storage. What is returned is the caller's to drop: a gradient that
// was added lives until all that its node computed have been handed on.
func (p *Player) accumulate(e edge, t *op.Tensor) *op.Tensor {
	if len(e.fn.grads) == 0 {
		e.fn.grads = p.tensors.Zeroed(e.fn.grads, len(e.fn.outM))
	}
	if t == nil {
		return nil
	}
	sum := &e.fn.grads[e.nr]
	if *sum == nil {
		*sum = t
		return nil
	}
	old := Of(*sum)
	p.Op = p.names.op("add")
	outer := p.Push()
	p.stream = e.fn.stream
	wrapped := old.Wrapped || Of(t).Wrapped || e.fn.leaf != nil && e.fn.leaf.Wrapped || e.fn.wraps
	if !wrapped && !p.env.GradMode && old.refs == 1 && old.st.refs == 1 && old.IsDense() {
		p.Drop(p.Do1(aten.AddInPlace, &aten.AddArgs{}, *sum, t))
	} else {
		*sum = p.Do1(aten.Add, &aten.AddArgs{}, *sum, t)
		p.Drop(&old.Tensor)
	}
	p.Pop(outer)
	return t
}

// accumulateGrad adds what came to an AccumulateGrad node to its leaf's .grad, taking over
// the reference to it (torch/csrc/autograd/functions/accumulate_grad.h). The first gradient is
// stolen if nothing else refers to it and its strides are the leaf's.
func (p *Player) accumulateGrad(n *Node) {
	leaf, g := n.leaf, n.grads[0]
	if g == nil {
		n.accumulated()
		return
	}
	o := Of(g)
	switch {
	case leaf.Grad != nil:
		p.Drop(p.Do1(aten.AddInPlace, &aten.AddArgs{}, &leaf.Grad.Tensor, g))
	case o.refs == 1 && obeysLayout(o, leaf):
		leaf.Grad = Of(p.Alias(g, g.Layout, g.DType))
	default:
		l := leaf.Layout
		if l.IsDense() {
			l = tensor.Layout{Size: l.Size, Stride: l.Stride}
		} else {
			l = tensor.Contiguous(l.Size)
		}
		p.Op = p.names.op("clone")
		p.On(o.st.host, false, func() { leaf.Grad = Of(p.New(l, g.DType)) })
		p.CopyTo(&leaf.Grad.Tensor, g)
	}
	p.Mark(&leaf.Grad.Tensor, trace.Gradients)
	if leaf.Ready != nil {
		leaf.Ready(leaf)
	}
	n.accumulated()
	p.Drop(g)
}

// accumulated runs the post hooks of an AccumulateGrad node.
func (n *Node) accumulated() {
	if n.leaf.Reduce != nil {
		n.leaf.Reduce(n.leaf)
	}
	if n.posthook != nil {
		n.posthook()
	}
}

// obeysLayout is the gradient layout contract: a stolen gradient must have
// the strides of a dense leaf, or be contiguous.
func obeysLayout(g, leaf *Object) bool {
	if !leaf.IsDense() {
		return g.IsContiguous()
	}
	for i := range g.Rank() {
		if g.Dim(i) != 1 {
			if g.Stride.At(i) != leaf.Stride.At(i) {
				return false
			}
		} else if g.Stride.At(i) == 0 {
			return false
		}
	}
	return true
}

// readyQueue is a binary heap of ready nodes, the most recent on top. It moves
// its elements as libstdc++'s push_heap and pop_heap do, because the order of
// equals (AccumulateGrad nodes) follows from that.
type readyQueue []readyNode

// readyNode is a node all of whose gradients are there, with the depth of its
// backward pass. Those of inner passes go first.
type readyNode struct {
	*Node
	depth int
}

func before(a, b readyNode) bool {
	return a.depth < b.depth || (a.depth == b.depth && a.seq < b.seq)
}

func (q *readyQueue) push(n readyNode) {
	*q = append(*q, n)
	h := *q
	h.siftUp(len(h)-1, 0, n)
}

// siftUp puts n at hole or above it, not above top.
func (q readyQueue) siftUp(hole, top int, n readyNode) {
	for parent := (hole - 1) / 2; hole > top && before(q[parent], n); parent = (hole - 1) / 2 {
		q[hole] = q[parent]
		hole = parent
	}
	q[hole] = n
}

func (q *readyQueue) pop() *Node {
	h := *q
	result := h[0]
	last := len(h) - 1
	n := h[last]
	h = h[:last]
	if last > 0 {
		hole, child := 0, 0
		for child < (last-1)/2 {
			child = 2 * (child + 1)
			if before(h[child], h[child-1]) {
				child--
			}
			h[hole] = h[child]
			hole = child
		}
		if last&1 == 0 && child == (last-2)/2 {
			child = 2*child + 1
			h[hole] = h[child]
			hole = child
		}
		h.siftUp(hole, 0, n)
	}
	*q = h
	return result.Node
}
